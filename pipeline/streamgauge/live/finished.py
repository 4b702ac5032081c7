"""The page's memory of finished streams: the last hour by minute, its worst streams, and the newest rate limits.

Latencies and tokens of a minute follow the rules of the metrics (`metrics/observe.py`): no latency of a resumed stream or an
incomplete capture, no gaps of a burst, and of a resumed stream only the tokens that its origin has not added.

The worst streams have the slowest first tokens or the longest gaps, or are the newest that broke. Each period of ten
minutes has its own worst ten. So the ten worst of the hour are exact, however old the others become.
"""

import bisect
import heapq
from collections import Counter, defaultdict, deque
from collections.abc import Iterator, Sequence
from typing import NamedTuple

from streamgauge.core.assembly.timing import GAP_BOUNDS_S
from streamgauge.core.record import RateLimit, Record
from streamgauge.core.resumption import is_resumed
from streamgauge.core.token_kinds import reported_tokens, token_kinds
from streamgauge.live.answers import Heatmap, Hour, UpstreamOutcomes
from streamgauge.live.reads import Track
from streamgauge.live.stored import FINE
from streamgauge.metrics.declarations import UNKNOWN
from streamgauge.metrics.observe import StreamCost
from streamgauge.metrics.rate_limits import KEEP_S, MAX_KEEP_S, responded_s
from streamgauge.metrics.resumed_usage import ResumedUsage, added_by_kind
from streamgauge.metrics.table import FIRST_TOKEN

# How many minutes are kept: the present one, and the hour before it.
MINUTES = 61
# Upstreams that have a name of their own; the others are `other`.
MAX_UPSTREAMS = 20
OTHER = "other"


class Minute:
    """The streams that ended in one minute; `start`: seconds since 1970. `own`: this process finished them itself."""

    def __init__(self, start: int, *, own: bool = True) -> None:
        self.start = start
        self.own = own
        self.first_tokens = [0] * (len(FIRST_TOKEN.bounds) + 1)
        self.gaps = [0] * (len(GAP_BOUNDS_S) + 1)
        self.outcomes: Counter[tuple[str | None, str]] = Counter()
        self.tokens: Counter[str] = Counter()
        self.cost_usd: defaultdict[str | None, float] = defaultdict(float)
        self.streams = self.with_usage = self.priced = self.unpriced = 0

    def plus(self, other: "Minute") -> "Minute":
        """The sum of two parts of the same minute."""
        both = Minute(self.start, own=self.own and other.own)
        for part in (self, other):
            both.first_tokens = [one + more for one, more in zip(both.first_tokens, part.first_tokens, strict=True)]
            both.gaps = [one + more for one, more in zip(both.gaps, part.gaps, strict=True)]
            both.outcomes.update(part.outcomes)
            both.tokens.update(part.tokens)
            for upstream, usd in part.cost_usd.items():
                both.cost_usd[upstream] += usd
            both.streams += part.streams
            both.with_usage += part.with_usage
            both.priced += part.priced
            both.unpriced += part.unpriced
        return both


class History:
    """Counts finished streams by the minute of `wall_s`, seconds since 1970, at which each was finished here."""

    def __init__(self) -> None:
        self._minutes: deque[Minute] = deque(maxlen=MINUTES + 1)  # the minute of the start is in two parts
        self._upstreams: set[str] = set()  # those with a name of their own in the last hour
        self._resumed_usage = ResumedUsage()

    def add(self, record: Record, cost: StreamCost | None, wall_s: float, *, own: bool = True) -> None:
        """Counts a stream. `cost`: what it adds to the cost, if that is known. `own`: as in `Minute`."""
        minute = self._minute(wall_s, own)
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
            for bucket, (_, total) in enumerate(rows):
                if total != before:
                    minute.gaps[bucket] += total - before
                    before = total

    def minutes(self, wall_s: float, *, own: bool = False) -> list[Minute]:
        """The minutes of the last hour in which streams ended, oldest first. `own`: without streams read from a ledger."""
        since = wall_s - 60 * MINUTES
        minutes: list[Minute] = []
        for minute in self._minutes:
            if minute.start <= since or (own and not minute.own):
                continue
            if minutes and minutes[-1].start == minute.start:
                minutes[-1] = minutes[-1].plus(minute)
            else:
                minutes.append(minute)
        return minutes

    def _minute(self, wall_s: float, own: bool) -> Minute:
        start = int(wall_s) // 60 * 60
        if not self._minutes or self._minutes[-1].start < start or self._minutes[-1].own != own:
            if self._minutes:
                start = max(start, self._minutes[-1].start)
            self._minutes.append(Minute(start, own=own))
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
        for name, outcomes in sorted(upstreams.items(), key=lambda item: str(item[0]))
    ]


