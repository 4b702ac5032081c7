"""The period of an audit: whole days of a time zone, the last one excluded, and the day either side of it."""

from collections.abc import Set
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from functools import lru_cache

from streamgauge.errors import UsageFault
from streamgauge.ledger.zones import zone_of

_MICROSECONDS = 1_000_000
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
# Every time zone's offset is a multiple of a quarter of an hour (since 1972), so all moments of a quarter have one day.
QUARTER_US = 900 * _MICROSECONDS
DAY_US = 86_400 * _MICROSECONDS
# Days of a period, the first and the last: far from the ends of Python's dates, since zones and --settle-days add to them.
_FIRST_DAY, _LAST_DAY = "1971-01-01", "8999-12-31"


@dataclass(frozen=True)
class Period:
    """Days from `first` to before `end` (YYYY-MM-DD) of the zone `timezone`."""

    first: str
    end: str
    timezone: str

    @classmethod
    def of(cls, first: str, end: str, timezone: str) -> "Period":
        """The period that the options describe. Raises UsageFault, which says what to write."""
        for option, day in (("--from", first), ("--to", end)):
            try:
                if datetime.strptime(day, "%Y-%m-%d").strftime("%Y-%m-%d") != day:
                    raise ValueError
            except ValueError:
                raise UsageFault(f"{option} {day} is not a date: write one such as 2026-11-01") from None
            if not _FIRST_DAY <= day <= _LAST_DAY:
                raise UsageFault(
                    f"{option} {day} is not a date from {_FIRST_DAY} to {_LAST_DAY}: write one such as 2026-11-01"
                )
        if first >= end:
            raise UsageFault(f"--to {end} must be later than --from {first}: the period excludes the day of --to")
        zone_of(timezone)
        return cls(first, end, timezone)

    @property
    def since_us(self) -> int:
        """The first moment, in microseconds since 1970, UTC."""
        return self._midnight(self.first)

    @property
    def until_us(self) -> int:
        """The first moment after the last day."""
        return self._midnight(self.end)

    @property
    def before(self) -> str:
        """The day before the first one."""
        return day_after(self.first, -1)

    @property
    def read_since_us(self) -> int:
        """The first moment of the day before: streams that a provider may have billed in the period began there."""
        return self._midnight(self.before)

    @property
    def read_until_us(self) -> int:
        """The first moment after the day after: streams that another time zone counts in the period began before it."""
        return self._midnight(day_after(self.end, 1))

    @property
    def days(self) -> list[str]:
        """The days of the period, in order."""
        days, day = [], self.first
        while day < self.end:
            days.append(day)
            day = day_after(day, 1)
        return days

    @property
    def middle_us(self) -> int:
        """The moment in the middle of the period."""
        return (self.since_us + self.until_us) // 2

    def halves_of(self, day: str) -> list[tuple[int, int]]:
        """The half-open spans of a day, in microseconds: one, or two where the middle of the period lies in it."""
        start_us, end_us = self.span_of(day)
        if start_us < self.middle_us < end_us:
            return [(start_us, self.middle_us), (self.middle_us, end_us)]
        return [(start_us, end_us)]

    def span_of(self, day: str) -> tuple[int, int]:
        """The half-open span of a day, in microseconds since 1970."""
        return self._midnight(day), self._midnight(day_after(day, 1))

    def has(self, day: str) -> bool:
        """Whether a day is in the period."""
        return self.first <= day < self.end

    def reads(self, day: str) -> bool:
        """Whether a day is in the period, or either side of it."""
        return self.before <= day <= self.end

    def runs_of(self, days: Set[str]) -> list[tuple[int, int]]:
        """Half-open spans of time, in order, that together are these days; all days that are read if none is given."""
        if not days:
            return [(self.read_since_us, self.read_until_us)]
        runs: list[tuple[int, int]] = []
        for day in sorted(days):
            start_us, end_us = self.span_of(day)
            if runs and runs[-1][1] == start_us:
                start_us = runs.pop()[0]
            runs.append((start_us, end_us))
        return runs

    def _midnight(self, day: str) -> int:
        return _midnight(day, self.timezone)


class DayOf:
    """The day of a moment in a time zone, as YYYY-MM-DD. `shift_us`: is added to each moment first."""

    def __init__(self, timezone: str, shift_us: int = 0) -> None:
        self._zone = zone_of(timezone)
        self._shift_us = shift_us
        self._known: dict[int, str] = {}

    def __call__(self, moment_us: int) -> str:
        """The day of a moment in microseconds since 1970, UTC."""
        quarter = (moment_us + self._shift_us) // QUARTER_US
        day = self._known.get(quarter)
        if day is None:
            moment = _EPOCH + timedelta(microseconds=quarter * QUARTER_US)
            day = self._known[quarter] = moment.astimezone(self._zone).strftime("%Y-%m-%d")
        return day


# Remembered: each row, each stream and each sum asks for one of the few days of a period.
@lru_cache(maxsize=1_000)
def _midnight(day: str, timezone: str) -> int:
    return microseconds(datetime.strptime(day, "%Y-%m-%d").replace(tzinfo=zone_of(timezone)))


@lru_cache(maxsize=1_000)
def day_after(day: str, days: int) -> str:
    """The day that lies so many days after another one."""
    return (datetime.strptime(day, "%Y-%m-%d") + timedelta(days=days)).strftime("%Y-%m-%d")


def microseconds(moment: datetime) -> int:
    """Microseconds since 1970, UTC, of a moment with a zone."""
    past = moment - _EPOCH
    return (past.days * 86_400 + past.seconds) * _MICROSECONDS + past.microseconds
