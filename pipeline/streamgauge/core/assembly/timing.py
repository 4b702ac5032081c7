"""Times of a stream: first times, gaps between token events, stalls, bursts. State is in nanoseconds, records in seconds.

A gap lies between successive token events (all choices together): it is an inter-chunk latency, since an event may hold
many tokens. Percentiles are nearest-rank: exact up to EXACT_GAPS gaps, above that the upper bound of their bucket.
"""

import bisect
import math
from collections.abc import Sequence
from enum import IntEnum
from itertools import accumulate
from operator import sub
from typing import cast

import msgspec

from streamgauge.core.record import Gaps

# Upper bounds of the gap buckets (seconds), as in the metric. They are dense where providers pace (10 to 100 ms).
GAP_BOUNDS_S: tuple[float, ...] = (
    0.001, 0.0025, 0.005, 0.01, 0.015, 0.02, 0.03, 0.04, 0.05, 0.075, 0.1, 0.15, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0,
    60.0,
)  # fmt: skip
# The state counts gaps by all bounds but the last, and those above the last apart: a program without it reads it, too.
_BOUNDS_NS = [round(bound * 1e9) for bound in GAP_BOUNDS_S[:-1]]
_LAST_BOUND_NS = round(GAP_BOUNDS_S[-1] * 1e9)
_BOUNDS: tuple[float | None, ...] = (*GAP_BOUNDS_S, None)  # the last bucket has no upper bound

# Gaps that are kept one by one, for exact percentiles of short streams; 64 of them take about 300 bytes of state.
EXACT_GAPS = 64

# The percentiles that a record shows.
SHARES = (0.50, 0.95, 0.99)

# Fewer token events do not distinguish a burst from a short answer. A buffering proxy makes 90 % come in two arrivals.
BURST_MIN_EVENTS = 5
BURST_SHARE = 0.9
# Reads that follow the one before in less than this (nanoseconds) are one arrival: a proxy that collects a stream sends it
# in as many reads as its buffers fill, some microseconds apart.
ARRIVAL_NS = 5_000_000


class ReasoningForm(IntEnum):
    """The form of a stream's first reasoning: text as the model writes it, or a summary, as its event names it."""

    NONE = 0
    TEXT = 1
    SUMMARY = 2


class ReasoningSign(IntEnum):
    """Signs of reasoning beside its text: none, that the model reasons, or that a part is withheld."""

    NONE = 0
    REASONS = 1
    WITHHELD = 2


class TimingState(msgspec.Struct, array_like=True, gc=False):
    """Times of one open stream in nanoseconds since the request's first byte; None until seen, or without stamps.

    `read_tokens`: token events of the last arrival; `top_reads`: the two highest numbers of earlier arrivals.
    `reasoning_events`: token events with reasoning alone. `reasoning_form`, `reasoning_sign`: a ReasoningForm and a
    ReasoningSign.
    """

    first_byte: int | None = None
    first_event: int | None = None
    first_token: int | None = None
    first_reasoning: int | None = None
    first_content: int | None = None
    first_tool: int | None = None
    last_token: int | None = None
    finish: int | None = None
    token_events: int = 0
    exact: list[int] = []
    buckets: dict[int, int] = {}
    gap_sum: int = 0
    gap_max: int = 0
    stalls: int = 0
    last_read: int | None = None
    wire_max_gap: int | None = None
    read_tokens: int = 0
    top_reads: tuple[int, int] = (0, 0)
    gap_count: int = 0
    first_gap: int | None = None  # stamp of the last read before the first missing one; -1 if none came
    above_bounds: int = 0  # gaps above the last bound, which the last of `buckets` holds, too
    first_media: int | None = None
    reasoning_events: int = 0
    reasoning_form: int = ReasoningForm.NONE
    reasoning_sign: int = ReasoningSign.NONE

    def mark_gap(self) -> None:
        """Mark that reads are missing here. First times after it are unknown, and no gap is measured across it."""
        if self.first_gap is None:
            self.first_gap = -1 if self.last_read is None else self.last_read
        self.last_read = self.last_token = None

    def known(self, first: int | None) -> int | None:
        """A first time, if no reads are missing before it; else None."""
        return None if first is None or (self.first_gap is not None and first > self.first_gap) else first

    def read(self, stamp: int | None) -> None:
        """A read with body bytes arrived at `stamp`."""
        last = self.last_read
        if stamp is None or last is None or stamp - last >= ARRIVAL_NS:
            if self.read_tokens > self.top_reads[1]:
                self._close_arrivals((self.read_tokens,))
            self.read_tokens = 0
        if stamp is None:
            return
        self.last_read = stamp
        if last is None:
            if self.first_byte is None:
                self.first_byte = stamp
        elif self.wire_max_gap is None or stamp - last > self.wire_max_gap:
            self.wire_max_gap = max(stamp - last, 0)

    def token(self, stamp: int | None, gaps: list[int]) -> None:
        """A token event arrived at `stamp`. The gap before it is appended to `gaps`, for `add_gaps`."""
        self.token_events += 1
        self.read_tokens += 1
        if stamp is not None:
            last, self.last_token = self.last_token, stamp
            if last is not None:
                gaps.append(stamp - last)

    def tokens(self, stamps: Sequence[int | None], events: Sequence[int] | None, stall_ns: int) -> None:
        """`read` and `token` for many reads with token events: `events` of each, at least one (None: one each)."""
        last, counts = self.last_token, events or (1,) * len(stamps)
        if last is None or self.last_read is None or None in stamps:
            gaps: list[int] = []
            for stamp, count in zip(stamps, counts, strict=True):
                self.read(stamp)
                for _ in range(count):
                    self.token(stamp, gaps)
            self.add_gaps(gaps, stall_ns)
            return
        known = cast("Sequence[int]", stamps)
        pauses = list(map(sub, known, (self.last_read, *known)))
        *whole, self.read_tokens = _arrivals(self.read_tokens, counts, pauses)
        self._close_arrivals(whole)
        self.token_events += sum(counts)
        self.wire_max_gap = max(self.wire_max_gap or 0, *pauses)
        gaps = list(map(sub, known, (last, *known)))
        self.add_gaps(gaps if events is None else _with_zeros(gaps, events), stall_ns)
        self.last_read = self.last_token = known[-1]

    def _close_arrivals(self, tokens: Sequence[int]) -> None:
        """Count whole arrivals with these numbers of token events."""
        first, second = self.top_reads
        if tokens and max(tokens) > second:
            first, second = sorted((first, second, *tokens), reverse=True)[:2]
            self.top_reads = (first, second)

    def add_gaps(self, gaps: list[int], stall_ns: int) -> None:
        """Count gaps between token events; a gap above `stall_ns` is a stall."""
        if not gaps:
            return
        self.gap_count += len(gaps)
        if self.gap_count <= EXACT_GAPS:
            self.exact = sorted([*self.exact, *gaps])  # however the gaps came together, the state is the same
        elif self.exact:
            self.exact = []  # percentiles come from the buckets now
        self.gap_sum += sum(gaps)
        ordered, buckets, at = sorted(gaps), self.buckets, 0
        largest = ordered[-1]
        self.gap_max = max(self.gap_max, largest)
        if largest > stall_ns:
            self.stalls += len(ordered) - bisect.bisect_right(ordered, stall_ns)
        if largest > _LAST_BOUND_NS:
            self.above_bounds += len(ordered) - bisect.bisect_right(ordered, _LAST_BOUND_NS)
        while at < len(ordered):
            bucket = bisect.bisect_left(_BOUNDS_NS, ordered[at])
            inside = bucket == len(_BOUNDS_NS) or largest <= _BOUNDS_NS[bucket]
            end = len(ordered) if inside else bisect.bisect_right(ordered, _BOUNDS_NS[bucket], at)
            buckets[bucket] = buckets.get(bucket, 0) + end - at
            at = end


