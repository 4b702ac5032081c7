"""JSON as providers send it -> Python, without ever raising.

msgspec decodes what is well-formed; where it refuses what is legal or nearly so (lone surrogates, NaN in log
probabilities), the stdlib decides, as it does in the providers' own Python clients.
Bounded: nesting by MAX_DEPTH, integers by MAX_DIGITS.
"""

import json
import re
from typing import Final

import msgspec

# Longer integers become floats (and so are no counts): reading 10**5 digits exactly takes quadratic time.
MAX_DIGITS = 40
# Levels of nesting. Without it the interpreter's recursion limit decides, and with it how deep the caller's stack is: the
# same event would parse in one process and not in another (law 2), and what parses could not be written again.
MAX_DEPTH = 256
# What a JSON text begins with, by msgspec and by the stdlib (blanks, NaN and Infinity among it): any other is told from its
# first byte, in a tenth of the time that two decoders take to refuse it.
_BEGINNINGS = frozenset(b' \t\n\r{["-0123456789tfnNI')
# Strings and brackets of a text whose escaped quotes and backslashes were removed.
_TOKENS = re.compile(rb'"[^"]*"?|[\[{]|[\]}]')


class _Unparsed:
    """What `parse` gives for text that is no JSON; a type of its own since None is JSON."""

    def __repr__(self) -> str:
        return "UNPARSED"


UNPARSED: Final = _Unparsed()

_DECODER = msgspec.json.Decoder()


def parse(text: bytes) -> object:
    """The value of a JSON text, UNPARSED if it is none. Duplicate keys: the last wins."""
    if not text or text[0] not in _BEGINNINGS:
        return UNPARSED
    if len(text) > 2 * MAX_DEPTH and _is_too_deep(text):
        return UNPARSED
    try:
        return _DECODER.decode(text)
    except (msgspec.DecodeError, UnicodeDecodeError):
        return _parse_leniently(text)
    except (RecursionError, ValueError, OverflowError):
        return UNPARSED


def _parse_leniently(text: bytes) -> object:
    try:
        return json.loads(text.decode("utf-8", "replace"), parse_int=_whole, parse_constant=float)
    except (ValueError, RecursionError):
        return UNPARSED


def _is_too_deep(text: bytes) -> bool:
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
