"""Masks events that differ in texts and whole numbers alone, without decoding them.

Nearly all events of a stream are deltas that differ in one text, and in a number or two. A frame is what such events share,
before and after masking. It is made from some of them: an event with marked values where they differ is masked in the
ordinary way, and shows what becomes of these places. Three facts make this exact:

- Masking keeps the order of members. What it depends on survives it: what is kept, types, and which values are empty or 0. So
  other values in the same places are masked in the same way, apart from what is kept of them.
- A text that may stand between two quotes is all that stands there; so is a whole number between two delimiters.
- Of a text one `x` a code point is kept, or nothing. If letters of it are kept (a name, a type), there is no frame.

An event that is not of the frame to the letter is left to the ordinary way. A masker keeps the frame made last, until
its stream shows another dialect.
"""

import contextlib
import re
from collections.abc import Callable, Iterator, Sequence
from itertools import compress, repeat

import msgspec

# Fewer events are decoded and masked in less time than a frame takes to make.
MIN_EVENTS = 8
# Larger events are rare, and have more than one text to mask (bytes).
_MAX_BYTES = 16 * 1024
# Digits of a number that is kept wherever numbers are kept: below 2**53.
_MAX_DIGITS = 15
# Deltas differ in at most six places.
_MAX_PLACES = 16
# Letters of a mark, up to twice as many: fewer than a type may have, which is kept.
_LETTERS = 64
# A number of a mark, and ten times as much.
_NUMBER = 10 ** (_MAX_DIGITS - 2) + 70
# Events of one kind begin alike for so many bytes: with their name, or with the first member.
_BEGIN_BYTES = 24

_Kept = bytes | int | None
# Ordinary masking: whole blocks to canonical events.
Mask = Callable[[Sequence[bytes]], list[bytes]]

_ID_LINE = re.compile(rb"((?:[^\n]*\n)*?id: )[0-9]+(\n(?:[^\n]*\n)*)")
_DIGITS = re.compile(rb"([0-9]+)")
_IS_KEY = re.compile(rb'"[ \t\n]*:')
# What stands before and after a whole number.
_BEFORE_NUMBER, _AFTER_NUMBER = b":,[ \t", (b",", b"}", b"]", b" ", b"\t", b"\n", b"")
_ZERO = 0x30
_STRING, _STRINGS = msgspec.json.Decoder(str), msgspec.json.Decoder(list[str])
# No string with one of these stands for itself: the quote, the backslash, control characters.
_NOT_PLAIN = bytes((*range(0x20), 0x22, 0x5C))


class Frame:
    """What events share: `literals` of the bytes, with a place between each two, and `parts` of the masked events.

    `texts`: for each place whether it is a string, else a number. A part is a literal, or the number of a place that is kept.
    """

    def __init__(self, literals: Sequence[bytes], texts: Sequence[bool], parts: Sequence[bytes | int]) -> None:
        self._literals, self._texts, self._parts = literals, texts, parts

    def mask(self, blocks: Sequence[bytes]) -> list[bytes | None]:
        """The masked events, each with its blank line; None for those that are not of this frame."""
        if not self._texts:
            return [
                masked if block == self._literals[0] else None for block in blocks for masked in self._written([], 1)
            ]
        first, *between, last = self._literals
        start, end = len(first), -len(last) or None
        found = [block.startswith(first) and block.endswith(last) for block in blocks]
        rests = [block[start:end] for block in compress(blocks, found)]
        columns: list[list[bytes]] = []
        for literal in between:
            parted = [rest.partition(literal) for rest in rests]
            columns.append([value for value, _, _ in parted])
            rests = [rest for _, _, rest in parted]
        columns.append(rests)
        # What is kept of each value: of a text its length; None for what may not stand there.
        kept: list[Sequence[_Kept]] = [
            _lengths(column) if text else _numbers(column) for column, text in zip(columns, self._texts, strict=True)
        ]
        if any(None in column for column in kept):
            fit = [None not in values for values in zip(*kept, strict=True)]
            kept = [list(compress(column, fit)) for column in kept]
            fits = iter(fit)
            found = [one and next(fits) for one in found]
        masked = self._written(kept, len(kept[0]))
        return [next(masked) if one else None for one in found]

    def _written(self, kept: Sequence[Sequence[_Kept]], events: int) -> Iterator[bytes]:
        pieces = [repeat(part, events) if isinstance(part, bytes) else map(_shown, kept[part]) for part in self._parts]
        return map(b"".join, zip(*pieces, strict=True))


def _numbers(column: Sequence[bytes]) -> Sequence[bytes | None]:
    return [value if value.isdigit() and value[0] != _ZERO and len(value) <= _MAX_DIGITS else None for value in column]


def _lengths(column: Sequence[bytes]) -> Sequence[int | None]:
    """In code points; None for what is empty, or cannot stand between quotes."""
    if b'"' not in b"".join(
        column
    ):  # then no text brings a quote, and one with a backslash before its own brings one less
        with contextlib.suppress(msgspec.DecodeError, UnicodeDecodeError):
            texts = _STRINGS.decode(b'["%b"]' % b'","'.join(column))
            if len(texts) == len(column):
                return [len(text) or None for text in texts]
    return [
        len(text) if text.isascii() and text and text.translate(None, _NOT_PLAIN) == text else _length(text)
        for text in column
    ]


def _length(text: bytes) -> int | None:
    try:
        return len(_STRING.decode(b'"%b"' % text)) or None
    except (msgspec.DecodeError, UnicodeDecodeError):
        return None


def _shown(kept: _Kept) -> bytes:
    return b"x" * kept if isinstance(kept, int) else kept or b""


