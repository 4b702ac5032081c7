"""Decodes JSON as providers send it into Python values. Never raises.

msgspec decodes well-formed text. If it refuses text that is legal or nearly legal (lone surrogates, NaN in log
probabilities), the stdlib decides, as it does in the providers' own Python clients. MAX_DEPTH limits the nesting, MAX_DIGITS
the length of integers.
"""

import contextlib
import json
import re
from collections.abc import Sequence
from typing import Final

import msgspec

# Longer integers become floats (and so are not counts): reading 10**5 digits exactly takes quadratic time.
MAX_DIGITS = 40
# Levels of nesting. Without this limit, the interpreter's recursion limit and the depth of the caller's stack decide:
# the same event would parse in one process and not in another, and some parsed values could not be encoded again.
MAX_DEPTH = 256
# First bytes of the texts that the stdlib accepts (with blanks, NaN and Infinity). Any other text is refused without it,
# which takes less time.
_BEGINNINGS = frozenset(b"%c" % first for first in b' \t\n\r{["-0123456789tfnNI')
# A text of so few bytes is not nested too deeply.
_SURELY_FLAT = 2 * MAX_DEPTH
# Strings and brackets of a text from which escaped quotes and backslashes were removed.
_TOKENS = re.compile(rb'"[^"]*"?|[\[{]|[\]}]')


class _Unparsed:
    """The type of UNPARSED, which `parse` returns for text that is not JSON: None is a JSON value."""

    def __repr__(self) -> str:
        return "UNPARSED"


UNPARSED: Final = _Unparsed()

_decode = msgspec.json.Decoder().decode
_LIST = msgspec.json.Decoder(list[object])
# Stands between the texts that `parse_each` decodes in one call. An integer has one spelling in JSON. This one is above
# 2**53 and odd, so no float equals it.
_BETWEEN = 2**53 + 7
_DIGITS = b"%d" % _BETWEEN


def parse(text: bytes) -> object:
    """The value of a JSON text; UNPARSED if the text is not JSON. Of duplicate keys the last wins."""
    if len(text) > _SURELY_FLAT and is_too_deep(text):
        return UNPARSED
    try:
        return _decode(text)
    except (msgspec.DecodeError, UnicodeDecodeError):
        return _parse_leniently(text) if text[:1] in _BEGINNINGS else UNPARSED
    except (RecursionError, ValueError, OverflowError):
        return UNPARSED


def parse_each(texts: Sequence[bytes]) -> list[object]:
    """The values of many JSON texts, as `parse` gives them. One call of the decoder takes less time than one for each.

    The texts are decoded as one list, with a number between them that occurs in no text. If the list has this number at
    each odd index, and only there, then the value at each even index is the value of one text: no text runs into the next.
    """
    if len(texts) > 1 and not any(len(text) > _SURELY_FLAT and is_too_deep(text) for text in texts):
        joined = b"[" + (b",%b," % _DIGITS).join(texts) + b"]"
        if joined.count(_DIGITS) == len(texts) - 1:
            with contextlib.suppress(
                msgspec.DecodeError, UnicodeDecodeError, ValueError, RecursionError, OverflowError
            ):
                values: list[object] = _LIST.decode(joined)
                if len(values) == 2 * len(texts) - 1 and values[1::2] == [_BETWEEN] * (len(texts) - 1):
                    return values[::2]
    return [parse(text) for text in texts]


def _parse_leniently(text: bytes) -> object:
    try:
        return json.loads(text.decode("utf-8", "replace"), parse_int=_whole, parse_constant=float)
    except (ValueError, RecursionError):
        return UNPARSED


def is_too_deep(text: bytes) -> bool:
    """Whether values are nested deeper than MAX_DEPTH in a text that is otherwise JSON."""
    if text.count(b"[") + text.count(b"{") <= MAX_DEPTH:
        return False
    depth = 0
    for token in _TOKENS.finditer(text.replace(b"\\\\", b"").replace(b'\\"', b"")):
        first = token[0][:1]
        depth += first in b"[{"
        depth -= first in b"]}"
        if depth > MAX_DEPTH:
            return True
    return False


def _whole(digits: str) -> int | float:
    return int(digits) if len(digits) <= MAX_DIGITS else float(digits)
