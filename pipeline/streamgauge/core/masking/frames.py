"""Masks events that differ only in texts and whole numbers, without decoding them.

Nearly all events of a stream are deltas that differ in one text, and in a number or two. A frame holds the bytes that such
events share, before and after masking. It is made from samples: their shared bytes, with a mark at each place where they
differ, are masked in the ordinary way. The result shows what masking makes of each place. Three facts make this exact:

- Masking keeps the order of members. It depends only on keys, on the types of values, and on which values are empty or 0. So
  it treats all values at one place alike.
- Bytes between two quotes that are a valid string's content are the whole string. Digits between two delimiters are the
  whole number.
- Masking replaces a text by one `x` for each code point, or drops it. If it keeps letters (as of a name), there is no frame.

Events that do not match the frame's bytes exactly are masked in the ordinary way. A masker keeps its latest frame until its
stream shows another dialect.
"""

import contextlib
import re
from collections.abc import Callable, Iterable, Iterator, Sequence
from itertools import chain, compress, islice, repeat, takewhile
from typing import cast

import msgspec

# A frame is made only for at least this many events: fewer are masked in the ordinary way in less time.
MIN_EVENTS = 8
# Samples are taken from so many events: enough that most of them are of the usual kind.
_SAMPLED = 8
# The largest sample (bytes). Larger events are rare, and have more than one text to mask.
_MAX_BYTES = 16 * 1024
# The most digits of a number at a place: such numbers are below 2**53, which every kind that keeps numbers allows.
_MAX_DIGITS = 15
# The most places of a frame. Recorded deltas differ in at most six places.
_MAX_PLACES = 16
# Placeholder texts have 64 to 128 letters, so that the allowlist would keep them as an id or a type.
_LETTERS = 64
# A mark for a number is this number or a slightly larger one, or ten times as much.
_NUMBER = 10 ** (_MAX_DIGITS - 2) + 70
# Events of one kind share at least this many first bytes: their name, or the beginning of the first member.
_BEGIN_BYTES = 24

_BLANK = b"\n\n"
# Masks whole blocks in the ordinary way; returns canonical events.
Mask = Callable[[Sequence[bytes]], list[bytes]]

_ID_LINE = re.compile(rb"((?:[^\n]*\n)*?id: )[0-9]+(\n(?:[^\n]*\n)*)")
_DIGITS = re.compile(rb"([0-9]+)")
_IS_KEY = re.compile(rb'"[ \t\n]*:')
# The delimiters before and after a whole number.
_BEFORE_NUMBER, _AFTER_NUMBER = b":,[ \t", (b",", b"}", b"]", b" ", b"\t", b"\n", b"")
_ZERO = 0x30
_STRINGS = msgspec.json.Decoder(str)


