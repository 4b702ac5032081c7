"""The form of two events that were masked alike: what they share, and how each value in which they differ is masked."""

import re
from collections.abc import Mapping, Sequence
from typing import NamedTuple

from streamgauge.core.allowlist import Kind, Spec, apply_allowlist, encoded, fits
from streamgauge.core.assembly.forms import BLANK, Hole, Path
from streamgauge.core.assembly.learning import MARK, Span, differences, paths_of
from streamgauge.core.formats.json_text import parse
from streamgauge.core.formats.sse import Event, write_event
from streamgauge.core.masking.mask_forms import Mask, MaskForm, mask_id, mask_line, mask_same, mask_text

_HEAD_WITH_ID = re.compile(rb"((?:event: [^\r\n]*\n)?id: )([^\r\n\x00]+)(\ndata: )")


class Masked(NamedTuple):
    """An event that was masked: its block as it came, without the blank line; what it was, and what it became.

    `spec`: what was kept of its data; None if the data is text, no JSON.
    """

    block: bytes
    event: Event
    became: Event
    spec: Mapping[str, Spec] | None


class _Parts:
    """Literals and holes in the making, of events (`raw`) and of what they become (`written`)."""

    def __init__(self) -> None:
        self.raw, self.written = [b""], [b""]
        self.kinds: list[Hole] = []
        self.outs: list[Mask | None] = []

    def literal(self, raw: bytes, written: bytes) -> None:
        self.raw[-1] += raw
        self.written[-1] += written

    def hole(self, kind: Hole, out: Mask | None) -> None:
        self.kinds.append(kind)
        self.outs.append(out)
        self.raw.append(b"")
        if out is not None:
            self.written.append(b"")


def learn_mask(one: Masked, other: Masked) -> MaskForm | None:
    """The form of two events that were masked alike; None if they differ in what may mean something."""
    parts = _Parts()
    whole = _is_usual(one) and _is_usual(other) and _head(one, other, parts)
    if not whole or not (_line(one, parts) if one.spec is None else _json(one, other, one.spec, parts)):
        return None
    form = MaskForm(parts.raw, parts.kinds, parts.written, parts.outs)
    wanted = [write_event(one.became), write_event(other.became)]
    return form if form.mask([one.block, other.block]) == (2, b"".join(wanted)) else None


def _is_usual(masked: Masked) -> bool:
    """One line of data at the block's end, and nothing that may tell of an error."""
    event, data = masked.event, masked.event.data
    if not data or b"\n" in data or event.error is not None or event.bare is not None or event.oversized:
        return False
    return masked.block.endswith(b"data: " + data)


def _head(one: Masked, other: Masked, parts: _Parts) -> bool:
    """What stands before the data: the same, or but for the event's id."""
    ours, theirs = _before_data(one), _before_data(other)
    became = one.became
    if ours == theirs:
        parts.literal(ours, write_event(became)[: -len(became.data or b"") - len(BLANK)])
        return True
    found, beside = _HEAD_WITH_ID.fullmatch(ours), _HEAD_WITH_ID.fullmatch(theirs)
    if found is None or beside is None or found[1] != beside[1]:
        return False
    name = b"event: " + became.name.encode() + b"\n" if became.name else b""
    parts.literal(found[1], name + b"id: ")
    parts.hole(Hole.ID, mask_id)
    parts.literal(found[3], b"\ndata: ")
    return True


def _before_data(masked: Masked) -> bytes:
    return masked.block[: -len(masked.event.data or b"")]


def _line(one: Masked, parts: _Parts) -> bool:
    parts.hole(Hole.LINE, mask_line)
    return True


def _json(one: Masked, other: Masked, spec: Mapping[str, Spec], parts: _Parts) -> bool:
    """Data that is a JSON object. Whether all that differs is masked by its place and by itself alone."""
    ours, theirs = one.event.data or b"", other.event.data or b""
    spans = differences(ours, theirs)
    value = parse(ours)
    if not spans or not isinstance(value, dict):
        return False
    marked = apply_allowlist(spec, value)
    holes: list[tuple[Hole, Mask | None]] = []
    for (begin, end, instead), path in zip(spans, paths_of(ours, spans), strict=True):
        quoted = ours[begin - 1 : begin] == b'"'
        hole = (
            None
            if path is None or begin == end or not instead
            else _hole(_spec_at(spec, path, quoted=quoted), quoted=quoted)
        )
        if hole is None or path is None:
            return False
        if hole[1] is not None and not _put_mark(marked, path, len(holes)):
            return False
        holes.append(hole)
    return _fill(ours, spans, holes, encoded(marked), parts)


def _fill(
    ours: bytes, spans: Sequence[Span], holes: Sequence[tuple[Hole, Mask | None]], marked: bytes, parts: _Parts
) -> bool:
    """Puts data and masked data into `parts`, cut at their holes."""
    done = 0
    for number, ((begin, end, _), (kind, out)) in enumerate(zip(spans, holes, strict=True)):
        before = b""
        if out is not None:
            mark = b'"%d"' % (MARK + number)
            if marked.count(mark) != 1:
                return False
            before, _, marked = marked.partition(mark)
            before, marked = (before, marked) if kind is Hole.USAGE else (before + b'"', b'"' + marked)
        parts.literal(ours[done:begin], before)
        parts.hole(kind, out)
        done = end
    parts.literal(ours[done:], marked)
    return True


# Where a value lies that is not kept: whatever it is, the same is left of it.
_GONE = object()


def _spec_at(spec: Spec | None, path: Path, *, quoted: bool) -> object:
    """What a spec says of a value at a path: a Kind, or _GONE; None if it says more, or what is left hangs on others."""
    for key in path:
        spec = _first_fitting(spec, {} if isinstance(key, str) else [])
        if isinstance(spec, Kind):
            return None
        if isinstance(key, str):
            spec = spec.get(key) if isinstance(spec, Mapping) else None
        else:
            spec = spec[0] if isinstance(spec, list) else None
        if spec is None:
            return _GONE
    spec = _first_fitting(spec, "" if quoted else 0)
    return spec if isinstance(spec, Kind) else None


def _first_fitting(spec: Spec | None, value: object) -> Spec | None:
    """Of several specs the one for a value of this type; None if none is."""
    return next((one for one in spec if fits(one, value)), None) if isinstance(spec, tuple) else spec


def _hole(kept: object, *, quoted: bool) -> tuple[Hole, Mask | None] | None:
    """The hole that a value leaves, and how the value is masked; None if it may mean something."""
    if kept is _GONE:
        # Without escapes: what is gone is not looked at, and a wrong escape makes the whole event no JSON.
        return (Hole.STRING if quoted else Hole.NUMBER), None
    if quoted:
        return (
            (Hole.TEXT, mask_text)
            if kept in (Kind.TEXT, Kind.ARGUMENTS)
            else (Hole.STRING, mask_id)
            if kept is Kind.ID
            else None
        )
    return (Hole.USAGE, mask_same) if kept in (Kind.COUNT, Kind.NUMBER) else None


def _put_mark(into: object, path: Path, number: int) -> bool:
    """Puts a mark where a kept value stands. Whether there is such a place."""
    for key in path[:-1]:
        if isinstance(into, dict):
            into = into.get(key)
        elif isinstance(into, list) and isinstance(key, int):
            into = into[key]
    last = path[-1]
    if isinstance(into, dict) and last in into:
        into[last] = str(MARK + number)
        return True
    if isinstance(into, list) and isinstance(last, int):
        into[last] = str(MARK + number)
        return True
    return False
