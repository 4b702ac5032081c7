"""The skew is the smallest difference of the last one to two minutes: a slow broker does not look like a wrong clock."""

import pytest

from streamgauge.kafka.shipper import ClockSkew


def test_it_is_unknown_before_the_first_message() -> None:
    assert ClockSkew().seconds is None


def test_answering_times_do_not_count() -> None:
    skew = ClockSkew()
    skew.confirmed(0.0, 1_000.4, 1_000_000)
    assert skew.seconds == pytest.approx(0.4)
    skew.confirmed(1.0, 1_001.01, 1_001_000)
    skew.confirmed(2.0, 1_012.0, 1_002_000)
    assert skew.seconds == pytest.approx(0.01)


@pytest.mark.parametrize("error_s", [30.0, -30.0])
def test_a_clock_that_is_wrong_shows_with_its_sign(error_s: float) -> None:
    skew = ClockSkew()
    for second in range(10):
        skew.confirmed(second, 1_000 + second + error_s + 0.02, (1_000 + second) * 1_000)
    assert skew.seconds == pytest.approx(error_s + 0.02)


def test_a_clock_that_is_set_right_shows_after_two_minutes() -> None:
    skew = ClockSkew()
    for second in range(0, 61, 10):
        skew.confirmed(second, 1_000 + second - 30, (1_000 + second) * 1_000)
    for second in range(70, 181, 10):
        skew.confirmed(second, 1_000 + second, (1_000 + second) * 1_000)
    assert skew.seconds == pytest.approx(0.0)
