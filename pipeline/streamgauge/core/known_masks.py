"""Masking without decoding: within one stream nearly all events are masked alike, so what they become is learnt.

From two events that were masked alike a form is learnt: the literals that they share, and for each value in which they
differ how it is masked, which hangs on its place and on itself alone. An event that consists of these literals to the
letter becomes the masked literals with its own values masked between them. Whatever does not fit is decoded and masked
in the ordinary way: this changes how fast events are masked, and nothing else.
"""

import re
from collections.abc import Callable, Mapping, Sequence
from typing import NamedTuple

import msgspec

from streamgauge.core.forms import BLANK, Hole, Path, Texts, Values, are_insides, is_plain, split_at_blanks
from streamgauge.core.json_text import parse
from streamgauge.core.keep import Kind, Spec, encoded, filtered, fits
from streamgauge.core.labels import MASKED
from streamgauge.core.learning import MARK, MAX_EVENT, Span, differences, paths_of
from streamgauge.core.sse import Event, write_event

# Forms that a stream keeps, and events that wait for a second one alike: text and reasoning of two choices, say.
MAX_FORMS = 4
# How often learning may fail before a form proved right again: a stream whose events share nothing is masked as fast as
# without it. One try takes about as long as to mask three events.
MAX_TRIES = 12
# Larger contents are masked in the ordinary way (bytes): a read holds less, and an event has its own cap.
MAX_CONTENT = 256 * 1024

_LIST = msgspec.json.Decoder(list[str])
_ID = re.compile(rb"[ -~]{1,256}")  # as labels.label_id has it
_HEAD_WITH_ID = re.compile(rb"((?:event: [^\r\n]*\n)?id: )([^\r\n\x00]+)(\ndata: )")
_VALUES = re.compile(rb"x+|[0-9]+")  # what masked events of one form differ in

# How a value is masked, as it stands between the masked literals; None if that cannot be said of it alone.
_Mask = Callable[[bytes], bytes | None]


class Masked(NamedTuple):
    """An event that was masked: its block as it came, without the blank line; what it was, and what it became.

    `spec`: what was kept of its data; None if the data is text, no JSON.
    """

    block: bytes
    event: Event
    became: Event
    spec: Mapping[str, Spec] | None


class KnownMasks:
    """What was learnt of one stream's masking."""

    def __init__(self) -> None:
        self._forms: list[_Form] = []
        self._seen: dict[bytes, Masked] = {}
        self._tries = MAX_TRIES

    def plain(self, content: bytes) -> bytes | None:
        """What a content of one event becomes that holds nothing but plain text; None for any other."""
        for form in self._forms:
            plain = form.plain(content)
            if plain is not None:
                self._tries = MAX_TRIES
                return plain
        return None

    def mask(self, content: bytes) -> tuple[bytes, bytes]:
        """The masked events at the beginning of a content that begins with a block, and what is left of it as it is."""
        plain = self.plain(content)
        if plain is not None:
            return plain, b""
        if not self._forms or len(content) > MAX_CONTENT:
            return b"", content
        rest = b""
        if b"\r" in content:
            end = content.rfind(b"\r\n\r\n") + 4
            if end < 4 or content.count(b"\r", 0, end) != content.count(b"\r\n", 0, end):
                return b"", content
            content, rest = content[:end], content[end:]
            content = content.replace(b"\r\n", b"\n")
        masked, left = self._whole(content)
        return masked, left + rest

    def _whole(self, content: bytes) -> tuple[bytes, bytes]:
        if content.find(BLANK) + len(BLANK) != len(content):
            return self._several(content)
        for form in self._forms:
            one = form.one(content)
            if one is not None:
                self._tries = MAX_TRIES
                return one, b""
        return b"", content

    def _several(self, content: bytes) -> tuple[bytes, bytes]:
        *blocks, rest = split_at_blanks(content)
        done: list[bytes] = []
        while blocks:
            count, masked = next((found for form in self._forms if (found := form.mask(blocks))[0]), (0, b""))
            if not count:
                break
            self._tries = MAX_TRIES
            done.append(masked)
            blocks = blocks[count:]
        return b"".join(done), b"".join([block + BLANK for block in blocks]) + rest

    def forget(self) -> None:
        """The stream is not what it seemed: nothing that was learnt holds."""
        self._forms, self._seen = [], {}

    def see(self, masked: Masked) -> None:
        """An event was masked in the ordinary way."""
        if not self._tries or len(masked.block) > MAX_EVENT:
            return
        sign = _VALUES.sub(b"", write_event(masked.became))
        before = self._seen.pop(sign, None)
        self._seen[sign] = masked
        if len(self._seen) > MAX_FORMS:
            del self._seen[next(iter(self._seen))]
        if before is not None and before.block != masked.block:
            form = _learn(before, masked)
            self._tries -= 1
            if form is not None:
                self._forms = [form, *self._forms[: MAX_FORMS - 1]]


