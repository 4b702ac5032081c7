"""What taps tell, stream by stream, becomes segments. Sans-IO: no socket, no clock, no file.

A bug in the handling of one stream makes that stream incomplete and touches no other. Every read that is handed in is
either in a segment or counted in `dropped`.

Streams take turns. What arrived of a stream is taken in up to TURN_WORK at a time. A stream that has more than that is
behind: the rest waits, and the caller gives those that are behind one `turn` after another, when it has time for them. So
a stream whose events are many and costly delays no other. What streams behind have waiting is bounded by MAX_BEHIND_BYTES;
beyond it those with the most lose it, counted as `recorder_behind`.
"""

import secrets
import time
from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from typing import assert_never

from streamgauge.core.capture.segments import BUNDLE_BYTES, Ending, Segment
from streamgauge.recorder.budget import Budget
from streamgauge.recorder.capture import RecordedStream
from streamgauge.recorder.cpu_yield import yield_cpu
from streamgauge.recorder.decoder_memory import MAX_DECODER_BYTES, DecoderMemory
from streamgauge.recorder.protocol import (
    ExchangeEnded,
    Message,
    ReadsDropped,
    RequestBody,
    RequestSent,
    RequestStarted,
    ResponseHead,
    ResponseRead,
    ResponseReads,
)
from streamgauge.recorder.request import CaptureSettings
from streamgauge.recorder.stream_id import FREE_BITS, ID_BYTES, stream_id
from streamgauge.runtime.faults import report_fault
from streamgauge.spool.read_counters import DropReason, Incident

# Streams open at once. A relay holds two sockets for each, so file descriptors end sooner; at about 5 KiB each this is
# 100 MiB.
MAX_OPEN_STREAMS = 20_000
# Bytes held over all streams: bodies that are gathered, and long events. Sixteen requests of the largest size at once, or
# 5,000 of the usual 50 KiB; beyond it the oldest give way (see budget.py), which `body_capped` and `event_capped` count.
MAX_HELD_BYTES = 256 * 1024 * 1024
# Work of one stream at a time (see `MaskedEvents.work`): 1,024 usual events, or a hundred to 500 costly ones, which take 5
# to 10 ms. An LLM's stream makes some hundred events a second.
TURN_WORK = 1_024
# What streams that are behind may have waiting (bytes): eight answers of 8 MiB, far beyond what a model says at one time.
MAX_BEHIND_BYTES = 64 * 1024 * 1024
# When it is more, streams lose what waits until it is this part of it: each time all of them have to be looked at.
_LEFT_BEHIND = 3 / 4

# A stream by its sender (a connection's number) and the sender's own number.
Key = tuple[int, int]


