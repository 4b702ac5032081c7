"""Reads the options of `streamgauge ledger query` that choose records: --since, --until and --where."""

import re
from collections.abc import Callable, Sequence
from datetime import UTC, datetime

from streamgauge.errors import UsageFault
from streamgauge.ledger import KEYS, NUMBER_KEYS, Filter
from streamgauge.ledger.row import MAX_ATTEMPT, microseconds_of

# Limit of --where options in one command: more than are written by hand, and far below SQLite's limit of nested
# expressions (1,000).
MAX_CONDITIONS = 100

# A date alone, or a time as RFC 3339 section 5.6 writes it: with seconds and a zone.
_TIME = re.compile(r"\d{4}-\d\d-\d\d(?P<time>[T ]\d\d:\d\d:\d\d(\.\d+)?(Z|[+-]\d\d:\d\d))?", re.ASCII)


def _no_attribute(_: str) -> bool:
    return False


def filter_of(
    since: str | None,
    until: str | None,
    where: Sequence[str] | None,
    is_attribute: Callable[[str], bool] = _no_attribute,
) -> Filter:
    """The filter that the options describe. `is_attribute`: whether a name that is no key is that of an attribute. Raises
    UsageFault, which names the allowed values.
    """
    since_us, until_us = _moment("--since", since), _moment("--until", until)
    if since_us is not None and until_us is not None and since_us >= until_us:
        raise UsageFault(f"--until {until} must be later than --since {since}: the range excludes the time of --until")
    if len(where or ()) > MAX_CONDITIONS:
        raise UsageFault(f"--where is given {len(where or ())} times: at most {MAX_CONDITIONS} are allowed")
    return Filter(since_us, until_us, tuple(_condition(given, is_attribute) for given in where or ()))


def _moment(option: str, given: str | None) -> int | None:
    if given is None:
        return None
    text = given.strip().upper()
    found = _TIME.fullmatch(text)
    try:
        if found is None:
            raise ValueError
        moment = datetime.fromisoformat(text)
        return microseconds_of(moment if found["time"] else moment.replace(tzinfo=UTC))
    except (ValueError, OverflowError):
        raise UsageFault(
            f"{option} {given} is not a time: write a UTC date such as 2026-11-01, or an RFC 3339 time such as "
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
