"""Pauses grow while nothing works, are bounded, and begin anew when something does."""

from streamgauge.kafka.backoff import FIRST_S, LONGEST_S, Backoff


def test_pauses_double_up_to_a_bound_and_begin_anew() -> None:
    backoff = Backoff()
    pauses = [backoff.failed() for _ in range(8)]
    assert pauses[:3] == [FIRST_S, 2 * FIRST_S, 4 * FIRST_S]
    assert pauses[-2:] == [LONGEST_S, LONGEST_S]
    backoff.worked()
    assert backoff.failed() == FIRST_S
