"""WebSockets as a tap reports them, and the records of their responses."""

import json
from collections.abc import Iterable
from typing import Any

from streamgauge.core.capture.segments import Ending, Segment, TransportFault
from streamgauge.recorder.protocol import ExchangeEnding, Message, RequestStarted, WebSocketData, WebSocketOpened
from streamgauge.recorder.recorder import Recorder
from streamgauge.spool.read_counters import Incident
from tests.core.formats.websocket_frames import MASK, close, frame
from tests.vectors.drive import T0, in_order, settings

MS = 1_000_000
WALL = 1_790_000_000 * 10**9


class Script:
    """A WebSocket: what each side sends, 10 ms after what came before."""

    def __init__(self, *headers: tuple[str, str], stream: int = 7, target: str = "/v1/responses") -> None:
        self.now_ms = 0
        self.stream = stream
        request = RequestStarted(stream, T0, WALL, "test", "WEBSOCKET", target, list(headers))
        answer = [("x-request-id", "req_9"), ("openai-organization", "org-1"), ("content-type", "a/b"), ("date", "x")]
        self.messages: list[Message] = [WebSocketOpened(stream, request, answer)]

    def client(self, *events: dict[str, Any] | bytes) -> "Script":
        return self.raw(b"".join(frame(_text(event), mask=MASK) for event in events), from_client=True)

    def server(self, *events: dict[str, Any] | bytes) -> "Script":
        """Each event in a read of its own."""
        for event in events:
            self.raw(frame(_text(event)), from_client=False)
        return self

    def raw(self, data: bytes, *, from_client: bool, gap: bool = False) -> "Script":
        self.now_ms += 10
        self.messages.append(WebSocketData(self.stream, self.at_ns, data, from_client, gap))
        return self

    def closes(self, code: int | None, *, from_client: bool) -> "Script":
        return self.raw(close(code, mask=MASK if from_client else None), from_client=from_client)

    def ends(self, ending: Ending, fault: TransportFault | None = None) -> "Script":
        self.now_ms += 10
        self.messages.append(ExchangeEnding(self.stream, self.at_ns, ending, fault=fault))
        return self

    @property
    def at_ns(self) -> int:
        return T0 + self.now_ms * MS


def _text(event: dict[str, Any] | bytes) -> bytes:
    return event if isinstance(event, bytes) else json.dumps(event).encode()


def create(lane: str | None = None, **more: Any) -> dict[str, Any]:
    """A response.create."""
    event = {"type": "response.create", "model": "gpt-5.6", "input": "Name rivers.", **more}
    return event if lane is None else {**event, "stream_id": lane}


def recorder_of(messages: Iterable[Message], capture: Any = "masked") -> tuple[Recorder, list[Segment]]:
    """A recorder that has handled the messages, and its segments, taken after each third message."""
    recorder, segments = Recorder(settings(capture)), list[Segment]()
    for count, message in enumerate(messages):
        recorder.handle(message)
        if count % 3 == 0:
            segments += recorder.segments()
    segments += recorder.segments()
    return recorder, segments


def records(script: Script, capture: Any = "masked") -> list[dict[str, Any]]:
    """The records of the responses, in the order in which these began. All reads are accounted for."""
    recorder, segments = recorder_of(script.messages, capture)
    assert recorder.seen == sum(len(segment.reads) for segment in segments) + recorder.dropped.total()
    assert recorder.made.total() == len({segment.stream for segment in segments})
    assert recorder.incidents.total() == (
        recorder.incidents[Incident.EVENT_CAPPED] + recorder.incidents[Incident.DECODE_FAULT]
    )
    return in_order(segments)
