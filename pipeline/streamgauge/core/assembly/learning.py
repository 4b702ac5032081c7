"""What an envelope is learnt from: two events of one stream that said the same but for their text.

Where they are the same bytes are the envelope's literals; where they differ are its holes, if what stands there is the
text, or one of the few things that change from event to event and mean nothing, or are known to be read from there.
"""

import re
from collections.abc import Mapping, Sequence

from streamgauge.core.allowlist import Kind, Spec
from streamgauge.core.assembly.envelope import EVENT_ID, Delta, Envelope
from streamgauge.core.assembly.forms import BLANK, SEPARATOR, Hole, Path, same
from streamgauge.core.formats.json_text import parse
from streamgauge.core.usage import UsageRules

# Members that change from event to event and mean nothing to any dialect, as paths from the event's top. A dialect's own
# stand with it (`volatile`).
VOLATILE = frozenset(
    (
        "obfuscation",  # OpenAI: padding against guesses by size
        "p",  # Mistral: the same
        "created",  # SGLang and Ollama set it anew in each chunk
        "created_at",  # watsonx
        "createTime",  # Vertex
    )
)

# Longer events are seldom deltas, and to compare two of them takes time (bytes).
MAX_EVENT = 8 * 1024

# What may follow a value, apart from white space.
_BEHIND_VALUES = (b",", b"}", b"]")

_ESCAPES = re.compile(rb"\\.", re.DOTALL)
_NUMBER = re.compile(rb"-?[0-9][0-9.eE+-]*")
_OF_NUMBERS = b"0123456789.eE+-"
# What takes a value's place, to see where in the event that value stands; no event that holds it is looked at.
MARK = 8_705_759_403_792_000


def learn(one: Delta, other: Delta, usage: UsageRules, volatile: frozenset[str] = VOLATILE) -> Envelope | None:
    """What two events of the same sign share; None if they differ in more than their text and what means nothing.

    `usage`: how the dialect reads a usage; `volatile`: members that mean nothing to it. That `other` told nothing that was
    not known before is for its reader to see; what `one` told besides lies in what they share, so it is known.
    """
    ours, theirs = one.event.data or b"", other.event.data or b""
    if one.text == other.text or max(len(ours), len(theirs)) > MAX_EVENT or b"\n" in ours:
        return None
    parts = _Parts(other)
    if other.raw:
        parts.hole(Hole.LINE)
    elif not _around_text(one, other, parts) and not _compare(one, other, usage, volatile, parts):
        return None
    parts.literal(BLANK)
    return Envelope(other, parts.literals, parts.holes) if _is_whole(other, parts) else None


class _Parts:
    """Literals and holes in the making, in canonical order: name, id, data."""

    def __init__(self, delta: Delta) -> None:
        name = delta.event.name.encode()
        self.literals = [b"event: " + name + b"\n" if name else b""]
        self.holes: list[tuple[Hole, Path]] = []
        if delta.event.id is not None:
            self.literal(b"id: ")
            self.hole(Hole.ID)
            self.literal(b"\n")
        self.literal(b"data: ")

    def literal(self, more: bytes) -> None:
        self.literals[-1] += more

    def hole(self, kind: Hole, path: Path = ()) -> None:
        self.holes.append((kind, path))
        self.literals.append(b"")


def _is_whole(delta: Delta, parts: _Parts) -> bool:
    """Whether all that such an event tells anew each time is read from a hole, or is told once and for all."""
    kinds = [kind for kind, _ in parts.holes]
    if delta.is_numbered != (Hole.SEQUENCE in kinds):
        return False
    if kinds.count(Hole.ID) != delta.is_named + (delta.event.id is not None):
        return False
    return not any(SEPARATOR in literal for literal in parts.literals)


def _quoted(delta: Delta) -> bytes:
    return b'"%b"' % delta.text.encode("utf-8", "replace")


def _around_text(one: Delta, other: Delta, parts: _Parts) -> bool:
    """Puts what two events share into `parts` where they differ in one string, their text. Whether they do.

    The usual case, without a look at each piece: a quote with an even number of quotes before it begins a string.
    """
    ours, theirs, text, instead = one.event.data or b"", other.event.data or b"", _quoted(one), _quoted(other)
    at = -1 if b"\\" in ours or b"\\" in instead else ours.find(text)
    while at >= 0:
        before, after = ours[:at], ours[at + len(text) :]
        if before + instead + after == theirs and before.count(b'"') % 2 == 0 and after.startswith(_BEHIND_VALUES):
            parts.literal(before + b'"')
            parts.hole(Hole.TEXT)
            parts.literal(b'"' + after)
            return True
        at = ours.find(text, at + 1)
    return False


