"""Makes segments of the messages from taps, stream by stream. Sans-IO: no socket, no clock, no file.

A bug in the handling of one stream makes that stream incomplete and affects no other. Every read that `handle` gets is
either in a segment or counted in `dropped`.

At a flush each stream has a budget, STREAM_BYTES; the streams with the fewest waiting bytes come first. A stream that has
more waiting is behind: the rest waits, and the streams that are behind get further budgets one after another (`each_behind`),
as long as the caller has time for them. So a stream whose events are many and costly delays others by a part of each flush at
most. MAX_BEHIND_BYTES bounds the waiting reads of all streams behind; beyond it reads are dropped, counted as
`recorder_behind`, first of the clients that have the most.
"""

import itertools
import secrets
import sys
import time
from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from operator import attrgetter
from typing import assert_never

from streamgauge.core.capture.segments import BUNDLE_BYTES, Ending, Segment
from streamgauge.core.formats.json_rpc import CallResult, Unmeasured
from streamgauge.recorder.budget import Budget
from streamgauge.recorder.call_session import CallSession
from streamgauge.recorder.capture import RecordedStream
from streamgauge.recorder.decoder_memory import MAX_DECODER_BYTES, DecoderMemory
from streamgauge.recorder.fair_shares import Party
from streamgauge.recorder.protocol import (
    CallData,
    CallEnded,
    CallOpened,
    ExchangeEnding,
    Message,
    ReadsDropped,
    RequestBody,
    RequestSent,
    RequestStarted,
    ResponseHead,
    ResponseRead,
    ResponseReads,
    WebSocketData,
    WebSocketOpened,
)
from streamgauge.recorder.request import CaptureSettings
from streamgauge.recorder.stream_id import FREE_BITS, ID_BYTES, stream_id
from streamgauge.recorder.websocket_session import WebSocketSession
from streamgauge.runtime.faults import report_fault
from streamgauge.spool.read_counters import DropReason, Incident
from streamgauge.spool.response_counters import NotCaptured

# Streams open at once. A relay holds two sockets for each, so file descriptors run out sooner. At about 5 KiB a stream
# this is 100 MiB.
MAX_OPEN_STREAMS = 20_000
# Bytes held over all streams: gathered bodies, and long events. Sixteen requests of the largest size at once, or 5,000
# of the usual 50 KiB; beyond it the oldest are discarded (see budget.py), which `body_capped` and `event_capped` count.
MAX_HELD_BYTES = 256 * 1024 * 1024
# The budget of a stream (bytes; each event counts as 256 more): about 500 usual events, of which an LLM's stream has about a
# hundred a second, or 1,000 of the shortest (decision 52).
STREAM_BYTES = 256 * 1024
# What answers to calls may cost in the time of a flush (bytes, as they came and decoded): a fifth of the recorder's time at
# worst. What comes then is not read.
CALL_BYTES = 8 * 1024 * 1024
# Waiting reads of all streams behind (bytes): eight responses of 8 MiB, far more than a model sends at one time.
MAX_BEHIND_BYTES = 64 * 1024 * 1024
# Beyond MAX_BEHIND_BYTES, reads are dropped until this part of it is left: each such pass sorts all streams behind.
_LEFT_BEHIND = 3 / 4

# Identifies a stream: its sender (a connection's number), and the sender's number for the stream.
Key = tuple[int, int]


def _never() -> bool:
    return False


