"""The last hour of finished streams, by minute: latencies, gaps, outcomes, tokens and cost.

Latencies and tokens follow the rules of the metrics (`metrics/observe.py`): no latency of a resumed stream or an incomplete
capture, no gaps of a burst, and of a resumed stream only the tokens that its origin has not added.
"""

import bisect
from collections import Counter, defaultdict, deque

from streamgauge.core.assembly.resumption import is_resumed
from streamgauge.core.assembly.timing import GAP_BOUNDS_S
from streamgauge.core.record import Record
from streamgauge.core.token_kinds import reported_tokens, token_kinds
from streamgauge.metrics.observe import StreamCost
from streamgauge.metrics.resumed_usage import ResumedUsage, added_by_kind
from streamgauge.metrics.table import FIRST_TOKEN

# How many minutes are kept: the present one, and the hour before it.
MINUTES = 61
# Upstreams that are told apart; the others are `other`.
MAX_UPSTREAMS = 20
OTHER = "other"


class Minute:
    """The streams that ended in one minute; `start`: seconds since 1970."""

    def __init__(self, start: int) -> None:
        self.start = start
        self.first_tokens = [0] * (len(FIRST_TOKEN.bounds) + 1)
        self.gaps = [0] * (len(GAP_BOUNDS_S) + 1)
        self.outcomes: Counter[tuple[str | None, str]] = Counter()
        self.tokens: Counter[str] = Counter()
        self.cost_usd: defaultdict[str | None, float] = defaultdict(float)
        self.streams = self.with_usage = self.priced = self.unpriced = 0


class History:
    """Counts finished streams by the minute of `wall_s`, seconds since 1970, at which each was finished here."""

    def __init__(self) -> None:
        self._minutes: deque[Minute] = deque(maxlen=MINUTES)
        self._upstreams: set[str] = set()  # those with a name of their own in the last hour
        self._resumed_usage = ResumedUsage()

    def add(self, record: Record, cost: StreamCost | None, wall_s: float) -> None:
        """Counts a stream. `cost`: what it adds to the cost, if that is known."""
        minute = self._minute(wall_s)
        upstream = self._upstream(record.upstream)
        minute.streams += 1
        minute.outcomes[upstream, record.outcome] += 1
        reported = reported_tokens(record.usage)
        kinds = token_kinds(reported)
        has_usage = bool(kinds.input or kinds.output)
        minute.with_usage += has_usage
        minute.tokens.update(added_by_kind(kinds, self._resumed_usage.share_of(record, "", reported)))
        if cost is not None and cost.unknown is None:
            minute.priced += 1
            minute.cost_usd[upstream] += cost.total
        else:
            minute.unpriced += has_usage
        if not is_measured(record):
            return
        if record.timing.first_token_s is not None:
            minute.first_tokens[bisect.bisect_left(FIRST_TOKEN.bounds, record.timing.first_token_s)] += 1
        rows = record.timing.gaps.buckets
        if rows and rows[-1][1] and not record.timing.burst:
            before = 0
            for place, (_, total) in enumerate(rows):
                if total != before:
                    minute.gaps[place] += total - before
                    before = total

    def minutes(self, wall_s: float) -> list[Minute]:
        """The minutes of the last hour in which streams ended, oldest first."""
        since = wall_s - 60 * MINUTES
        return [minute for minute in self._minutes if minute.start > since]

    def _minute(self, wall_s: float) -> Minute:
        start = int(wall_s) // 60 * 60
        if not self._minutes or self._minutes[-1].start < start:
            self._minutes.append(Minute(start))
            names = {name for minute in self.minutes(wall_s) for name, _ in minute.outcomes}
            self._upstreams = {name for name in names if name not in (None, OTHER)}
        return self._minutes[-1]  # also after a step back of the wall clock

    def _upstream(self, name: str | None) -> str | None:
        if name is None or name in self._upstreams:
            return name
        if len(self._upstreams) >= MAX_UPSTREAMS:
            return OTHER
        self._upstreams.add(name)
        return name


def is_measured(record: Record) -> bool:
    """Whether the latencies of a stream count."""
    return record.integrity.complete and not is_resumed(record)
