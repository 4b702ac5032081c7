"""One limit over all streams: memory is reserved before use and returned afterwards; if it is full, the oldest holder is
evicted.
"""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from streamgauge.recorder.budget import LARGE_BYTES, BodyBuffer, Budget

KIB, MIB = 1024, 1024 * 1024


def room(budget: Budget) -> int:
    """How much can be reserved without evicting a holder."""
    return budget.free


def gathered(budget: Budget, size: int, pieces: int = 4) -> BodyBuffer:
    body = BodyBuffer(budget, 16 * MIB)
    for _ in range(pieces):
        body.add(b"x" * (size // pieces))
    return body


def test_a_body_within_its_limits_is_whole() -> None:
    budget = Budget(10)
    body = BodyBuffer(budget, 8)
    body.add(b"abc")
    body.add(b"")
    body.add(b"defgh")
    assert room(budget) == 2
    assert body.take() == b"abcdefgh"
    assert room(budget) == 10


def test_a_body_over_its_own_limit_is_released() -> None:
    budget = Budget(100)
    body = BodyBuffer(budget, 8)
    for _ in range(3):
        body.add(b"abcd")
    assert body.capped
    assert room(budget) == 100
    assert body.take() is None


def test_if_the_budget_is_full_the_older_body_is_evicted() -> None:
    budget = Budget(10)
    first, second = BodyBuffer(budget, 100), BodyBuffer(budget, 100)
    first.add(b"123456")
    second.add(b"12345")
    assert (first.capped, second.capped) == (True, False)
    first.add(b"1")
    assert first.take() is None
    assert second.take() == b"12345"


def test_the_oldest_body_evicts_no_other() -> None:
    budget = Budget(10)
    first, second = BodyBuffer(budget, 100), BodyBuffer(budget, 100)
    first.add(b"123")
    second.add(b"12345")
    first.add(b"456")
    assert (first.capped, second.capped) == (True, False)


@pytest.mark.slow
@pytest.mark.parametrize(("count", "size"), [(16, 16 * MIB), (300, MIB), (5_000, 60 * KIB), (20_000, 14 * KIB)])
@pytest.mark.parametrize("wanted", [3_000, 100 * KIB, MIB, 12 * MIB])
def test_stalled_bodies_are_evicted_for_a_new_one_of_any_size(count: int, size: int, wanted: int) -> None:
    budget = Budget(256 * MIB)
    stalled = [gathered(budget, size) for _ in range(count)]
    assert gathered(budget, wanted).take() is not None
    held = sum(not body.capped for body in stalled)
    assert held * size >= 256 * MIB - wanted - 2 * size, "more was evicted than needed"


def test_a_flow_of_large_bodies_leaves_a_quarter_to_small_ones() -> None:
    budget = Budget(64 * MIB)
    small = [gathered(budget, 32 * KIB) for _ in range(16 * MIB // (32 * KIB))]
    for _ in range(20):
        gathered(budget, 8 * MIB)
    assert not any(body.capped for body in small)


def test_a_flow_of_small_bodies_leaves_three_quarters_to_large_ones() -> None:
    budget = Budget(64 * MIB)
    large = [gathered(budget, 8 * MIB) for _ in range(6)]
    for _ in range(5_000):
        gathered(budget, 60 * KIB)
    assert not any(body.capped for body in large)


def test_holders_that_cannot_be_evicted_leave_a_quarter_to_small_bodies() -> None:
    budget = Budget(64 * MIB)
    assert [budget.take(8 * MIB) for _ in range(8)] == [True] * 6 + [False] * 2
    assert gathered(budget, MIB).take() is not None
    small = [gathered(budget, 32 * KIB) for _ in range(16 * MIB // (32 * KIB))]
    assert gathered(budget, MIB).take() is None
    assert sum(body.capped for body in small) <= 2, "while it was small it used the share of the small ones"
    for body in small:
        body.drop()
    budget.give_back(8 * MIB)
    assert gathered(budget, 8 * MIB).take() is not None


@given(
    st.lists(
        st.tuples(
            st.integers(0, 3),
            st.sampled_from([1, 1_000, 30_000, LARGE_BYTES, 100_000]),
            st.sampled_from(["add", "add", "take", "drop"]),
        ),
        max_size=40,
    )
)
def test_the_whole_budget_is_free_again(steps: list[tuple[int, int, str]]) -> None:
    budget = Budget(200_000)
    bodies = [BodyBuffer(budget, 120_000) for _ in range(4)]
    sizes = [0] * 4
    for which, size, step in steps:
        if step == "add":
            bodies[which].add(bytes(size))
            sizes[which] += size
        elif step == "take":
            bodies[which].take()
        else:
            bodies[which].drop()
        sizes = [0 if body.capped or (step != "add" and at == which) else sizes[at] for at, body in enumerate(bodies)]
        assert room(budget) == 200_000 - sum(sizes)
        assert room(budget) >= 0
    for body in bodies:
        body.drop()
    assert room(budget) == 200_000
    capped = [body.capped for body in bodies]
    assert evicted_of(budget) == ["small", "large"]
    assert [body.capped for body in bodies] == capped, "a body that holds nothing was evicted"


def evicted_of(budget: Budget) -> list[str]:
    """What is evicted from a budget of 200,000 bytes whose large holders have just three quarters: for a byte more of a small
    body, then for one of a large body.
    """
    large, larger, small, next_small, last_small = (BodyBuffer(budget, 200_000) for _ in range(5))
    for body, size in ((large, 70_000), (larger, 80_000), (small, 50_000)):
        body.add(bytes(size))
    held = {"large": large, "larger": larger, "small": small, "next_small": next_small}
    assert room(budget) == 0
    next_small.add(b"1")
    evicted = [name for name, body in held.items() if body.capped]
    last_small.add(bytes(room(budget)))
    larger.add(b"1")
    return evicted + [name for name, body in held.items() if body.capped and name not in evicted]
