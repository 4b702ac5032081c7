"""First times, gaps and bursts, compared with a plain calculation."""

import math

import msgspec
from hypothesis import given
from hypothesis import strategies as st

from streamgauge.core.assembly.timing import (
    ARRIVAL_NS,
    BURST_MIN_EVENTS,
    EXACT_GAPS,
    GAP_BOUNDS_S,
    TimingState,
    gaps_of,
    is_burst,
    seconds,
)

STALL_NS = 5_000_000_000
MS = 1_000_000


def state_of(reads: list[tuple[int | None, int]]) -> TimingState:
    """Reads as (stamp, token events in it)."""
    state = TimingState()
    for stamp, tokens in reads:
        add_read(state, stamp, tokens)
    return state


def add_read(state: TimingState, stamp: int | None, tokens: int) -> None:
    state.read(stamp)
    for _ in range(tokens):
        gaps: list[int] = []
        state.token(stamp, gaps)
        state.add_gaps(gaps, STALL_NS)


def test_seconds_are_rounded_to_a_microsecond() -> None:
    assert seconds(1_234_567_499) == 1.234567
    assert seconds(1_234_567_500) == 1.234568
    assert seconds(0) == 0.0
    assert seconds(None) is None


def test_several_events_in_one_read_have_gaps_of_zero() -> None:
    gaps = gaps_of(state_of([(0, 0), (1_000_000, 3), (5_000_000, 1)]))
    assert (gaps.count, gaps.p50_s, gaps.max_s) == (3, 0.0, 0.004)


def test_a_stall_is_counted_and_seen_on_the_wire() -> None:
    state = state_of([(0, 1), (STALL_NS, 1), (2 * STALL_NS + 1, 1)])
    assert gaps_of(state).stalls == 1
    assert state.wire_max_gap == STALL_NS + 1


def test_without_stamps_only_the_count_is_known() -> None:
    state = state_of([(None, 2), (None, 3)])
    gaps = gaps_of(state)
    assert (gaps.count, gaps.mean_s, gaps.p99_s, gaps.stalls, gaps.buckets) == (4, None, None, None, None)
    assert is_burst(state) is None


def test_without_gaps_there_is_no_percentile_but_buckets_are_known_to_be_empty() -> None:
    for tokens in (0, 1):
        gaps = gaps_of(state_of([(0, tokens)]))
        assert (gaps.count, gaps.mean_s, gaps.max_s, gaps.stalls) == (0, None, None, 0)
        assert gaps.buckets is not None
        assert gaps.buckets[-1] == (None, 0)


def test_a_burst_is_nearly_all_tokens_in_two_arrivals() -> None:
    assert is_burst(state_of([(0, 5), (10 * MS, 4), (20 * MS, 1)])) is True
    assert is_burst(state_of([(0, 4), (10 * MS, 4), (20 * MS, 2)])) is False
    assert is_burst(state_of([(0, BURST_MIN_EVENTS - 1)])) is False
    assert is_burst(state_of([(0, BURST_MIN_EVENTS)])) is True
    assert is_burst(state_of([(0, 0)])) is False


def test_reads_that_follow_each_other_at_once_are_one_arrival() -> None:
    assert is_burst(state_of([(place * (ARRIVAL_NS - 1), 1) for place in range(40)])) is True
    assert is_burst(state_of([(place * ARRIVAL_NS, 1) for place in range(40)])) is False
    two = [(0, 3), (1, 3), (2, 3), (ARRIVAL_NS + 2, 3), (ARRIVAL_NS + 3, 3)]
    assert is_burst(state_of([*two, (2 * ARRIVAL_NS + 3, 1)])) is True
    assert is_burst(state_of([*two, (2 * ARRIVAL_NS + 3, 1), (2 * ARRIVAL_NS + 4, 1)])) is False


