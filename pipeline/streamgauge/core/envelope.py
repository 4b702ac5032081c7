"""The learned envelope: within one stream nearly all deltas are the same bytes around another text.

From two events that said the same but for their text, what they share is learnt: literals, and holes between them. An
event that consists of these literals to the letter, with something in each hole that fits it, says what those two said,
with its own text, and nobody needs to decode it. What does not fit is read in the ordinary way: an envelope changes how
fast a stream is read, and nothing else.
"""

import re
from collections.abc import Callable, Mapping, Sequence
from enum import Enum

import msgspec

from streamgauge.core.json_text import UNPARSED, parse
from streamgauge.core.keep import Kind, Spec
from streamgauge.core.sse import Event
from streamgauge.core.usage import UsageRules

# Members that change from event to event and mean nothing to any dialect, as paths from the event's top.
VOLATILE = frozenset(
    (
        "obfuscation",  # OpenAI: padding against guesses by size
        "p",  # Mistral: the same
        "created",  # SGLang and Ollama set it anew in each chunk
        "created_at",  # watsonx
        "createTime",  # Vertex
        "index",  # text-generation-inference and llama.cpp number their tokens; where it is a key, keys are compared
        "token.id",  # text-generation-inference
        "token.logprob",
        "tokens",  # llama.cpp: the ids of the event's tokens
        "sla_metrics.ts_us",  # Hugging Face's router
    )
)

# Where Gemini's Interactions put an event's id, instead of into its `id` field.
EVENT_ID = "event_id"

# Longer events are seldom deltas, and to compare two of them takes time (bytes).
MAX_EVENT = 8 * 1024

_TOKEN = re.compile(rb'"(?:[^"\\]|\\.)*"|-?[0-9][0-9.eE+-]*|[^"0-9-]+|-')
# What takes a value's place, to see where in the event that value stands.
_SENTINEL = 8_705_759_403_792_793

_is_plain = re.compile(rb'[^"\\\x00-\x1f]+').fullmatch
_is_number = re.compile(rb"-?[0-9][0-9.eE+-]*").fullmatch
_STRING = msgspec.json.Decoder(str)

Path = tuple[str | int, ...]


class Delta(msgspec.Struct, frozen=True, gc=False):
    """An event that told one piece of output, and nothing that was not known before.

    `kind`, `choice`, `key`: as what it was told. `usage`: where in the event the usage stands that was told, if one was.
    `raw`: the data is the text itself, no JSON.
    """

    event: Event
    kind: int
    choice: int
    key: int | None
    text: str
    usage: Path | None = None
    raw: bool = False

    @property
    def sign(self) -> tuple[object, ...]:
        """What two events have in common that say the same but for their text."""
        return self.kind, self.choice, self.key, self.usage, self.raw, self.event.name, self.event.id is None


class Hole(Enum):
    TEXT = "text"
    LINE = "line"  # text that is no JSON
    COPY = "copy"  # the same text once more
    ID = "id"  # the event's
    NUMBER = "number"  # one that means nothing
    STRING = "string"  # one that means nothing
    SEQUENCE = "sequence"
    USAGE = "usage"  # a token count


_BLANK = b"\n\n"

# What may stand in a hole, without a way back (possessive), so that no input takes long. A text's escapes are looked at
# by themselves; a count is below 2**53 without a look at its size.
_STRING_INSIDE = rb'((?:[^"\\\x00-\x1f]++|\\.)++)'
_PATTERNS = {
    Hole.TEXT: _STRING_INSIDE,
    Hole.COPY: _STRING_INSIDE,
    Hole.STRING: rb'([^"\\\x00-\x1f]++)',
    Hole.LINE: rb"([^\r\n]++)",
    Hole.ID: rb'([^"\\\x00-\x1f]++)',
    Hole.NUMBER: rb"(-?(?:0|[1-9][0-9]*)(?:\.[0-9]+)?(?:[eE][+-]?[0-9]+)?)",
    Hole.SEQUENCE: rb"(0|[1-9][0-9]{0,14})",
    Hole.USAGE: rb"(0|[1-9][0-9]{0,14})",
}


