"""The time zones in which days and months of records are counted."""

from datetime import UTC, tzinfo
from zoneinfo import ZoneInfo, ZoneInfoNotFoundError

from streamgauge.errors import UsageFault


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
