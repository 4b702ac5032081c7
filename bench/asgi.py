"""An ASGI application that sends chunks, wrapped by a middleware that only passes them on, or by the tap."""

import asyncio
from collections.abc import Awaitable, Callable

from streamgauge.recorder.exchange_capture import ExchangeCapture
from streamgauge.taps.asgi import Application, Message, Receive, Scope, Send, TapMiddleware
from streamgauge.taps.inprocess.capture import SeenRequest

START: Message = {
    "type": "http.response.start",
    "status": 200,
    "headers": [(b"content-type", b"text/event-stream")],
}


class Pure:
    """Passes messages on, and does nothing else."""

    def __init__(self, app: Application) -> None:
        self._app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        async def pass_on(message: Message) -> None:
            await send(message)

        await self._app(scope, receive, pass_on)


class Tapped(TapMiddleware):
    """The tap, with a given capture."""

    def __init__(self, app: Application, capture: ExchangeCapture) -> None:
        super().__init__(app)
        self._capture = capture

    def capture_of(self, request: SeenRequest) -> ExchangeCapture:
        return self._capture


def sends(chunk: bytes, chunks: int) -> Application:
    """An application that responds with this many chunks."""

    async def application(scope: Scope, receive: Receive, send: Send) -> None:
        await send(START)
        for _ in range(chunks):
            await send({"type": "http.response.body", "body": chunk, "more_body": True})
        await send({"type": "http.response.body", "body": b"", "more_body": False})

    return application


def serve(application: Callable[[Scope, Receive, Send], Awaitable[None]]) -> None:
    """Runs one request, with a server that accepts all messages immediately."""

    async def receive() -> Message:
        return {"type": "http.request", "body": b"", "more_body": False}

    async def send(message: Message) -> None:
        return

    scope: Scope = {
        "type": "http", "method": "POST", "path": "/v1/chat/completions", "raw_path": b"/v1/chat/completions",
        "query_string": b"", "headers": [],
    }  # fmt: skip

    async def run() -> None:
        await application(scope, receive, send)

    asyncio.run(run())
