"""The rules by which a value is kept. The same filter runs when masking, with full capture and in replay.

Types, codes and raw reasons must be short words; ids, models and tool names must be printable ASCII. Any other value
becomes `masked`.
"""

import re

MASKED = "masked"

# A word of a protocol's own vocabulary; 128 characters is four times the longest seen in recorded streams.
CODE = re.compile(r"[A-Za-z0-9_.:/@+-]{1,128}")
# Printable ASCII; the longest id seen is an encrypted response id of 190 characters.
ID = re.compile(r"[ -~]{1,256}")


def safe_code(value: object) -> str | None:
    """A type, code or raw reason: unchanged if it looks like one, `masked` if not, None for null and empty.

    An integer from -2**53 to 2**53 becomes its decimal digits.
    """
    if isinstance(value, int) and not isinstance(value, bool) and abs(value) <= MAX_SAFE_INTEGER:
        return str(value)
    return _label(value, CODE)


def safe_id(value: object) -> str | None:
    """An id, model or tool name: unchanged if printable ASCII up to 256 characters, else `masked`; None for null, empty."""
    return _label(value, ID)


def _label(value: object, pattern: re.Pattern[str]) -> str | None:
    if value is None or value == "":
        return None
    return value if isinstance(value, str) and pattern.fullmatch(value) else MASKED


# Up to this, integers are exact in every JSON reader, also in those that use doubles (RFC 8259, section 6).
MAX_SAFE_INTEGER = 2**53


def whole_number(value: object) -> int | None:
    """A count: a non-negative integer up to 2**53; None for anything else (bool and float included)."""
    if isinstance(value, int) and not isinstance(value, bool) and 0 <= value <= MAX_SAFE_INTEGER:
        return value
    return None


def finite_number(value: object) -> float | None:
    """A measure that a provider gives: a number from 0 to below 2**53; None for anything else (bool included)."""
    if isinstance(value, bool) or not isinstance(value, int | float):
        return None
    return float(value) if 0 <= value < MAX_SAFE_INTEGER else None
