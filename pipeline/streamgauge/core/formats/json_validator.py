"""Checks incrementally whether text that comes in pieces is one valid JSON value. The state is a few bytes.

A stream carries tool arguments in fragments. The state of the check is part of an open stream's state, so it keeps no text.
The grammar is exactly RFC 8259: no NaN, no trailing comma, no control character in a string; lone surrogates pass.

The state is a mode and the open brackets. `_STEPS` gives, for each mode and next character, the next mode; a character
that it does not name leads to `bad`, which is final. Three rules are not in the table:

- an opening bracket is appended to the levels, and a closing bracket removes the last level;
- `after` a value, the innermost level decides which characters may come (`_AFTER`);
- a number ends at the first character that does not continue it; that character is then read again, after the value.
"""

import re
from collections.abc import Iterable

import msgspec

# Levels of nesting; a value nested deeper counts as invalid. Real tool arguments have under 20, parsers in other
# languages stop between 100 and 1,000, and each level takes one byte of the state.
MAX_DEPTH = 256


class JsonState(msgspec.Struct, array_like=True, gc=False):
    """The state of the check: a mode of `_STEPS`, and the open brackets, outermost first."""

    mode: str = "value"
    levels: str = ""


_Steps = dict[str, str]


def _any(characters: Iterable[str], mode: str) -> _Steps:
    return dict.fromkeys(characters, mode)


_DIGITS = "0123456789"
_NUMBERS = frozenset(("zero", "integer", "fraction", "power"))  # modes in which a number may end
# Characters that begin a value. The modes of a literal are named by its remaining letters.
_OPENING = {
    '"': "text",
    "{": "key or end",
    "[": "item or end",
    "-": "minus",
    "0": "zero",
    **_any("123456789", "integer"),
    "t": "rue",
    "f": "alse",
    "n": "ull",
}
_PAST_INTEGER = {".": "point", **_any("eE", "exponent")}


def _space(mode: str) -> _Steps:
    return _any(" \t\n\r", mode)


def _string(mode: str, then: str) -> dict[str, _Steps]:
    """The modes inside a string. `_PLAIN` skips the characters that have no special meaning."""
    escape, digits = f"{mode} escape", [f"{mode} u{left}" for left in (4, 3, 2, 1)]
    return {
        mode: {'"': then, "\\": escape},
        escape: {**_any('"\\/bfnrt', mode), "u": digits[0]},
        **{
            digit: _any(_DIGITS + "abcdefABCDEF", following)
            for digit, following in zip(digits, [*digits[1:], mode], strict=True)
        },
    }


def _literals() -> dict[str, _Steps]:
    words = [word[at:] for word in ("rue", "alse", "ull") for at in range(len(word))]
    return {word: {word[0]: word[1:] or "after"} for word in words}


_STEPS: dict[str, _Steps] = {
    "value": {**_OPENING, **_space("value")},
    "item or end": {**_OPENING, "]": "after", **_space("item or end")},
    "key or end": {'"': "key", "}": "after", **_space("key or end")},
    "next key": {'"': "key", **_space("next key")},
    "colon": {":": "value", **_space("colon")},
    **_string("key", "colon"),
    **_string("text", "after"),
    **_literals(),
    "minus": {"0": "zero", **_any("123456789", "integer")},
    "zero": _PAST_INTEGER,
    "integer": {**_any(_DIGITS, "integer"), **_PAST_INTEGER},
    "point": _any(_DIGITS, "fraction"),
    "fraction": {**_any(_DIGITS, "fraction"), **_any("eE", "exponent")},
    "exponent": {**_any("+-", "exponent sign"), **_any(_DIGITS, "power")},
    "exponent sign": _any(_DIGITS, "power"),
    "power": _any(_DIGITS, "power"),
    "bad": {},
}
_AFTER: dict[str, _Steps] = {
    "": _space("after"),
    "{": {",": "next key", "}": "after", **_space("after")},
    "[": {",": "value", "]": "after", **_space("after")},
}
_PLAIN = re.compile(r'[^"\\\x00-\x1f]*').match


def feed(state: JsonState, text: str) -> None:
    """Updates `state` with the next piece of the text, of any length. Never raises."""
    mode, levels = state.mode, state.levels
    at, end = 0, len(text)
    while at < end and mode != "bad":
        if mode in {"text", "key"} and (plain := _PLAIN(text, at)):
            at = plain.end()
            if at == end:
                break
        char = text[at]
        following = (_AFTER[levels[-1:]] if mode == "after" else _STEPS[mode]).get(char)
        if following is None and mode in _NUMBERS:
            mode = "after"
            continue
        at += 1
        if char in "{[":
            levels += char
            following = following if len(levels) <= MAX_DEPTH else "bad"
        elif char in "}]":
            levels = levels[:-1]
        mode = following or "bad"
    state.mode, state.levels = mode, levels


def is_valid(state: JsonState) -> bool:
    """Whether the text fed so far is exactly one valid JSON value, nested no deeper than MAX_DEPTH."""
    return not state.levels and (state.mode == "after" or state.mode in _NUMBERS)