class Recorder:
    """Call `handle` for each message, then take the segments. `dropped`, `incidents`, `refused`, `made`, `unmade`, `seen` and
    `calls` grow until the caller clears them. `refused`: streams above the limit of open ones, by upstream. `calls`: calls of
    JSON-RPC that have ended.

    Of WebSockets: `made`: responses that became streams, by upstream; `unmade`: those that did not, and why; `seen`: reads of
    these streams.
    """

    def __init__(
        self,
        settings: CaptureSettings,
        new_id: Callable[[int | None], bytes] | None = None,
        *,
        on_start: Callable[[RequestStarted], None] | None = None,
        max_open_streams: int = MAX_OPEN_STREAMS,
        max_held_bytes: int = MAX_HELD_BYTES,
        max_decoder_bytes: int = MAX_DECODER_BYTES,
        segment_bytes: int = BUNDLE_BYTES,
        stream_bytes: int = STREAM_BYTES,
        max_behind_bytes: int = MAX_BEHIND_BYTES,
    ) -> None:
        """`on_start` is called with the RequestStarted of each stream."""
        self.dropped: Counter[DropReason] = Counter()
        self.incidents: Counter[Incident] = Counter()
        self.refused: Counter[str | None] = Counter()
        self.made: Counter[str | None] = Counter()
        self.unmade: Counter[tuple[str | None, NotCaptured]] = Counter()
        self.seen = 0
        self.calls: list[CallResult] = []
        self._settings = settings
        self._new_id = new_id or new_stream_id
        self._on_start = on_start
        self._max_open = max_open_streams
        self._segment_bytes = segment_bytes
        self._stream_bytes, self._max_behind = stream_bytes, max_behind_bytes
        self._budget = Budget(max_held_bytes)
        self._memory = DecoderMemory(max_decoder_bytes)
        self._open: dict[Key, RecordedStream] = {}
        self._websockets: dict[Key, WebSocketSession] = {}
        self._calls: dict[Key, CallSession] = {}
        self._call_room = CALL_BYTES  # until the next flush
        self._unknown_websockets: dict[Key, None] = {}  # the last ones that began before this recorder
        self._numbers = itertools.count()  # of the streams of WebSockets
        # By sender, the number of its first refused stream. Senders number their streams upwards.
        self._refused_from: dict[int, int] = {}
        self._changed: dict[RecordedStream, None] = {}  # in the order in which they were first changed
        self._behind: dict[RecordedStream, None] = {}  # in the order in which they get their next budgets
        self._ends_waiting = 0  # how many streams have an ending that still waits
        self._pending_bytes = self._behind_bytes = 0
        self._begun = self._flushes = 0

    @property
    def open_streams(self) -> int:
        """Streams that have not ended."""
        return len(self._open) + self._ends_waiting

    @property
    def pending_bytes(self) -> int:
        """The approximate size of data that waits or is ready (bytes), without the waiting reads of streams behind."""
        return self._pending_bytes

    @property
    def behind_bytes(self) -> int:
        """The approximate size of the waiting reads of streams behind (bytes); 0 if no stream is behind."""
        return self._behind_bytes

    def handle(self, message: Message, source: int = 0) -> None:
        """Process one message of the sender `source`. Never raises.

        Reads are buffered for each stream until segments are taken, and then processed together: one stream's data stays
        in the CPU's caches.
        """
        key = (source, message.stream)
        capture = self._open.get(key)
        if capture is None or isinstance(message, RequestStarted):
            self._handle_unknown(key, message)
            return
        if isinstance(message, ResponseRead):
            self._count_waiting(capture, capture.add_read(message))
        elif isinstance(message, ResponseReads):
            self._count_waiting(capture, capture.add_reads(message.reads))
        elif isinstance(message, ReadsDropped):
            self._count_waiting(capture, capture.add_dropped(message))
        elif isinstance(message, ExchangeEnding):
            self._end(key, capture, message)
        else:
            self._handle_other(capture, message)

    def _count_waiting(self, capture: RecordedStream, size: int) -> None:
        """Count `size` more bytes that wait for a stream."""
        if capture.behind:
            self._behind_bytes += size
            self._bound_behind()
        else:
            self._pending_bytes += size
            self._changed[capture] = None

    def _handle_other(
        self,
        capture: RecordedStream,
        message: ResponseHead
        | RequestBody
        | RequestSent
        | WebSocketOpened
        | WebSocketData
        | CallOpened
        | CallData
        | CallEnded,
    ) -> None:
        if not capture.behind:
            self._changed[capture] = None
        try:
            match message:
                case ResponseHead():
                    capture.response_head(message)
                case RequestBody():
                    capture.request_body(message.data)
                case RequestSent():
                    capture.request_sent(message)
                case WebSocketOpened() | WebSocketData() | CallOpened() | CallData() | CallEnded():
                    pass  # its sender has given a WebSocket or a call the number of a stream
                case _:
                    assert_never(message)
        except Exception as error:  # noqa: BLE001 - capture fails open: a bug only makes this stream's record incomplete
            self._count(capture, -1)
            self._fault(capture, error)
            self._count(capture, 1)

    def _end(self, key: Key, capture: RecordedStream, ending: ExchangeEnding) -> None:
        del self._open[key]
        capture.exchange_ended(ending)
        self._ends_waiting += 1
        if not capture.behind:
            self._changed[capture] = None

    def _process(self, capture: RecordedStream, most: int) -> None:
        """Process a stream's waiting reads until they cost about `most`; if reads are left, it is behind."""
        self._count(capture, -1)
        try:
            capture.process_waiting(most)
        except Exception as error:  # noqa: BLE001 - as above
            self._fault(capture, error)
        if capture.failed:
            self.dropped[DropReason.CAPTURE_FAULT] += capture.drop_waiting()
        self._behind.pop(capture, None)
        capture.behind = capture.waits
        if capture.behind:
            self._behind[capture] = None
            self._changed.pop(capture, None)
        elif capture.has_ending:
            self._close(capture)
        self._count(capture, 1)
        self._bound_behind()

    def _count(self, capture: RecordedStream, sign: int) -> None:
        """Add a stream's bytes to the totals (`sign` 1), or subtract them (-1)."""
        self._pending_bytes += sign * capture.ready_bytes
        self._ends_waiting += sign * capture.has_ending
        if capture.behind:
            self._behind_bytes += sign * capture.waiting_bytes
        else:
            self._pending_bytes += sign * capture.waiting_bytes

    def _bound_behind(self) -> None:
        if self._behind_bytes > self._max_behind:
            self._drop_waiting(int(self._max_behind * _LEFT_BEHIND))

    def _drop_waiting(self, most: int) -> None:
        """Drop waiting reads of streams behind until at most `most` bytes wait: of the address that has most, there of the
        party that has most, there of the newest stream first. So a party that sends much cuts its own streams, and the
        newest of them first. Of streams without a party: of the largest first.
        """
        addresses, parties = Counter[str](), Counter[Party]()
        for capture in self._behind:
            if capture.party is not None:
                addresses[capture.party.address] += capture.waiting_bytes
                parties[capture.party] += capture.waiting_bytes

        def order(capture: RecordedStream) -> tuple[int, int, int]:
            party, waiting = capture.party, capture.waiting_bytes
            return (
                (waiting, waiting, 0) if party is None else (addresses[party.address], parties[party], capture.ordinal)
            )

        for capture in sorted(self._behind, key=order, reverse=True):
            if self._behind_bytes <= most:
                break
            self._count(capture, -1)
            self.dropped[DropReason.RECORDER_BEHIND] += capture.drop_waiting()
            self._count(capture, 1)

    def drop_behind(self) -> None:
        """Drop all waiting reads of streams behind: there is no time left to process them."""
        self._drop_waiting(0)

    def begin_body(self, stream: int, source: int = 0) -> None:
        """Mark a stream that has just begun as a recording: its response has no head, and its reads hold the body alone."""
        capture = self._open.get((source, stream))
        if capture is not None:
            capture.begin_body()

    def cut(self, source: int, at_ns: int | None) -> None:
        """End all open streams of a sender that has disconnected, as cut."""
        for sender, stream in [key for key in self._open if key[0] == source]:
            self.handle(ExchangeEnding(stream, at_ns, Ending.CUT), sender)
        for sender, websocket in [key for key in self._websockets if key[0] == source]:
            self.handle(ExchangeEnding(websocket, at_ns, Ending.CUT), sender)
        for key in [key for key in self._calls if key[0] == source]:
            self._cut_call(key)
        self._refused_from.pop(source, None)

    def segments(self) -> list[Segment]:
        """All segments since the last call, stream by stream, without a limit."""
        return list(self._of([*self._changed, *self._behind], sys.maxsize))

    def each_segment(self, is_late: Callable[[], bool] = _never) -> Iterator[Segment]:
        """The segments of all streams that are not behind, made one by one. The caller must exhaust the iterator.

        `is_late`: whether a flush has taken too long. The streams that it has not processed by then are behind.
        """
        return self._of(self._by_size(self._changed), self._stream_bytes, is_late)

    def each_due(self, is_late: Callable[[], bool] = _never) -> Iterator[Segment]:
        """As `each_segment`, for streams that began or ended, and a quarter of the others: a different one at each flush."""
        self._flushes += 1
        self._call_room = CALL_BYTES
        due = [capture for capture in self._changed if capture.is_due(self._flushes)]
        return self._of(self._by_size(due), self._stream_bytes, is_late)

    def each_behind(self, is_late: Callable[[], bool] = _never) -> Iterator[Segment]:
        """The segments of streams that are behind, one budget after another: one at least, then until `is_late`, or until no
        stream is behind. The caller must exhaust the iterator.
        """
        while self._behind:
            capture = next(iter(self._behind))
            self._process(capture, self._stream_bytes)
            yield from self._take(capture)
            if is_late():
                break

    @staticmethod
    def _by_size(captures: Iterable[RecordedStream]) -> list[RecordedStream]:
        return sorted(captures, key=attrgetter("waiting_bytes"))

    def _of(
        self, captures: Iterable[RecordedStream], most: int, is_late: Callable[[], bool] = _never
    ) -> Iterator[Segment]:
        for capture in captures:
            self._changed.pop(capture, None)
            if capture.waits or capture.has_ending:
                self._process(capture, 0 if is_late() else most)
            yield from self._take(capture)

    def _take(self, capture: RecordedStream) -> Iterator[Segment]:
        self._pending_bytes -= capture.ready_bytes
        return capture.take(self._segment_bytes)

    def _begin(self, key: Key, opened: RequestStarted) -> None:
        before = self._open.get(key)
        if before is not None:
            self.handle(ExchangeEnding(opened.stream, opened.at_ns, Ending.CUT), key[0])
        if self.open_streams >= self._max_open:
            self.incidents[Incident.STREAM_REFUSED] += 1
            self.refused[opened.upstream] += 1
            source, stream = key
            self._refused_from[source] = min(stream, self._refused_from.get(source, stream))
            return
        self._begun += 1
        derived = opened.stream_id
        recorded_id = derived if derived is not None and len(derived) == ID_BYTES else self._new_id(opened.wall_ns)
        capture = RecordedStream(recorded_id, opened, self._settings, self._begun)
        self._open[key] = capture
        self._changed[capture] = None
        try:
            capture.begin(opened, self._settings, self._budget, self._memory)
            if self._on_start is not None:
                self._on_start(opened)
        except Exception as error:  # noqa: BLE001 - as above
            self._fault(capture, error)

    def _handle_unknown(self, key: Key, message: Message) -> None:
        """Handle a message of a stream that is not open: it begins, was refused, or began before this recorder started."""
        if isinstance(message, RequestStarted):
            self._begin(key, message)
        elif isinstance(message, CallOpened | CallData | CallEnded):
            self._handle_call(key, message)
        elif isinstance(message, WebSocketOpened | WebSocketData | ExchangeEnding):
            self._handle_websocket(key, message)
        elif isinstance(message, ResponseRead | ResponseReads):
            source, stream = key
            refused = source in self._refused_from and stream >= self._refused_from[source]
            reason = DropReason.RECORDER_BEHIND if refused else DropReason.RECORDER_GONE
            self.dropped[reason] += 1 if isinstance(message, ResponseRead) else len(message.reads)

    # --- WebSockets, whose responses are streams of a sender of their own ---------------------------------------------------

    def _handle_websocket(self, key: Key, message: WebSocketOpened | WebSocketData | ExchangeEnding) -> None:
        session = self._websockets.get(key)
        if isinstance(message, WebSocketOpened):
            self._open_websocket(key, message)
            return
        if session is None:
            if isinstance(message, WebSocketData) and key not in self._unknown_websockets:
                self.unmade[None, NotCaptured.RECORDER_GONE] += 1
                self._unknown_websockets[key] = None
                if len(self._unknown_websockets) > self._max_open:
                    del self._unknown_websockets[next(iter(self._unknown_websockets))]
            return
        try:
            if isinstance(message, WebSocketData):
                session.data(message)
            else:
                del self._websockets[key]
                session.end(message)
        except Exception as error:  # noqa: BLE001 - as above; responses that come later get no record
            report_fault("the recorder", error)
            self.incidents[Incident.CAPTURE_FAULT] += 1
            self.unmade[session.upstream, NotCaptured.CAPTURE_FAULT] += 1
            session.fail(message.at_ns)

    def _open_websocket(self, key: Key, opened: WebSocketOpened) -> None:
        if key in self._websockets:
            self._handle_websocket(key, ExchangeEnding(opened.stream, opened.request.at_ns, Ending.CUT))
        if len(self._websockets) >= self._max_open:
            self.incidents[Incident.STREAM_REFUSED] += 1
            self.unmade[opened.request.upstream, NotCaptured.LIMIT] += 1
            return
        sink = _StreamsOfWebSocket(self, ~key[0], opened.request.upstream, self._numbers)
        self._websockets[key] = WebSocketSession(opened, sink, self._budget)

    # --- calls of JSON-RPC, which become no streams -------------------------------------------------------------------------

    def _handle_call(self, key: Key, message: CallOpened | CallData | CallEnded) -> None:
        """Handle a message of a call. Data of a call that is not open is ignored: its end is counted."""
        session = self._calls.get(key)
        try:
            if isinstance(message, CallOpened):
                self._open_call(key, message)
            elif isinstance(message, CallEnded):
                self._calls.pop(key, None)
                missed = CallResult(message.opened.upstream, message.opened.call, None, unmeasured=Unmeasured.GONE)
                self.calls.append(missed if session is None else session.end(message))
            elif session is not None and self._call_room > 0:
                self._call_room -= session.data(message)
            elif session is not None:
                session.give_up(Unmeasured.BEHIND)
        except Exception as error:  # noqa: BLE001 - as above; this call is not measured
            report_fault("the recorder", error)
            self.incidents[Incident.CAPTURE_FAULT] += 1
            if session is not None:
                session.give_up(Unmeasured.FAULT)
                if isinstance(message, CallEnded):
                    self.calls.append(session.end(message))

    def _open_call(self, key: Key, opened: CallOpened) -> None:
        if key in self._calls:
            self._cut_call(key)
        session = self._calls[key] = CallSession(opened, self._budget, self._memory)
        if len(self._calls) > self._max_open:
            session.give_up(Unmeasured.LIMIT)

    def _cut_call(self, key: Key) -> None:
        session = self._calls[key]
        self._handle_call(key, CallEnded(key[1], None, Ending.CUT, None, session.opened))

    def break_events(self, stream: int, source: int) -> None:
        """Mark that the framing of a stream's events could not be read."""
        capture = self._open.get((source, stream))
        if capture is not None:
            capture.break_events()

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


