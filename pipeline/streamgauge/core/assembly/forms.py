"""Forms of events: literals with holes between them, and what events of one form say, many at a time.

A form is fast because it looks at many events as one run of bytes: it cuts out what may be their values, puts these
between its literals again, and only if that gives the very bytes they are of this form.
"""

import bisect
import re
from collections.abc import Callable, Sequence
from enum import Enum
from functools import lru_cache
from typing import Any

import msgspec

from streamgauge.core.formats.sse import MAX_EVENT_BYTES

Path = tuple[str | int, ...]

_LIST = msgspec.json.Decoder(list[str])
_NUMBERS = msgspec.json.Decoder(list[float])


class Hole(Enum):
    """What stands in a place of a form that differs between events."""

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

# So few are compared as two numbers (bytes): sooner than to halve them again and again.
_FEW_BYTES = 1024

# Patterns that are kept. To compile one takes as long as a thousand events; streams of one model with ids of one length
# share theirs. Each is about 2 KB.
MAX_CUTTERS = 512

# Holes of which a run tells the last value.
_TOLD = (Hole.ID, Hole.SEQUENCE, Hole.USAGE)

# Patterns of what may stand in a hole. They are possessive: without backtracking no input takes long. Before 3.11.5 CPython
# keeps what the body of a possessive group consumed before it failed (python/cpython#106052, #100061). So only character
# classes are repeated possessively, and one group whose body cannot fail once it has consumed a byte: it looks ahead first.
# tests/architecture/test_patterns.py lists them. A count is below 2**53 without a look at its size. What a text's escapes
# mean, and whether it is UTF-8, is seen when it is decoded.
_INSIDE = rb'[^"\\\x00-\x1f]*+(?:(?=\\[^\x00-\x1f])..[^"\\\x00-\x1f]*+)*+'
_SOME = rb'(?=[^"\\\x00-\x1f]|\\[^\x00-\x1f])' + _INSIDE
_PATTERNS = {
    Hole.TEXT: b"(" + _SOME + b")",
    Hole.COPY: b"(" + _SOME + b")",
    Hole.STRING: rb'([^"\\\x00-\x1f]++)',
    Hole.LINE: rb"([^\r\n\x00]++)",
    Hole.ID: rb'([^"\\\x00-\x1f]++)',
    Hole.NUMBER: rb"(-?(?:0|[1-9][0-9]*)(?:\.[0-9]+)?(?:[eE][+-]?[0-9]+)?)",
    Hole.SEQUENCE: rb"(0|[1-9][0-9]{0,14})",
    Hole.USAGE: rb"(0|[1-9][0-9]{0,14})",
}
# The same, sooner found, of what has to be looked at behind that: a number may be none, a text be empty.
_LOOSE = {
    **_PATTERNS,
    Hole.TEXT: b"(" + _INSIDE + b")",
    Hole.COPY: b"(" + _INSIDE + b")",
    Hole.NUMBER: rb"([0-9.eE+-]++)",
}
_NOT_IN_IDS = bytes((*range(0x20), *b'"\\'))
split_at_blanks = re.compile(BLANK).split  # takes half as long as that of bytes
# What may not stand between quotes in texts that are joined by separators, once escaped backslashes and quotes are removed.
_find_forbidden = re.compile(rb'["\x01-\x1f]').search
_find_unfinished = re.compile(rb"\\[\x00-\x1f]").search
is_plain = re.compile(rb'[^"\\\x00-\x1f]++').fullmatch


class Run(msgspec.Struct, gc=False):
    """What some reads said: how many events each (None: one), their text as one; of ids and counts the last values."""

    reads: int
    events: list[int] | None
    text: str
    id: bytes | None = None
    sequence: int | None = None
    usage: list[tuple[Path, int]] = []


# Says what events say, one a block, up to one of another form; None if the first is. Where `ends` are given, it stops at
# one of these numbers of events, if what comes before it is text.
Form = Callable[[Sequence[bytes], Sequence[int]], Run | None]


