"""Masks the content of an event stream: decoded bytes in, the completed events out, masked, as canonical SSE."""

import re
from collections.abc import Sequence

from streamgauge.core.formats.sse import MAX_EVENT_BYTES, SseDecoder, comment_lines, split_blocks, write_event
from streamgauge.core.masking.masker import Masker
from streamgauge.recorder.budget import Budget
from streamgauge.recorder.cpu_yield import yield_cpu

# An unfinished event is charged to the budget of all streams from this size on (bytes). Nearly all events are smaller,
# and the bound on open streams bounds their total.
FREE_EVENT_BYTES = 16 * 1024

_BLANK_LINE = re.compile(rb"\n\n|\r\n\r\n|\r\r")
# After decoded bytes with one of these ends no event is pending.
_ENDS = (b"\n\n", b"\r\n\r\n")
# Bytes that stand for processing time: line ends, and the beginnings of objects and lists.
_SIGNS_OF_WORK = (b"\n", b"\r", b"{", b"[")
# The last bytes of a piece that are kept, to find a blank line that is split over two pieces.
_SPLIT_BLANK_LINE = 3


def _end_of(decoded: bytes, events: int) -> int:
    """Where the first `events` events end, if all line ends are of one kind (LF or CRLF); else where the bytes end."""
    blank = b"\n\n" if b"\r" not in decoded else b"\r\n\r\n"
    end = 0
    for _ in range(events):
        found = decoded.find(blank, end)
        if found < 0:
            return len(decoded)
        end = found + len(blank)
    return end


def _blocks(decoded: bytes) -> list[bytes]:
    """The whole blocks of bytes that begin with a block. Finds LF and CRLF line ends; CR alone is not recognized."""
    lines = decoded.replace(b"\r\n", b"\n")
    return split_blocks(lines[: lines.rfind(b"\n\n") + 2])


class MaskedEvents:
    """Masks one event stream.

    `oversized`: events discarded since the caller last set it to 0: over their size limit, or for lack of budget.
    """

    def __init__(self, masker: Masker, budget: Budget) -> None:
        self.oversized = 0
        self._looked_at = 0
        self._masker, self._budget = masker, budget
        self._decoder = SseDecoder()
        self._behind_hole: bytes | None = None  # after dropped reads: the last bytes searched for a blank line
        self._held = 0
        self._charged = 0
        self._idle = False  # no event is pending: the next bytes begin a block

    @property
    def work(self) -> int:
        """The work that its events needed so far.

        An event that is masked by a known pattern counts 1. In events that are parsed one by one, each line, object and
        list counts 1: these take the time, here and where the masked events are read.
        """
        return self._masker.quick_events + self._looked_at

    def usual(self, decoded: bytes) -> bytes | None:
        """What `feed` would give for the usual piece, one event of plain text; None for any other, which is not consumed."""
        return self._masker.usual(decoded) if self._idle else None

    def usual_each(self, pieces: Sequence[bytes]) -> list[bytes]:
        """As `usual`, for many pieces: the results of the first ones, up to a piece that is not usual."""
        return self._masker.usual_each(pieces) if self._idle else []

    def feed(self, decoded: bytes) -> bytes:
        """The events that these bytes complete, masked, as canonical SSE."""
        if self._behind_hole is not None:
            return self._masked(self._seek(self._behind_hole + decoded))
        written: list[bytes] = []
        step = 1
        while decoded:
            if self._idle:
                known, decoded = self._masker.known(decoded)
                written.append(known)
                step = 1 if known else 2 * step
            if decoded:
                # No known pattern fits: the next few events are parsed, and may become patterns for later ones.
                end = _end_of(decoded, step)
                written.append(self._masked(decoded[:end]))
                decoded = decoded[end:]
                yield_cpu()
        return b"".join(written)

    def _masked(self, decoded: bytes) -> bytes:
        began_idle, self._idle = self._idle, decoded.endswith(_ENDS)
        self._looked_at += sum([decoded.count(sign) for sign in _SIGNS_OF_WORK])
        events = self._decoder.feed(decoded)
        if events and not self._charged and decoded.endswith(b"\n\n"):
            self._held = 0  # the usual read: nothing is pending
        else:
            self._hold(decoded, begun_anew=bool(events))
        written: list[bytes] = []
        blocks = _blocks(decoded) if began_idle else []
        for place, event in enumerate(events):
            self.oversized += event.oversized
            became = self._masker.event(event)
            written.append(write_event(became))
            if len(blocks) == len(events):
                self._masker.learn(blocks[place], event, became)
        return b"".join(written)

    def resume(self) -> None:
        """Bytes are missing here: skip to the byte after the next blank line."""
        self._decoder = SseDecoder()
        self._behind_hole = b""
        self._idle = False
        self.let_go()

    def finish(self) -> bytes:
        """The event that is pending at the end, without a blank line; if only comments are pending, their lines; else b""."""
        self.let_go()
        comments = self._decoder.comments_pending
        event = self._decoder.finish()
        if event is None:
            return comment_lines(comments)
        self.oversized += event.oversized
        return self._masker.tail(event)

    def let_go(self) -> None:
        """Return all that is taken from the budget."""
        self._budget.give(self._charged, self)
        self._held = self._charged = 0

    def give_way(self) -> None:
        """Discard the unfinished event: other holders need its part of the budget."""
        self.oversized += 1
        self.resume()

    def _seek(self, data: bytes) -> bytes:
        found = _BLANK_LINE.search(data)
        self._behind_hole = None if found else data[-_SPLIT_BLANK_LINE:]
        return data[found.end() :] if found else b""

    def _hold(self, decoded: bytes, *, begun_anew: bool) -> None:
        """Count the size of the unfinished event, and discard the event when the budget has no space for it."""
        if begun_anew:
            ended = max(decoded.rfind(b"\n\n") + 2, decoded.rfind(b"\r\n\r\n") + 4)
            self._held = len(decoded) - ended if ended >= 2 else 0
        else:
            self._held += len(decoded)
        charge = max(min(self._held, MAX_EVENT_BYTES) - FREE_EVENT_BYTES, 0)
        if charge < self._charged:
            self._budget.give(self._charged - charge, self)
        elif charge > self._charged and not self._budget.take(charge - self._charged, self):
            self.give_way()
            return
        self._charged = charge
