"""The worst streams of the last hour: the slowest first tokens, the longest gaps, the newest that broke. And the latest.

Each period of ten minutes has its own worst ten. So the ten worst of the hour are exact, however old the others become.
"""

import heapq
from collections import deque
from collections.abc import Iterator
from typing import NamedTuple

from streamgauge.core.record import Record
from streamgauge.live.history import is_measured
from streamgauge.live.reads import Track

PERIOD_S = 600.0
KEEP_S = 3_600.0
WORST = 10
RECENT = 20
# Outcomes that are no fault of the stream.
_FINE = frozenset(("completed", "client_abort"))

CATEGORIES = ("first_token", "gap", "broken")


class Finished(NamedTuple):
    """A finished stream. `ended_s`: when it was finished here (monotonic seconds)."""

    record: Record
    track: Track | None
    ended_s: float


class _Period:
    def __init__(self, began_s: float) -> None:
        self.began_s = began_s
        # Heaps of value, number, stream: the number decides between equal values, so that records are not compared.
        self.heaps: dict[str, list[tuple[float, int, Finished]]] = {category: [] for category in CATEGORIES}


class WorstStreams:
    """Takes finished streams in the order in which they end."""

    def __init__(self) -> None:
        self._periods: deque[_Period] = deque()
        self._recent: deque[Finished] = deque(maxlen=RECENT)
        self._added = 0

    def add(self, record: Record, track: Track | None, now_s: float) -> None:
        """Keeps a stream if it is among the worst of its period. `now_s`: monotonic."""
        if track is not None:
            track.shrink()
        stream = Finished(record, track, now_s)
        self._recent.append(stream)
        self._added += 1
        if not self._periods or now_s - self._periods[-1].began_s >= PERIOD_S:
            self._periods.append(_Period(now_s))
            while self._periods[0].began_s < now_s - KEEP_S - PERIOD_S:
                self._periods.popleft()
        for category, value in _values(record, now_s):
            heap = self._periods[-1].heaps[category]
            if len(heap) < WORST:
                heapq.heappush(heap, (value, self._added, stream))
            elif value > heap[0][0]:
                heapq.heapreplace(heap, (value, self._added, stream))

    def worst(self, category: str, now_s: float) -> list[Finished]:
        """The worst of the last hour, the worst first; of those that broke the newest first."""
        found = [
            entry for period in self._periods for entry in period.heaps[category] if entry[2].ended_s > now_s - KEEP_S
        ]
        return [stream for _, _, stream in heapq.nlargest(WORST, found)]

    def recent(self) -> list[Finished]:
        """The streams that ended last, the newest first."""
        return list(reversed(self._recent))

    def find(self, stream_id: str) -> Finished | None:
        """A stream that is kept, by its id."""
        return next((stream for stream in self._all() if stream.record.stream_id == stream_id), None)

    def _all(self) -> Iterator[Finished]:
        yield from self._recent
        for period in self._periods:
            for heap in period.heaps.values():
                yield from (stream for _, _, stream in heap)


def _values(record: Record, now_s: float) -> Iterator[tuple[str, float]]:
    if record.outcome not in _FINE:
        yield "broken", now_s
    if not is_measured(record):
        return
    if record.timing.first_token_s is not None:
        yield "first_token", record.timing.first_token_s
    if record.timing.gaps.max_s is not None and not record.timing.burst:
        yield "gap", record.timing.gaps.max_s
