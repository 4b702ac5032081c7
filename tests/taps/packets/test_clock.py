"""Wall-clock stamps become monotonic ones, however the wall clock is set."""

from hypothesis import given
from hypothesis import strategies as st

from streamgauge.taps.packets.clock import StampClock

HOUR = 3_600_000_000_000
WALL, MONOTONIC = 1_700_000_000_000_000_000, 5_000_000_000


def test_a_stamp_becomes_the_same_moment_of_the_monotonic_clock() -> None:
    clock = StampClock(WALL, MONOTONIC)
    clock.update(WALL + 100, MONOTONIC + 100)
    assert clock.monotonic(WALL + 40) == MONOTONIC + 40
    assert clock.monotonic(WALL + 100) == MONOTONIC + 100


def test_stamps_of_one_batch_may_lie_before_and_after_a_step() -> None:
    for step in (HOUR, -HOUR):
        clock = StampClock(WALL, MONOTONIC)
        clock.update(WALL + 10, MONOTONIC + 10)
        assert clock.monotonic(WALL + 10) == MONOTONIC + 10
        clock.update(WALL + step + 100, MONOTONIC + 100)
        stamps = [WALL + 20, WALL + 30, WALL + step + 40, WALL + step + 90]
        assert [clock.monotonic(stamp) - MONOTONIC for stamp in stamps] == [20, 30, 40, 90]
        clock.update(WALL + step + 200, MONOTONIC + 200)
        assert clock.monotonic(WALL + step + 150) == MONOTONIC + 150
        assert clock.offset_ns == WALL + step - MONOTONIC


def test_impossible_stamps_are_brought_into_order() -> None:
    clock = StampClock(WALL, MONOTONIC)
    clock.update(WALL + 100, MONOTONIC + 100)
    assert clock.monotonic(WALL + 50) == MONOTONIC + 50
    assert clock.monotonic(WALL + 40) == MONOTONIC + 50
    assert clock.monotonic(WALL + HOUR) == MONOTONIC + 100


def test_clock_readings_that_differ_slightly_are_no_step() -> None:
    clock = StampClock(WALL, MONOTONIC)
    clock.update(WALL + 1_000_000, MONOTONIC)
    assert clock.offset_ns == WALL - MONOTONIC


@given(
    steps=st.lists(
        st.tuples(
            st.integers(0, HOUR),
            st.sampled_from([0, 0, 0, HOUR, -HOUR, 60_000_000, -7]),
            st.lists(st.integers(0, HOUR)),
        )
    )
)
def test_moments_are_never_decreasing_and_never_in_the_future(steps: list[tuple[int, int, list[int]]]) -> None:
    clock, wall, now, last = StampClock(WALL, MONOTONIC), WALL, MONOTONIC, 0
    for passed, step, ages in steps:
        now, wall = now + passed, wall + passed + step
        clock.update(wall, now)
        for age in ages:
            at = clock.monotonic(wall - age)
            assert last <= at <= now
            last = at
