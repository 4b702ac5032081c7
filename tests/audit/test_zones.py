"""Days of another time zone are found, also beside other differences."""

import random

import pytest

from streamgauge.audit.amounts import ZERO, Tokens, plus
from streamgauge.audit.period import DAY_US, QUARTER_US, DayOf, Period, day_after
from streamgauge.audit.zones import OFFSETS, zone_shift

FIRST, DAYS = "2026-03-02", 5
HOUR_US = 3_600 * 10**6
START_US = Period(FIRST, day_after(FIRST, 1), "UTC").since_us


def by_quarter(seed: int) -> dict[int, Tokens]:
    """The tokens of six days and more, a stream a quarter of an hour."""
    rng = random.Random(seed)
    first, last = (START_US - DAY_US) // QUARTER_US, (START_US + (DAYS + 1) * DAY_US) // QUARTER_US
    return {
        n: Tokens(rng.randrange(1, 9_000), rng.randrange(5_000), 0, rng.randrange(1, 900)) for n in range(first, last)
    }


def billed(quarters: dict[int, Tokens], offset: int) -> dict[str, Tokens]:
    """What is billed by day of a zone, its offset from UTC in quarters of an hour."""
    day_of = DayOf("UTC")
    sums: dict[str, Tokens] = {}
    for quarter, tokens in quarters.items():
        day = day_of((quarter + offset) * QUARTER_US)
        sums[day] = plus(sums.get(day, ZERO), tokens)
    return sums


def days() -> list[str]:
    return [day_after(FIRST, number) for number in range(DAYS)]


@pytest.mark.parametrize("offset", OFFSETS)
def test_each_offset_is_found(offset: int) -> None:
    quarters = by_quarter(offset)
    found = zone_shift(quarters, billed(quarters, offset), "UTC", days())
    assert found == (offset * QUARTER_US or None)


def test_aborted_streams_that_are_billed_each_day_do_not_hide_a_shift() -> None:
    """Their input and output are in no sum of ours; cached input agrees on all days."""
    quarters = by_quarter(1)
    theirs = {day: plus(tokens, Tokens(700, 0, 0, 31)) for day, tokens in billed(quarters, -32).items()}
    assert zone_shift(quarters, theirs, "UTC", days()) == -8 * HOUR_US


def test_differences_of_all_days_and_kinds_are_no_shift() -> None:
    quarters = by_quarter(2)
    theirs = {day: plus(tokens, Tokens(700, 5, 0, 31)) for day, tokens in billed(quarters, 0).items()}
    assert zone_shift(quarters, theirs, "UTC", days()) is None
