"""Splits a WebSocket into its responses: each becomes a stream of its own, in the recorder's messages.

A client of OpenAI's Responses sends a `response.create` for each response, and may have several in progress: `stream_id`
names a lane, within which responses come one after the other, in the order of their requests. A `response.steer` lets a
successor follow a response; no request precedes it. Source: https://github.com/openai/openai-python, types/responses
(responses_client_event.py, responses_server_event.py, response_steer_event.py).

In OpenAI's Realtime API (types/realtime, realtime_server_event.py) an event names its response. The client asks for one, or
the server begins it when the user has stopped to speak.

A stream's times count from the read with the last byte of what asked for it: its response.create, else the first
response.steer that names its predecessor, else input_audio_buffer.speech_stopped. If none was seen, they count from its first
event. Its response is the server's events for it, written as server-sent events: what comes after this module knows one
framing.
"""

from collections import deque
from typing import Protocol

import msgspec

from streamgauge.core.capture.segments import Ending, TransportFault
from streamgauge.core.dialects import WEBSOCKET, endpoint_of
from streamgauge.core.dialects.openai_realtime import OpenAIRealtime
from streamgauge.core.formats.json_text import parse
from streamgauge.core.formats.sse import Event, write_event
from streamgauge.core.formats.websocket import NO_CODE, WebSocketReader
from streamgauge.core.http1.head import EVENT_STREAM
from streamgauge.recorder.budget import Budget, UnfinishedEvent
from streamgauge.recorder.protocol import (
    MAX_REQUEST_BODY,
    ExchangeEnding,
    Message,
    RequestBody,
    RequestSent,
    ResponseHead,
    ResponseRead,
    WebSocketData,
    WebSocketOpened,
)
from streamgauge.recorder.response import MAX_RESPONSE_BODY
from streamgauge.recorder.websocket_events import Routed, routed
from streamgauge.spool.response_counters import NotCaptured

# Responses of one WebSocket that may be open or asked for, and steered responses that may wait for a successor. OpenAI's
# lanes are for some parallel agents.
MAX_OPEN = 256
_NORMAL_CLOSE = 1000
_STATUS = 101
# Headers of the handshake's answer that each response has: who answered. All others tell of the moment of the handshake
# (limits, a cost), and are the first response's alone.
_OF_EACH = frozenset(
    ("x-request-id", "request-id", "apim-request-id", "openai-organization", "openai-project", "x-litellm-version")
)
_OF_CONTENT = ("content-type", "content-encoding")
# The header of the handshake's request that concerns its first response alone.
_OF_FIRST = "x-stainless-retry-count"


class StreamSink(Protocol):
    """What takes the streams of a session."""

    def number(self) -> int:
        """The number of a new stream."""

    def put(self, message: Message) -> None:
        """Handle a message of a stream."""

    def lose(self, stream: int, *, broken: bool) -> None:
        """Mark that a part of a stream is missing. `broken`: its framing could not be read; else bytes did not come."""

    def not_captured(self, reason: NotCaptured) -> None:
        """Count a response that gets no stream."""


class _Response(msgspec.Struct, eq=False):
    """A response that was asked for, or is in progress. `stream` None: it gets no record. `text`: its events of the read that
    is being processed. `has_failed`: an error came, after which only its own terminal may come.
    """

    stream: int | None
    id: str | None = None
    text: bytearray = msgspec.field(default_factory=bytearray)
    has_failed: bool = False


class _Lane(msgspec.Struct, eq=False):
    """The responses of a lane: in progress, and asked for, each with what its request says of its place."""

    active: _Response | None = None
    asked: deque[tuple[_Response, Routed]] = msgspec.field(default_factory=deque)


