"""The rules by which a value is kept. The same filter runs when masking, with full capture and in replay.

Types, codes and raw reasons must be short words; ids, models and tool names must be printable ASCII. Any other value
becomes `masked`.
"""

import re
import string
import unicodedata
from decimal import Decimal

MASKED = "masked"

# What a word of a protocol's own vocabulary consists of; 128 characters is four times the longest seen in recorded streams.
CODE_CHARACTERS = string.ascii_letters + string.digits + "_.:/@+-"
MAX_CODE_CHARS = 128
# The longest id seen is an encrypted response id of 190 characters.
MAX_ID_CHARS = 256

# Unicode's categories of characters that are not shown.
_OBEYED = frozenset({"Cc", "Cf", "Cs", "Zl", "Zp"})

# The name of an attribute (`--attribute`): it is a label of metrics, too.
_ATTRIBUTE_NAME = re.compile(r"[a-z][a-z0-9_]{0,31}")


def safe_code(value: object) -> str | None:
    """A type, code or raw reason: unchanged if it looks like one, `masked` if not, None for null and empty.

    An integer from -2**53 to 2**53 becomes its decimal digits.
    """
    if isinstance(value, int) and not isinstance(value, bool) and abs(value) <= MAX_SAFE_INTEGER:
        return str(value)
    if value is None or value == "":
        return None
    return value if isinstance(value, str) and is_code(value) else MASKED


def safe_id(value: object) -> str | None:
    """An id, model or tool name: unchanged if printable ASCII up to 256 characters, else `masked`; None for null, empty."""
    if value is None or value == "":
        return None
    return value if isinstance(value, str) and is_id(value) else MASKED


def is_code(text: str) -> bool:
    """Whether a text is a word of CODE_CHARACTERS up to MAX_CODE_CHARS characters, or empty."""
    # Nothing is left only if no other character is in between. A regular expression takes twice as long.
    return len(text) <= MAX_CODE_CHARS and not text.strip(CODE_CHARACTERS)


def is_id(text: str) -> bool:
    """Whether a text is printable ASCII up to MAX_ID_CHARS characters, or empty."""
    return text.isascii() and text.isprintable() and len(text) <= MAX_ID_CHARS


def escaped(text: str, keep: str = "") -> str:
    r"""The text with `\uXXXX` in place of characters that a terminal or an editor obeys instead of showing them.

    These are control and format characters (bidirectional marks among them), surrogates, and separators of lines; not the
    characters of `keep`. The time is linear in the text's length.
    """
    if text.isprintable():
        return text
    return "".join(
        f"\\u{ord(char):04x}" if char not in keep and unicodedata.category(char) in _OBEYED else char for char in text
    )


def is_attribute_name(text: str) -> bool:
    """Whether a text may be the name of an attribute."""
    return _ATTRIBUTE_NAME.fullmatch(text) is not None


# Up to this, integers are exact in every JSON reader, also in those that use doubles (RFC 8259, section 6).
MAX_SAFE_INTEGER = 2**53


def whole_number(value: object) -> int | None:
    """A count: a non-negative integer up to 2**53; None for anything else (bool and float included)."""
    return value if type(value) is int and 0 <= value <= MAX_SAFE_INTEGER else None


def finite_number(value: object) -> float | None:
    """A measure that a provider gives: a number from 0 to below 2**53; None for anything else (bool included)."""
    if isinstance(value, bool) or not isinstance(value, int | float):
        return None
    return float(value) if 0 <= value < MAX_SAFE_INTEGER else None


# A decimal number as text: at most 15 digits before the point, and an exponent of two digits, so that it stays short.
_DECIMAL = re.compile(r"[0-9]{1,15}(?:\.[0-9]{1,40})?(?:[eE][-+]?[0-9]{1,2})?")


def decimal_text(value: object) -> str | None:
    """A non-negative amount below 2**53 as plain decimal digits, without trailing zeros; None for anything else.

    `value`: a number or a text. A float is the shortest decimal number that reads as it, which is what JSON prints: 0.1 is
    0.1, and not the binary fraction that stands for it.
    """
    text = value if isinstance(value, str) else "" if finite_number(value) is None else repr(value)
    if _DECIMAL.fullmatch(text) is None:
        return None
    amount = Decimal(text)
    if amount >= MAX_SAFE_INTEGER:
        return None
    plain = f"{amount:f}"
    return plain.rstrip("0").removesuffix(".") if "." in plain else plain
