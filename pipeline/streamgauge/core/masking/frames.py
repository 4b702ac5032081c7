"""Masks events of one read or flush that differ in texts and numbers alone: only some of them are decoded.

Nearly all events of a stream are deltas that differ in one text, and in a number or two. A frame is what such events share,
before and after masking. It is made for one call from some of the events, and holds for that call alone. How the places are
masked in which the events differ is not known here: an event with marked values in these places is masked in the ordinary
way, and shows it. Three facts about masking make this exact:

- Masking keeps the order of members, and what a mask depends on survives it: what is kept, types, and which values are empty
  or 0. So other values in the same places are masked in the same way, apart from what is kept of them.
- A value that can stand between two quotes, or between two delimiters of numbers, is all of what stands there.
- A text becomes one `x` a code point. Of other strings nothing is kept, or there is no frame.

An event that is not of the frame to the letter is left to the ordinary way.
"""

import re
from collections.abc import Callable, Iterator, Sequence
from itertools import repeat

import msgspec

# Fewer events are decoded and masked in less time than a frame takes to make.
MIN_EVENTS = 8
# Larger events are rare, and have more than one text to mask (bytes).
_MAX_BYTES = 16 * 1024
# Digits of a number that is kept wherever numbers are kept: below 2**53.
_MAX_DIGITS = 15
# Deltas differ in at most six places. Letters of a mark: fewer than a word of a protocol may have, more than any text of a
# delta has that is the same in all.
_MAX_PLACES, _MARK_LETTERS = 16, 64
# Events of one kind begin alike for so many bytes: with their name, or with the first member.
_BEGIN_BYTES = 24

_Kept = bytes | int | None
# Ordinary masking: whole blocks to canonical events.
Mask = Callable[[Sequence[bytes]], list[bytes]]

_DATA = re.compile(rb"[^\\\n]*")  # data in one line, without escapes
_ID_LINE = re.compile(rb"((?:[^\n]*\n)*?id: )([0-9]+)(\n(?:[^\n]*\n)*)")
_DIGITS = re.compile(rb"([0-9]+)")
_IS_KEY = re.compile(rb'"[ \t\n]*:')
# What stands before and after a whole number.
_BEFORE_NUMBER, _AFTER_NUMBER = b":,[ \t", (b",", b"}", b"]", b" ", b"\t", b"\n", b"")
_ZERO = 0x30
_STRING = msgspec.json.Decoder(str)
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
        found = [at for at, block in enumerate(blocks) if block.startswith(first) and block.endswith(last)]
        rests = [blocks[at][start:end] for at in found]
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
        masked: list[bytes | None] = [None] * len(blocks)
        if any(None in column for column in kept):
            fit = [None not in values for values in zip(*kept, strict=True)]
            found = [at for at, fits in zip(found, fit, strict=True) if fits]
            kept = [[value for value, fits in zip(column, fit, strict=True) if fits] for column in kept]
        for at, event in zip(found, self._written(kept, len(found)), strict=True):
            masked[at] = event
        return masked

    def _written(self, kept: Sequence[Sequence[_Kept]], events: int) -> Iterator[bytes]:
        pieces = [repeat(part, events) if isinstance(part, bytes) else map(_shown, kept[part]) for part in self._parts]
        return map(b"".join, zip(*pieces, strict=True))


def _numbers(column: Sequence[bytes]) -> Sequence[bytes | None]:
    return [value if value.isdigit() and value[0] != _ZERO and len(value) <= _MAX_DIGITS else None for value in column]


def _lengths(column: Sequence[bytes]) -> Sequence[int | None]:
    """In code points; None for what is empty, or cannot stand between quotes."""
    joined = b"".join(column)
    if joined.isascii() and len(joined.translate(None, _NOT_PLAIN)) == len(joined):
        return [len(text) or None for text in column]
    return [_length(text) for text in column]


def _length(text: bytes) -> int | None:
    try:
        return len(_STRING.decode(b'"%b"' % text)) or None
    except (msgspec.DecodeError, UnicodeDecodeError):
        return None


def _shown(kept: _Kept) -> bytes:
    return b"x" * kept if isinstance(kept, int) else kept or b""


