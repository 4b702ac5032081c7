"""The newest rate limits that each upstream reported for each API key."""

from streamgauge.core.record import RateLimit, Record
from streamgauge.metrics.rate_limits import KEEP_S, MAX_KEEP_S, responded_s

# Pairs of upstream and API key that are kept; the oldest goes.
MAX_PAIRS = 50

Pair = tuple[str | None, str | None]


class Headroom:
    """As the gauges of `metrics/rate_limits.py`: an older response changes nothing, and an old value expires."""

    def __init__(self) -> None:
        self._limits: dict[Pair, tuple[float, float, RateLimit]] = {}

    def add(self, record: Record, now_s: float) -> None:
        """Takes the limits of a finished stream. `now_s`: monotonic."""
        limit = record.rate_limit
        if limit is None:
            return
        pair, responded = (record.upstream, record.credential_id), responded_s(record)
        known = self._limits.pop(pair, None)
        if known is not None and known[0] > responded:
            self._limits[pair] = known
            return
        reset_s = max(limit.requests_reset_s or 0.0, limit.tokens_reset_s or 0.0)
        self._limits[pair] = responded, now_s + min(max(reset_s, KEEP_S), MAX_KEEP_S), limit
        if len(self._limits) > MAX_PAIRS:
            del self._limits[next(iter(self._limits))]

    def limits(self, now_s: float) -> list[tuple[Pair, RateLimit]]:
        """The limits that are not expired."""
        return [(pair, limit) for pair, (_, expires_s, limit) in self._limits.items() if expires_s > now_s]
