"""An ASGI server and an ASGI application whose messages a test gives."""

import asyncio
from collections.abc import Iterator
from typing import Any

from streamgauge.recorder.protocol import ExchangeEnding
from streamgauge.taps.asgi import Message, Receive, Scope, Send, TapMiddleware
from tests.recorder.fake_client import FakeClient

SSE = [(b"Content-Type", b"text/event-stream; charset=utf-8")]
START: Message = {"type": "http.response.start", "status": 200, "headers": SSE}
END: Message = {"type": "http.response.body"}
ASKED: Message = {"type": "http.request", "body": b'{"model":"m","stream":true}', "more_body": False}
GONE: Message = {"type": "http.disconnect"}


def scope(path: str = "/v1/chat/completions", method: str = "POST", **more: Any) -> Scope:
    return {"type": "http", "method": method, "path": path, "raw_path": path.encode(), "headers": [], **more}


def body(piece: bytes, *, more: bool = True) -> Message:
    return {"type": "http.response.body", "body": piece, "more_body": more}


class Server:
    """The server's side: hands out these messages and keeps those it is sent. `refuses`: raised by the send with that
    number.
    """

    def __init__(self, *received: Message, refuses: tuple[int, Exception] | None = None) -> None:
        self.sent: list[Message] = []
        self._received: Iterator[Message] = iter(received or (ASKED,))
        self._refuses = refuses

    async def receive(self) -> Message:
        return next(self._received)

    async def send(self, message: Message) -> None:
        if self._refuses is not None and self._refuses[0] == len(self.sent):
            raise self._refuses[1]
        self.sent.append(message)


def answers(*sent: Message, raises: BaseException | None = None, reads: int = 1) -> Any:
    """An application that reads this many messages, sends these, then returns or raises."""

    async def application(scope: Scope, receive: Receive, send: Send) -> None:
        for _ in range(reads):
            await receive()
        for message in sent:
            await send(message)
        if raises is not None:
            raise raises

    return application


def run(application: Any, server: Server, request_scope: Scope | None = None, **options: Any) -> None:
    asyncio.run(TapMiddleware(application, **options)(request_scope or scope(), server.receive, server.send))


def ending(client: FakeClient) -> ExchangeEnding:
    last = client.messages[-1]
    assert isinstance(last, ExchangeEnding)
    return last


class ApplicationFault(Exception):
    """Raised by an application of the tests."""