class _Form:
    """Literals and holes of events, and of what they become. `outs`: for each hole how it is masked, None if it is gone."""

    def __init__(
        self, literals: Sequence[bytes], kinds: Sequence[Hole], written: list[bytes], outs: list[_Mask | None]
    ):
        self._before, self._after = literals[0], literals[-1] + BLANK
        self._is_text = len(kinds) == 1 and kinds[0] is Hole.TEXT
        self._form = (
            Texts(literals[0], literals[-1]) if self._is_text else Values(literals, [(kind, ()) for kind in kinds])
        )
        self._outs = outs
        self._frame = [part for literal in written for part in (literal, b"")][:-1]
        self._frame[-1] += BLANK
        self._is_plain = self._is_text and len(written) == 2

    def plain(self, content: bytes) -> bytes | None:
        """What one event of plain text becomes; None if it is of another form, or if the form has other holes."""
        if not self._is_plain or not content.startswith(self._before) or not content.endswith(self._after):
            return None
        text = content[len(self._before) : -len(self._after)]
        if not text.isascii() or not is_plain(text):
            return None
        return self._frame[0] + b"x" * len(text) + self._frame[2]

    def one(self, content: bytes) -> bytes | None:
        """What an event with its blank line becomes; None if it is of another form."""
        if not content.startswith(self._before):
            return None
        values = self._form.one(content[: -len(BLANK)])
        if values is None or (self._is_text and not are_insides(values)):
            return None
        masked = [out(value) for out, value in zip(self._outs, values, strict=True) if out is not None]
        if None in masked:
            return None
        parts = self._frame.copy()
        parts[1::2] = [value or b"" for value in masked]
        return b"".join(parts)

    def mask(self, blocks: Sequence[bytes]) -> tuple[int, bytes]:
        """What events become, one a block, up to one of another form: how many, and all of them."""
        columns = self._form.columns(blocks)
        if not columns or not columns[0] or (self._is_text and not are_insides(columns[0])):
            return 0, b""
        width, count = len(self._frame), len(columns[0])
        parts = self._frame * count
        kept = [(out, column) for out, column in zip(self._outs, columns, strict=True) if out is not None]
        for place, (out, column) in enumerate(kept):
            masked = _masked(out, column)
            if None in masked:
                count = min(count, masked.index(None))
            parts[2 * place + 1 :: width] = [value or b"" for value in masked]
        return count, b"".join(parts[: count * width])


# --- learning -------------------------------------------------------------------------------------------------------


class _Parts:
    """Literals and holes in the making, of events (`raw`) and of what they become (`written`)."""

    def __init__(self) -> None:
        self.raw, self.written = [b""], [b""]
        self.kinds: list[Hole] = []
        self.outs: list[_Mask | None] = []

    def literal(self, raw: bytes, written: bytes) -> None:
        self.raw[-1] += raw
        self.written[-1] += written

    def hole(self, kind: Hole, out: _Mask | None) -> None:
        self.kinds.append(kind)
        self.outs.append(out)
        self.raw.append(b"")
        if out is not None:
            self.written.append(b"")


def _learn(one: Masked, other: Masked) -> _Form | None:
    """The form of two events that were masked alike; None if they differ in what may mean something."""
    parts = _Parts()
    whole = _is_usual(one) and _is_usual(other) and _head(one, other, parts)
    if not whole or not (_line(one, parts) if one.spec is None else _json(one, other, one.spec, parts)):
        return None
    form = _Form(parts.raw, parts.kinds, parts.written, parts.outs)
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
    parts.hole(Hole.ID, _id)
    parts.literal(found[3], b"\ndata: ")
    return True


def _before_data(masked: Masked) -> bytes:
    return masked.block[: -len(masked.event.data or b"")]


def _line(one: Masked, parts: _Parts) -> bool:
    parts.hole(Hole.LINE, _line_masked)
    return True


def _json(one: Masked, other: Masked, spec: Mapping[str, Spec], parts: _Parts) -> bool:
    """Data that is a JSON object. Whether all that differs is masked by its place and by itself alone."""
    ours, theirs = one.event.data or b"", other.event.data or b""
    spans = differences(ours, theirs)
    value = parse(ours)
    if not spans or not isinstance(value, dict):
        return False
    marked = filtered(spec, value)
    holes: list[tuple[Hole, _Mask | None]] = []
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
    ours: bytes, spans: Sequence[Span], holes: Sequence[tuple[Hole, _Mask | None]], marked: bytes, parts: _Parts
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


def _hole(kept: object, *, quoted: bool) -> tuple[Hole, _Mask | None] | None:
    """The hole that a value leaves, and how the value is masked; None if it may mean something."""
    if kept is _GONE:
        # Without escapes: what is gone is not looked at, and a wrong escape makes the whole event no JSON.
        return (Hole.STRING if quoted else Hole.NUMBER), None
    if quoted:
        return (
            (Hole.TEXT, _text)
            if kept in (Kind.TEXT, Kind.ARGUMENTS)
            else (Hole.STRING, _id)
            if kept is Kind.ID
            else None
        )
    return (Hole.USAGE, _same) if kept in (Kind.COUNT, Kind.NUMBER) else None


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


# --- how values are masked ------------------------------------------------------------------------------------------


def _masked(out: _Mask, column: Sequence[bytes]) -> Sequence[bytes | None]:
    """Many values of one hole."""
    if out is _same:
        return column
    if out is _text:
        joined = b"".join(column)
        if joined.isascii() and b"\\" not in joined:  # a byte is a code point
            return [b"x" * len(value) for value in column]
    return [out(value) for value in column]


def _text(value: bytes) -> bytes | None:
    """Generated text as it stands between quotes: an `x` for each code point."""
    try:
        if b"\\" in value:
            return b"x" * len(_LIST.decode(b'["' + value + b'"]')[0])
        return b"x" * len(value if value.isascii() else value.decode())
    except (UnicodeDecodeError, msgspec.DecodeError):
        return None


def _line_masked(value: bytes) -> bytes:
    """The same for text that is no JSON."""
    return b"x" * len(value.decode("utf-8", "replace"))


def _id(value: bytes) -> bytes:
    """An id without escapes in it."""
    return value if _ID.fullmatch(value) else MASKED.encode()


def _same(value: bytes) -> bytes:
    """A count, which is kept."""
    return value
