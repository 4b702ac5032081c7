"""The time zones in which days and months of records are counted."""

import re
from datetime import UTC, datetime, tzinfo
from zoneinfo import ZoneInfo, ZoneInfoNotFoundError

from streamgauge.errors import UsageFault
from streamgauge.ledger.row import microseconds_of

_MONTH = re.compile(r"(\d{4})-(\d\d)", re.ASCII)


def zone_of(name: str) -> tzinfo:
    """The time zone of this IANA name. Raises UsageFault."""
    try:
        return UTC if name == "UTC" else ZoneInfo(name)  # hosts without zone data have UTC
    except (ZoneInfoNotFoundError, ValueError, OSError):  # OSError: the name of a directory
        raise UsageFault(f"--timezone {name} is not a time zone: write its name, as in UTC or Europe/Berlin") from None


def is_zone(name: str) -> bool:
    """Whether there is a time zone of this name."""
    try:
        zone_of(name)
    except UsageFault:
        return False
    return True


def month_of(text: str, zone: tzinfo) -> tuple[int, int]:
    """The first moment of a month (YYYY-MM) in a time zone and that of the next one, in us since 1970. Raises UsageFault."""
    match = _MONTH.fullmatch(text.strip())
    try:
        if match is None:
            raise ValueError
        year, month = int(match[1]), int(match[2])
        begin = datetime(year, month, 1, tzinfo=zone)
        end = datetime(year + month // 12, month % 12 + 1, 1, tzinfo=zone)
        return microseconds_of(begin), microseconds_of(end)
    except (ValueError, OverflowError):
        raise UsageFault(f"--month {text} is not a month: write a year and a month, as in 2026-11") from None
