"""One bound over all streams: taken before holding, whole again afterwards."""

from hypothesis import given
from hypothesis import strategies as st

from streamgauge.taps.recording.budget import Budget, Gathered


def test_a_body_within_its_limits_is_whole() -> None:
    budget = Budget(10)
    body = Gathered(budget, 8)
    body.add(b"abc")
    body.add(b"")
    body.add(b"defgh")
    assert not budget.take(3)
    assert body.take() == b"abcdefgh"
    assert budget.take(10)


def test_a_body_over_its_own_limit_is_let_go() -> None:
    budget = Budget(100)
    body = Gathered(budget, 8)
    for _ in range(3):
        body.add(b"abcd")
    assert body.capped
    assert budget.take(100)
    assert body.take() is None


def test_a_body_over_the_budget_is_let_go() -> None:
    budget = Budget(10)
    first, second = Gathered(budget, 100), Gathered(budget, 100)
    first.add(b"123456")
    second.add(b"12345")
    assert (first.capped, second.capped) == (False, True)
    second.add(b"1")
    assert second.take() is None
    assert first.take() == b"123456"


@given(
    st.lists(st.tuples(st.integers(0, 2), st.binary(max_size=9), st.sampled_from(["add", "take", "drop"])), max_size=30)
)
def test_the_budget_is_whole_again(steps: list[tuple[int, bytes, str]]) -> None:
    budget = Budget(20)
    bodies = [Gathered(budget, 12) for _ in range(3)]
    for which, piece, step in steps:
        if step == "add":
            bodies[which].add(piece)
        elif step == "take":
            bodies[which].take()
        else:
            bodies[which].drop()
    for body in bodies:
        body.drop()
    assert budget.take(20)
    assert not budget.take(1)
