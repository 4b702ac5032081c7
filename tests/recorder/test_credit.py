"""What turns cost, and how many of them may run."""

from streamgauge.core.capture.segments import Read, Segment
from streamgauge.recorder.credit import FLUSH_CREDIT_NS, LINE_NS, MAX_CREDIT_NS, Credit


def segments(lines: int) -> list[Segment]:
    return [Segment(bytes(16), 0, reads=[Read(0, 1, 1, b"\n" * lines), Read(0, 1, 1)])]


def turns(credit: Credit, took_ns: int, lines: int) -> int:
    """How many turns of this kind may run."""
    count = 0
    while credit.left:
        credit.charge(took_ns, segments(lines))
        count += 1
    return count


def test_a_turn_is_charged_as_long_as_it_took() -> None:
    assert turns(Credit(), FLUSH_CREDIT_NS, 0) == MAX_CREDIT_NS // FLUSH_CREDIT_NS


def test_a_short_turn_is_charged_by_its_lines() -> None:
    assert turns(Credit(), 0, 1_000) == -(-MAX_CREDIT_NS // (1_000 * LINE_NS))


def test_each_flush_grants_credit_which_is_kept_up_to_a_bound() -> None:
    credit = Credit()
    assert turns(credit, MAX_CREDIT_NS, 0) == 1
    assert not credit.left
    credit.grant()
    assert turns(credit, FLUSH_CREDIT_NS // 4, 0) == 4
    for _ in range(100):
        credit.grant()
    assert turns(credit, FLUSH_CREDIT_NS, 0) == MAX_CREDIT_NS // FLUSH_CREDIT_NS


def test_a_turn_that_took_far_too_long_is_paid_by_many_flushes() -> None:
    credit = Credit()
    credit.charge(MAX_CREDIT_NS + 10 * FLUSH_CREDIT_NS, [])
    for _ in range(10):
        assert not credit.left
        credit.grant()
    credit.grant()
    assert credit.left
