"""The language in which a dialect says what of its events may be kept, and the filter that holds to it. Default: nothing.

A spec is a Kind for a scalar, a dict for an object, a one-element list for a list, a tuple for "the first that fits".
What no spec names is masked: strings become `masked`, numbers 0, objects and lists empty, keys `masked_1`, `masked_2`.
"""

from collections.abc import Mapping, Sequence
from enum import Enum
from typing import Union

import msgspec

from streamgauge.core.outcome import reason_label
from streamgauge.core.safe_values import MASKED, MAX_SAFE_INTEGER, safe_code, safe_id


class Kind(Enum):
    """What a kept scalar is. A value that is not what its kind says is masked."""

    CODE = "code"  # a word of the protocol: type, status, error code
    REASON = "reason"  # a finish reason: of a sentence the known reason among its words is kept
    ID = "id"  # an id, model or tool name
    COUNT = "count"  # tokens and indices; bad ones (negative, float) are kept, to be counted as bad
    NUMBER = "number"  # a measure
    FLAG = "flag"
    TEXT = "text"  # generated text: its code points are kept as a number, each one an `x`
    ARGUMENTS = "arguments"  # a tool's arguments as a JSON value: kept as a text of the same length


Spec = Union[Kind, Mapping[str, "Spec"], Sequence["Spec"]]

# Stands for a number that no reader takes for a count, a measure or a code, and is none: never a string, which may be one.
OUT_OF_RANGE = 2**53 + 1

# Members of one object that are looked at; a provider's largest has 31. The rest is dropped when masked (law 7).
MAX_MEMBERS = 512


def apply_allowlist(spec: Spec | None, value: object) -> object:
    """The value without what `spec` does not name. Same shape for what it names."""
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
    """A container that is not what its spec says: as full or empty as it was, since readers take the first that is full."""
    if spec is None or not value:
        return {} if isinstance(value, dict) else []
    return {MASKED: 0} if isinstance(value, dict) else [0]


def fits(spec: Spec, value: object) -> bool:
    """Whether a value is of the type that a spec is for; of several specs the first that fits is taken."""
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
        return "x" * argument_chars(value) if value else value  # {} stands for "it follows", and stays
    # What is not what its kind says stays full or empty: readers take the first of several that is.
    if isinstance(value, dict):
        return {MASKED: 0} if value else {}
    if isinstance(value, list):
        return [0] if value else []
    if isinstance(value, str):
        return _text(kind, value)
    if kind is Kind.TEXT:
        return 1 if value else 0  # no text, and no more of one when it is masked
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
    """Whether a number is what its kind says: an error's code may be one, a name or a flag never is."""
    if kind in (Kind.CODE, Kind.REASON):
        return isinstance(value, int) and abs(value) <= MAX_SAFE_INTEGER
    return kind in (Kind.COUNT, Kind.NUMBER) and _is_finite(value)


def _is_finite(value: object) -> bool:
    if isinstance(value, int):
        return -(2**63) <= value < 2**63
    return isinstance(value, float) and -1e300 < value < 1e300


def argument_chars(value: object) -> int:
    """Code points of tool arguments: of the text, or of the compact JSON of a value that is sent as one."""
    if isinstance(value, str):
        return len(value)
    if value is None:
        return 0
    try:
        return len(msgspec.json.encode(value).decode())
    except (UnicodeEncodeError, RecursionError, OverflowError):
        return len(str(value))


def encoded(value: object) -> bytes:
    """Filtered JSON as bytes: what `filtered` lets through is always encodable."""
    return msgspec.json.encode(value)