class Run(msgspec.Struct, gc=False):
    """What some reads said: how many events each (None: one), their text as one; of ids and counts the last values."""

    reads: int
    events: list[int] | None
    text: str
    id: bytes | None = None
    sequence: int | None = None
    usage: list[tuple[Path, int]] = []


class Envelope:
    """Literals with holes between them. `delta`: an event that said what all of them say, text aside.

    Values are cut out by the literals' lengths, and put between the literals again: only if that gives the very bytes
    they are the event's. (So streams whose ids have one length share a pattern, and the compiler's cache has it.)
    """

    def __init__(self, delta: Delta, literals: Sequence[bytes], holes: Sequence[tuple[Hole, Path]]) -> None:
        self.delta = delta
        self._before, self._after = literals[0], literals[-1]
        self._holes = holes
        kinds = [kind for kind, _ in holes]
        self._text_at = next(place for place, kind in enumerate(kinds) if kind in (Hole.TEXT, Hole.LINE))
        self._copies = [place for place, kind in enumerate(kinds) if kind is Hole.COPY]
        self.only_text = kinds == [Hole.TEXT]
        gaps = [rb".{%d}" % len(literal) for literal in literals]
        inner = (part for kind, gap in zip(kinds, gaps[1:], strict=True) for part in (_PATTERNS[kind], gap))
        self._values = re.compile(b"".join((gaps[0], *inner)), re.DOTALL).findall
        self._template = b"%b".join(literal.replace(b"%", b"%%") for literal in literals)

    def run(self, contents: Sequence[bytes]) -> Run | None:
        """What reads' contents say, each of whole events, up to one that is not all of this envelope; None if none is."""
        found = self._plain_texts(contents) if self.only_text else None
        found = found or self._all(contents)
        if found is None and len(contents) > 1:
            fitting = next((at for at, content in enumerate(contents) if not self._may_fit(content)), len(contents))
            found = (self._all(contents[:fitting]) if fitting else None) or self._all(contents[:1])
        return found

    def _may_fit(self, content: bytes) -> bool:
        return content.startswith(self._before) and content.endswith(self._after)

    def _plain_texts(self, contents: Sequence[bytes]) -> Run | None:
        """The usual case at once: one event a read, and no text with an escape in it."""
        before, after = self._before, self._after
        texts = [content.removeprefix(before).removesuffix(after) for content in contents]
        joined = b"".join(texts)
        fits = sum(map(len, contents)) - len(joined) == len(texts) * (len(before) + len(after))
        if not fits or not joined.isascii() or not _is_plain(joined) or b"" in texts:
            return None
        return Run(len(texts), None, joined.decode())

    def _all(self, contents: Sequence[bytes]) -> Run | None:
        """What all contents say; None if an event is not of this envelope."""
        joined = b"".join(contents)
        # Values hold no blank line: where each content ends with one, no event lies across two of them.
        if not self._may_fit(joined) or False in [content.endswith(_BLANK) for content in contents]:
            return None
        values = self._values(joined)
        template = self._template
        if b"".join([template % value for value in values]) != joined:
            return None
        columns = [values] if len(self._holes) == 1 else list(zip(*values, strict=True))
        text = self._text(columns[self._text_at])
        if text is None or any(columns[place] != columns[self._text_at] for place in self._copies):
            return None
        events = None if len(values) == len(contents) else [content.count(_BLANK) for content in contents]
        run = Run(len(contents), events, text)
        return run if self.only_text else self._count(run, columns)

    def _text(self, texts: Sequence[bytes]) -> str | None:
        """The texts as one; None if one of them is none that may stand between its quotes."""
        joined = b"".join(texts)
        try:
            if joined.isascii() and (self.delta.raw or b"\\" not in joined):
                return joined.decode()
            if self.delta.raw:
                return "".join([text.decode() for text in texts])
            return "".join([_STRING.decode(b'"%b"' % text) if b"\\" in text else text.decode() for text in texts])
        except (UnicodeDecodeError, msgspec.DecodeError):
            return None

    def _count(self, run: Run, columns: Sequence[Sequence[bytes]]) -> Run:
        for (kind, path), column in zip(self._holes, columns, strict=True):
            if kind is Hole.ID:
                run.id = column[-1]
            elif kind is Hole.SEQUENCE:
                run.sequence = int(column[-1])
            elif kind is Hole.USAGE:
                run.usage = [*run.usage, (path, int(column[-1]))]
        return run


