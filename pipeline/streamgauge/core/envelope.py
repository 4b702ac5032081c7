"""The learned envelope: within one stream nearly all deltas are the same bytes around another text.

An envelope is literals, and holes between them. An event that consists of these literals to the letter, with something in
each hole that fits it, says what the events said from which it was learnt (`learning.py`), with its own text, and nobody
needs to decode it. What does not fit is read in the ordinary way: an envelope changes how fast a stream is read, and
nothing else.
"""

import re
from collections.abc import Callable, Sequence
from enum import Enum
from functools import lru_cache
from typing import Any

import msgspec

from streamgauge.core.sse import Event

# Where Gemini's Interactions put an event's id, instead of into its `id` field.
EVENT_ID = "event_id"

_LIST = msgspec.json.Decoder(list[str])

Path = tuple[str | int, ...]


class Delta(msgspec.Struct, frozen=True, gc=False):
    """An event that told one piece of output.

    `kind`, `choice`, `key`: as what it was told. `usage`: where in the event the usage stands that was told, and `given`
    that usage. `raw`: the data is the text itself, no JSON. `is_numbered`, `is_named`: its JSON holds a sequence number,
    an id.
    """

    event: Event
    kind: int
    choice: int
    key: int | None
    text: str
    usage: Path | None = None
    given: object = None
    raw: bool = False
    is_numbered: bool = False
    is_named: bool = False

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


BLANK = b"\n\n"

# Put between reads that are looked at as one: neither a value nor a literal holds it.
SEPARATOR = b"\0"

# Patterns that are kept. To compile one takes as long as a thousand events; streams of one model with ids of one length
# share theirs. Each is about 2 KB.
MAX_CUTTERS = 512

# Holes of which a run tells the last value.
_TOLD = (Hole.ID, Hole.SEQUENCE, Hole.USAGE)

