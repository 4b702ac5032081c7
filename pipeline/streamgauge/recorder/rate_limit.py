"""Reads the rate limits that a provider reports in the head of its response. Malformed values are ignored; nothing raises.

OpenAI and those that follow it write how long it takes until a limit is whole again, as Go prints a duration (`6m0s`,
`12ms`). Azure writes plain seconds, Anthropic a time (RFC 3339).
"""

import re
from collections.abc import Callable, Mapping
from datetime import UTC, datetime, timedelta

from streamgauge.core.capture.segments import RateLimit
from streamgauge.core.safe_values import MAX_SAFE_INTEGER

# The headers of each field of RateLimit. Of several headers the first well-formed value counts.
# https://platform.openai.com/docs/guides/rate-limits (also Azure, Groq and others),
# https://docs.claude.com/en/api/rate-limits#response-headers
_LIMITS = {
    "requests_limit": ("x-ratelimit-limit-requests", "anthropic-ratelimit-requests-limit"),
    "requests_remaining": ("x-ratelimit-remaining-requests", "anthropic-ratelimit-requests-remaining"),
    "tokens_limit": ("x-ratelimit-limit-tokens", "anthropic-ratelimit-tokens-limit"),
    "tokens_remaining": ("x-ratelimit-remaining-tokens", "anthropic-ratelimit-tokens-remaining"),
}
_RESETS = {
    "requests_reset_ns": ("x-ratelimit-reset-requests", "anthropic-ratelimit-requests-reset"),
    "tokens_reset_ns": ("x-ratelimit-reset-tokens", "anthropic-ratelimit-tokens-reset"),
}
RATE_LIMIT_HEADERS = frozenset(name for fields in (_LIMITS, _RESETS) for names in fields.values() for name in names)

# 2**53 has 16 digits.
_COUNT = re.compile(r"[0-9]{1,16}")
# A duration, with units or in plain seconds. 16 digits are above the limit in every unit but nanoseconds.
_STEP = re.compile(r"([0-9]{1,16})(?:\.([0-9]{1,9}))?(d|h|ms|m|s|us|µs|\xc2\xb5s|ns)", re.ASCII)
_DURATION = re.compile(f"(?:{_STEP.pattern})+", re.ASCII)
_SECONDS = re.compile(r"([0-9]{1,16})(?:\.([0-9]{1,9}))?")
# The micro sign also comes as its two bytes of UTF-8: a header's bytes are read as Latin-1.
_UNITS_NS = {
    "d": 86_400 * 10**9, "h": 3_600 * 10**9, "m": 60 * 10**9, "s": 10**9,
    "ms": 10**6, "us": 10**3, "µs": 10**3, "\xc2\xb5s": 10**3, "ns": 1,
}  # fmt: skip
# RFC 3339, 5.6.
_TIME = re.compile(
    r"[0-9]{4}-[0-9]{2}-[0-9]{2}[T ](?:[01][0-9]|2[0-3]):[0-9]{2}:[0-9]{2}(?:\.[0-9]{1,9})?(?:Z|[+-][0-9]{2}:[0-9]{2})"
)
# The longest value that is read (characters): a duration with all units has about 40.
_MAX_CHARS = 64
_MICROSECOND = timedelta(microseconds=1)


def rate_limit_of(headers: Mapping[str, str], response_time: Callable[[], datetime | None]) -> RateLimit | None:
    """The rate limits that a head reports; None if it reports none.

    `headers`: values by lower-case name. `response_time`: gives the time from which a reset time counts, with a zone.
    """
    fields = {field: _first(headers, names, _count) for field, names in _LIMITS.items()}
    for field, names in _RESETS.items():
        fields[field] = _first(headers, names, lambda value: reset_ns(value, response_time))
    return RateLimit(**fields) if any(value is not None for value in fields.values()) else None


def reset_ns(value: str, response_time: Callable[[], datetime | None]) -> int | None:
    """The nanoseconds until a limit is whole again, never negative; None if malformed or above 2**53 (104 days).

    A value that is a time counts from `response_time`; without that it is None.
    """
    if len(value) > _MAX_CHARS:
        return None
    duration_ns: int | None
    if seconds := _SECONDS.fullmatch(value):
        duration_ns = _in_ns(seconds[1], seconds[2], "s")
    elif _DURATION.fullmatch(value):
        duration_ns = sum(_in_ns(*step.groups()) for step in _STEP.finditer(value))
    else:
        now, reset_at = response_time(), _time(value.upper())
        duration_ns = None if now is None or reset_at is None else max((reset_at - now) // _MICROSECOND, 0) * 1000
    return duration_ns if duration_ns is not None and duration_ns <= MAX_SAFE_INTEGER else None


def _in_ns(whole: str, fraction: str | None, unit: str) -> int:
    digits = fraction or ""
    return int(whole + digits) * _UNITS_NS[unit] // int(10 ** len(digits))


def _time(value: str) -> datetime | None:
    try:
        return datetime.fromisoformat(value).astimezone(UTC) if _TIME.fullmatch(value) else None
    except (ValueError, OverflowError):  # no such day, or one outside the years 1 to 9999
        return None


def _count(value: str) -> int | None:
    return count if _COUNT.fullmatch(value) and (count := int(value)) <= MAX_SAFE_INTEGER else None


def _first(headers: Mapping[str, str], names: tuple[str, ...], read: Callable[[str], int | None]) -> int | None:
    values = (headers.get(name) for name in names)
    return next((number for value in values if value and (number := read(value)) is not None), None)