class _Direction(UnfinishedEvent):
    """Reads what one side sends. What it holds of a message is charged to the budget.

    After a gap, reading continues at the next read that begins with a whole text frame of a JSON object: servers and clients
    write a frame at a time.
    """

    def __init__(self, budget: Budget, cap: int, *, from_client: bool) -> None:
        super().__init__(budget)
        self.closed: int | None = None
        self._cap, self._from_client = cap, from_client
        self._reader = WebSocketReader(from_client=from_client, max_event_bytes=cap)
        self._is_lost = False

    @property
    def fault(self) -> bool:
        """Whether the frames are broken."""
        return self._reader.fault

    def feed(self, data: bytes) -> list[tuple[Event, int]]:
        """The text messages that `data` ends, each with its size in bytes."""
        if self._is_lost and not self._resumes(data):
            return []
        events = self._reader.feed(data)
        self.closed = self._reader.closed
        self.charge(self._reader.pending_bytes)
        return list(zip(events, self._reader.sizes, strict=True))

    def gap(self) -> None:
        """Discard what is held: bytes are missing here."""
        self.release()
        self._is_lost = True

    def _resumes(self, data: bytes) -> bool:
        reader = WebSocketReader(from_client=self._from_client, max_event_bytes=self._cap)
        trial = WebSocketReader(from_client=self._from_client, max_event_bytes=len(data))
        first = next(iter(trial.feed(data)), None)
        if first is None or first.data is None or not isinstance(parse(first.data), dict):
            return False
        self._reader, self._is_lost = reader, False
        return True

    def evict(self) -> None:
        """Discard the unfinished message: other holders need its share of the budget."""
        self._reader.discard()
        self.release()


