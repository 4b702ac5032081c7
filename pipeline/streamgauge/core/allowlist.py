"""Allowlists: which event fields masking keeps.

A dialect names them by specs: a Kind for a scalar, a dict for an object, a one-element list for a list. Of a tuple of specs
the first that fits the value applies. What no spec names is masked: strings become `masked`, numbers 0, objects and lists
empty, and a key becomes `masked_N`, where N is the member's position from 0. Null, true and false always stay.
"""

from collections.abc import Callable, Mapping, Sequence
from enum import Enum
from typing import Union

import msgspec

from streamgauge.core.outcome import reason_label
from streamgauge.core.safe_values import CODE_CHARACTERS, MASKED, MAX_CODE_CHARS, MAX_ID_CHARS, MAX_SAFE_INTEGER


class Kind(Enum):
    """The kinds of scalars that are kept. A value that does not fit its kind is masked."""

    CODE = "code"  # a word of the protocol: type, status, error code
    REASON = "reason"  # a finish reason; of a sentence the first known reason among its words is kept
    ID = "id"  # an id, model or tool name
    COUNT = "count"  # tokens and indices; bad ones (negative, float) are kept, so that they are counted as bad
    NUMBER = "number"  # a measure
    FLAG = "flag"
    TEXT = "text"  # generated text: replaced by one `x` per code point
    ARGUMENTS = "arguments"  # a tool's arguments, a text or JSON value: replaced by one `x` per code point of the JSON

    __hash__ = object.__hash__  # Enum's own is written in Python, and takes ten times as long


Spec = Union[Kind, Mapping[str, "Spec"], Sequence["Spec"]]

# Replaces a number that its kind does not allow. No reader accepts it as a count, a measure or a code. It is a number,
# because a reader could accept a string as a code.
OUT_OF_RANGE = 2**53 + 1

# Masked members of an object are kept up to this position, and dropped after it. The largest object that a provider
# sends has 31 members.
MAX_MEMBERS = 512
_MASKED_KEYS = [f"{MASKED}_{position}" for position in range(MAX_MEMBERS)]


# A filter takes a JSON value as `json_text.parse` returns it, and returns what may be kept of it.
Filter = Callable[[object], object]


def allowlist_filter(spec: Spec | None) -> Filter:
    """The filter that masks everything which `spec` does not name. Named parts keep their shape.

    Make it once for each allowlist: to interpret the spec at each event takes four times as long.
    """
    if spec is None:
        return _unnamed
    if isinstance(spec, Kind):
        return _SCALARS[spec]
    if isinstance(spec, tuple):
        return _first_that_fits(spec)
    return _object(spec) if isinstance(spec, Mapping) else _list(spec[0])


def apply_allowlist(spec: Spec | None, value: object) -> object:
    """The value, filtered once: see `allowlist_filter`."""
    return allowlist_filter(spec)(value)


def _object(spec: Mapping[str, Spec]) -> Filter:
    named = {key: allowlist_filter(member) for key, member in spec.items()}.get

    def filtered(value: object) -> object:
        if type(value) is not dict:
            return _misfit(value)
        kept: dict[str, object] = {}
        for key, member in value.items():
            keep = named(key)
            if keep is not None:
                kept[key] = None if member is None else keep(member)
            elif (position := len(kept)) < MAX_MEMBERS:  # nothing was dropped so far: all earlier members are in `kept`
                kept[_MASKED_KEYS[position]] = None if member is None else _unnamed(member)
        return kept

    return filtered


def _list(spec: Spec) -> Filter:
    keep = allowlist_filter(spec)

    def filtered(value: object) -> object:
        return list(map(keep, value)) if type(value) is list else _misfit(value)

    return filtered


def _first_that_fits(specs: tuple[Spec, ...]) -> Filter:
    """The filter of a tuple of specs: the type of a value alone decides which of them applies."""
    examples: tuple[object, ...] = ({}, [], "", 0, 0.0)
    by_type = {
        type(example): next((allowlist_filter(spec) for spec in specs if fits(spec, example)), _misfit)
        for example in examples
    }

    def filtered(value: object) -> object:
        keep = by_type.get(type(value))
        return value if keep is None else keep(value)  # null, true and false stay

    return filtered