def _arrivals(open_tokens: int, counts: Sequence[int], pauses: Sequence[int]) -> list[int]:
    """The token events of each arrival: of the open one, with `open_tokens` so far, and of those that these reads begin.

    `counts`: the token events of each read. `pauses`: the time between each read and the one before (ns).
    """
    if min(pauses) >= ARRIVAL_NS:
        return [open_tokens, *counts]
    arrivals = [open_tokens]
    for count, pause in zip(counts, pauses, strict=True):
        if pause >= ARRIVAL_NS:
            arrivals.append(count)
        else:
            arrivals[-1] += count
    return arrivals


def _with_zeros(gaps: Sequence[int], events: Sequence[int]) -> list[int]:
    """The gap of each read, followed by a zero for each further event of the read."""
    return [gap for first, count in zip(gaps, events, strict=True) for gap in (first, *[0] * (count - 1))]


def seconds(nanoseconds: int | None) -> float | None:
    """Nanoseconds as seconds, rounded to 1 us."""
    return None if nanoseconds is None else (nanoseconds + 500) // 1000 / 1e6


def is_burst(state: TimingState) -> bool | None:
    """Whether nearly all token events came in one or two arrivals; None without stamps, or if reads are missing."""
    if state.first_byte is None or state.first_gap is not None:
        return None
    arrivals = sorted((*state.top_reads, state.read_tokens))[-2:]
    return state.token_events >= BURST_MIN_EVENTS and sum(arrivals) >= BURST_SHARE * state.token_events


def wire_max_gap(state: TimingState) -> int | None:
    """The longest time between two reads (ns); None if reads are missing, since it may be among them."""
    return state.wire_max_gap if state.first_gap is None else None


def gaps_of(state: TimingState) -> Gaps:
    """The gaps as the record shows them; `count` alone if there are no stamps, or if reads are missing."""
    count = max(0, state.token_events - 1)
    measured = sum(state.buckets.values())
    if state.first_byte is None or state.first_gap is not None or (count and not measured):
        return Gaps(count)
    if not measured:
        return Gaps(count, stalls=0, buckets=_cumulative(state))
    rows = _cumulative(state)
    p50, p95, p99 = _percentiles(state, measured, rows)
    mean, largest = seconds(state.gap_sum // measured), seconds(state.gap_max)
    return Gaps(count, mean, p50, p95, p99, largest, state.stalls, rows)


def _percentiles(
    state: TimingState, count: int, rows: Sequence[tuple[float | None, int]]
) -> tuple[float | None, float | None, float | None]:
    ranks = [math.ceil(share * count) for share in SHARES]
    if count <= EXACT_GAPS:
        exact = sorted(state.exact)
        p50, p95, p99 = [seconds(exact[rank - 1]) for rank in ranks]
    else:
        totals = [total for _, total in rows]
        bounds = [rows[bisect.bisect_left(totals, rank)][0] for rank in ranks]
        p50, p95, p99 = [seconds(state.gap_max) if bound is None else bound for bound in bounds]
    return p50, p95, p99


def _cumulative(state: TimingState) -> list[tuple[float | None, int]]:
    totals = [*accumulate([state.buckets.get(bucket, 0) for bucket in range(len(_BOUNDS_NS) + 1)])]
    return list(zip(_BOUNDS, [*totals[:-1], totals[-1] - state.above_bounds, totals[-1]], strict=True))
