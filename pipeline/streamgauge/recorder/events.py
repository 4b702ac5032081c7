"""Masks the content of an event stream: decoded bytes in, the completed events out, masked, as canonical SSE."""

import re
from collections.abc import Sequence
from itertools import islice, takewhile

from streamgauge.core.formats.json_rpc import RPC_MARK
from streamgauge.core.formats.sse import (
    MAX_EVENT_BYTES,
    Event,
    SseDecoder,
    canonical_events_of,
    comment_lines,
    split_blocks,
    write_event,
    write_tail,
)
from streamgauge.core.masking.masker import Masker
from streamgauge.recorder.budget import Budget, UnfinishedEvent

# Of a stream without a frame, so many bytes are masked first (bytes). They hold some 20 usual events, from which a frame is
# made; the events after them are then masked by it.
FRAME_BYTES = 4 * 1024

_BLANK_LINE = re.compile(rb"\n\n|\r\n\r\n|\r\r")
# Stands for an event that was discarded for lack of budget.
_DISCARDED = Event(oversized=True)
# The last bytes of a piece that are kept, to find a blank line that is split over two pieces.
_SPLIT_BLANK_LINE = 3


def _end_of_first(decoded: bytes) -> int:
    """The position where the pending block may end: after the first blank line, or at the end of the bytes."""
    blank = _BLANK_LINE.search(decoded)
    return blank.end() if blank else len(decoded)


def _end_of_blocks(decoded: bytes) -> int:
    """The end of the last whole block; 0 if there is none. Finds LF and CRLF line ends."""
    end = decoded.rfind(b"\n\n") + 2
    crlf_end = decoded.rfind(b"\r\n\r\n") + 4 if b"\r" in decoded else 0
    return max(end if end > 1 else 0, crlf_end if crlf_end > 3 else 0)


def _is_whole(decoded: bytes) -> bool:
    return 0 < _end_of_blocks(decoded) == len(decoded)


def _blocks(decoded: bytes) -> list[bytes]:
    """Whole blocks, each without its blank line.

    Empty if a CR alone ends a line, if there are more blank lines, or if an event may be over its size limit.
    """
    if len(decoded) > MAX_EVENT_BYTES:
        return []
    blocks = split_blocks(decoded.replace(b"\r\n", b"\n") if b"\r" in decoded else decoded)
    return blocks if all(blocks) and b"\n" not in {block[:1] for block in blocks} else []


def _pieces_for_frame(pieces: Sequence[bytes]) -> int:
    """How many pieces have FRAME_BYTES, or the number of all."""
    total = 0
    for count, piece in enumerate(pieces, 1):
        total += len(piece)
        if total >= FRAME_BYTES:
            return count
    return len(pieces)


