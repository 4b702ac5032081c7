"""What taps tell, stream by stream, becomes segments. Sans-IO: no socket, no clock, no file.

A bug in the handling of one stream makes that stream incomplete and touches no other. Every read that is handed in is
either in a segment or counted in `dropped`.
"""

import secrets
import time
from collections import Counter
from collections.abc import Callable, Iterator
from typing import assert_never

from streamgauge.core.segments import BUNDLE_BYTES, Ending, Segment
from streamgauge.counters import DropReason, Incident
from streamgauge.taps.messages import Answered, Arrivals, Arrived, Asked, Dropped, Ended, Message, Opened, Sent
from streamgauge.taps.recording.budget import Budget
from streamgauge.taps.recording.capture import StreamCapture
from streamgauge.taps.recording.decoder_memory import MAX_DECODER_BYTES, DecoderMemory
from streamgauge.taps.recording.gently import breathe
from streamgauge.taps.recording.request import CaptureSettings

# Streams open at once. A relay holds two sockets for each, so file descriptors end sooner; at about 5 KiB each this is
# 100 MiB.
MAX_OPEN_STREAMS = 20_000
# Bytes held over all streams: bodies that are gathered, and long events. Sixteen requests of the largest size at once, or
# 5,000 of the usual 50 KiB; beyond it the oldest give way (see budget.py), which `body_capped` and `event_capped` count.
MAX_HELD_BYTES = 256 * 1024 * 1024

# A stream by its sender (a connection's number) and the sender's own number.
Key = tuple[int, int]


