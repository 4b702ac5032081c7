"""Finds invoices whose days are those of another time zone: their sums are ours, with each stream in another day.

A shift is tried for each quarter of an hour from UTC-12 to UTC+14. It is accepted if with it most days agree in most
kinds of token, and clearly more than without: one missing stream does not hide it.
"""

from collections.abc import Iterable, Mapping

from streamgauge.audit.amounts import Tokens, plus
from streamgauge.audit.period import QUARTER_US, DayOf

# Offsets from UTC, in quarters of an hour; those of whole hours are tried first, and near ones before far ones.
OFFSETS = sorted(range(-12 * 4, 14 * 4 + 1), key=lambda quarters: (quarters % 4 != 0, abs(quarters), quarters))


def zone_shift(
    by_quarter: Mapping[int, Tokens], billed: Mapping[str, Tokens], timezone: str, days: Iterable[str]
) -> int | None:
    """The offset from UTC of the invoice's days (microseconds); None if they are those of `timezone`, or of no fixed offset.

    by_quarter: our tokens by start, in quarters of an hour since 1970. billed: theirs by day. days: those that are compared.
    """
    compared = sorted(set(days) & billed.keys())
    if len(compared) < 2:  # of a single day any surplus would fit some offset
        return None
    possible = sum(count != 0 for day in compared for count in billed[day])
    plain = _agreeing(by_quarter, billed, DayOf(timezone), compared)
    best, found = plain, None
    for quarters in OFFSETS:
        day_of = DayOf("UTC", quarters * QUARTER_US)
        agreeing = _agreeing(by_quarter, billed, day_of, compared)
        if agreeing > best:
            best, found = agreeing, quarters * QUARTER_US
    return found if found is not None and 2 * best >= possible and best > 2 * plain else None


def _agreeing(
    by_quarter: Mapping[int, Tokens], billed: Mapping[str, Tokens], day_of: DayOf, days: Iterable[str]
) -> int:
    """How many sums of a day and a kind agree, among those that are billed."""
    ours: dict[str, Tokens] = {}
    for quarter, tokens in by_quarter.items():
        day = day_of(quarter * QUARTER_US)
        ours[day] = plus(ours[day], tokens) if day in ours else tokens
    zero = Tokens()
    agreeing = 0
    for day in days:
        our, their = ours.get(day, zero), billed[day]
        agreeing += sum(one == other != 0 for one, other in zip(our, their, strict=True))
    return agreeing
