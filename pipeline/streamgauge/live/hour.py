"""Turns the minutes of the last hour into the answer's form."""

from collections import Counter
from collections.abc import Sequence

from streamgauge.core.assembly.timing import GAP_BOUNDS_S
from streamgauge.live.answers import Heatmap, Hour, UpstreamOutcomes
from streamgauge.live.history import Minute
from streamgauge.metrics.declarations import UNKNOWN
from streamgauge.metrics.table import FIRST_TOKEN


def hour_of(minutes: Sequence[Minute], *, since: str, prices: bool = True) -> Hour:
    """The answer for these minutes, oldest first. `since`: RFC 3339; `prices`: whether the process knows any."""
    return Hour(
        since=since,
        minutes=[minute.start for minute in minutes],
        streams=sum([minute.streams for minute in minutes]),
        with_usage=sum([minute.with_usage for minute in minutes]),
        first_token=Heatmap(list(FIRST_TOKEN.bounds), [list(minute.first_tokens) for minute in minutes]),
        gaps=Heatmap(list(GAP_BOUNDS_S), [list(minute.gaps) for minute in minutes]),
        outcomes=[_by_outcome(minute) for minute in minutes],
        upstreams=_by_upstream(minutes),
        tokens=[dict(minute.tokens) for minute in minutes],
        cost_usd=[_by_upstream_name(minute) for minute in minutes] if prices else None,
        unpriced=sum([minute.unpriced for minute in minutes]) if prices else None,
        priced=sum([minute.priced for minute in minutes]) if prices else None,
    )


def _by_upstream_name(minute: Minute) -> dict[str, float]:
    return {name or UNKNOWN: usd for name, usd in minute.cost_usd.items()}


def _by_outcome(minute: Minute) -> dict[str, int]:
    outcomes: Counter[str] = Counter()
    for (_, outcome), count in minute.outcomes.items():
        outcomes[outcome] += count
    return dict(outcomes)


def _by_upstream(minutes: Sequence[Minute]) -> list[UpstreamOutcomes]:
    upstreams: dict[str | None, Counter[str]] = {}
    for minute in minutes:
        for (upstream, outcome), count in minute.outcomes.items():
            upstreams.setdefault(upstream, Counter())[outcome] += count
    return [
        UpstreamOutcomes(name, dict(outcomes))
        for name, outcomes in sorted(upstreams.items(), key=lambda one: str(one[0]))
    ]
