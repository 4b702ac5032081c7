"""Numbers of finished streams: percentiles, and the summary of the minutes that a process has counted itself."""

from collections import Counter
from collections.abc import Sequence

from streamgauge.live.answers import Group, Latency, Numbers, Summary
from streamgauge.live.finished import Minute
from streamgauge.live.stored import FINE
from streamgauge.metrics.table import FIRST_TOKEN


def latency_of(times_s: list[float]) -> Latency | None:
    """The percentiles of times (seconds), by nearest rank; None without a time. Sorts the list."""
    if not times_s:
        return None
    times_s.sort()
    return Latency(_nearest(times_s, 50), _nearest(times_s, 95), len(times_s))


def _nearest(ordered: Sequence[float], percent: int) -> float:
    return ordered[-(-len(ordered) * percent // 100) - 1]


def _latency_in(bounds: Sequence[float], counts: Sequence[int]) -> Latency | None:
    """The percentiles of counted times, interpolated in their buckets as Prometheus's histogram_quantile does it.

    A percentile above the last bound is that bound.
    """
    total = sum(counts)
    if not total:
        return None
    return Latency(_interpolated(bounds, counts, 0.5 * total), _interpolated(bounds, counts, 0.95 * total), total)


def _interpolated(bounds: Sequence[float], counts: Sequence[int], rank: float) -> float:
    below = 0
    for bucket, number in enumerate(counts[:-1]):
        if number and below + number >= rank:
            low = bounds[bucket - 1] if bucket else 0.0
            return low + (bounds[bucket] - low) * (rank - below) / number
        below += number
    return bounds[-1]


def summary_of(minutes: Sequence[Minute], *, now: str, since: str, prices: bool) -> Summary:
    """The summary of counted minutes. Times are RFC 3339; `prices`: whether the process knows any."""
    first_tokens = [sum(bucket) for bucket in zip(*(minute.first_tokens for minute in minutes), strict=True)]
    upstreams: dict[str | None, Counter[str]] = {}
    broken = [0] * len(minutes)
    for at, minute in enumerate(minutes):
        for (upstream, outcome), count in minute.outcomes.items():
            upstreams.setdefault(upstream, Counter())[outcome] += count
            broken[at] += 0 if outcome in FINE else count
    hour = _counted(sum(upstreams.values(), Counter()))
    hour.first_token = _latency_in(FIRST_TOKEN.bounds, first_tokens)
    if prices:
        hour.cost_usd = sum(sum(minute.cost_usd.values()) for minute in minutes)
        hour.priced = sum(minute.priced for minute in minutes)
        hour.unpriced = sum(minute.unpriced for minute in minutes)
    groups = [Group(name, _counted(outcomes)) for name, outcomes in upstreams.items()]
    return Summary(
        source="process",
        ledger=None,
        now=now,
        since=since,
        hour=hour,
        yesterday=None,
        minutes=[minute.start for minute in minutes],
        streams=[minute.streams for minute in minutes],
        broken=broken,
        upstreams=sorted(groups, key=lambda group: -group.numbers.streams),
        models=None,
        tenants=None,
        not_shown={},
    )


def _counted(outcomes: Counter[str]) -> Numbers:
    return Numbers(
        streams=outcomes.total(),
        outcomes=dict(outcomes),
        first_token=None,
        first_text=None,
        per_token=None,
        input_tokens=None,
        output_tokens=None,
        cost_usd=None,
        priced=None,
        unpriced=None,
    )
