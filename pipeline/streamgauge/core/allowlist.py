"""The specs in which a dialect names the parts of its events that may be kept, and the filter that applies them.

A spec is a Kind for a scalar, a dict for an object, a one-element list for a list. Of a tuple of specs the first that fits
the value applies. What no spec names is masked: strings become `masked`, numbers 0, objects and lists empty, and a key
becomes `masked_N`, where N is the member's position from 0. Null, true and false always stay.
"""

from collections.abc import Mapping, Sequence
from enum import Enum
from typing import Union

import msgspec

from streamgauge.core.outcome import reason_label
from streamgauge.core.safe_values import MASKED, MAX_SAFE_INTEGER, safe_code, safe_id


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


Spec = Union[Kind, Mapping[str, "Spec"], Sequence["Spec"]]

# Replaces a number that its kind does not allow. No reader accepts it as a count, a measure or a code. It is a number,
# because a reader could accept a string as a code.
OUT_OF_RANGE = 2**53 + 1

# Masked members of an object are kept up to this position, and dropped after it. The largest object that a provider
# sends has 31 members.
MAX_MEMBERS = 512


def apply_allowlist(spec: Spec | None, value: object) -> object:
    """The value, with everything masked that `spec` does not name. Named parts keep their shape."""
    if value is None or value is True or value is False:
        return value
    if isinstance(spec, tuple):
        spec = next((one for one in spec if fits(one, value)), spec)
    if isinstance(spec, Kind):
        return _scalar(spec, value)
    if isinstance(value, dict):
        return _object(spec, value) if isinstance(spec, Mapping) else _empty_like(spec, value)
    if isinstance(value, list):
        return (
            [apply_allowlist(spec[0], item) for item in value] if isinstance(spec, list) else _empty_like(spec, value)
        )
    if spec is None:
        return MASKED if isinstance(value, str) else 0
    return (MASKED if value else "") if isinstance(value, str) else int(bool(value))


def _empty_like(spec: Spec | None, value: dict[str, object] | list[object]) -> object:
    """A container of a type that its spec does not allow, without its content.

    Where there is a spec it stays empty or non-empty, since readers take the first non-empty of several values.
    """
    if spec is None or not value:
        return {} if isinstance(value, dict) else []
    return {MASKED: 0} if isinstance(value, dict) else [0]


def fits(spec: Spec, value: object) -> bool:
    """Whether a value has the type that a spec is for. Of several specs the first that fits applies."""
    if isinstance(spec, Kind):
        if spec is Kind.TEXT:
            return isinstance(value, str)
        return spec is Kind.ARGUMENTS or not isinstance(value, dict | list)
    return isinstance(value, dict) if isinstance(spec, Mapping) else isinstance(value, list)


def _object(spec: Mapping[str, Spec], value: dict[str, object]) -> dict[str, object]:
    kept: dict[str, object] = {}
    for position, (key, member) in enumerate(value.items()):
        if key in spec:
            kept[key] = apply_allowlist(spec[key], member)
        elif position < MAX_MEMBERS:
            kept[f"{MASKED}_{position}"] = apply_allowlist(None, member)
    return kept


def _scalar(kind: Kind, value: object) -> object:
    if kind is Kind.ARGUMENTS:
        return "x" * argument_chars(value) if value else value  # {} announces that arguments follow, and stays
    # A container instead of a scalar stays empty or non-empty: readers take the first non-empty of several values.
    if isinstance(value, dict):
        return {MASKED: 0} if value else {}
    if isinstance(value, list):
        return [0] if value else []
    if isinstance(value, str):
        return _text(kind, value)
    if kind is Kind.TEXT:
        return 1 if value else 0  # a number is no text, and masking must not make it one
    return value if not value or _may_stay(kind, value) else OUT_OF_RANGE


def _text(kind: Kind, value: str) -> str:
    if kind is Kind.TEXT:
        return "x" * len(value)
    if value == "":
        return value
    if kind is Kind.CODE:
        return safe_code(value) or ""
    if kind is Kind.REASON:
        return reason_label(value) or ""
    return (safe_id(value) or "") if kind is Kind.ID else MASKED


def _may_stay(kind: Kind, value: object) -> bool:
    """Whether its kind allows a number: an error's code may be a number, a name or a flag may not."""
    if kind in (Kind.CODE, Kind.REASON):
        return isinstance(value, int) and abs(value) <= MAX_SAFE_INTEGER
    return kind in (Kind.COUNT, Kind.NUMBER) and _is_finite(value)


def _is_finite(value: object) -> bool:
    if isinstance(value, int):
        return -(2**63) <= value < 2**63
    return isinstance(value, float) and -1e300 < value < 1e300


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


def encoded(value: object) -> bytes:
    """Filtered JSON as bytes. What `apply_allowlist` returns can always be encoded."""
    return msgspec.json.encode(value)