class Frame:
    """The bytes that events of one form share.

    `literals`: the shared bytes, with one place between each two. `texts`: for each place, whether it holds a string (else a
    number). `parts`: the masked event; a part is a literal, or the index of a place whose masked value is inserted.
    """

    def __init__(self, literals: Sequence[bytes], texts: Sequence[bool], parts: Sequence[bytes | int]) -> None:
        self._literals, self._texts, self._parts = literals, texts, parts
        first, *others = literals
        self._lines = first.count(b"\n")  # before the line of the places
        self._line_begin = len(first) - first.rfind(b"\n") - 1  # the shared bytes before the first place of that line
        self._one_line = bool(others) and b"\n" not in b"".join(others)  # whether one line has all places

    def mask_contents(self, contents: Sequence[bytes]) -> tuple[list[bytes], int]:
        """The masked form of the first contents that consist of events of this frame alone, and the number of these events.

        Takes less time than `mask`: the events are not split into blocks. Returns nothing if an event within these contents
        does not fit.
        """
        if not self._texts:
            return self._masked_repeats(contents)
        first, last = self._literals[0], self._literals[-1] + _BLANK
        fitting = list(takewhile(lambda content: content.startswith(first) and content.endswith(last), contents))
        if not fitting or not self._one_line:
            return [], 0
        rests = [content[len(first) : -len(last)] for content in fitting]
        if b"\n" in b"".join(rests):  # a content of several events
            rests = self._rests(b"".join(fitting), first, last)
        columns = self._masked_columns(rests)
        if not rests or any(None in column for column in columns):
            return [], 0
        events = self._written(columns)
        if len(rests) == len(fitting):
            return list(map(b"".join, events)), len(rests)
        counts = [len(content.splitlines()) // (self._lines + 2) for content in fitting]
        return [b"".join(chain.from_iterable(islice(events, count))) for count in counts], len(rests)

    def _rests(self, content: bytes, first: bytes, last: bytes) -> list[bytes]:
        """The bytes of each event between `first` and `last`; none if the content has bytes outside of such events."""
        lines = content.splitlines(keepends=True)[self._lines :: self._lines + 2]
        rests = [line[self._line_begin : 1 - len(last)] for line in lines]
        return rests if (last + first).join(rests) == content[len(first) : -len(last)] else []

    def _masked_repeats(self, contents: Sequence[bytes]) -> tuple[list[bytes], int]:
        """As `mask_contents`, for a frame without a place: all its events are equal."""
        event = self._literals[0] + _BLANK
        masked = b"".join([part for part in self._parts if isinstance(part, bytes)])
        counts = [len(content) // len(event) for content in contents]
        whole = takewhile(lambda pair: pair[0] == event * pair[1], zip(contents, counts, strict=True))
        counts = [count for _, count in whole]
        return [masked * count for count in counts], sum(counts)

    def mask(self, blocks: Sequence[bytes]) -> Sequence[bytes | None]:
        """The masked form of each block that fits this frame, with its blank line; None for each other block."""
        if not self._texts:
            masked = b"".join([part for part in self._parts if isinstance(part, bytes)])
            return [masked if block == self._literals[0] else None for block in blocks]
        first, last = self._literals[0], self._literals[-1]
        start, end = len(first), -len(last) or None
        fits = [block.startswith(first) and block.endswith(last) for block in blocks]
        rests = [block[start:end] for block in (compress(blocks, fits) if False in fits else blocks)]
        masked_columns = self._masked_columns(rests)
        if any(None in column for column in masked_columns):
            whole = [None not in values for values in zip(*masked_columns, strict=True)]
            masked_columns = [list(compress(column, whole)) for column in masked_columns]
            each = iter(whole)
            fits = [fit and next(each) for fit in fits]
        written = list(map(b"".join, self._written(masked_columns)))
        if False not in fits:
            return written
        every = iter(written)
        return [next(every) if fit else None for fit in fits]

    def _masked_columns(self, rests: Sequence[bytes]) -> list[Sequence[bytes | None]]:
        """For each place its masked values. `rests`: the bytes between the first and the last literal of each event."""
        columns: list[list[bytes]] = []
        for literal in self._literals[1:-1]:
            parted = [rest.partition(literal) for rest in rests]
            columns.append([value for value, _, _ in parted])
            rests = [rest for _, _, rest in parted]
        return [
            _masked_texts(column) if text else _numbers(column)
            for column, text in zip([*columns, rests], self._texts, strict=True)
        ]

    def _written(self, columns: Sequence[Sequence[bytes | None]]) -> Iterator[tuple[bytes, ...]]:
        """The parts of each masked event. `columns`: the masked values of each place, none of them None."""
        count = len(columns[0])
        pieces = [repeat(part, count) if isinstance(part, bytes) else columns[part] for part in self._parts]
        return zip(*cast(Sequence[Iterable[bytes]], pieces), strict=True)


def _numbers(column: Sequence[bytes]) -> Sequence[bytes | None]:
    """Each whole number unchanged; None for any other value, and for a number that may be too large."""
    return [value if value.isdigit() and value[0] != _ZERO and len(value) <= _MAX_DIGITS else None for value in column]


def _masked_texts(column: Sequence[bytes]) -> Sequence[bytes | None]:
    """One `x` for each code point of each text; None for an empty text, and for bytes that no JSON string holds."""
    # No string holds a raw line end: so each line has at least one, and exactly one if there are as many as lines.
    with contextlib.suppress(msgspec.DecodeError, UnicodeDecodeError):
        texts = _STRINGS.decode_lines(b'"%b"' % b'"\n"'.join(column))
        if len(texts) == len(column):
            return [b"x" * len(text) or None for text in texts]
    return list(map(_masked_text, column))


def _masked_text(text: bytes) -> bytes | None:
    try:
        return b"x" * len(_STRINGS.decode(b'"%b"' % text)) or None
    except (msgspec.DecodeError, UnicodeDecodeError):
        return None


def frame_of(blocks: Sequence[bytes], mask: Mask) -> Frame | None:
    """The frame that fits most of the blocks; None if there is none.

    `mask` masks blocks in the ordinary way and without side effects. It raises NotRecognisedError for an event that the
    stream's dialect does not recognise: which dialect recognises it may depend on any value, so it has no frame.
    """
    samples = _samples(blocks)
    places = None if samples is None else _places(samples)
    if samples is None or places is None or len(places.texts) > _MAX_PLACES:
        return None
    marks = [_marks(places.texts, longer=longer) for longer in (False, True)]
    try:
        *masked, wanted = mask([*map(places.filled, marks), samples[0]])
    except NotRecognisedError:
        return None
    # If masking depends on the length of a value in any other way, the longer marks give other parts.
    parts, again = (_parts(event, places.texts, values) for event, values in zip(masked, marks, strict=True))
    if parts is None or parts != again:
        return None
    frame = Frame(places.literals, places.texts, parts)
    return frame if frame.mask(samples[:1]) == [wanted] else None


class NotRecognisedError(Exception):
    """The dialect that the stream has shown does not recognise an event."""


def _samples(blocks: Sequence[bytes]) -> list[bytes] | None:
    """Some blocks of the most frequent kind, without escapes; None if less than half of the blocks are of one kind."""
    middle = len(blocks) // 2
    sample = blocks[max(0, middle - _SAMPLED // 2) : middle + _SAMPLED // 2]
    plain = [block for block in sample if b"\\" not in block and len(block) <= _MAX_BYTES]
    if not plain:
        return None
    # The first and the last block are often of another kind, so take one from the middle.
    usual = plain[len(plain) // 2]
    begin, quotes = usual.partition(b"\n")[0][:_BEGIN_BYTES], usual.count(b'"')
    alike = [block for block in plain if block.startswith(begin) and block.count(b'"') == quotes]
    # Two neighbours are among the samples, because they differ even in a value that repeats after some events.
    return [alike[0], alike[1], usual, alike[-1]] if 2 <= len(alike) >= len(sample) / 2 else None


class _Places:
    """The literals that samples share, and for each place between two of them whether it holds a string (else a number)."""

    def __init__(self) -> None:
        self.literals, self.texts = [b""], list[bool]()

    def add_literal(self, shared: bytes) -> None:
        """Append shared bytes to the last literal."""
        self.literals[-1] += shared

    def add_place(self, *, is_text: bool) -> None:
        """Add a place after the last literal, and begin a new literal."""
        self.texts.append(is_text)
        self.literals.append(b"")

    def filled(self, values: Sequence[bytes]) -> bytes:
        """The block with these values at its places."""
        return b"".join([part for pair in zip(self.literals, [*values, b""], strict=True) for part in pair])

    def are_whole(self) -> bool:
        """Whether each place holds a whole value: a string that is no key, or a number without sign, fraction, exponent."""
        return all(
            not _IS_KEY.match(after) if text else before[-1] in _BEFORE_NUMBER and after[:1] in _AFTER_NUMBER
            for before, after, text in zip(self.literals, self.literals[1:], self.texts, strict=False)
        )


def _places(samples: Sequence[bytes]) -> _Places | None:
    """The places where samples differ; None if they differ in other values, or if their last line is not `data`."""
    parted = [sample.rpartition(b"data:") for sample in samples]
    pieces = [data.split(b'"') for _, _, data in parted]
    last = len(pieces[0]) - 1
    places = _Places()
    if b"\n" in parted[0][2] or any(len(parts) != last + 1 for parts in pieces):
        return None
    if not _add_head([head for head, _, _ in parted], places):
        return None
    places.add_literal(b"data:")
    # Since samples have no backslash, every second piece is the content of a string.
    shared = 0  # the first piece that no literal has
    for at, each in enumerate(zip(*pieces, strict=True)):
        if each.count(each[0]) == len(each):
            continue
        places.add_literal(b'"'.join([*pieces[0][shared:at], b""]))
        if at % 2:
            places.add_place(is_text=True)
        elif not _add_numbers(each, places):
            return None
        places.add_literal(b'"' if at < last else b"")
        shared = at + 1
    places.add_literal(b'"'.join(pieces[0][shared:]))
    return places if places.are_whole() else None


def _add_head(heads: Sequence[bytes], places: _Places) -> bool:
    """Add the lines before the data; return False if they differ in more than a number that is the whole id."""
    if heads.count(heads[0]) == len(heads):
        places.add_literal(heads[0])
        return heads[0] == b"" or heads[0].endswith(b"\n")
    around = {line and line.groups() for line in map(_ID_LINE.fullmatch, heads)}
    id_line = around.pop()
    if id_line is None or around:
        return False
    places.add_literal(id_line[0])
    places.add_place(is_text=False)
    places.add_literal(id_line[1])
    return True


def _add_numbers(pieces: Sequence[bytes], places: _Places) -> bool:
    """Add the bytes between two strings; return False if they differ in more than numbers."""
    parted = [_DIGITS.split(piece) for piece in pieces]
    if any(len(parts) != len(parted[0]) for parts in parted):
        return False
    for at, each in enumerate(zip(*parted, strict=True)):
        if each.count(each[0]) == len(each):
            places.add_literal(each[0])
        elif at % 2:
            places.add_place(is_text=False)
        else:
            return False
    return True


def _marks(texts: Sequence[bool], *, longer: bool) -> list[bytes]:
    """A value for each place, of a length or a number that no other place has.

    The differences between the lengths are not the same with `longer` as without it.
    """
    if longer:
        return [
            b"q" * (2 * _LETTERS - 3 * at) if text else b"%d" % (_NUMBER * 10 + at) for at, text in enumerate(texts)
        ]
    return [b"q" * (_LETTERS + 2 * at) if text else b"%d" % (_NUMBER + at) for at, text in enumerate(texts)]


def _parts(masked: bytes, texts: Sequence[bool], marks: Sequence[bytes]) -> list[bytes | int] | None:
    """The parts of a masked event that had these marks; None if a mark cannot be identified, or if letters were kept."""
    marked: list[tuple[int, int, int]] = []
    for index, (mark, text) in enumerate(zip(marks, texts, strict=True)):
        kept = b'"%b"' % (b"x" * len(mark)) if text else mark
        if masked.count(kept) > 1 or b"q" * _LETTERS in masked:
            return None
        if kept in masked:
            begin = masked.index(kept) + text
            marked.append((begin, begin + len(mark), index))
    parts: list[bytes | int] = []
    at = 0
    for begin, end, index in sorted(marked):
        parts += [masked[at:begin], index]
        at = end
    return [*parts, masked[at:]]