def fits(spec: Spec, value: object) -> bool:
    """Whether a value has the type that a spec is for. Of several specs the first that fits applies."""
    if isinstance(spec, Kind):
        if spec is Kind.TEXT:
            return isinstance(value, str)
        return spec is Kind.ARGUMENTS or not isinstance(value, dict | list)
    return isinstance(value, dict) if isinstance(spec, Mapping) else isinstance(value, list)


def _unnamed(value: object) -> object:
    """The replacement of a value that no spec names: it has only the type."""
    kind = type(value)
    if kind is str:
        return MASKED
    if kind is dict:
        return {}
    if kind is list:
        return []
    return value if value is None or kind is bool else 0


def _misfit(value: object) -> object:
    """The replacement of a value whose type its spec does not allow.

    It stays empty or not empty (0 or not), since readers take the first of several values that is not empty.
    """
    if isinstance(value, dict):
        return {MASKED: 0} if value else {}
    if isinstance(value, list):
        return [0] if value else []
    if isinstance(value, str):
        return MASKED if value else ""
    return value if value is None or isinstance(value, bool) else int(bool(value))


def _text(value: object) -> object:
    # A number is no text, and masking must not make it one.
    return "x" * len(value) if type(value) is str else _misfit(value)


def _arguments(value: object) -> object:
    # {} announces that arguments follow, and stays.
    return "x" * argument_chars(value) if value and value is not True else value


def _count(value: object) -> object:
    if type(value) is int:
        return value if -(2**63) <= value < 2**63 else OUT_OF_RANGE
    if type(value) is float:
        return value if not value or -1e300 < value < 1e300 else OUT_OF_RANGE
    return _misfit(value)


def _id(value: object) -> object:
    if type(value) is str:  # as `is_id`: most events have several, and a call takes longer than the checks
        return value if value.isascii() and value.isprintable() and len(value) <= MAX_ID_CHARS else MASKED
    return _flag(value)


def _code(value: object) -> object:
    if type(value) is str:  # as `is_code`
        return value if len(value) <= MAX_CODE_CHARS and not value.strip(CODE_CHARACTERS) else MASKED
    return _code_number(value)


def _reason(value: object) -> object:
    if type(value) is str:
        return reason_label(value) or ""
    return _code_number(value)


def _flag(value: object) -> object:
    """The filter of flags. A number is masked: it is no flag, and may be private, as a card number is."""
    if type(value) is int or type(value) is float:
        return OUT_OF_RANGE if value else value
    return _misfit(value)


def _code_number(value: object) -> object:
    """The filter of an error's code that is no text: an integer up to MAX_SAFE_INTEGER is kept."""
    return value if type(value) is int and abs(value) <= MAX_SAFE_INTEGER else _flag(value)


_SCALARS: Mapping[Kind, Filter] = {
    Kind.CODE: _code,
    Kind.REASON: _reason,
    Kind.ID: _id,
    Kind.COUNT: _count,
    Kind.NUMBER: _count,
    Kind.FLAG: _flag,
    Kind.TEXT: _text,
    Kind.ARGUMENTS: _arguments,
}


def argument_chars(value: object) -> int:
    """Code points of tool arguments: of a text, or of the compact JSON of any other value; 0 for None."""
    if isinstance(value, str):
        return len(value)
    if value is None:
        return 0
    try:
        return len(msgspec.json.encode(value).decode())
    except (UnicodeEncodeError, RecursionError, OverflowError):
        return len(str(value))


def encoded_each(values: Sequence[object]) -> list[bytes]:
    """Each of many filtered values as JSON, as `encoded` returns it."""
    return _ENCODER.encode_lines(values).split(b"\n")[:-1]  # no line end lies within a value: strings escape it


_ENCODER = msgspec.json.Encoder()
# A filtered value as JSON. Every value that a filter returns can be encoded.
encoded: Callable[[object], bytes] = _ENCODER.encode
