"""A provider whose streams break and can be resumed, like OpenAI's Responses and Nimbus's messages."""

import json
from contextlib import AbstractContextManager
from http.server import BaseHTTPRequestHandler
from urllib.parse import parse_qs, urlsplit

from tests.http_serving import LocalServer, Quiet, serving

# Where streams break: the last event before it, by sequence number and by event id.
LAST_SEQUENCE = 5
LAST_EVENT = 4


def _typed(kind: str, event_id: int | None = None, **members: object) -> bytes:
    named = b"" if event_id is None else b"id: %d\n" % event_id
    return named + f"event: {kind}\ndata: {json.dumps({'type': kind, **members})}\n\n".encode()


def _response(status: str, usage: object = None) -> dict[str, object]:
    return {"id": "resp_1", "object": "response", "status": status, "model": "big-1", "output": [], "usage": usage}


def _delta(number: int) -> bytes:
    kind = "response.output_text.delta"
    return _typed(kind, sequence_number=number, output_index=0, content_index=0, item_id="m", delta="x" * number)


def _text(number: int) -> bytes:
    return _typed("content_block_delta", number, index=0, delta={"type": "text_delta", "text": "x" * number})


# Ten events of a response (0 to 9), its usage on the last one.
RESPONSE = [
    _typed("response.created", sequence_number=0, response=_response("in_progress")),
    _typed("response.in_progress", sequence_number=1, response=_response("in_progress")),
    *(_delta(number) for number in range(2, 9)),
    _typed(
        "response.completed",
        sequence_number=9,
        response=_response("completed", {"input_tokens": 30, "output_tokens": 12, "total_tokens": 42}),
    ),
]
_START: dict[str, object] = {
    "id": "msg_1",
    "type": "message",
    "role": "assistant",
    "model": "claude-1",
    "content": [],
    "stop_reason": None,
}
# Events of a message, with ids from 1 on: its input is reported at the start, its output near the end.
MESSAGE = [
    _typed("message_start", 1, message={**_START, "usage": {"input_tokens": 41, "output_tokens": 1}}),
    _typed("content_block_start", 2, index=0, content_block={"type": "text", "text": ""}),
    *(_text(number) for number in range(3, 7)),
    _typed("content_block_stop", 7, index=0),
    _typed("message_delta", 8, delta={"stop_reason": "end_turn", "stop_sequence": None}, usage={"output_tokens": 20}),
    _typed("message_stop", 9),
]


def _chunk(**members: object) -> bytes:
    chunk = {"id": "chatcmpl-same", "object": "chat.completion.chunk", "created": 1, "model": "small-1", **members}
    return f"data: {json.dumps(chunk)}\n\n".encode()


# A chat whose id is the same for every request, as some gateways give it.
CHAT = [
    _chunk(choices=[{"index": 0, "delta": {"role": "assistant", "content": "Hi"}, "finish_reason": None}]),
    _chunk(choices=[{"index": 0, "delta": {}, "finish_reason": "stop"}]),
    _chunk(choices=[], usage={"prompt_tokens": 3, "completion_tokens": 2, "total_tokens": 5}),
    b"data: [DONE]\n\n",
]
REFUSED = {"error": {"type": "invalid_request_error", "code": "resume_not_supported", "message": "not for this model"}}
BUSY = {"error": {"type": "server_error", "code": "overloaded", "message": "later"}}


class Resumable(LocalServer):
    """`busy`: how many further requests for the model `busy-1` get a 503."""

    def __init__(self) -> None:
        super().__init__(_Handler)
        self.busy = 1


class _Handler(Quiet, BaseHTTPRequestHandler):
    server: Resumable

    def do_GET(self) -> None:
        """The rest of a stored response, with the event before it repeated, like upstreams with coarse offsets.

        Without a position, all of it.
        """
        url = urlsplit(self.path)
        after = int(parse_qs(url.query).get("starting_after", ["0"])[0])
        assert url.path == "/v1/responses/resp_1"
        self._stream(RESPONSE[after:], whole=True)

    def do_POST(self) -> None:
        body = json.loads(self.rfile.read(int(self.headers["content-length"])))
        resumed = self.headers["last-event-id"]
        if self.path == "/v1/responses":
            self._stream(RESPONSE[: LAST_SEQUENCE + 1], whole=False)
        elif self.path == "/v1/messages":
            self._stream(
                MESSAGE[:LAST_EVENT] if resumed is None else MESSAGE[int(resumed) :], whole=resumed is not None
            )
        elif resumed is not None:
            self._refuse(400, REFUSED)
        elif body["model"] == "busy-1" and self.server.busy:
            self.server.busy -= 1
            self._refuse(503, BUSY)
        else:
            self._stream(CHAT, whole=True)

    def _stream(self, events: list[bytes], *, whole: bool) -> None:
        """One event per chunk; without its last one the body breaks off."""
        self.send_response(200)
        self.send_header("content-type", "text/event-stream")
        self.send_header("transfer-encoding", "chunked")
        self.end_headers()
        for event in events:
            self.wfile.write(b"%x\r\n%b\r\n" % (len(event), event))
        if whole:
            self.wfile.write(b"0\r\n\r\n")
        self.close_connection = not whole

    def _refuse(self, status: int, error: object) -> None:
        body = json.dumps(error).encode()
        self.send_response(status)
        self.send_header("content-type", "application/json")
        self.send_header("content-length", str(len(body)))
        self.send_header("retry-after-ms", "1")
        self.end_headers()
        self.wfile.write(body)


def resumable() -> AbstractContextManager[Resumable]:
    """Runs the provider within the context."""
    return serving(Resumable())