class Texts:
    """Events that hold a text and nothing else."""

    def __init__(self, before: bytes, after: bytes) -> None:
        self._before, self._between, self._after = before, after + SEPARATOR + before, after
        self._inside = slice(len(before), -len(after))

    def columns(self, blocks: Sequence[bytes]) -> list[Sequence[bytes]]:
        """For each hole what stands there, one a block, up to one of another form. Whether it is text is not looked at."""
        inside = self._inside
        texts = [block[inside] for block in blocks]
        rebuilt, joined = self._before + self._between.join(texts) + self._after, SEPARATOR.join(blocks)
        if _has_oversized(joined, blocks):
            return [[]]
        return [texts if rebuilt == joined else texts[: joined.count(SEPARATOR, 0, same(rebuilt, joined))]]

    def values(self, block: bytes) -> Sequence[bytes] | None:
        """What stands where the holes are of one event with literals as long as these."""
        return [block[self._inside]]

    def one(self, block: bytes) -> Sequence[bytes] | None:
        """What stands in the holes of one event; None if it is of another form."""
        text = block[self._inside]
        return [text] if self._before + text + self._after == block else None

    def read(self, blocks: Sequence[bytes], ends: Sequence[int] = ()) -> Run | None:
        """See `Form`."""
        texts = self.columns(blocks)[0]
        if ends:
            texts = texts[: _last_end(ends, len(texts))]
        plain = b"".join(texts)
        if plain.isascii() and is_plain(plain) and b"" not in texts:
            return Run(len(texts), None, plain.decode())
        return _longest(len(texts), lambda count: self._escaped(texts[:count]))

    def _escaped(self, texts: Sequence[bytes]) -> Run | None:
        """The same where some texts hold escapes, or more than ASCII; None if one of them is no text."""
        if not are_insides(texts):
            return None
        text = _decoded(texts)
        return None if text is None else Run(len(texts), None, text)