PERIOD_S = 600.0
KEPT_S = 3_600.0
WORST = 10
RECENT = 20
CATEGORIES = ("first_token", "gap", "broken")


class FinishedStream(NamedTuple):
    """A finished stream on the page. `ended_s`: when it was finished here (monotonic seconds)."""

    record: Record
    track: Track | None
    ended_s: float


class _Period:
    def __init__(self, began_s: float) -> None:
        self.began_s = began_s
        # Heaps of value, number, stream: the number decides between equal values, so that records are not compared.
        self.heaps: dict[str, list[tuple[float, int, FinishedStream]]] = {category: [] for category in CATEGORIES}


class WorstStreams:
    """Takes finished streams in the order in which they end."""

    def __init__(self) -> None:
        self._periods: deque[_Period] = deque()
        self._recent: deque[FinishedStream] = deque(maxlen=RECENT)
        self._added = 0

    def add(self, record: Record, track: Track | None, now_s: float) -> None:
        """Keeps a stream if it is among the worst of its period. `now_s`: monotonic."""
        if track is not None:
            track.shrink()
        stream = FinishedStream(record, track, now_s)
        self._recent.append(stream)
        self._added += 1
        if not self._periods or now_s - self._periods[-1].began_s >= PERIOD_S:
            self._periods.append(_Period(now_s))
            while self._periods[0].began_s < now_s - KEPT_S - PERIOD_S:
                self._periods.popleft()
        for category, value in _values(record, now_s):
            heap = self._periods[-1].heaps[category]
            if len(heap) < WORST:
                heapq.heappush(heap, (value, self._added, stream))
            elif value > heap[0][0]:
                heapq.heapreplace(heap, (value, self._added, stream))

    def worst(self, category: str, now_s: float) -> list[FinishedStream]:
        """The worst of the last hour, the worst first; of those that broke the newest first."""
        entries = [
            entry for period in self._periods for entry in period.heaps[category] if entry[2].ended_s > now_s - KEPT_S
        ]
        return [stream for _, _, stream in heapq.nlargest(WORST, entries)]

    def recent(self) -> list[FinishedStream]:
        """The streams that ended last, the newest first."""
        return list(reversed(self._recent))

    def kept(self) -> list[FinishedStream]:
        """All streams that are kept, each once."""
        return list({stream.record.stream_id: stream for stream in self._all()}.values())

    def find(self, stream_id: str) -> FinishedStream | None:
        """A stream that is kept, by its id."""
        return next((stream for stream in self._all() if stream.record.stream_id == stream_id), None)

    def _all(self) -> Iterator[FinishedStream]:
        yield from self._recent
        for period in self._periods:
            for heap in period.heaps.values():
                yield from (stream for _, _, stream in heap)


def _values(record: Record, now_s: float) -> Iterator[tuple[str, float]]:
    if record.outcome not in FINE:
        yield "broken", now_s
    if not is_measured(record):
        return
    if record.timing.first_token_s is not None:
        yield "first_token", record.timing.first_token_s
    if record.timing.gaps.max_s is not None and not record.timing.burst:
        yield "gap", record.timing.gaps.max_s


# Pairs of upstream and API key that are kept; the oldest goes.
MAX_PAIRS = 50

Pair = tuple[str | None, str | None]


class Headroom:
    """The newest rate limits, as in `metrics/rate_limits.py`: an older response changes nothing, and old values expire."""

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
