"""The content of an event stream: decoded bytes in, the masked events that they complete out, as canonical SSE."""

import re

from streamgauge.core.masking import Masker
from streamgauge.core.sse import MAX_EVENT_BYTES, SseDecoder, split_blocks, write_event
from streamgauge.taps.recording.budget import Budget

# An event that does not end is charged to the budget of all streams from this size on (bytes). Nearly all are smaller,
# and the bound on open streams bounds what they hold.
FREE_EVENT_BYTES = 16 * 1024

_BLANK_LINE = re.compile(rb"\n\n|\r\n\r\n|\r\r")
# How decoded bytes end behind which nothing is pending.
_ENDS = (b"\n\n", b"\r\n\r\n")
# Bytes of one piece that are kept to find a blank line that is split over two.
_SPLIT_BLANK_LINE = 3


class MaskedEvents:
    """One event stream. `oversized`: events over their cap or the budget since this was last set to 0."""

    def __init__(self, masker: Masker, budget: Budget) -> None:
        self.oversized = 0
        self._masker, self._budget = masker, budget
        self._decoder = SseDecoder()
        self._behind_hole: bytes | None = None  # the last bytes looked at while a blank line is sought
        self._held = 0
        self._charged = 0
        self._idle = False  # nothing is pending: what comes begins with a block

    def feed(self, decoded: bytes) -> bytes:
        """The events that these bytes complete."""
        known = b""
        if self._behind_hole is not None:
            decoded = self._seek(self._behind_hole + decoded)
        elif self._idle:
            known, decoded = self._masker.known(decoded)
            if not decoded:
                return known
        return known + self._masked(decoded)

    def _masked(self, decoded: bytes) -> bytes:
        began_idle, self._idle = self._idle, decoded.endswith(_ENDS)
        events = self._decoder.feed(decoded)
        if events and not self._charged and decoded.endswith(b"\n\n"):
            self._held = 0  # the usual read: nothing is pending
        else:
            self._hold(decoded, begun_anew=bool(events))
        written: list[bytes] = []
        blocks = split_blocks(decoded.replace(b"\r\n", b"\n")) if began_idle and self._idle else []
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
        """The event that is pending at the end, without its blank line; empty if there is none."""
        self.let_go()
        event = self._decoder.finish()
        if event is None:
            return b""
        self.oversized += event.oversized
        return self._masker.tail(event)

    def let_go(self) -> None:
        """Give back what is held of the budget."""
        self._budget.give(self._charged)
        self._held = self._charged = 0

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
            self._budget.give(self._charged - charge)
        elif charge > self._charged and not self._budget.take(charge - self._charged):
            self.oversized += 1
            self.resume()
            return
        self._charged = charge