class Values:
    """Events with holes beside the text's, or with text that is no JSON."""

    def __init__(self, literals: Sequence[bytes], holes: Sequence[tuple[Hole, Path]]) -> None:
        kinds = [kind for kind, _ in holes]
        self._frame = [part for literal in literals for part in (literal, b"")]
        self._frame[-2:] = [literals[-1] + SEPARATOR]
        self._text_at = next((place for place, kind in enumerate(kinds) if kind in (Hole.TEXT, Hole.LINE)), 0)
        self._is_raw = kinds[self._text_at] is Hole.LINE
        self._copies = [place for place, kind in enumerate(kinds) if kind is Hole.COPY]
        self._told = [(place, kind, path) for place, (kind, path) in enumerate(holes) if kind in _TOLD]
        self._texts_at = [place for place, kind in enumerate(kinds) if kind in (Hole.TEXT, Hole.COPY)]
        self._numbers_at = [place for place, kind in enumerate(kinds) if kind is Hole.NUMBER]
        self._width = len(self._frame)
        self._form = literals[0][:4], tuple(kinds), tuple([len(literal) for literal in self._frame[::2]])
        self._loose = _cutter(*self._form, loose=True)

    def columns(self, blocks: Sequence[bytes]) -> list[Sequence[bytes]]:
        """For each hole what stands there, one a block, up to one of another form; no column if the first is."""
        joined = SEPARATOR.join((*blocks, b""))
        if _has_oversized(joined, blocks):
            return []
        columns = self._cut(joined)
        rebuilt = self._rebuilt(columns)
        if rebuilt == joined:
            return columns if columns and len(columns[0]) == len(blocks) else []
        if joined.count(SEPARATOR) == len(blocks):
            alike = len(rebuilt) if joined.startswith(rebuilt) else same(rebuilt, joined)
            fitting = joined.count(SEPARATOR, 0, alike)
            return [column[:fitting] for column in columns]
        return []  # a separator stands inside of an event: where events end cannot be seen

    def values(self, block: bytes) -> Sequence[bytes] | None:
        """What stands where the holes are of one event with literals as long as these; None if there is no such event."""
        columns = self._cut(block + SEPARATOR)
        return [value for (value,) in columns] if columns and len(columns[0]) == 1 else None

    def one(self, block: bytes) -> Sequence[bytes] | None:
        """What stands in the holes of one event; None if it is of another form."""
        values = self.values(block)
        fits = values is not None and self._rebuilt([[value] for value in values]) == block + SEPARATOR
        return values if fits else None

    def read(self, blocks: Sequence[bytes], ends: Sequence[int] = ()) -> Run | None:
        """See `Form`."""
        columns = self.columns(blocks)
        count = len(columns[0]) if columns else 0
        return _longest(_last_end(ends, count) if ends else count, lambda count: self._said(columns, count))

    def _cut(self, joined: bytes) -> list[Sequence[bytes]]:
        """What stands where the holes are of events of this form: a column for each hole, none if there is no such event."""
        columns = self._columns(self._loose(joined))
        for at in self._texts_at if columns else ():
            if b"" in columns[at]:  # most often the stream's last event
                fitting = columns[at].index(b"")
                columns = [column[:fitting] for column in columns]
        if columns and not all(_are_numbers(columns[at]) for at in self._numbers_at):
            return self._columns(_cutter(*self._form)(joined))
        return columns

    def _columns(self, values: list[Any]) -> list[Sequence[bytes]]:
        return [values] if values and self._width == 3 else list(zip(*values, strict=True))

    def _rebuilt(self, columns: Sequence[Sequence[bytes]]) -> bytes:
        parts = self._frame * (len(columns[0]) if columns else 0)
        for place, column in enumerate(columns):
            parts[2 * place + 1 :: self._width] = column
        return b"".join(parts)

    def _said(self, columns: Sequence[Sequence[bytes]], count: int) -> Run | None:
        """What the first of the events with these values say; None if one of them is no text, or its copy is another."""
        texts = columns[self._text_at][:count]
        if self._copies and any(columns[at][:count] != texts for at in self._copies):
            return None
        text = _decoded(texts, raw=self._is_raw)
        return None if text is None else self._tell(Run(count, None, text), columns)

    def _tell(self, run: Run, columns: Sequence[Sequence[bytes]]) -> Run:
        for place, kind, path in self._told:
            value = columns[place][run.reads - 1]
            if kind is Hole.ID:
                run.id = value
            elif kind is Hole.SEQUENCE:
                run.sequence = int(value)
            else:
                run.usage = [*run.usage, (path, int(value))]
        return run


class Lines(Values):
    """Events whose data is the text as it stands, behind their id: cut at their literals, which hold a line end each."""

    def __init__(self, literals: Sequence[bytes], holes: Sequence[tuple[Hole, Path]]) -> None:
        super().__init__(literals, holes)
        self._before, self._gap, self._after = literals
        self._between = self._after + SEPARATOR + self._before
        self._mark = self._gap + SEPARATOR
        self._inside = slice(len(self._before), -len(self._after) - len(SEPARATOR))

    def read(self, blocks: Sequence[bytes], ends: Sequence[int] = ()) -> Run | None:
        """See `Form`."""
        if blocks and not blocks[-1].startswith(self._before):  # most often the stream's last event
            blocks = blocks[: next(at for at, block in enumerate(blocks) if not block.startswith(self._before))]
        run = self._all(blocks) if blocks and (not ends or ends[-1] == len(blocks)) else None
        return run or super().read(blocks, ends)

    def _all(self, blocks: Sequence[bytes]) -> Run | None:
        """What these say, if all of them are of this form."""
        joined = SEPARATOR.join((*blocks, b""))
        is_whole = joined.startswith(self._before) and joined.endswith(self._after + SEPARATOR)
        if not is_whole or _has_oversized(joined, blocks):
            return None
        # What lies between two events becomes a gap and a separator. How much shorter that is tells how often; so if no other
        # separators are left, and none is in a text, each id but the first begins with one, and has one text.
        inside, others = joined[self._inside], len(blocks) - 1
        marked = inside.replace(self._between, self._mark)
        values = marked.split(self._gap)
        if len(values) != 2 * len(blocks):
            return None
        ids, texts = values[::2], values[1::2]
        names, text = b"".join(ids), b"".join(texts)
        is_cut = len(inside) - len(marked) == others * (len(self._between) - len(self._mark))
        if not is_cut or not _is_line(text) or not all(texts):
            return None
        if len(names.translate(None, _NOT_IN_IDS)) != len(names) - others or not ids[0] or SEPARATOR in ids:
            return None
        plain = text.decode() if text.isascii() else _decoded(texts, raw=True)
        return None if plain is None else Run(len(blocks), None, plain, ids[-1].removeprefix(SEPARATOR))