# What may stand in a hole, without a way back (possessive), so that no input takes long. A count is below 2**53 without a
# look at its size. What a text's escapes mean, and whether it is UTF-8, is seen when it is decoded.
_INSIDE = rb'(?:[^"\\\x00-\x1f]++|\\[^\x00-\x1f])++'
_PATTERNS = {
    Hole.TEXT: b"(" + _INSIDE + b")",
    Hole.COPY: b"(" + _INSIDE + b")",
    Hole.STRING: rb'([^"\\\x00-\x1f]++)',
    Hole.LINE: rb"([^\r\n\x00]++)",
    Hole.ID: rb'([^"\\\x00-\x1f]++)',
    Hole.NUMBER: rb"(-?(?:0|[1-9][0-9]*)(?:\.[0-9]+)?(?:[eE][+-]?[0-9]+)?)",
    Hole.SEQUENCE: rb"(0|[1-9][0-9]{0,14})",
    Hole.USAGE: rb"(0|[1-9][0-9]{0,14})",
}
_are_insides = re.compile(_INSIDE + rb"(?:\x00" + _INSIDE + rb")*+").fullmatch
_is_plain = re.compile(rb'[^"\\\x00-\x1f]++').fullmatch


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
        self.counted = [path for kind, path in holes if kind is Hole.USAGE]
        self.before, self._after = literals[0], literals[-1]
        self.only_text = [kind for kind, _ in holes] == [Hole.TEXT]
        form = _Texts(self.before, self._after) if self.only_text else _Values(literals, holes)
        self._read: Callable[[Sequence[bytes]], Run | None] = form.read

    def plain_text(self, content: bytes) -> str | None:
        """The text of a content that is one event of text alone, without an escape in it; else None."""
        text = content[len(self.before) : -len(self._after)]
        if not (content.endswith(self._after) and text.isascii() and _is_plain(text)):
            return None
        return text.decode() if content.startswith(self.before) else None

    def run(self, contents: Sequence[bytes]) -> Run | None:
        """What reads' contents say, each of whole events, up to one that is not all of this envelope; None if none is."""
        first = contents[0]
        is_one = first.find(BLANK) + len(BLANK) == len(first)
        return (self._read(contents) if is_one else self._several(contents)) or self._beginning(contents)

    def _several(self, contents: Sequence[bytes]) -> Run | None:
        """What all contents say, if some hold several events."""
        # Values hold no blank line: where each content ends with one, no event lies across two of them.
        if not self._may_fit(contents[0]) or False in [content.endswith(BLANK) for content in contents]:
            return None
        found = self._read([block + BLANK for block in b"".join(contents).split(BLANK)[:-1]])
        if found is not None:
            found.reads, found.events = len(contents), [content.count(BLANK) for content in contents]
        return found

    def _beginning(self, contents: Sequence[bytes]) -> Run | None:
        """What the first contents say: up to one that does not fit, or else as many as half of them."""
        fitting = next((at for at, content in enumerate(contents) if not self._may_fit(content)), len(contents) // 2)
        return self.run(contents[:fitting]) if fitting else None

    def _may_fit(self, content: bytes) -> bool:
        return content.startswith(self.before) and content.endswith(self._after)


class _Texts:
    """Events that hold a text and nothing else."""

    def __init__(self, before: bytes, after: bytes) -> None:
        self._before, self._between, self._after = before, after + SEPARATOR + before, after
        self._inside = slice(len(before), -len(after))

    def read(self, blocks: Sequence[bytes]) -> Run | None:
        """What events of this form say, one a block; None if one of them is of another."""
        inside = self._inside
        texts = [block[inside] for block in blocks]
        if self._before + self._between.join(texts) + self._after != SEPARATOR.join(blocks):
            return None
        plain = b"".join(texts)
        if plain.isascii() and _is_plain(plain) and b"" not in texts:
            return Run(len(texts), None, plain.decode())
        fits = SEPARATOR not in plain and _are_insides(SEPARATOR.join(texts))
        text = _decoded(texts) if fits else None
        return None if text is None else Run(len(texts), None, text)


class _Values:
    """Events with holes beside the text's, or with text that is no JSON."""

    def __init__(self, literals: Sequence[bytes], holes: Sequence[tuple[Hole, Path]]) -> None:
        kinds = [kind for kind, _ in holes]
        self._frame = [part for literal in literals for part in (literal, b"")]
        self._frame[-2:] = [literals[-1] + SEPARATOR]
        self._text_at = next(place for place, kind in enumerate(kinds) if kind in (Hole.TEXT, Hole.LINE))
        self._is_raw = kinds[self._text_at] is Hole.LINE
        self._copies = [place for place, kind in enumerate(kinds) if kind is Hole.COPY]
        self._told = [(place, kind, path) for place, (kind, path) in enumerate(holes) if kind in _TOLD]
        self._width = len(self._frame)
        self._values = _cutter(literals[0][:4], tuple(kinds), tuple([len(literal) for literal in self._frame[::2]]))

    def read(self, blocks: Sequence[bytes]) -> Run | None:
        """What events of this form say, one a block; None if one of them is of another."""
        joined = SEPARATOR.join((*blocks, b""))
        values = self._values(joined)
        count = len(values)
        if count != len(blocks):
            return None
        columns: list[Any] = [values] if self._width == 3 else list(zip(*values, strict=True))
        parts = self._frame * count
        for place, column in enumerate(columns):
            parts[2 * place + 1 :: self._width] = column
        texts = columns[self._text_at]
        if b"".join(parts) != joined or (self._copies and any(columns[at] != texts for at in self._copies)):
            return None
        text = _decoded(texts, raw=self._is_raw)
        return None if text is None else self._tell(Run(count, None, text), columns)

    def _tell(self, run: Run, columns: Sequence[Sequence[bytes]]) -> Run:
        for place, kind, path in self._told:
            value = columns[place][-1]
            if kind is Hole.ID:
                run.id = value
            elif kind is Hole.SEQUENCE:
                run.sequence = int(value)
            else:
                run.usage = [*run.usage, (path, int(value))]
        return run


@lru_cache(MAX_CUTTERS)
def _cutter(begin: bytes, kinds: Sequence[Hole], gaps: Sequence[int]) -> Callable[[bytes], list[Any]]:
    """Finds the values of such holes with gaps of so many bytes before, between and behind them.

    `begin`: how an event begins. It spares a look at each byte of those that do not fit.
    """
    inner = (part for kind, gap in zip(kinds, gaps[1:], strict=True) for part in (_PATTERNS[kind], b".{%d}" % gap))
    return re.compile(b"".join((begin, b".{%d}" % (gaps[0] - len(begin)), *inner)), re.DOTALL).findall


def _decoded(texts: Sequence[bytes], *, raw: bool = False) -> str | None:
    """What stands between quotes, as one text (`raw`: what stands there as it is); None if one of them is no text."""
    joined = b"".join(texts)
    try:
        if not raw and b"\\" in joined:
            return "".join(_LIST.decode(b'["' + b'","'.join(texts) + b'"]'))
        # Two halves of a character in two texts are none.
        return joined.decode() if joined.isascii() else SEPARATOR.join(texts).decode().replace("\0", "")
    except (UnicodeDecodeError, msgspec.DecodeError):
        return None