class Recorder:
    """`handle` each message, then take `segments`, or those that are due. `dropped` and `incidents` grow until cleared."""

    def __init__(
        self,
        settings: CaptureSettings,
        new_id: Callable[[int | None], bytes] | None = None,
        *,
        watch: Callable[[RequestStarted], None] | None = None,
        max_open_streams: int = MAX_OPEN_STREAMS,
        max_held_bytes: int = MAX_HELD_BYTES,
        max_decoder_bytes: int = MAX_DECODER_BYTES,
        segment_bytes: int = BUNDLE_BYTES,
        turn_work: int = TURN_WORK,
        max_behind_bytes: int = MAX_BEHIND_BYTES,
    ) -> None:
        """`watch`: is given what is known of each stream when it begins."""
        self.dropped: Counter[DropReason] = Counter()
        self.incidents: Counter[Incident] = Counter()
        self._settings = settings
        self._new_id = new_id or new_stream_id
        self._watch = watch
        self._max_open = max_open_streams
        self._segment_bytes = segment_bytes
        self._turn_work, self._max_behind = turn_work, max_behind_bytes
        self._budget = Budget(max_held_bytes)
        self._memory = DecoderMemory(max_decoder_bytes)
        self._open: dict[Key, RecordedStream] = {}
        # Of each sender that had a stream refused, the first such stream's number. Senders count streams upwards.
        self._refused_from: dict[int, int] = {}
        self._touched: dict[RecordedStream, None] = {}  # in the order in which they were first touched
        self._behind: dict[RecordedStream, None] = {}  # in the order of their turns
        self._ending = 0  # of those behind, streams whose end waits as well
        self._pending_bytes = self._behind_bytes = 0
        self._begun = self._looks = 0

    @property
    def open_streams(self) -> int:
        """Streams that have not ended."""
        return len(self._open) + self._ending

    @property
    def pending_bytes(self) -> int:
        """About the size of what waits, but for what streams behind have waiting."""
        return self._pending_bytes

    @property
    def behind_bytes(self) -> int:
        """About the size of what streams behind have waiting; 0 if none is."""
        return self._behind_bytes

    def handle(self, message: Message, source: int = 0) -> None:
        """Take in one message of the sender `source`. Never raises.

        Reads wait for others of their stream until `segments` is asked for, and are looked at together: what one stream
        needs lies near then.
        """
        key = (source, message.stream)
        capture = self._open.get(key)
        if capture is None or isinstance(message, RequestStarted):
            self._strange(key, message)
            return
        if isinstance(message, ResponseRead):
            self._wait(capture, capture.wait(message))
        elif isinstance(message, ResponseReads):
            self._wait(capture, capture.wait_for_none(message.reads))
        elif isinstance(message, ReadsDropped):
            self._wait(capture, capture.dropped(message))
        elif isinstance(message, ExchangeEnded):
            self._end(key, capture, message)
        else:
            self._tell(capture, message)

    def _wait(self, capture: RecordedStream, size: int) -> None:
        """So many bytes more wait of a stream."""
        if capture.behind:
            self._behind_bytes += size
            self._bound_behind()
        else:
            self._pending_bytes += size
            self._touched[capture] = None

    def _tell(self, capture: RecordedStream, message: ResponseHead | RequestBody | RequestSent) -> None:
        if not capture.behind:
            self._touched[capture] = None
        try:
            match message:
                case ResponseHead():
                    capture.answered(message)
                case RequestBody():
                    capture.asked(message.data)
                case RequestSent():
                    capture.sent(message)
                case _:
                    assert_never(message)
        except Exception as error:  # noqa: BLE001 - capture fails open: a bug costs this stream's record its completeness
            self._count(capture, -1)
            self._fault(capture, error)
            self._count(capture, 1)

    def _end(self, key: Key, capture: RecordedStream, ended: ExchangeEnded) -> None:
        del self._open[key]
        capture.ended(ended)
        if capture.behind:
            self._ending += 1
            return
        self._touched[capture] = None
        waited = capture.waits
        self._turn(capture, self._turn_work)
        if waited:
            yield_cpu()

    def _turn(self, capture: RecordedStream, most: int | None) -> int:
        """Take in what waits of a stream, until `most` work is done: with more waiting it is behind then. Gives the work."""
        self._count(capture, -1)
        work = 0
        try:
            work = capture.settle(most)
        except Exception as error:  # noqa: BLE001 - as above
            self._fault(capture, error)
        if capture.is_blind:
            self.dropped[DropReason.CAPTURE_FAULT] += capture.drop_waiting()
        self._behind.pop(capture, None)
        capture.behind = capture.waits
        if capture.behind:
            self._behind[capture] = None
            self._touched.pop(capture, None)
        elif capture.has_end:
            self._close(capture)
        self._count(capture, 1)
        self._bound_behind()
        return work

    def _count(self, capture: RecordedStream, sign: int) -> None:
        """Put a stream's bytes into the totals, or take them out."""
        self._pending_bytes += sign * capture.ready_bytes
        if capture.behind:
            self._behind_bytes += sign * capture.waiting_bytes
            self._ending += sign * capture.has_end
        else:
            self._pending_bytes += sign * capture.waiting_bytes

    def _bound_behind(self) -> None:
        if self._behind_bytes > self._max_behind:
            self._lighten(int(self._max_behind * _LEFT_BEHIND))

    def _lighten(self, most: int) -> None:
        """Drop what streams behind have waiting, of those with the most first, until it is no more than this (bytes)."""
        for capture in sorted(self._behind, key=lambda one: one.waiting_bytes, reverse=True):
            if self._behind_bytes <= most:
                break
            self._count(capture, -1)
            self.dropped[DropReason.RECORDER_BEHIND] += capture.drop_waiting()
            self._count(capture, 1)

    def drop_behind(self) -> None:
        """Drop all that streams behind have waiting: there is no time left for it."""
        self._lighten(0)

    def begin_body(self, stream: int, source: int = 0) -> None:
        """This stream, just opened, is a recording: its response has no head, and what arrives is the body."""
        capture = self._open.get((source, stream))
        if capture is not None:
            capture.begin_body()

    def cut(self, source: int, at_ns: int | None) -> None:
        """This sender is gone: whatever it left open ends here."""
        for sender, stream in [key for key in self._open if key[0] == source]:
            self.handle(ExchangeEnded(stream, at_ns, Ending.CUT), sender)
        self._refused_from.pop(source, None)

    def segments(self) -> list[Segment]:
        """All that there is to be sent since the last call, stream by stream, whatever work it is."""
        return list(self._of([*self._touched, *self._behind], None))

    def each_segment(self) -> Iterator[Segment]:
        """What streams that are not behind have to be sent, made one by one: to be taken to the end."""
        return self._of(list(self._touched), self._turn_work)

    def each_due(self) -> Iterator[Segment]:
        """The same of streams that began or ended, and of a part of the others: another one at each look."""
        self._looks += 1
        return self._of([capture for capture in self._touched if capture.is_due(self._looks)], self._turn_work)

    def turn(self) -> list[Segment]:
        """What there is to be sent of a stream that is behind, after its turn; none if no stream is. Then others are next."""
        capture = next(iter(self._behind), None)
        if capture is None:
            return []
        self._turn(capture, self._turn_work)
        return list(self._take(capture))

    def _of(self, captures: Iterable[RecordedStream], most: int | None) -> Iterator[Segment]:
        for capture in captures:
            self._touched.pop(capture, None)
            if capture.waits:
                self._turn(capture, most)
            yield from self._take(capture)

    def _take(self, capture: RecordedStream) -> Iterator[Segment]:
        self._pending_bytes -= capture.ready_bytes
        return capture.take(self._segment_bytes)

    def _begin(self, key: Key, opened: RequestStarted) -> None:
        before = self._open.get(key)
        if before is not None:
            self.handle(ExchangeEnded(opened.stream, opened.at_ns, Ending.CUT), key[0])
        if self.open_streams >= self._max_open:
            self.incidents[Incident.STREAM_REFUSED] += 1
            source, stream = key
            self._refused_from[source] = min(stream, self._refused_from.get(source, stream))
            return
        self._begun += 1
        told = opened.stream_id
        made = told if told is not None and len(told) == ID_BYTES else self._new_id(opened.wall_ns)
        capture = RecordedStream(made, opened, self._settings, self._begun)
        self._open[key] = capture
        self._touched[capture] = None
        try:
            capture.begin(opened, self._settings, self._budget, self._memory)
            if self._watch is not None:
                self._watch(opened)
        except Exception as error:  # noqa: BLE001 - as above
            self._fault(capture, error)

    def _strange(self, key: Key, message: Message) -> None:
        """A stream that begins, that was refused, or that began before we did."""
        if isinstance(message, RequestStarted):
            self._begin(key, message)
        elif isinstance(message, ResponseRead | ResponseReads):
            source, stream = key
            refused = source in self._refused_from and stream >= self._refused_from[source]
            reason = DropReason.RECORDER_BEHIND if refused else DropReason.RECORDER_GONE
            self.dropped[reason] += 1 if isinstance(message, ResponseRead) else len(message.reads)

    def _close(self, capture: RecordedStream) -> None:
        try:
            capture.end()
        except Exception as error:  # noqa: BLE001 - as above
            self._fault(capture, error)
        self.incidents[Incident.BODY_CAPPED] += capture.body_capped
        self.incidents[Incident.DECODE_FAULT] += capture.decode_fault
        self.incidents[Incident.EVENT_CAPPED] += capture.oversized_events

    def _fault(self, capture: RecordedStream, error: Exception) -> None:
        report_fault("the recorder", error)
        self.incidents[Incident.CAPTURE_FAULT] += 1
        capture.fail()


def new_stream_id(wall_ns: int | None) -> bytes:
    """A random id of a stream that began then; now, if that is not known."""
    return stream_id(time.time_ns() if wall_ns is None else wall_ns, secrets.randbits(FREE_BITS))