@lru_cache(MAX_CUTTERS)
def _cutter(
    begin: bytes, kinds: Sequence[Hole], gaps: Sequence[int], *, loose: bool = False
) -> Callable[[bytes], list[Any]]:
    """Finds the values of such holes with gaps of so many bytes before, between and behind them.

    `begin`: how an event begins. It spares a look at each byte of those that do not fit. `loose`: numbers and texts have to
    be looked at.
    """
    patterns = _LOOSE if loose else _PATTERNS
    inner = (part for kind, gap in zip(kinds, gaps[1:], strict=True) for part in (patterns[kind], b".{%d}" % gap))
    return re.compile(b"".join((begin, b".{%d}" % (gaps[0] - len(begin)), *inner)), re.DOTALL).findall


def _has_oversized(joined: bytes, blocks: Sequence[bytes]) -> bool:
    """Whether one of these is no event, since it is over the cap: taps write none."""
    return len(joined) > MAX_EVENT_BYTES and max(map(len, blocks)) > MAX_EVENT_BYTES


def _last_end(ends: Sequence[int], count: int) -> int:
    """The last of these ascending numbers that is at most `count`; 0 if none is."""
    at = bisect.bisect_right(ends, count)
    return ends[at - 1] if at else 0


def _longest(count: int, said: Callable[[int], Run | None]) -> Run | None:
    """What the first of so many events say, about as many as say something: all, or half of them, or a quarter."""
    while count:
        run = said(count)
        if run is not None:
            return run
        count //= 2
    return None


def same(one: bytes, other: bytes) -> int:
    """How many bytes two texts share at their beginning."""
    at, size = 0, min(len(one), len(other))
    while size - at > _FEW_BYTES:
        middle = (at + size) // 2
        if one[at:middle] == other[at:middle]:
            at = middle
        else:
            size = middle
    return size - ((int.from_bytes(one[at:size]) ^ int.from_bytes(other[at:size])).bit_length() + 7) // 8


def are_insides(texts: Sequence[bytes]) -> bool:
    """Whether each of these may stand between a string's quotes, and is not empty."""
    if not texts or b"" in texts:
        return False
    joined = b"".join(texts)
    if is_plain(joined):
        return True
    if SEPARATOR in joined:
        return False
    bare = SEPARATOR.join(texts).replace(b"\\\\", b"").replace(b'\\"', b"")
    return not (_find_forbidden(bare) or _find_unfinished(bare) or bare.endswith(b"\\"))


def _are_numbers(values: Sequence[bytes]) -> bool:
    try:
        return len(_NUMBERS.decode(b"[" + b",".join(values) + b"]")) == len(values)
    except msgspec.DecodeError:
        return False


def _is_line(text: bytes) -> bool:
    return b"\n" not in text and b"\r" not in text and SEPARATOR not in text


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