def frame_of(blocks: Sequence[bytes], mask: Mask) -> Frame | None:
    """The frame of three of several blocks; None if they have none, or if few blocks are like them.

    `mask` masks blocks in the ordinary way. It changes nothing, and raises NotRecognisedError for an event that the stream's
    dialect does not recognise: what that is may depend on any value.
    """
    plain = [block for block in blocks if b"\\" not in block and len(block) <= _MAX_BYTES]
    if not plain:
        return None
    # The first and the last block may be another kind of event than those between them.
    usual = plain[len(plain) // 2]
    begin, quotes = usual.partition(b"\n")[0][:_BEGIN_BYTES], usual.count(b'"')
    alike = [block for block in plain if block.startswith(begin) and block.count(b'"') == quotes]
    if 2 * len(alike) < len(blocks):
        return None
    first, *others = alike[0], usual, alike[-1]
    differences = _differences(first, others)
    if differences is None:
        return None
    literals, values, texts = differences
    marks = [_mark(value, place, is_text=text) for place, (value, text) in enumerate(zip(values, texts, strict=True))]
    marked = b"".join([part for pair in zip(literals, [*marks, b""], strict=True) for part in pair])
    try:
        masked, wanted = mask([marked, first])
    except NotRecognisedError:
        return None
    parts = _parts(masked, texts, marks)
    frame = None if parts is None else Frame(literals, texts, parts)
    return frame if frame is not None and frame.mask([first]) == [wanted] else None


class NotRecognisedError(Exception):
    """An event is not recognised by the dialect that its stream has shown."""


def _mark(value: bytes, place: int, *, is_text: bool) -> bytes:
    """As many letters, or a number, as stand in no other place.

    It is longer or shorter than the first block's value, so that whatever depends on the length differs.
    """
    if is_text:
        length = _MARK_LETTERS + 2 * place
        return b"q" * (length + (length == len(value)))
    digits = _MAX_DIGITS - (len(value) == _MAX_DIGITS)
    return b"%d" % (10 ** (digits - 1) + 7 + place)


def _differences(first: bytes, others: Sequence[bytes]) -> tuple[list[bytes], list[bytes], list[bool]] | None:
    """The literals that blocks share, the values of the first in the places between them, and which of these are strings.

    None if the blocks differ in anything else.
    """
    heads, datas = zip(*[block.rpartition(b"data:")[::2] for block in (first, *others)], strict=True)
    pieces = [data.split(b'"') for data in datas]
    count = len(pieces[0])
    if not _DATA.fullmatch(datas[0]) or any(len(some) != count for some in pieces):
        return None
    literals, values, texts = [b""], list[bytes](), list[bool]()
    if not _add_head(heads, literals, values, texts):
        return None
    # Between two quotes lies a string, since there is no backslash: every second piece.
    at = 0
    literals[-1] += b"data:"
    for place in [place for place, each in enumerate(zip(*pieces, strict=True)) if each[1:] != each[:1] * len(others)]:
        literals[-1] += b'"'.join([*pieces[0][at:place], b""])
        if place % 2:
            values.append(pieces[0][place])
            texts.append(True)
            literals.append(b"")
        elif not _add_numbers([some[place] for some in pieces], literals, values, texts):
            return None
        literals[-1] += b'"' if place + 1 < count else b""
        at = place + 1
    literals[-1] += b'"'.join(pieces[0][at:])
    return (literals, values, texts) if len(texts) <= _MAX_PLACES and _are_values(literals, texts) else None


def _add_head(heads: Sequence[bytes], literals: list[bytes], values: list[bytes], texts: list[bool]) -> bool:
    """Adds what stands before the data. Whether that is the same in all, apart from a number as the whole id."""
    if heads.count(heads[0]) == len(heads):
        literals[-1] += heads[0]
        return heads[0] == b"" or heads[0].endswith(b"\n")
    with_id = [_ID_LINE.fullmatch(head) for head in heads]
    around = {(found[1], found[3]) for found in with_id if found}
    if None in with_id or len(around) != 1:
        return False
    before, after = around.pop()
    literals[-1] += before
    literals.append(after)
    values += [found[2] for found in with_id[:1] if found]
    texts.append(False)
    return True


def _add_numbers(pieces: Sequence[bytes], literals: list[bytes], values: list[bytes], texts: list[bool]) -> bool:
    """Adds what stands between two strings. Whether that is the same in all, apart from numbers."""
    parted = [_DIGITS.split(piece) for piece in pieces]
    if any(len(some) != len(parted[0]) for some in parted):
        return False
    for at, each in enumerate(zip(*parted, strict=True)):
        if each.count(each[0]) == len(each):
            literals[-1] += each[0]
        elif at % 2:
            literals.append(b"")
            values.append(each[0])
            texts.append(False)
        else:
            return False
    return True


def _are_values(literals: Sequence[bytes], texts: Sequence[bool]) -> bool:
    """Whether the places are whole values: strings that are no keys, and numbers without sign, fraction and exponent."""
    return all(
        not _IS_KEY.match(after) if text else before[-1] in _BEFORE_NUMBER and after[:1] in _AFTER_NUMBER
        for before, after, text in zip(literals, literals[1:], texts, strict=False)
    )


def _parts(masked: bytes, texts: Sequence[bool], marks: Sequence[bytes]) -> list[bytes | int] | None:
    """The parts of a masked event that has marks in its places; None if letters of a mark were kept."""
    found: list[tuple[int, int, int]] = []
    for place, (mark, text) in enumerate(zip(marks, texts, strict=True)):
        kept = b'"%b"' % (b"x" * len(mark)) if text else mark
        begin = masked.find(kept)
        if masked.count(kept) > 1:
            return None
        if begin >= 0:
            found.append((begin + text, begin + len(kept) - text, place))
    parts: list[bytes | int] = []
    at = 0
    for begin, end, place in sorted(found):
        parts += [masked[at:begin], place]
        at = end
    return None if b"qq" in masked else [*parts, masked[at:]]
