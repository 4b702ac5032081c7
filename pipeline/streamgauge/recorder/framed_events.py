"""Masks the content of a stream that is not server-sent events: decoded bytes in, the completed events out, as canonical SSE.

One class serves every reader of a framing (`core/formats/reader.py`). Server-sent events have a class of their own
(`events.py`), since most of their blocks can be masked without being decoded.
"""

from collections.abc import Sequence
from itertools import chain, islice
from typing import Protocol

from streamgauge.core.formats.json_lines import JsonLinesReader
from streamgauge.core.formats.reader import EventReader
from streamgauge.core.formats.sse import Event, write_event, write_tail
from streamgauge.core.masking.masker import Masker
from streamgauge.recorder.budget import Budget, UnfinishedEvent


class EventContent(Protocol):
    """The content of one stream of events, in any framing.

    `events`: how many there were so far. `oversized`: events discarded since the caller last set it to 0. `fault`: the
    framing is broken, so that the rest of the stream cannot be read. `resumes`: events after missing bytes can be read.
    """

    events: int
    oversized: int

    @property
    def fault(self) -> bool:
        """Whether the framing is broken."""

    @property
    def resumes(self) -> bool:
        """Whether events after missing bytes can be read."""

    def feed(self, decoded: bytes) -> bytes:
        """The events that these bytes complete, masked, as canonical SSE."""

    def feed_each(self, pieces: Sequence[bytes]) -> list[bytes]:
        """The result of `feed` for each of several pieces."""

    def resume(self) -> None:
        """Skip to the next event, because bytes are missing here."""

    def finish(self) -> bytes:
        """The event that is pending at the end, as canonical SSE without its blank line."""

    def release(self) -> None:
        """Return all bytes to the budget."""


class FramedEvents(UnfinishedEvent):
    """Masks one stream that a reader splits into events: see EventContent."""

    def __init__(self, masker: Masker, budget: Budget, reader: EventReader) -> None:
        super().__init__(budget)
        self.oversized = self.events = 0
        self._masker, self._reader = masker, reader

    @property
    def fault(self) -> bool:
        """Whether the framing is broken."""
        return self._reader.fault

    @property
    def resumes(self) -> bool:
        """Whether the framing has marks between events."""
        return isinstance(self._reader, JsonLinesReader)

    def feed(self, decoded: bytes) -> bytes:
        """The events that these bytes complete, masked, as canonical SSE."""
        return self.feed_each([decoded])[0]

    def feed_each(self, pieces: Sequence[bytes]) -> list[bytes]:
        """The result of `feed` for each of several pieces: to mask many events at once takes less time."""
        done: list[bytes] = []
        waiting: list[list[Event]] = []
        for piece in pieces:
            events = self._reader.feed(piece)
            self.charge(self._reader.pending_bytes)
            self.events += len(events)
            if oversized := sum([event.oversized for event in events]):
                self.oversized += oversized
                done += self._masked(waiting)  # they may show the dialect, by which the ends of this event are read
                waiting = []
                events = [self._masker.outline_of(event) for event in events]
            waiting.append(events)
        return done + self._masked(waiting)

    def _masked(self, of_each: Sequence[Sequence[Event]]) -> list[bytes]:
        masked = map(write_event, self._masker.mask(list(chain.from_iterable(of_each))))
        return [b"".join(islice(masked, len(events))) for events in of_each]

    def resume(self) -> None:
        """Skip to the next line."""
        assert isinstance(self._reader, JsonLinesReader)
        self._reader.skip_line()
        self.release()

    def finish(self) -> bytes:
        """The event that is pending at the end, without its blank line; else b""."""
        self.release()
        event = self._reader.finish()
        if event is None:
            return b""
        self.oversized += event.oversized
        return write_tail(Event(oversized=True)) if event.oversized and event.cut is None else self._masker.tail(event)

    def evict(self) -> None:
        """Discard the unfinished event: other holders need its share of the budget."""
        self._reader.discard()
        self.release()