def _compare(one: Delta, other: Delta, usage: UsageRules, volatile: frozenset[str], parts: _Parts) -> bool:
    """Puts what two events share into `parts`. Whether nothing else is left, and their text is among what differs."""
    ours, theirs = one.event.data or b"", other.event.data or b""
    texts = one.text.encode("utf-8", "replace"), other.text.encode("utf-8", "replace")
    spans = differences(ours, theirs)
    if spans is None or any(b"\\" in text or b'"' in text for text in texts):
        return False
    text, done = Hole.TEXT, 0
    for (begin, end, instead), path in zip(spans, paths_of(ours, spans), strict=True):
        quoted = ours[begin - 1 : begin] == b'"'
        is_text = quoted and (ours[begin:end], instead) == texts
        hole: tuple[Hole, Path] | None = (text, ())
        if not is_text:
            hole = _string(path, volatile) if quoted else _number(path, other.usage, usage, volatile)
        if path is None or hole is None:
            return False
        text = Hole.COPY if is_text else text
        parts.literal(ours[done:begin])
        parts.hole(*hole)
        done = end
    parts.literal(ours[done:])
    return text is Hole.COPY


# A value that differs: where it begins and ends in the one event, without quotes, and what stands there in the other.
Span = tuple[int, int, bytes]


def differences(ours: bytes, theirs: bytes) -> list[Span] | None:
    """The strings and numbers that differ between two JSON texts; None if anything else does."""
    plain, other = _without_escapes(ours), _without_escapes(theirs)
    spans: list[Span] = []
    done = behind = 0  # so far both are looked at, in the one and in the other
    while (at := same(ours[done:], theirs[behind:])) < max(len(ours) - done, len(theirs) - behind):
        at += done
        if plain.count(b'"', 0, at) % 2:
            begin = plain.rfind(b'"', 0, at) + 1
            found = plain.find(b'"', begin), other.find(b'"', begin - done + behind)
        else:
            begin = len(plain[:at].rstrip(_OF_NUMBERS))
            found = _number_end(plain, begin), _number_end(other, begin - done + behind)
        if min(found) < 0 or begin < done:
            return None
        spans.append((begin, found[0], theirs[begin - done + behind : found[1]]))
        done, behind = found
    return spans


def _number_end(text: bytes, begin: int) -> int:
    found = _NUMBER.match(text, begin)
    return found.end() if found else -1


def _without_escapes(data: bytes) -> bytes:
    """JSON of the same length in which each quote begins or ends a string."""
    return _ESCAPES.sub(b"__", data) if b"\\" in data else data


def paths_of(data: bytes, spans: Sequence[Span]) -> list[Path | None]:
    """Where in the event the values stand that differ; None for what is no value, or not found."""
    marks: dict[object, int] = {}
    marked, done = [], 0
    for number, (begin, end, _) in enumerate(spans):
        marks[MARK + number] = marks[str(MARK + number)] = number
        marked += [data[done:begin], b"%d" % (MARK + number)]
        done = end
    found: list[Path | None] = [None] * len(spans)
    if b"%d" % MARK not in data:
        _note_marks(parse(b"".join((*marked, data[done:]))), (), marks, found)
    return found


def _note_marks(value: object, path: Path, marks: Mapping[object, int], found: list[Path | None]) -> None:
    members = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
    for key, member in members:
        if isinstance(member, dict | list):
            _note_marks(member, (*path, key), marks, found)
        elif member in marks and not isinstance(member, float):
            found[marks[member]] = (*path, key)


def _string(path: Path | None, volatile: frozenset[str]) -> tuple[Hole, Path] | None:
    """What hole a string leaves that is no text; None if it may mean something."""
    if path == (EVENT_ID,):
        return Hole.ID, ()
    return (Hole.STRING, ()) if _dotted(path) in volatile else None


def _number(
    path: Path | None, usage: Path | None, rules: UsageRules, volatile: frozenset[str]
) -> tuple[Hole, Path] | None:
    """What hole a number leaves; None if it may mean something."""
    if path == ("sequence_number",):
        return Hole.SEQUENCE, ()
    if path is not None and usage is not None and path[: len(usage)] == usage:
        inner = path[len(usage) :]
        kind = _kind_at(rules.spec, inner)
        if kind is not None:
            # What a 0 means there depends on the counts before: no event says it by itself.
            is_alone = inner[0] not in rules.zero_is_absent and _dotted(inner) not in rules.input_side
            return (Hole.USAGE, inner) if kind is Kind.COUNT and is_alone else None
    return (Hole.NUMBER, ()) if _dotted(path) in volatile else None


def _kind_at(spec: Spec | None, path: Path) -> Spec | None:
    for key in path:
        spec = spec.get(key) if isinstance(spec, Mapping) and isinstance(key, str) else None
    return spec


def _dotted(path: Path | None) -> str:
    return ".".join(key for key in path or () if isinstance(key, str))


def path_to(value: object, wanted: object) -> Path | None:
    """The path to `wanted` itself inside `value`, at any depth; None if it is not there."""
    if value is wanted:
        return ()
    members = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
    for key, member in members:
        inner = path_to(member, wanted) if isinstance(member, dict | list) else () if member is wanted else None
        if inner is not None:
            return (key, *inner)
    return None


def says_the_same(one: object, other: object, counted: Sequence[Path], path: Path = ()) -> bool:
    """Whether two usages have the same members, and the same values but for the counts at `counted`."""
    if path in counted:
        return True
    if isinstance(one, dict) and isinstance(other, dict):
        return one.keys() == other.keys() and all(
            says_the_same(member, other[key], counted, (*path, key)) for key, member in one.items()
        )
    return one == other and type(one) is type(other)
