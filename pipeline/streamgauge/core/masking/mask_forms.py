"""Forms of events that are masked alike: what many of them become, one after the other, without decoding."""

import re
from collections.abc import Callable, Collection, Sequence

import msgspec

from streamgauge.core.assembly.forms import BLANK, Hole, Texts, Values, are_insides, is_plain
from streamgauge.core.safe_values import MASKED

_LIST = msgspec.json.Decoder(list[str])
_ID = re.compile(rb"[ -~]{1,256}")  # as labels.label_id has it

# How a value is masked, as it stands between the masked literals; None if that cannot be said of it alone.
Mask = Callable[[bytes], bytes | None]


class MaskForm:
    """Literals and holes of events, and of what they become. `outs`: for each hole how it is masked, None if it is gone."""

    def __init__(self, literals: Sequence[bytes], kinds: Sequence[Hole], written: list[bytes], outs: list[Mask | None]):
        self._made_of = literals, kinds, written
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
        values = self.values(content)
        return None if values is None else self.filled(values)

    def values(self, content: bytes) -> Sequence[bytes] | None:
        """What stands in the holes of an event with its blank line; None if it is of another form."""
        if not content.startswith(self._before) or not content.endswith(self._after):
            return None
        values = self._form.one(content[: -len(BLANK)])
        return None if values is None or (self._is_text and not are_insides(values)) else values

    def filled(self, values: Sequence[bytes]) -> bytes | None:
        """What an event with these values becomes; None if that cannot be said."""
        masked = [out(value) for out, value in zip(self._outs, values, strict=True) if out is not None]
        if None in masked:
            return None
        parts = self._frame.copy()
        parts[1::2] = [value or b"" for value in masked]
        return b"".join(parts)

    def narrowed(self, values: Sequence[bytes], open_at: Collection[int]) -> "MaskForm | None":
        """The form of events that have these values, but for the holes at these places; None if no hole is left."""
        literals, kinds, written = self._made_of
        raw, became = [literals[0]], [written[0]]
        behind = iter(written[1:])
        for place, (out, value) in enumerate(zip(self._outs, values, strict=True)):
            is_open = place in open_at
            if is_open:
                raw.append(b"")
            else:
                raw[-1] += value
            raw[-1] += literals[place + 1]
            if out is None:
                continue
            if is_open:
                became.append(b"")
            else:
                became[-1] += out(value) or b""
            became[-1] += next(behind)
        kept = [place for place in range(len(kinds)) if place in open_at]
        return MaskForm(raw, [kinds[at] for at in kept], became, [self._outs[at] for at in kept]) if kept else None

    @property
    def holes(self) -> list[tuple[Hole, bool]]:
        """What stands in each hole, and whether something of it is kept."""
        return [(kind, out is not None) for kind, out in zip(self._made_of[1], self._outs, strict=True)]

    def mask(self, blocks: Sequence[bytes]) -> tuple[int, bytes]:
        """What events become, one a block, up to one of another form: how many, and all of them."""
        count, parts = self._parts(blocks)
        return count, b"".join(parts)

    def each(self, blocks: Sequence[bytes]) -> list[bytes]:
        """What events become, one a block, up to one of another form: one by one."""
        _, parts = self._parts(blocks)
        return [b"".join(event) for event in zip(*[iter(parts)] * len(self._frame), strict=True)]

    def _parts(self, blocks: Sequence[bytes]) -> tuple[int, list[bytes]]:
        """The parts that events become, as many as the frame has for each, up to one of another form; how many events."""
        columns = self._form.columns(blocks)
        if not columns or not columns[0] or (self._is_text and not are_insides(columns[0])):
            return 0, []
        width, count = len(self._frame), len(columns[0])
        parts = self._frame * count
        kept = [(out, column) for out, column in zip(self._outs, columns, strict=True) if out is not None]
        for place, (out, column) in enumerate(kept):
            masked = masked_column(out, column)
            if None in masked:
                count = min(count, masked.index(None))
            parts[2 * place + 1 :: width] = [value or b"" for value in masked]
        return count, parts[: count * width]


# --- how values are masked ------------------------------------------------------------------------------------------


def masked_column(out: Mask, column: Sequence[bytes]) -> Sequence[bytes | None]:
    """Many values of one hole."""
    if out is mask_same:
        return column
    if out is mask_text:
        joined = b"".join(column)
        if joined.isascii() and b"\\" not in joined:  # a byte is a code point
            return [b"x" * len(value) for value in column]
        return [b"x" * len(value) if value.isascii() and b"\\" not in value else mask_text(value) for value in column]
    return [out(value) for value in column]


def mask_text(value: bytes) -> bytes | None:
    """Generated text as it stands between quotes: an `x` for each code point."""
    try:
        if b"\\" in value:
            return b"x" * len(_LIST.decode(b'["' + value + b'"]')[0])
        return b"x" * len(value if value.isascii() else value.decode())
    except (UnicodeDecodeError, msgspec.DecodeError):
        return None


def mask_line(value: bytes) -> bytes:
    """The same for text that is no JSON."""
    return b"x" * len(value.decode("utf-8", "replace"))


def mask_id(value: bytes) -> bytes:
    """An id without escapes in it."""
    return value if _ID.fullmatch(value) else MASKED.encode()


def mask_same(value: bytes) -> bytes:
    """A count, which is kept."""
    return value