@given(st.lists(st.tuples(st.integers(0, 3 * ARRIVAL_NS), st.integers(1, 9)), min_size=1, max_size=30), st.data())
def test_a_burst_does_not_depend_on_how_its_reads_were_split(steps: list[tuple[int, int]], data: st.DataObject) -> None:
    reads: list[tuple[int | None, int]] = []
    pieces: list[tuple[int | None, int]] = []
    clock = 0
    for step, count in steps:
        clock += step
        reads.append((clock, count))
        first = data.draw(st.integers(0, count))
        pieces += [(clock, first), (clock, count - first)]
    assert is_burst(state_of(pieces)) == is_burst(state_of(reads))


@given(st.lists(st.integers(0, 40_000_000_000), min_size=1, max_size=EXACT_GAPS))
def test_short_streams_have_exact_nearest_rank_percentiles(steps: list[int]) -> None:
    stamps = [0]
    for step in steps:
        stamps.append(stamps[-1] + step)
    gaps = gaps_of(state_of([(stamp, 1) for stamp in stamps]))
    ordered = sorted(steps)
    for quantile, share in ((gaps.p50_s, 0.5), (gaps.p95_s, 0.95), (gaps.p99_s, 0.99)):
        assert quantile == seconds(ordered[math.ceil(share * len(ordered)) - 1])
    assert gaps.max_s == seconds(ordered[-1])
    assert gaps.stalls == sum(step > STALL_NS for step in steps)


@given(st.lists(st.integers(0, 90_000_000_000), min_size=EXACT_GAPS + 1, max_size=200))
def test_long_streams_have_the_bound_of_the_bucket(steps: list[int]) -> None:
    stamps = [0]
    for step in steps:
        stamps.append(stamps[-1] + step)
    gaps = gaps_of(state_of([(stamp, 1) for stamp in stamps]))
    exact = sorted(steps)[math.ceil(0.95 * len(steps)) - 1] / 1e9
    bounds = [bound for bound in GAP_BOUNDS_S if bound >= exact - 1e-12]
    assert gaps.p95_s == (bounds[0] if bounds else gaps.max_s)
    assert gaps.buckets is not None
    for bound, cumulative in gaps.buckets:
        assert cumulative == sum(bound is None or step <= round(bound * 1e9) for step in steps)


def test_the_state_counts_gaps_above_the_last_bound_apart() -> None:
    """So a program that knows 30 s as the last bound reads the state of this one, and this one reads its state."""
    state = state_of([(0, 1), (20_000 * MS, 1), (60_000 * MS, 1), (120_001 * MS, 1)])
    rows = dict(gaps_of(state).buckets or [])
    assert [rows[bound] for bound in (10.0, 30.0, 60.0, None)] == [0, 1, 2, 3]
    assert (sum(state.buckets.values()), max(state.buckets)) == (3, GAP_BOUNDS_S.index(30.0) + 1)
    fields = msgspec.msgpack.decode(msgspec.msgpack.encode(state))
    older = msgspec.msgpack.decode(msgspec.msgpack.encode(fields[:-1]), type=TimingState)
    assert dict(gaps_of(older).buckets or [])[None] == 3


_STEPS = st.lists(st.tuples(st.integers(-MS, 8_000 * MS), st.integers(1, 9)), min_size=1, max_size=30)


@given(st.lists(st.tuples(_STEPS, st.booleans(), st.booleans()), min_size=1, max_size=8))
def test_many_reads_at_once_are_the_same_as_one_by_one(runs: list[tuple[list[tuple[int, int]], bool, bool]]) -> None:
    """Runs of reads: steps between stamps with token events; one event a read or several, with and without stamps."""
    single, many, clock = TimingState(), TimingState(), 0
    for steps, one_each, stamped in runs:
        stamps: list[int | None] = []
        for step, _ in steps:
            clock += step
            stamps.append(clock if stamped else None)
        events = [1 if one_each else count for _, count in steps]
        many.tokens(stamps, None if one_each else events, STALL_NS)
        for stamp, count in zip(stamps, events, strict=True):
            add_read(single, stamp, count)
        assert many == single
        single.read(clock)
        many.read(clock)
