"""A second implementation of the rules of `allowlist.Kind`: slow, and independent of the filters."""

from collections.abc import Mapping

from streamgauge.core.allowlist import MAX_MEMBERS, OUT_OF_RANGE, Kind, Spec, argument_chars, fits
from streamgauge.core.outcome import reason_label
from streamgauge.core.safe_values import MASKED, MAX_SAFE_INTEGER, safe_code, safe_id


def interpreted(spec: Spec | None, value: object) -> object:
    """The value, with everything masked that `spec` does not name."""
    if value is None or value is True or value is False:
        return value
    if isinstance(spec, tuple):
        spec = next((one for one in spec if fits(one, value)), spec)
    if isinstance(spec, Kind):
        return _scalar(spec, value)
    if isinstance(value, dict):
        return _object(spec, value) if isinstance(spec, Mapping) else _empty_like(spec, value)
    if isinstance(value, list):
        return [interpreted(spec[0], item) for item in value] if isinstance(spec, list) else _empty_like(spec, value)
    if spec is None:
        return MASKED if isinstance(value, str) else 0
    return (MASKED if value else "") if isinstance(value, str) else int(bool(value))


def _object(spec: Mapping[str, Spec], value: dict[str, object]) -> dict[str, object]:
    kept: dict[str, object] = {}
    for position, (key, member) in enumerate(value.items()):
        if key in spec:
            kept[key] = interpreted(spec[key], member)
        elif position < MAX_MEMBERS:
            kept[f"{MASKED}_{position}"] = interpreted(None, member)
    return kept


def _empty_like(spec: Spec | None, value: dict[str, object] | list[object]) -> object:
    if spec is None or not value:
        return {} if isinstance(value, dict) else []
    return {MASKED: 0} if isinstance(value, dict) else [0]


def _scalar(kind: Kind, value: object) -> object:
    if kind is Kind.ARGUMENTS:
        return "x" * argument_chars(value) if value else value
    if isinstance(value, dict | list):
        return _empty_like(kind, value)
    if isinstance(value, str):
        return _text(kind, value)
    if kind is Kind.TEXT:
        return 1 if value else 0
    return value if not value or _may_stay(kind, value) else OUT_OF_RANGE


def _text(kind: Kind, value: str) -> str:
    if kind is Kind.TEXT:
        return "x" * len(value)
    labels = {Kind.CODE: safe_code, Kind.REASON: reason_label, Kind.ID: safe_id}
    return (labels[kind](value) or "" if kind in labels else MASKED) if value else ""


def _may_stay(kind: Kind, value: object) -> bool:
    if kind in (Kind.CODE, Kind.REASON):
        return isinstance(value, int) and abs(value) <= MAX_SAFE_INTEGER
    if kind not in (Kind.COUNT, Kind.NUMBER):
        return False
    return -(2**63) <= value < 2**63 if isinstance(value, int) else isinstance(value, float) and -1e300 < value < 1e300
