"""The content of an event stream: decoded bytes in, the masked events that they complete out, as canonical SSE."""

import re
from collections.abc import Sequence

from streamgauge.core.formats.sse import MAX_EVENT_BYTES, SseDecoder, comment_lines, split_blocks, write_event
from streamgauge.core.masking.masker import Masker
from streamgauge.recorder.budget import Budget
from streamgauge.recorder.cpu_yield import yield_cpu

# An event that does not end is charged to the budget of all streams from this size on (bytes). Nearly all are smaller,
# and the bound on open streams bounds what they hold.
FREE_EVENT_BYTES = 16 * 1024

_BLANK_LINE = re.compile(rb"\n\n|\r\n\r\n|\r\r")
# How decoded bytes end behind which nothing is pending.
_ENDS = (b"\n\n", b"\r\n\r\n")
# What takes time to look at: lines, and values within values.
_SIGNS_OF_WORK = (b"\n", b"\r", b"{", b"[")
# Bytes of one piece that are kept to find a blank line that is split over two.
_SPLIT_BLANK_LINE = 3


def _end_of(decoded: bytes, events: int) -> int:
    """Where the last of so many events ends, if blank lines are seen at a glance; else where the bytes end."""
    blank = b"\n\n" if b"\r" not in decoded else b"\r\n\r\n"
    end = 0
    for _ in range(events):
        found = decoded.find(blank, end)
        if found < 0:
            return len(decoded)
        end = found + len(blank)
    return end


def _blocks(decoded: bytes) -> list[bytes]:
    """The blocks that lie whole in bytes which begin with one; none if that cannot be seen at a glance."""
    lines = decoded.replace(b"\r\n", b"\n")
    return split_blocks(lines[: lines.rfind(b"\n\n") + 2])


class MaskedEvents:
    """One event stream. `oversized`: events given up, over their cap or for lack of room, since this was last set to 0."""

    def __init__(self, masker: Masker, budget: Budget) -> None:
        self.oversized = 0
        self._looked_at = 0
        self._masker, self._budget = masker, budget
        self._decoder = SseDecoder()
        self._behind_hole: bytes | None = None  # the last bytes looked at while a blank line is sought
        self._held = 0
        self._charged = 0
        self._idle = False  # nothing is pending: what comes begins with a block

    @property
    def work(self) -> int:
        """How much work its events made so far.

        An event that is masked as others were is one. Where events are looked at one by one each line is one, and each
        object or list, since these are what time is spent on here and where the masked events are read.
        """
        return self._masker.quick_events + self._looked_at

    def usual(self, decoded: bytes) -> bytes | None:
        """What `feed` would give of the usual piece, one event of plain text. None, and nothing is taken, for any other."""
        return self._masker.usual(decoded) if self._idle else None

    def usual_each(self, pieces: Sequence[bytes]) -> list[bytes]:
        """The same of many pieces: what the first ones give, up to one that is not usual."""
        return self._masker.usual_each(pieces) if self._idle else []

    def feed(self, decoded: bytes) -> bytes:
        """The events that these bytes complete."""
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
                # What is not known is masked in the ordinary way: a few events, which may make the next ones known.
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
        """Bytes are missing here: go on behind the next blank line."""
        self._decoder = SseDecoder()
        self._behind_hole = b""
        self._idle = False
        self.let_go()

    def finish(self) -> bytes:
        """The event that is pending at the end, without its blank line; of comments alone their lines; else empty."""
        self.let_go()
        comments = self._decoder.comments_pending
        event = self._decoder.finish()
        if event is None:
            return comment_lines(comments)
        self.oversized += event.oversized
        return self._masker.tail(event)

    def let_go(self) -> None:
        """Give back what is held of the budget."""
        self._budget.give(self._charged, self)
        self._held = self._charged = 0

    def give_way(self) -> None:
        """Give up the event that has not ended: others need what it holds of the budget."""
        self.oversized += 1
        self.resume()

    def _seek(self, data: bytes) -> bytes:
        found = _BLANK_LINE.search(data)
        self._behind_hole = None if found else data[-_SPLIT_BLANK_LINE:]
        return data[found.end() :] if found else b""

    def _hold(self, decoded: bytes, *, begun_anew: bool) -> None:
        """Keep account of an event that is growing, and give it up when there is no room for it."""
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
