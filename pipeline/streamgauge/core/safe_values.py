"""What a value must look like to be kept. The same filter runs when masking, with full capture and in replay.

Types, codes and raw reasons are short words; ids, models and tool names are printable ASCII; all else reads `masked`.
"""

import re

MASKED = "masked"

# A word of a protocol's own vocabulary; 128 characters is four times the longest seen in recorded streams.
_CODE = re.compile(r"[A-Za-z0-9_.:/@+-]{1,128}")
# Printable ASCII; the longest id seen is an encrypted response id of 190 characters.
_ID = re.compile(r"[ -~]{1,256}")


def safe_code(value: object) -> str | None:
    """A type, code or raw reason: as it is if it looks like one, `masked` if not, None for null and empty."""
    if isinstance(value, int) and not isinstance(value, bool) and abs(value) <= MAX_SAFE_INTEGER:
        return str(value)
    return _label(value, _CODE)


def safe_id(value: object) -> str | None:
    """An id, model or tool name: as it is if printable ASCII up to 256 characters, `masked` if not, None for empty."""
    return _label(value, _ID)


def _label(value: object, pattern: re.Pattern[str]) -> str | None:
    if value is None or value == "":
        return None
    return value if isinstance(value, str) and pattern.fullmatch(value) else MASKED


# The largest integer that every JSON reader holds exactly (RFC 8259, section 6).
MAX_SAFE_INTEGER = 2**53


def whole_number(value: object) -> int | None:
    """A count: a non-negative integer up to 2**53; None for anything else (bool and float included)."""
    if isinstance(value, int) and not isinstance(value, bool) and 0 <= value <= MAX_SAFE_INTEGER:
        return value
    return None


def finite_number(value: object) -> float | None:
    """A measure that a provider gives: a finite, non-negative number; None for anything else."""
    if isinstance(value, bool) or not isinstance(value, int | float):
        return None
    return float(value) if 0 <= value < MAX_SAFE_INTEGER else None
