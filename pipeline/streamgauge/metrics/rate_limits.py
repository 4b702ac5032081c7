"""The providers' rate limits as gauges, from the newest response of each upstream and API key.

Records come in the order in which streams end, so a record may be older than the one before it. A value that no newer
response confirms expires: a limit that is whole again must not look used up.
"""

from collections.abc import Callable, Iterator, Mapping
from datetime import datetime
from typing import NamedTuple

from streamgauge.core.record import RateLimit, Record
from streamgauge.metrics.budgets import Key
from streamgauge.metrics.declarations import Metric
from streamgauge.metrics.series import Family
from streamgauge.metrics.table import RATE_LIMIT_LIMIT, RATE_LIMIT_REMAINING, RATE_LIMIT_RESET

# How long a value stays without a newer response (seconds): some scrapes at any usual interval. It stays until its reset
# if that is later, since it is true until then, but at most a day, the longest window that providers use.
KEEP_S = 300.0
MAX_KEEP_S = 86_400.0


class _Seen(NamedTuple):
    """The time of the response whose value is shown (UTC, seconds since 1970), and the expiry of that value (`clock`)."""

    responded: float
    expires: float


class RateLimitGauges:
    """Sets the gauges. `clock`: monotonic time in seconds. Not thread-safe: `prometheus.Metrics` holds the lock."""

    def __init__(self, families: Mapping[str, Family], clock: Callable[[], float]) -> None:
        self._families = families
        self._clock = clock
        self._seen: dict[tuple[str, Key], _Seen] = {}  # as bounded as the series of the families

    def observe(self, record: Record) -> None:
        """Shows the limits of a finished stream, unless limits of a newer response are shown."""
        if record.rate_limit is None:
            return
        now, responded = self._clock(), responded_s(record)
        for metric, kind, value, reset_s in _values(record.rate_limit):
            family = self._families[metric.name]
            key = family.key_of_values((record.upstream, record.credential_id, kind))
            known = self._seen.get((metric.name, key))
            if known is not None and known.responded > responded:
                continue
            kept_s = min(max(reset_s or 0.0, KEEP_S), MAX_KEEP_S)
            self._seen[metric.name, key] = _Seen(responded, now + kept_s)
            if value is None:
                family.numbers.pop(key, None)
            else:
                family.numbers[key] = value

    def remove_expired(self) -> None:
        """Removes values that are too old. Called before each scrape."""
        now = self._clock()
        for name, key in [series for series, seen in self._seen.items() if seen.expires <= now]:
            del self._seen[name, key]
            self._families[name].numbers.pop(key, None)


def _values(limit: RateLimit) -> Iterator[tuple[Metric, str, float | None, float | None]]:
    """Metric, kind, value and reset (seconds) of each number."""
    for kind, most, remaining, reset_s in (
        ("requests", limit.requests_limit, limit.requests_remaining, limit.requests_reset_s),
        ("tokens", limit.tokens_limit, limit.tokens_remaining, limit.tokens_reset_s),
    ):
        yield RATE_LIMIT_LIMIT, kind, most, reset_s
        yield RATE_LIMIT_REMAINING, kind, remaining, reset_s
        yield RATE_LIMIT_RESET, kind, reset_s, reset_s


def responded_s(record: Record) -> float:
    """The arrival time of the response's head (UTC, seconds since 1970); 0 if it is unknown."""
    if record.started_at is None:
        return 0.0
    return datetime.fromisoformat(record.started_at).timestamp() + (record.timing.headers_s or 0.0)
