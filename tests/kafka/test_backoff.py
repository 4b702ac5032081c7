"""Pauses grow while nothing works, are bounded, and begin anew when something does."""

from streamgauge.kafka.backoff import FIRST_S, LONGEST_S, Pace


def test_pauses_double_up_to_a_bound_and_begin_anew() -> None:
    pace = Pace()
    pauses = [pace.failed() for _ in range(8)]
    assert pauses[:3] == [FIRST_S, 2 * FIRST_S, 4 * FIRST_S]
    assert pauses[-2:] == [LONGEST_S, LONGEST_S]
    pace.worked()
    assert pace.failed() == FIRST_S
