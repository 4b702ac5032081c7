"""Reads the options of `streamgauge ledger` that choose records: --since, --until, --month, --timezone and --where."""

import re
from collections.abc import Callable, Mapping, Sequence
from datetime import datetime, tzinfo
from typing import get_args

from streamgauge.core.dialects import BY_NAME, OTHER
from streamgauge.core.outcome import Outcome
from streamgauge.errors import UsageFault
from streamgauge.ledger import KEYS, NUMBER_KEYS, Filter
from streamgauge.ledger.row import MAX_ATTEMPT, microseconds_of
from streamgauge.ledger.zones import zone_of
from streamgauge.runtime.nearest import nearest
from streamgauge.taps import TAPS

# Limit of --where options in one command: more than are written by hand, and far below SQLite's limit of nested
# expressions (1,000).
MAX_CONDITIONS = 100
# Limit of credential ids in the file of --tenants: far below the databases' limits of parameters.
MAX_TENANTS = 10_000

# A date alone, or a time as RFC 3339 section 5.6 writes it: with seconds and a zone.
_TIME = re.compile(r"\d{4}-\d\d-\d\d(?P<time>[T ]\d\d:\d\d:\d\d(\.\d+)?(Z|[+-]\d\d:\d\d))?", re.ASCII)
_MONTH = re.compile(r"(\d{4})-(\d\d)", re.ASCII)


# The keys whose values are of a closed set, as records have them; text of other keys is not checked.
VALUES: dict[str, tuple[str, ...]] = {
    "outcome": get_args(Outcome),
    "finish_reason": ("stop", "length", "tool_calls", "content_filter", "error", "paused"),
    "usage_source": ("final", "partial", "estimated", "absent"),
    "dialect": (*BY_NAME, OTHER),
    "tap": tuple(tap.name for tap in TAPS),
}
_FORMS = {
    "day": (re.compile(r"\d{4}-\d\d-\d\d", re.ASCII), "a day such as 2026-11-01"),
    "month": (_MONTH, "a month such as 2026-11"),
}


def _no_attribute(_: str) -> bool:
    return False


def filter_of(
    since: str | None,
    until: str | None,
    where: Sequence[str] | None,
    is_attribute: Callable[[str], bool] = _no_attribute,
    *,
    month: str | None = None,
    timezone: str = "UTC",
    tenants: Mapping[str, str] | None = None,
) -> Filter:
    """The filter that the options describe. `is_attribute`: whether a name that is no key is that of an attribute.
    `tenants`: tenants by credential_id. Raises UsageFault, which names the allowed values.
    """
    zone = zone_of(timezone)
    since_us, until_us = _moment("--since", since, zone), _moment("--until", until, zone)
    if month is not None:
        if since is not None or until is not None:
            raise UsageFault(f"--month {month} excludes --since and --until")
        since_us, until_us = month_of(month, zone)
    if since_us is not None and until_us is not None and since_us >= until_us:
        raise UsageFault(f"--until {until} must be later than --since {since}: the range excludes the time of --until")
    if len(where or ()) > MAX_CONDITIONS:
        raise UsageFault(f"--where is given {len(where or ())} times: at most {MAX_CONDITIONS} are allowed")
    if len(tenants or ()) > MAX_TENANTS:
        raise UsageFault(f"--tenants holds {len(tenants or ())} credential ids: at most {MAX_TENANTS} are allowed")
    return Filter(
        since_us,
        until_us,
        tuple(_condition(given, is_attribute) for given in where or ()),
        timezone=timezone,
        tenants=tuple((tenants or {}).items()),
    )


def month_of(given: str, zone: tzinfo) -> tuple[int, int]:
    """The first moment of a month (YYYY-MM) in a time zone and that of the next one, in us since 1970. Raises UsageFault."""
    found = _MONTH.fullmatch(given.strip())
    try:
        if found is None:
            raise ValueError
        year, month = int(found[1]), int(found[2])
        begin = datetime(year, month, 1, tzinfo=zone)
        end = datetime(year + month // 12, month % 12 + 1, 1, tzinfo=zone)
        return microseconds_of(begin), microseconds_of(end)
    except (ValueError, OverflowError):
        raise UsageFault(f"--month {given} is not a month: write a year and a month, as in 2026-11") from None


def _moment(option: str, given: str | None, zone: tzinfo) -> int | None:
    if given is None:
        return None
    text = given.strip().upper()
    found = _TIME.fullmatch(text)
    try:
        if found is None:
            raise ValueError
        moment = datetime.fromisoformat(text)
        return microseconds_of(moment if found["time"] else moment.replace(tzinfo=zone))
    except (ValueError, OverflowError):
        raise UsageFault(
            f"{option} {given} is not a time: write a date of --timezone such as 2026-11-01, or an RFC 3339 time such as "
            "2026-11-01T09:30:00Z"
        ) from None


def _condition(given: str, is_attribute: Callable[[str], bool]) -> tuple[str, str | int | None]:
    """A key and its value; an empty value means null. Errors do not repeat the value, since it may be anything."""
    name, found, value = given.partition("=")
    key = name.strip()
    if not found:
        raise UsageFault(f"--where {key} has no value: write KEY=VALUE, or KEY= for null; keys are {', '.join(KEYS)}")
    if key not in KEYS and not is_attribute(key):
        raise UsageFault(
            f"--where {key}=...: {key} is not a key: use one of {', '.join(KEYS)}, or an attribute that records have"
        )
    if not value:
        return key, None
    if key in NUMBER_KEYS:
        return key, _number(key, value)
    if (allowed := VALUES.get(key)) is not None and value not in allowed:
        raise UsageFault(
            f"--where {key}=...: the value must be one of {', '.join(allowed)}, or empty for null{nearest(value, allowed)}"
        )
    if (form := _FORMS.get(key)) is not None and not form[0].fullmatch(value):
        raise UsageFault(f"--where {key}=...: the value must be {form[1]}, or empty for null")
    try:
        value.encode()
    except UnicodeEncodeError:  # bytes of the command line that are not UTF-8
        raise UsageFault(f"--where {key}=...: the value must be UTF-8 text") from None
    return key, value


def _number(key: str, value: str) -> int:
    # The length comes first: Python refuses to convert a very long number.
    if not re.fullmatch("[0-9]{1,10}", value) or int(value) > MAX_ATTEMPT:
        raise UsageFault(
            f"--where {key}=...: the value must be a whole number from 0 to {MAX_ATTEMPT}, or empty for null"
        )
    return int(value)
