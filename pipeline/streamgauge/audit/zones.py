"""Finds invoices whose days are those of another time zone: their sums are ours, with each stream in another day.

A shift is tried for each offset from UTC that a time zone has. It is accepted if with it most days agree in a kind of token,
and clearly more than without: one missing stream does not hide it, nor do aborted streams, which have no cached input.
"""

from collections.abc import Callable, Iterable, Mapping
from typing import TypeVar

from streamgauge.audit.amounts import Tokens
from streamgauge.audit.period import DAY_US, QUARTER_US, DayOf, Period

_QUARTERS = DAY_US // QUARTER_US

# The offsets from UTC that time zones have (tz database 2026, with summer time), in quarters of an hour. Those of whole hours
# come first, and near ones before far ones.
_HALVES = (-9.5, -3.5, -2.5, 3.5, 4.5, 5.5, 5.75, 6.5, 8.75, 9.5, 10.5, 12.75, 13.75)
OFFSETS = sorted(
    [hours * 4 for hours in range(-12, 15)] + [int(hours * 4) for hours in _HALVES],
    key=lambda quarters: (quarters % 4 != 0, abs(quarters), quarters),
)


def zone_shift(
    by_quarter: Mapping[int, Tokens], billed: Mapping[str, Tokens], timezone: str, days: Iterable[str]
) -> int | None:
    """The offset from UTC of the invoice's days (microseconds); None if they are those of `timezone`, or of no fixed offset.

    by_quarter: our tokens by start, in quarters of an hour since 1970. billed: theirs by day. days: those that are compared.
    """
    compared = sorted(set(days) & billed.keys())
    if len(compared) < 2:  # of a single day any surplus would fit some offset
        return None
    possible = [sum(billed[day][kind] != 0 for day in compared) for kind in range(4)]
    day_of = DayOf(timezone)
    plain = _agreeing(by_quarter, lambda quarter: day_of(quarter * QUARTER_US), {day: billed[day] for day in compared})
    by_number = {_number(day): billed[day] for day in compared}
    best, offset_us = plain, None
    for offset in OFFSETS:
        agreeing = _agreeing(by_quarter, _shifted(offset), by_number)
        if sum(agreeing) > sum(best):
            best, offset_us = agreeing, offset * QUARTER_US
    is_clear = any(
        agreeing >= 2 and 2 * agreeing >= most and agreeing > 2 * without
        for agreeing, most, without in zip(best, possible, plain, strict=True)
    )
    return offset_us if is_clear else None


def _shifted(offset: int) -> Callable[[int], int]:
    """The number of the day of a quarter in a zone with this offset."""
    return lambda quarter: (quarter + offset) // _QUARTERS


def _number(day: str) -> int:
    """The number of a day since 1970."""
    return Period(day, day, "UTC").since_us // DAY_US


_Day = TypeVar("_Day", str, int)


def _agreeing(
    by_quarter: Mapping[int, Tokens], day_of: Callable[[int], _Day], billed: Mapping[_Day, Tokens]
) -> list[int]:
    """The number of days whose sums agree, of those that are billed, by kind of token."""
    ours: dict[_Day, list[int]] = {day: [0] * 4 for day in billed}
    for quarter, tokens in by_quarter.items():
        sums = ours.get(day_of(quarter))
        if sums is not None:
            for index in range(4):
                sums[index] += tokens[index]
    return [sum(ours[day][kind] == their[kind] != 0 for day, their in billed.items()) for kind in range(4)]