class Recorder:
    """`handle` each message, then take `segments`, or those that are due. `dropped` and `incidents` grow until cleared."""

    def __init__(
        self,
        settings: CaptureSettings,
        new_id: Callable[[int | None], bytes] | None = None,
        *,
        max_open_streams: int = MAX_OPEN_STREAMS,
        max_held_bytes: int = MAX_HELD_BYTES,
        max_decoder_bytes: int = MAX_DECODER_BYTES,
        segment_bytes: int = BUNDLE_BYTES,
    ) -> None:
        self.dropped: Counter[DropReason] = Counter()
        self.incidents: Counter[Incident] = Counter()
        self._settings = settings
        self._new_id = new_id or new_stream_id
        self._max_open = max_open_streams
        self._segment_bytes = segment_bytes
        self._budget = Budget(max_held_bytes)
        self._memory = DecoderMemory(max_decoder_bytes)
        self._open: dict[Key, StreamCapture] = {}
        self._refused: set[Key] = set()
        self._touched: dict[StreamCapture, None] = {}  # in the order in which they were first touched
        self._pending_bytes = 0
        self._begun = self._looks = 0

    @property
    def open_streams(self) -> int:
        """Streams that have not ended."""
        return len(self._open)

    @property
    def pending_bytes(self) -> int:
        """About the size of what `segments` would give."""
        return self._pending_bytes

    def handle(self, message: Message, source: int = 0) -> None:
        """Take in one message of the sender `source`. Never raises.

        Reads wait for others of their stream until `segments` is asked for, and are looked at together: what one stream
        needs lies near then.
        """
        key = (source, message.stream)
        capture = self._open.get(key)
        if capture is None or isinstance(message, Opened):
            self._strange(key, message)
            return
        self._touched[capture] = None
        if isinstance(message, Arrived):
            self._pending_bytes += capture.wait(message)
            return
        if isinstance(message, Arrivals):
            self._pending_bytes += capture.wait_for_none(message.reads)
            return
        before = capture.pending_bytes
        if self._settle(capture):
            breathe()
        try:
            self._tell(capture, message)
        except Exception:  # noqa: BLE001 - capture fails open: a bug costs this stream's record its completeness
            self._fault(capture)
        self._pending_bytes += capture.pending_bytes - before
        if isinstance(message, Ended):
            self._close(key, capture)

    def _settle(self, capture: StreamCapture) -> bool:
        """Take in the reads that wait; gives whether any did."""
        if not capture.waits:
            return False
        try:
            self.dropped[DropReason.CAPTURE_FAULT] += capture.settle()
        except Exception:  # noqa: BLE001 - as above
            self._fault(capture)
            self.dropped[DropReason.CAPTURE_FAULT] += capture.settle()
        return True

    def begin_body(self, stream: int, source: int = 0) -> None:
        """This stream, just opened, is a recording: its response has no head, and what arrives is the body."""
        capture = self._open.get((source, stream))
        if capture is not None:
            capture.begin_body()

    def cut(self, source: int, at_ns: int | None) -> None:
        """This sender is gone: whatever it left open ends here."""
        for sender, stream in [key for key in self._open if key[0] == source]:
            self.handle(Ended(stream, at_ns, Ending.CUT), sender)
        self._refused = {key for key in self._refused if key[0] != source}

    def segments(self) -> list[Segment]:
        """What there is to be sent since the last call, stream by stream."""
        return list(self.each_segment())

    def each_segment(self) -> Iterator[Segment]:
        """The same, made one by one: to be taken to the end."""
        return self._of(list(self._touched))

    def each_due(self) -> Iterator[Segment]:
        """The same of streams that began or ended, and of a part of the others: another one at each look."""
        self._looks += 1
        return self._of([capture for capture in self._touched if capture.is_due(self._looks)])

    def _of(self, captures: list[StreamCapture]) -> Iterator[Segment]:
        for capture in captures:
            del self._touched[capture]
            self._pending_bytes -= capture.pending_bytes
            self._settle(capture)
            yield from capture.take(self._segment_bytes)

    def _begin(self, key: Key, opened: Opened) -> None:
        before = self._open.get(key)
        if before is not None:
            self.handle(Ended(opened.stream, opened.at_ns, Ending.CUT), key[0])
        if len(self._open) >= self._max_open:
            self.incidents[Incident.STREAM_REFUSED] += 1
            self._refused.add(key)
            return
        self._begun += 1
        capture = StreamCapture(self._new_id(opened.wall_ns), opened, self._settings, self._begun)
        self._open[key] = capture
        self._touched[capture] = None
        try:
            capture.begin(opened, self._settings, self._budget, self._memory)
        except Exception:  # noqa: BLE001 - as above
            self._fault(capture)

    def _tell(self, capture: StreamCapture, message: Answered | Asked | Sent | Dropped | Ended) -> None:
        match message:
            case Answered():
                capture.answered(message)
            case Asked():
                capture.asked(message.data)
            case Sent():
                capture.sent(message)
            case Dropped():
                capture.dropped(message.reads)
            case Ended():
                capture.end(message)
            case _:
                assert_never(message)

    def _strange(self, key: Key, message: Message) -> None:
        """A stream that begins, that was refused, or that began before we did."""
        if isinstance(message, Opened):
            self._begin(key, message)
        elif isinstance(message, Arrived | Arrivals):
            reason = DropReason.RECORDER_BEHIND if key in self._refused else DropReason.RECORDER_GONE
            self.dropped[reason] += 1 if isinstance(message, Arrived) else len(message.reads)
        elif isinstance(message, Ended):
            self._refused.discard(key)

    def _close(self, key: Key, capture: StreamCapture) -> None:
        del self._open[key]
        self.incidents[Incident.BODY_CAPPED] += capture.body_capped
        self.incidents[Incident.DECODE_FAULT] += capture.decode_fault
        self.incidents[Incident.EVENT_CAPPED] += capture.oversized_events

    def _fault(self, capture: StreamCapture) -> None:
        self.incidents[Incident.CAPTURE_FAULT] += 1
        capture.fail()


def new_stream_id(wall_ns: int | None) -> bytes:
    """A UUIDv7 (RFC 9562, 5.7) of the moment when the stream began; of now, if that is not known."""
    milliseconds = (time.time_ns() if wall_ns is None else max(wall_ns, 0)) // 1_000_000
    value = (milliseconds & 0xFFFF_FFFF_FFFF) << 80 | secrets.randbits(74)
    low = value & ((1 << 62) - 1)
    high = (value >> 62 & 0xFFF) << 64
    return ((value >> 80) << 80 | 7 << 76 | high | 2 << 62 | low).to_bytes(16)
