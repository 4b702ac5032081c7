"""A small provider: responds to a chat with an event stream, in pieces that the test releases."""

import json
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler

from tests.http_serving import PATIENCE_S, LocalServer, Quiet, serving


def event(**choice: object) -> bytes:
    chunk = {"id": "chat-1", "object": "chat.completion.chunk", "model": "small-1", "choices": [{"index": 0, **choice}]}
    return b"data: " + json.dumps(chunk).encode() + b"\n\n"


BEGIN = event(delta={"role": "assistant", "content": ""}) + event(delta={"content": "Hello"})
REST = (
    event(delta={"content": " world"})
    + event(delta={}, finish_reason="stop")
    + b'data: {"id":"chat-1","object":"chat.completion.chunk","model":"small-1","choices":[],'
    + b'"usage":{"prompt_tokens":3,"completion_tokens":2,"total_tokens":5}}\n\ndata: [DONE]\n\n'
)


class Provider(LocalServer):
    """`go_on`: while it is cleared, streams stop after their beginning; once set, they end. `headers`: further headers of
    responses. `asked`: the headers of each request, in lower case.
    """

    def __init__(self) -> None:
        super().__init__(_Handler)
        self.go_on = threading.Event()
        self.go_on.set()
        self.headers: dict[str, str] = {}
        self.asked: list[dict[str, str]] = []


class _Handler(Quiet, BaseHTTPRequestHandler):
    server: Provider

    def do_POST(self) -> None:
        self.server.asked.append({name.lower(): value for name, value in self.headers.items()})
        self.rfile.read(int(self.headers["content-length"]))
        self.send_response(200)
        self.send_header("content-type", "text/event-stream")
        self.send_header("transfer-encoding", "chunked")
        for name, value in self.server.headers.items():
            self.send_header(name, value)
        self.end_headers()
        self._chunk(BEGIN)
        if not self.server.go_on.wait(PATIENCE_S):
            return
        self._chunk(REST)
        self._chunk(b"")

    def _chunk(self, content: bytes) -> None:
        try:
            self.wfile.write(b"%x\r\n%b\r\n" % (len(content), content))
        except OSError:  # the tap has disconnected: some tests are about this
            self.close_connection = True


@contextmanager
def provider() -> Iterator[Provider]:
    """Runs a provider within the context."""
    with serving(Provider()) as server:
        try:
            yield server
        finally:
            server.go_on.set()