class MaskedEvents(UnfinishedEvent):
    """Masks one event stream.

    `events`: how many there were so far. `oversized`: events discarded since the caller last set it to 0: over their size
    limit, or for lack of budget. `fault`, `resumes`: as in `framed_events.EventContent`.
    """

    fault, resumes = False, True

    def __init__(self, masker: Masker, budget: Budget) -> None:
        super().__init__(budget)
        self.oversized = self.events = 0
        self._masker = masker
        self._decoder = SseDecoder()
        # After dropped reads, or a discarded event: the last bytes that were searched for a blank line.
        self._after_gap: bytes | None = None
        self._evicted = False  # an event was discarded there
        self._held = 0

    def feed(self, decoded: bytes) -> bytes:
        """The events that these bytes complete, masked, as canonical SSE."""
        if self._after_gap is not None:
            return self._seek(self._after_gap + decoded)
        if self._passes([decoded]):
            return decoded
        begin = 0 if self._decoder.idle else _end_of_first(decoded)
        written = self._fed(decoded[:begin])
        end = _end_of_blocks(decoded)
        if self._decoder.idle and begin < end:
            whole = decoded[begin:end]
            masked = [whole] if self._passes([whole]) else self._framed([whole]) or self._masked(_blocks(whole))
            written += masked
            begin = end if masked else begin
        written += self._fed(decoded[begin:])
        return b"".join(written)

    def feed_each(self, pieces: Sequence[bytes]) -> list[bytes]:
        """The result of `feed` for each of several pieces. Takes less time where pieces consist of whole events."""
        if self._passes(pieces):
            return list(pieces)
        written: list[bytes] = []
        while len(written) < len(pieces):
            rest = pieces[len(written) :]
            framed = self._framed(rest) if self._decoder.idle else []
            if framed:
                written += framed
                continue
            if not (written or self._masker.has_frame):
                rest = rest[: _pieces_for_frame(rest)]
            if {piece[-2:] for piece in rest} != {b"\n\n"}:
                rest = list(takewhile(_is_whole, rest)) or rest[:1]
            whole = self._whole_each(rest) if self._decoder.idle and _is_whole(rest[0]) else []
            written += whole or [self.feed(rest[0])]
        return written

    def _framed(self, pieces: Sequence[bytes]) -> list[bytes]:
        """The result for each of the first pieces whose events all fit the latest frame. No event must be pending."""
        masked, events = self._masker.mask_contents(pieces)
        if events:
            self._charge_event(b"", new_event=True)
            self.events += events
        return masked

    def _whole_each(self, pieces: Sequence[bytes]) -> list[bytes]:
        """The result for each piece, if all consist of whole blocks; else none."""
        joined = b"".join(pieces)
        masked = self._masked(_blocks(joined))
        if len(masked) in (0, len(pieces)):
            return masked
        every = iter(masked)
        if b"\r" in joined:
            return [b"".join(islice(every, len(_blocks(piece)))) for piece in pieces]
        return [b"".join(islice(every, piece.count(b"\n\n"))) for piece in pieces]

    def _passes(self, pieces: Sequence[bytes]) -> bool:
        """Whether the pieces pass unchanged: with full capture, if they are canonical events, and none is of JSON-RPC."""
        may_pass = self._masker.full and self._decoder.idle and not any(RPC_MARK in piece for piece in pieces)
        events = canonical_events_of(pieces) if may_pass else 0
        self.events += events
        return events > 0

    def _fed(self, decoded: bytes) -> list[bytes]:
        """The events that `decoded` completes, which may be any bytes."""
        if not decoded:
            return []
        events = self._decode(decoded)
        self.events += len(events)
        self._charge_event(decoded, new_event=bool(events))
        return list(map(write_event, self._masker.mask(events)))

    def _masked(self, blocks: Sequence[bytes]) -> list[bytes]:
        """The events of whole blocks. No event must be pending."""
        if not blocks:
            return []
        self._charge_event(b"", new_event=True)
        self.events += len(blocks)
        return self._masker.blocks(blocks, self._decode)

    def _decode(self, decoded: bytes) -> list[Event]:
        events = self._decoder.feed(decoded)
        oversized = sum([event.oversized for event in events])
        self.oversized += oversized
        return [self._masker.outline_of(event) for event in events] if oversized else events

    def resume(self) -> None:
        """Skip to the byte after the next blank line, because bytes are missing here."""
        self._decoder = SseDecoder()
        self._after_gap, self._evicted = b"", False
        self.release()

    def finish(self) -> bytes:
        """The event that is pending at the end, without a blank line; if only comments are pending, their lines; else b""."""
        self.release()
        if self._evicted:
            return write_tail(_DISCARDED)
        comments = self._decoder.comments_pending
        event = self._decoder.finish()
        if event is None:
            return comment_lines(comments)
        self.oversized += event.oversized
        return self._masker.tail(event)

    def release(self) -> None:
        """Return all bytes to the budget."""
        super().release()
        self._held = 0

    def evict(self) -> None:
        """Discard the unfinished event: other holders need its share of the budget."""
        self.oversized += 1
        self.resume()
        self._evicted = True

    def _seek(self, data: bytes) -> bytes:
        """The events after the next blank line, as of `feed`, and before them the mark of an event that was discarded."""
        blank = _BLANK_LINE.search(data)
        if blank is None:
            self._after_gap = data[-_SPLIT_BLANK_LINE:]
            return b""
        mark = write_event(_DISCARDED) if self._evicted else b""
        self._after_gap, self._evicted = None, False
        return mark + self.feed(data[blank.end() :])

    def _charge_event(self, decoded: bytes, *, new_event: bool) -> None:
        """Charge the unfinished event to the budget, and discard the event if the budget has no space for it.

        `new_event`: earlier events have ended, so `decoded` holds the beginning of the unfinished one.
        """
        ended = _end_of_blocks(decoded)
        if new_event:
            self._held = len(decoded) - ended if ended else 0
        else:
            self._held += len(decoded)
        self.charge(min(self._held, MAX_EVENT_BYTES))