def frame_of(blocks: Sequence[bytes], mask: Mask) -> Frame | None:
    """The frame of most of the blocks; None if they have none.

    `mask` masks blocks in the ordinary way. It changes nothing, and raises NotRecognisedError for an event that the stream's
    dialect does not recognise: what that is may depend on any value.
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
    # What depends on a value's length otherwise than by as many letters has other parts the second time.
    parts, again = (_parts(event, places.texts, values) for event, values in zip(masked, marks, strict=True))
    if parts is None or parts != again:
        return None
    frame = Frame(places.literals, places.texts, parts)
    return frame if frame.mask(samples[:1]) == [wanted] else None


class NotRecognisedError(Exception):
    """An event is not recognised by the dialect that its stream has shown."""


def _samples(blocks: Sequence[bytes]) -> list[bytes] | None:
    """Some blocks of the kind that most are of, without escapes; None if there is no such kind."""
    plain = [block for block in blocks if b"\\" not in block and len(block) <= _MAX_BYTES]
    if not plain:
        return None
    # The first and the last block may be of another kind than those between them.
    usual = plain[len(plain) // 2]
    begin, quotes = usual.partition(b"\n")[0][:_BEGIN_BYTES], usual.count(b'"')
    alike = [block for block in plain if block.startswith(begin) and block.count(b'"') == quotes]
    # Neighbours differ also in values that come again after some events.
    return [alike[0], alike[1], usual, alike[-1]] if 2 <= len(alike) >= len(blocks) / 2 else None


class _Places:
    """The literals that samples share, and for each place between two of them whether it is a string, else a number."""

    def __init__(self) -> None:
        self.literals, self.texts = [b""], list[bool]()

    def literal(self, shared: bytes) -> None:
        self.literals[-1] += shared

    def place(self, *, is_text: bool) -> None:
        self.texts.append(is_text)
        self.literals.append(b"")

    def filled(self, values: Sequence[bytes]) -> bytes:
        """The block with these values."""
        return b"".join([part for pair in zip(self.literals, [*values, b""], strict=True) for part in pair])

    def are_whole(self) -> bool:
        """Whether the places are whole values: strings that are no keys, and numbers without sign, fraction and exponent."""
        return all(
            not _IS_KEY.match(after) if text else before[-1] in _BEFORE_NUMBER and after[:1] in _AFTER_NUMBER
            for before, after, text in zip(self.literals, self.literals[1:], self.texts, strict=False)
        )


def _places(samples: Sequence[bytes]) -> _Places | None:
    """Where samples differ; None if they differ in more than texts and numbers, or if their last line is no data."""
    parted = [sample.rpartition(b"data:") for sample in samples]
    pieces = [data.split(b'"') for _, _, data in parted]
    last = len(pieces[0]) - 1
    places = _Places()
    if b"\n" in parted[0][2] or any(len(some) != last + 1 for some in pieces):
        return None
    if not _add_head([head for head, _, _ in parted], places):
        return None
    places.literal(b"data:")
    # Between two quotes lies a string, since there is no backslash: every second piece.
    for at, each in enumerate(zip(*pieces, strict=True)):
        if each.count(each[0]) == len(each):
            places.literal(each[0])
        elif at % 2:
            places.place(is_text=True)
        elif not _add_numbers(each, places):
            return None
        places.literal(b'"' if at < last else b"")
    return places if places.are_whole() else None


def _add_head(heads: Sequence[bytes], places: _Places) -> bool:
    """Adds the lines before the data. Whether these are the same in all, apart from a number as the whole id."""
    if heads.count(heads[0]) == len(heads):
        places.literal(heads[0])
        return heads[0] == b"" or heads[0].endswith(b"\n")
    around = {found and found.groups() for found in map(_ID_LINE.fullmatch, heads)}
    found = around.pop()
    if found is None or around:
        return False
    places.literal(found[0])
    places.place(is_text=False)
    places.literal(found[1])
    return True


def _add_numbers(pieces: Sequence[bytes], places: _Places) -> bool:
    """Adds what stands between two strings. Whether that is the same in all, apart from numbers."""
    parted = [_DIGITS.split(piece) for piece in pieces]
    if any(len(some) != len(parted[0]) for some in parted):
        return False
    for at, each in enumerate(zip(*parted, strict=True)):
        if each.count(each[0]) == len(each):
            places.literal(each[0])
        elif at % 2:
            places.place(is_text=False)
        else:
            return False
    return True


def _marks(texts: Sequence[bool], *, longer: bool) -> list[bytes]:
    """A value for each place: as many letters, or a number, as stand in no other place.

    The longer ones differ from each other by other lengths than the shorter ones.
    """
    if longer:
        return [
            b"q" * (2 * _LETTERS - 3 * at) if text else b"%d" % (_NUMBER * 10 + at) for at, text in enumerate(texts)
        ]
    return [b"q" * (_LETTERS + 2 * at) if text else b"%d" % (_NUMBER + at) for at, text in enumerate(texts)]


def _parts(masked: bytes, texts: Sequence[bool], marks: Sequence[bytes]) -> list[bytes | int] | None:
    """The parts of a masked event with marks in its places; None if they cannot be told apart, or if letters are kept."""
    found: list[tuple[int, int, int]] = []
    for place, (mark, text) in enumerate(zip(marks, texts, strict=True)):
        kept = b'"%b"' % (b"x" * len(mark)) if text else mark
        if masked.count(kept) > 1 or b"q" * _LETTERS in masked:
            return None
        if kept in masked:
            begin = masked.index(kept) + text
            found.append((begin, begin + len(mark), place))
    parts: list[bytes | int] = []
    at = 0
    for begin, end, place in sorted(found):
        parts += [masked[at:begin], place]
        at = end
    return [*parts, masked[at:]]
