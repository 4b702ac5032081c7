"""When things came: first times, gaps between token events, stalls, bursts. Nanoseconds inside, seconds outside.

A gap lies between successive token events (all choices together): it is an inter-chunk latency, since an event may hold
many tokens. Percentiles are nearest-rank: exact up to EXACT_GAPS gaps, beyond that the upper bound of their bucket.
"""

import bisect
import math
from collections.abc import Sequence
from operator import sub
from typing import cast

import msgspec

from streamgauge.core.record import Gaps

# Upper bounds of the gap buckets, seconds; the metric's own. Dense where providers pace (10 to 100 ms).
GAP_BOUNDS_S: tuple[float, ...] = (
    0.001, 0.0025, 0.005, 0.01, 0.015, 0.02, 0.03, 0.04, 0.05, 0.075, 0.1, 0.15, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0,
)  # fmt: skip
_BOUNDS_NS = [round(bound * 1e9) for bound in GAP_BOUNDS_S]

# Gaps that are kept one by one, for exact percentiles of short streams: 64 of them are about 300 bytes of state.
EXACT_GAPS = 64

# A gap longer than this is a stall, unless the settings say otherwise (seconds).
STALL_SECONDS = 5.0

# Fewer token events cannot tell a burst from a short answer; 90 % in two reads is what a buffering proxy leaves.
BURST_MIN_EVENTS = 5
BURST_SHARE = 0.9


class TimingState(msgspec.Struct, array_like=True, gc=False):
    """Times of one open stream, nanoseconds since the request began; None until seen or without stamps."""

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

    def read(self, stamp: int | None) -> None:
        """A read with body bytes arrived at `stamp`."""
        self._close_read()
        if stamp is None:
            return
        if self.first_byte is None:
            self.first_byte = stamp
        if self.last_read is not None:
            self.wire_max_gap = max(self.wire_max_gap or 0, stamp - self.last_read)
        self.last_read = stamp

    def _close_read(self) -> None:
        one, two = self.top_reads
        if self.read_tokens > two:
            self.top_reads = (max(one, self.read_tokens), min(one, self.read_tokens))
        self.read_tokens = 0

    def token(self, stamp: int | None, stall_ns: int) -> None:
        """A token event arrived."""
        self.token_events += 1
        self.read_tokens += 1
        if stamp is None:
            return
        if self.last_token is not None:
            self._gap(stamp - self.last_token, stall_ns)
        self.last_token = stamp

    def tokens(self, stamps: Sequence[int | None], events: Sequence[int] | None, stall_ns: int) -> None:
        """Reads with body bytes arrived at `stamps`, each with so many token events, one at least (None: with one)."""
        if self.last_read is None or self.last_token is None or None in stamps:
            for stamp, count in zip(stamps, events or [1] * len(stamps), strict=True):
                self.read(stamp)
                for _ in range(count):
                    self.token(stamp, stall_ns)
            return
        known = cast("Sequence[int]", stamps)
        between = list(map(sub, known, (self.last_read, *known)))
        self.wire_max_gap = max(self.wire_max_gap or 0, *between)
        between[0] = known[0] - self.last_token
        self.last_read = self.last_token = known[-1]
        self._close_reads(events or (1, 1, 1)[: len(known)])
        if events is None:
            self.token_events += len(known)
        else:
            self.token_events += sum(events)
            between = [gap for first, count in zip(between, events, strict=True) for gap in (first, *[0] * (count - 1))]
        self._gaps(between, stall_ns)

    def _close_reads(self, tokens: Sequence[int]) -> None:
        """Reads with so many token events each: all but the last are over."""
        closed = (self.read_tokens, *tokens[:-1])
        one, two = self.top_reads
        if max(closed) > two:
            one, two = sorted((one, two, *closed), reverse=True)[:2]
            self.top_reads = (one, two)
        self.read_tokens = tokens[-1]

    def _gaps(self, gaps: list[int], stall_ns: int) -> None:
        """The same as `_gap` for each of them."""
        self.gap_count += len(gaps)
        if self.gap_count <= EXACT_GAPS:
            self.exact = [*self.exact, *gaps]
        elif self.exact:
            self.exact = []
        self.gap_sum += sum(gaps)
        gaps.sort()
        self.gap_max = max(self.gap_max, gaps[-1])
        if gaps[-1] > stall_ns:
            self.stalls += len(gaps) - bisect.bisect_right(gaps, stall_ns)
        at, bucket = 0, bisect.bisect_left(_BOUNDS_NS, gaps[0])
        while at < len(gaps):
            last = bucket == len(_BOUNDS_NS) or gaps[-1] <= _BOUNDS_NS[bucket]
            end = len(gaps) if last else bisect.bisect_right(gaps, _BOUNDS_NS[bucket], at)
            if end > at:
                self.buckets[bucket] = self.buckets.get(bucket, 0) + end - at
            at, bucket = end, bucket + 1

    def _gap(self, gap: int, stall_ns: int) -> None:
        self.gap_count += 1
        if self.gap_count <= EXACT_GAPS:
            self.exact.append(gap)
        elif self.exact:
            self.exact = []  # nobody asks for them any more
        bucket = bisect.bisect_left(_BOUNDS_NS, gap)
        self.buckets[bucket] = self.buckets.get(bucket, 0) + 1
        self.gap_sum += gap
        self.gap_max = max(self.gap_max, gap)
        self.stalls += gap > stall_ns


def seconds(nanoseconds: int | None) -> float | None:
    """Nanoseconds as seconds, rounded to 1 us."""
    return None if nanoseconds is None else (nanoseconds + 500) // 1000 / 1e6


def is_burst(state: TimingState) -> bool | None:
    """Nearly all token events came in one or two reads; None without stamps."""
    if state.first_byte is None:
        return None
    reads = sorted((*state.top_reads, state.read_tokens))[-2:]
    return state.token_events >= BURST_MIN_EVENTS and sum(reads) >= BURST_SHARE * state.token_events


def gaps_of(state: TimingState) -> Gaps:
    """The gaps as the record prints them; `count` alone where no stamps were recorded."""
    count = max(0, state.token_events - 1)
    measured = sum(state.buckets.values())
    if state.first_byte is None or (count and not measured):
        return Gaps(count)
    if not measured:
        return Gaps(count, stalls=0, buckets=_cumulative(state.buckets))
    return Gaps(
        count,
        mean_s=seconds(state.gap_sum // measured),
        p50_s=_percentile(state, measured, 0.50),
        p95_s=_percentile(state, measured, 0.95),
        p99_s=_percentile(state, measured, 0.99),
        max_s=seconds(state.gap_max),
        stalls=state.stalls,
        buckets=_cumulative(state.buckets),
    )


def _percentile(state: TimingState, count: int, share: float) -> float | None:
    rank = math.ceil(share * count)
    if count <= EXACT_GAPS:
        return seconds(sorted(state.exact)[rank - 1])
    for bound, cumulative in _cumulative(state.buckets):
        if bound is not None and cumulative >= rank:
            return bound
    return seconds(state.gap_max)


def _cumulative(buckets: dict[int, int]) -> list[tuple[float | None, int]]:
    total, rows = 0, []
    for position, bound in enumerate((*GAP_BOUNDS_S, None)):
        total += buckets.get(position, 0)
        rows.append((bound, total))
    return rows
