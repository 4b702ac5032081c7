"""What every reader of a framing shares: its contract, and the bounded content of one event.

A reader takes the bytes of a body as they come and gives the events that they complete. Dialects, masking and assembly see
events only, so the same exchange gives the same record in any framing.
"""

from typing import Protocol

from streamgauge.core.formats.sse import CUT_HEAD, CUT_TAIL, MAX_EVENT_BYTES, Event, utf8

BLANKS = b" \t\r\n"
_LINE_ENDS = bytes.maketrans(b"\r\n", b"  ")


class EventReader(Protocol):
    """A reader of one framing. It does no I/O, and never raises. How the input is split affects only when events come.

    `fault`: whether the framing is broken. Then the position of the next event is unknown, and all further input is ignored.
    `pending_bytes`: what the reader holds of an event that has not ended.
    """

    @property
    def fault(self) -> bool:
        """Whether the framing is broken."""

    @property
    def pending_bytes(self) -> int:
        """The bytes that are held of an event that has not ended."""

    def feed(self, data: bytes) -> list[Event]:
        """The events that `data` completes, in order."""

    def finish(self) -> Event | None:
        """The event that is pending at the end of input, None if there is none. Feed nothing afterwards."""

    def discard(self) -> None:
        """Discard what is held of the pending event: it becomes an oversized one."""


class Content:
    """The bytes of one event, which come in pieces. Beyond `cap` bytes only the first and the last ones are kept."""

    def __init__(self, cap: int = MAX_EVENT_BYTES) -> None:
        self._cap = cap
        self._kept = bytearray()
        self._head: bytes | None = None  # the first bytes, once the cap is exceeded; `_kept` then has the last ones
        self._discarded = False

    def __len__(self) -> int:
        return len(self._kept) + len(self._head or b"")

    @property
    def is_empty(self) -> bool:
        """Whether nothing but blanks was added."""
        return not self._kept and not self._discarded

    def add(self, piece: bytes) -> None:
        """Append a piece. Blanks at the beginning are dropped."""
        if self._discarded:
            return
        if not self._kept:
            piece = piece.lstrip(BLANKS)
        self._kept += piece
        if self._head is not None:
            self._head += piece[: CUT_HEAD - len(self._head)]
        elif len(self._kept) > self._cap:
            self._head = bytes(self._kept[:CUT_HEAD])
        if self._head is not None:
            del self._kept[:-CUT_TAIL]

    def discard(self) -> None:
        """Discard all bytes, also those to come: the event is oversized."""
        self._discarded = True
        self._kept.clear()
        self._head = None

    def take(self, name: str = "") -> Event:
        """The event of these bytes, without blanks around them. The content is empty afterwards."""
        kept, head, discarded = bytes(self._kept), self._head, self._discarded
        self._kept.clear()
        self._head, self._discarded = None, False
        if discarded:
            return Event(name, oversized=True)
        if head is not None:
            return Event(name, oversized=True, cut=(json_line(head), json_line(kept)))
        return Event(name, json_line(kept))


def json_line(text: bytes) -> bytes:
    """A JSON text on one line, as UTF-8, without blanks around it. A line end within JSON is a blank: strings escape it."""
    text = text.strip(BLANKS)
    if b"\n" in text or b"\r" in text:
        text = text.translate(_LINE_ENDS)
    return utf8(text)