class WebSocketSession:
    """One WebSocket. Call `data` for each read, then `end`. A method may raise because of a bug; then call `fail`."""

    def __init__(self, opened: WebSocketOpened, sink: StreamSink, budget: Budget) -> None:
        self.upstream = opened.request.upstream
        self._handshake, self._sink = opened.request, sink
        self._headers = [("content-type", EVENT_STREAM)]
        self._headers += [pair for pair in opened.headers if pair[0] not in _OF_CONTENT]
        self._client = _Direction(budget, MAX_REQUEST_BODY, from_client=True)
        self._server = _Direction(budget, MAX_RESPONSE_BODY, from_client=False)
        self._lanes: dict[str | None, _Lane] = {}
        self._steered: dict[
            str, int
        ] = {}  # when a successor of a response was first asked for, by the id of the response
        self._touched: dict[_Response, None] = {}  # responses that have events of this read
        self._open = 0  # responses with a stream
        self._is_realtime = endpoint_of(WEBSOCKET, opened.request.target) == OpenAIRealtime.endpoint
        self._spoken_ns: int | None = None  # when the user has stopped to speak, until a response begins
        self._is_over = False

    def data(self, read: WebSocketData) -> None:
        """Process one read of either side."""
        if self._is_over:
            return
        if read.from_client:
            self._client_data(read)
        else:
            self._server_data(read)

    def end(self, reported: ExchangeEnding) -> None:
        """Process the end of the connection."""
        if not self._is_over:
            self._finish(_without_close(reported))

    def fail(self, at_ns: int | None) -> None:
        """End all responses as cut, after an internal error."""
        for response in self._responses():
            if response.stream is not None:
                self._sink.lose(response.stream, broken=False)
        self._finish(ExchangeEnding(0, at_ns, Ending.CUT))

    # --- the client ------------------------------------------------------------------------------------------------------

    def _client_data(self, read: WebSocketData) -> None:
        if read.gap:
            self._client.gap()
        for event, size in self._client.feed(read.data):
            self._client_event(read.at_ns, event, size)
        if self._client.closed is not None:
            self._finish(ExchangeEnding(0, read.at_ns, Ending.CLIENT, read.at_ns))

    def _client_event(self, at_ns: int, event: Event, size: int) -> None:
        sent = routed(event)
        if sent.type == "response.create":
            lane = self._lane(None if self._is_realtime else sent.lane)
            response = self._ask(at_ns, event, size, sent)
            if lane is not None:
                lane.asked.append((response, sent))
        elif sent.type == "response.steer" and sent.previous is not None and len(self._steered) < MAX_OPEN:
            self._steered.setdefault(sent.previous, at_ns)

    def _ask(self, at_ns: int, event: Event, size: int, sent: Routed) -> _Response:
        """The response to a response.create. A warm-up (`generate`: false) has no output, and gets no record."""
        response = _Response(None) if sent.is_warm_up else self._begin(at_ns)
        if response.stream is not None:
            body = event.data
            if body is not None:
                self._sink.put(RequestBody(response.stream, body))
            self._sink.put(RequestSent(response.stream, at_ns, None, size, body is not None))
        return response

    def _begin(self, at_ns: int) -> _Response:
        """Begin a stream, whose request came, or whose first event came, at `at_ns`."""
        if self._open >= MAX_OPEN:
            self._sink.not_captured(NotCaptured.LIMIT)
            return _Response(None)
        handshake, stream = self._handshake, self._sink.number()
        wall_ns = handshake.wall_ns
        if wall_ns is not None and handshake.at_ns is not None:
            wall_ns += at_ns - handshake.at_ns
        self._sink.put(msgspec.structs.replace(handshake, stream=stream, at_ns=at_ns, wall_ns=wall_ns))
        self._sink.put(ResponseHead(stream, None, _STATUS, self._headers))
        headers = [pair for pair in handshake.headers if pair[0] != _OF_FIRST]
        self._headers = [("content-type", EVENT_STREAM), *[pair for pair in self._headers if pair[0] in _OF_EACH]]
        self._handshake = msgspec.structs.replace(handshake, headers=headers)
        self._open += 1
        return _Response(stream)

    # --- the server ------------------------------------------------------------------------------------------------------

    def _server_data(self, read: WebSocketData) -> None:
        if read.gap:
            self._lose(read.at_ns, broken=False)
            self._server.gap()
        for event, _ in self._server.feed(read.data):
            self._server_event(read.at_ns, event)
        self._flush(read.at_ns)
        if self._server.fault:
            self._lose(read.at_ns, broken=True)
            self._is_over = True
        elif self._server.closed is not None:
            self._closed_by_server(read.at_ns, self._server.closed)

    def _server_event(self, at_ns: int, event: Event) -> None:
        got = routed(event)
        kind = got.type or ""
        if kind.startswith("response.steer."):
            if kind in ("response.steer.failed", "response.steer.pending") and got.previous is not None:
                self._steered.pop(got.previous, None)
        elif kind == "error":
            if self._is_realtime:
                self._realtime_error(at_ns, event, got)
            else:
                self._error(at_ns, event, got)
        elif kind == "input_audio_buffer.speech_stopped":
            self._spoken_ns = at_ns
        elif kind.startswith("response."):
            self._response_event(at_ns, event, got, kind)

    def _response_event(self, at_ns: int, event: Event, got: Routed, kind: str) -> None:
        lane = self._lane(got.id if self._is_realtime else got.lane)
        if lane is None:
            return
        active = lane.active
        if active is None or (kind == "response.created" and active.id not in (None, got.id)):
            if active is not None:  # its terminal did not come
                self._end(at_ns, active)
            active = lane.active = self._next(at_ns, lane, got, begins=kind in _BEGINNINGS)
        elif active.has_failed and kind not in _TERMINALS:
            self._end(at_ns, active)
            active = lane.active = None
        if active is None:
            return
        active.id = active.id or got.id
        self._add(active, event)
        if kind in _TERMINALS:
            lane.active = None
            self._end(at_ns, active)
            if self._is_realtime:
                self._lanes.pop(got.id, None)

    def _next(self, at_ns: int, lane: _Lane, got: Routed, *, begins: bool) -> _Response | None:
        """The response that an event belongs to while none is in progress in its lane; None for a late event."""
        if self._is_realtime:
            return self._next_of_realtime(at_ns) if begins else None
        steered_ns = self._steered.get(got.previous or "")
        is_asked = bool(lane.asked) and lane.asked[0][1].previous == got.previous
        if steered_ns is not None and not is_asked and begins:
            del self._steered[got.previous or ""]
            return self._begin(steered_ns)
        if lane.asked:
            return lane.asked.popleft()[0]
        return self._begin(at_ns) if begins else None

    def _next_of_realtime(self, at_ns: int) -> _Response:
        """The response that begins: the one that was asked for first, else one that the server begins by itself."""
        spoken_ns, self._spoken_ns = self._spoken_ns, None
        asked = self._lanes[None].asked if None in self._lanes else None
        return asked.popleft()[0] if asked else self._begin(at_ns if spoken_ns is None else spoken_ns)

    def _realtime_error(self, at_ns: int, event: Event, got: Routed) -> None:
        """Process an error of the Realtime API: of the request that it names. Any other leaves all responses as they are."""
        asked = self._lanes[None].asked if None in self._lanes else deque[tuple[_Response, Routed]]()
        for place, (refused, sent) in enumerate(asked):
            if got.caused_by is not None and sent.event_id == got.caused_by:
                del asked[place]
                self._add(refused, event)
                self._end(at_ns, refused)
                return

    def _error(self, at_ns: int, event: Event, got: Routed) -> None:
        """Process an error: of the response in progress if the error has its sequence number, or if no request waits; else of
        the request that has waited longest, which then gets no other response.
        """
        lane = self._lane_of_error(got)
        if lane is None:
            return
        if lane.active is not None and (got.is_numbered or not lane.asked):
            lane.active.has_failed = True
            self._add(lane.active, event)
            if not got.is_numbered:
                active, lane.active = lane.active, None
                self._end(at_ns, active)
        elif lane.asked:
            refused, _ = lane.asked.popleft()
            self._add(refused, event)
            self._end(at_ns, refused)

    def _lane_of_error(self, got: Routed) -> _Lane | None:
        """The lane that an error names, or else the only one with a response."""
        if got.lane is not None:
            return self._lanes.get(got.lane)
        busy = [lane for lane in self._lanes.values() if lane.active is not None or lane.asked]
        return busy[0] if len(busy) == 1 else None

    def _closed_by_server(self, at_ns: int, code: int) -> None:
        """End the connection by the server's close frame. A code that names a reason is an error of the open responses."""
        if code not in (_NORMAL_CLOSE, NO_CODE):
            error = {"type": "error", "error": {"type": "websocket_close", "code": str(code)}}
            for response in self._responses():
                self._add(response, Event("", msgspec.json.encode(error)))
            self._flush(at_ns)
        self._finish(ExchangeEnding(0, at_ns, Ending.COMPLETE))

    # --- both ------------------------------------------------------------------------------------------------------------

    def _lane(self, name: str | None) -> _Lane | None:
        """The lane of this name; None if there are too many."""
        lane = self._lanes.get(name)
        if lane is None:
            if len(self._lanes) >= MAX_OPEN:
                idle = [known for known, lane in self._lanes.items() if lane.active is None and not lane.asked]
                if not idle:
                    return None
                del self._lanes[idle[0]]
            lane = self._lanes[name] = _Lane()
        return lane

    def _responses(self) -> list[_Response]:
        """All responses that have not ended."""
        found: list[_Response] = []
        for lane in self._lanes.values():
            found += [] if lane.active is None else [lane.active]
            found += [response for response, _ in lane.asked]
        return found

    def _add(self, response: _Response, event: Event) -> None:
        if response.stream is not None:
            response.text += write_event(event)
            self._touched[response] = None

    def _flush(self, at_ns: int) -> None:
        """Put the events of this read."""
        for response in list(self._touched):
            self._put_read(at_ns, response)

    def _put_read(self, at_ns: int, response: _Response) -> None:
        """Put a response's events of this read, if there are any."""
        if response in self._touched and response.stream is not None:
            self._sink.put(ResponseRead(response.stream, at_ns, bytes(response.text)))
            response.text.clear()
        self._touched.pop(response, None)

    def _end(self, at_ns: int, response: _Response) -> None:
        """End a response: the server has sent all of it."""
        self._put_read(at_ns, response)
        self._put_ending(response, ExchangeEnding(0, at_ns, Ending.COMPLETE))

    def _put_ending(self, response: _Response, ending: ExchangeEnding) -> None:
        if response.stream is not None:
            self._sink.put(msgspec.structs.replace(ending, stream=response.stream))
            self._open -= 1
            response.stream = None

    def _lose(self, at_ns: int, *, broken: bool) -> None:
        """End all responses as cut: what the server sends of them cannot be read."""
        self._flush(at_ns)
        for response in self._responses():
            if response.stream is not None:
                self._sink.lose(response.stream, broken=broken)
                self._put_ending(response, ExchangeEnding(0, at_ns, Ending.CUT))
        self._lanes.clear()
        self._steered.clear()

    def _finish(self, ending: ExchangeEnding) -> None:
        self._is_over = True
        for response in self._responses():
            self._put_ending(response, ending)
        self._lanes.clear()
        self._client.release()
        self._server.release()


_BEGINNINGS = frozenset(("response.created", "response.queued", "response.in_progress"))
_TERMINALS = frozenset(
    ("response.completed", "response.incomplete", "response.failed", "response.cancelled", "response.done")
)


def _without_close(reported: ExchangeEnding) -> ExchangeEnding:
    """The end of a connection without a close frame (1006): a clean one breaks the protocol as well."""
    if reported.ending is Ending.COMPLETE:
        return msgspec.structs.replace(reported, ending=Ending.RESET, fault=TransportFault.CLOSED)
    return reported
