"""The times at which an entry of the operator's price file holds: days, weekdays, and hours of a time zone."""

import re
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import UTC, date, datetime, timedelta, tzinfo

from streamgauge.ledger.zones import is_zone, zone_of

# The keys of an entry that say when it holds.
TIME_KEYS = ("from", "until", "hours", "weekdays", "timezone")
WEEKDAYS = ("mon", "tue", "wed", "thu", "fri", "sat", "sun")
_HOURS = re.compile(r"([01]\d|2[0-3]):([0-5]\d)-(?:([01]\d|2[0-3]):([0-5]\d)|24:00)", re.ASCII)
_DAY_MINUTES = 24 * 60
_DAY = timedelta(days=1)


@dataclass(frozen=True)
class PriceTimes:
    """Times of the days from `first` to before `end` (YYYY-MM-DD of `zone`; None: without an end).

    weekdays: 0 is Monday. hours: minutes of the day, the end excluded; an end that is not later than the start is on the next
    day. Such hours belong to the day on which they begin, also for `first`, `end` and `weekdays`.
    """

    first: str
    end: str | None = None
    zone: tzinfo = UTC
    weekdays: frozenset[int] = frozenset(range(7))
    hours: tuple[int, int] | None = None

    def has(self, moment: datetime) -> bool:
        """Whether a moment with a time zone is one of these times."""
        if not 1 < moment.year < 9999:  # the first and last day of Python's dates have no other time zone
            return False
        local = moment.astimezone(self.zone)
        day = local.date()
        if self.hours is not None:
            start, end = self.hours
            minute = local.hour * 60 + local.minute
            if start < end:
                if not start <= minute < end:
                    return False
            elif minute < end:
                day -= _DAY
            elif minute < start:
                return False
        return (
            self.first <= day.isoformat()
            and (self.end is None or day.isoformat() < self.end)
            and day.weekday() in self.weekdays
        )


def times_of(where: str, entry: Mapping[str, object]) -> PriceTimes:
    """The times that an entry of the file names by TIME_KEYS. Raises ValueError, with a sentence that begins with `where`."""
    first, end = _day(where, entry, "from"), _day(where, entry, "until")
    if first is None:
        raise ValueError(f"{where}: from is missing: the day from which it holds")
    if end is not None and end <= first:
        raise ValueError(f"{where}: until must be later than from")
    return PriceTimes(first, end, _zone(where, entry), _weekdays(where, entry), _hours(where, entry))


def _day(where: str, entry: Mapping[str, object], name: str) -> str | None:
    value = entry.get(name)
    if value is None:
        return None
    if not isinstance(value, date) or isinstance(value, datetime):
        raise ValueError(f"{where}: {name} must be a date, as in {name} = 2026-11-01")
    return value.isoformat()


def _zone(where: str, entry: Mapping[str, object]) -> tzinfo:
    name = entry.get("timezone", "UTC")
    if not isinstance(name, str) or not is_zone(name):
        raise ValueError(f'{where}: timezone must be the name of a time zone, as in timezone = "Asia/Shanghai"')
    return zone_of(name)


def _weekdays(where: str, entry: Mapping[str, object]) -> frozenset[int]:
    names = entry.get("weekdays", list(WEEKDAYS))
    if not isinstance(names, list) or not names or not all(name in WEEKDAYS for name in names):
        raise ValueError(f"{where}: weekdays must be a list of {', '.join(WEEKDAYS)}")
    return frozenset(WEEKDAYS.index(name) for name in names)


def _hours(where: str, entry: Mapping[str, object]) -> tuple[int, int] | None:
    text = entry.get("hours")
    if text is None:
        return None
    match = _HOURS.fullmatch(text) if isinstance(text, str) else None
    start = None if match is None else int(match[1]) * 60 + int(match[2])
    end = _DAY_MINUTES if match is None or match[3] is None else int(match[3]) * 60 + int(match[4])
    if start is None or start == end:
        raise ValueError(f'{where}: hours must be a beginning and another end, as in hours = "16:30-00:30"')
    return start, end