class _StreamsOfWebSocket:
    """Takes the streams of one WebSocket for the recorder: see websocket_session.StreamSink."""

    def __init__(self, recorder: Recorder, source: int, upstream: str | None, numbers: Iterator[int]) -> None:
        self._recorder, self._source, self._upstream, self._numbers = recorder, source, upstream, numbers

    def number(self) -> int:
        """The number of a new stream."""
        return next(self._numbers)

    def put(self, message: Message) -> None:
        """Handle a message of a stream, and count it."""
        if isinstance(message, RequestStarted):
            self._recorder.made[self._upstream] += 1
        elif isinstance(message, ResponseRead):
            self._recorder.seen += 1
        self._recorder.handle(message, self._source)

    def lose(self, stream: int, *, broken: bool) -> None:
        """Mark that a part of a stream is missing."""
        if broken:
            self._recorder.break_events(stream, self._source)
            return
        self._recorder.seen += 1
        self._recorder.dropped[DropReason.RECORDER_BEHIND] += 1
        self._recorder.handle(ReadsDropped(stream, 1), self._source)

    def not_captured(self, reason: NotCaptured) -> None:
        """Count a response that gets no stream."""
        self._recorder.unmade[self._upstream, reason] += 1


def new_stream_id(wall_ns: int | None) -> bytes:
    """A random id for a stream that began at `wall_ns` (UTC); None: the current time."""
    return stream_id(time.time_ns() if wall_ns is None else wall_ns, secrets.randbits(FREE_BITS))