def learn(one: Delta, other: Delta, usage: UsageRules) -> Envelope | None:
    """What two events of the same sign share; None if they differ in more than their text and what means nothing.

    `usage`: how the dialect reads a usage.
    """
    if one.text == other.text or max(len(one.event.data or b""), len(other.event.data or b"")) > MAX_EVENT:
        return None
    parts = _Parts(one)
    if one.raw:
        parts.hole(Hole.LINE)
    elif not _compare(one, other, usage, parts):
        return None
    parts.literal(b"\n\n")
    kinds = [kind for kind, _ in parts.holes]
    return Envelope(one, parts.literals, parts.holes) if {Hole.TEXT, Hole.LINE} & {*kinds} else None


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


def _compare(one: Delta, other: Delta, usage: UsageRules, parts: _Parts) -> bool:
    """Puts what two events share into `parts`. Whether nothing else is left."""
    ours, theirs = (_TOKEN.findall(delta.event.data or b"") for delta in (one, other))
    texts = tuple(b'"%b"' % delta.text.encode("utf-8", "replace") for delta in (one, other))
    if len(ours) != len(theirs) or any(b"\\" in text for text in texts):
        return False
    copy = False
    for place, pair in enumerate(zip(ours, theirs, strict=True)):
        if pair[0] == pair[1]:
            parts.literal(pair[0])
        elif pair == texts:
            parts.literal(b'"')
            parts.hole(Hole.COPY if copy else Hole.TEXT)
            parts.literal(b'"')
            copy = True
        elif all(token.startswith(b'"') for token in pair):
            path = _dotted(_path_of(ours, place))
            if path not in VOLATILE and path != EVENT_ID:
                return False
            parts.literal(b'"')
            parts.hole(Hole.ID if path == EVENT_ID else Hole.STRING)
            parts.literal(b'"')
        else:
            found = _number(_path_of(ours, place), one.usage, usage) if all(map(_is_number, pair)) else None
            if found is None:
                return False
            parts.hole(*found)
    return copy


def _number(path: Path | None, usage: Path | None, rules: UsageRules) -> tuple[Hole, Path] | None:
    """What hole a number leaves; None if it may mean something."""
    if path == ("sequence_number",):
        return Hole.SEQUENCE, ()
    if path is not None and usage is not None and path[: len(usage)] == usage:
        inner = path[len(usage) :]
        kind = _kind_at(rules.spec, inner)
        if kind is not None:
            return (Hole.USAGE, inner) if kind is Kind.COUNT and inner[0] not in rules.zero_is_absent else None
    return (Hole.NUMBER, ()) if _dotted(path) in VOLATILE else None


def _kind_at(spec: Spec | None, path: Path) -> Spec | None:
    for key in path:
        spec = spec.get(key) if isinstance(spec, Mapping) and isinstance(key, str) else None
    return spec


def _dotted(path: Path | None) -> str:
    return ".".join(key for key in path or () if isinstance(key, str))


def _path_of(tokens: list[bytes], place: int) -> Path | None:
    """Where the value stands that is the token at `place`; None for a key."""
    event = parse(b"".join((*tokens[:place], b"%d" % _SENTINEL, *tokens[place + 1 :])))
    return None if event is UNPARSED else path_to(event, lambda value: value == _SENTINEL)


def path_to(value: object, is_it: Callable[[object], bool]) -> Path | None:
    """The path to the first member, at any depth, that `is_it`; None if there is none."""
    if is_it(value):
        return ()
    members = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
    for key, member in members:
        inner = path_to(member, is_it)
        if inner is not None:
            return (key, *inner)
    return None
