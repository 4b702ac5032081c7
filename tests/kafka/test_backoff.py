"""Pauses grow after each failure up to a bound, and are short again after a success."""

from streamgauge.kafka.backoff import FIRST_S, LONGEST_S, Backoff


def test_pauses_double_up_to_a_bound_and_restart_after_a_success() -> None:
    backoff = Backoff()
    pauses = [backoff.failed() for _ in range(8)]
    assert pauses[:3] == [FIRST_S, 2 * FIRST_S, 4 * FIRST_S]
    assert pauses[-2:] == [LONGEST_S, LONGEST_S]
    backoff.worked()
    assert backoff.failed() == FIRST_S
