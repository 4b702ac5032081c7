"""A tap inside an ASGI server: pure middleware, one line in FastAPI, Starlette or vLLM.

    app.add_middleware(TapMiddleware)
    vllm serve MODEL --middleware streamgauge.taps.asgi.TapMiddleware

Messages pass unchanged and without delay. The tap sends what it captures to the recorder of an agent on this host
(`streamgauge up --agent` or `streamgauge tap --agent`). Settings come from arguments or the environment:

    STREAMGAUGE_DATA_DIR        the agent's data directory; or STREAMGAUGE_CONFIG, its settings file
    STREAMGAUGE_TAP_NAME        the upstream name of this application in records (default: app)
    STREAMGAUGE_TENANT_HEADER   the request header that names the tenant
    STREAMGAUGE_ATTRIBUTE       attributes of requests, as NAME=HEADER[,NAME=HEADER...]

Times are the server's: zero is the call of the application; a piece is stamped when the application sends it. The ending
follows from ASGI events (https://asgi.readthedocs.io/en/latest/specs/www.html):

    last piece (more_body false)                                         complete
    http.disconnect before the last piece, or OSError from send          client disconnected
    application raised, was cancelled, or returned without a last piece  upstream reset
"""

import asyncio
import logging
import os
import re
import time
from collections.abc import Awaitable, Callable, Iterable, Mapping, MutableMapping
from pathlib import Path
from typing import Any
from urllib.parse import quote

from streamgauge.core.capture.segments import Ending
from streamgauge.recorder.exchange_capture import ExchangeCapture
from streamgauge.runtime.faults import report_fault
from streamgauge.spool.response_counters import NotCaptured
from streamgauge.taps.inprocess.background_senders import finish, sender_of
from streamgauge.taps.inprocess.capture import (
    SeenRequest,
    attributes_of,
    is_event_stream,
    is_llm,
    start_capture,
    why_uncaptured,
)

Scope = MutableMapping[str, Any]
Message = MutableMapping[str, Any]
Receive = Callable[[], Awaitable[Message]]
Send = Callable[[Message], Awaitable[None]]
Application = Callable[[Scope, Receive, Send], Awaitable[None]]

_DEFAULT_NAME = "app"
# The name is a metric label; the rule is that of the command line's upstream names.
_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,63}")
# How long the shutdown of the server waits until captured data is sent (seconds); usually none is pending.
FINISH_S = 3.0

# Characters that a path keeps unquoted: those of a segment (RFC 3986, 3.3) and its separator.
_AS_THEY_ARE = "/:@!$&'()*+,;=~"

_clock = time.monotonic_ns
_log = logging.getLogger("streamgauge")


class TapMiddleware:
    """ASGI middleware that captures LLM responses. Other scopes than HTTP pass unchanged. It never raises and never changes a
    message.
    """

    def __init__(
        self,
        app: Application,
        *,
        upstream: str | None = None,
        data_dir: str | Path | None = None,
        tenant_header: str | None = None,
        attributes: Mapping[str, str] | None = None,
    ) -> None:
        self._app = app
        self._upstream = _name(upstream or os.environ.get("STREAMGAUGE_TAP_NAME"))
        self._data_dir = data_dir
        self._tenant_header = tenant_header or os.environ.get("STREAMGAUGE_TENANT_HEADER") or None
        self._attributes = attributes_of(attributes)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Runs the application for one scope. Raises what the application raises."""
        if scope["type"] != "http":
            if scope["type"] == "websocket":
                self.count_uncaptured(NotCaptured.PROTOCOL)
            await self._app(scope, receive, _finishing(send) if scope["type"] == "lifespan" else send)
            return
        exchange = _Exchange(receive, send)
        exchange.begin(self, scope)
        try:
            await self._app(scope, exchange.receive, exchange.send)
        finally:
            exchange.application_ended()

    def capture_of(self, request: SeenRequest) -> ExchangeCapture:
        """Opens the capture of one stream."""
        return start_capture(sender_of(self._data_dir), request, self._tenant_header, self._attributes)

    def count_uncaptured(self, reason: NotCaptured) -> None:
        """Counts a response, or a connection of another protocol, that is not captured. Never raises."""
        try:
            sender_of(self._data_dir).count_response(self._upstream, reason)
        except Exception as error:  # noqa: BLE001 - capture fails open
            report_fault("the counters of the middleware", error)

    def request_of(self, scope: Scope, began_ns: int) -> SeenRequest:
        """The request's method, target and headers."""
        path, query = scope.get("raw_path"), scope.get("query_string")
        target = path.decode("latin-1") if path else quote(scope["path"], safe=_AS_THEY_ARE)
        if query:
            target = f"{target}?{query.decode('latin-1')}"
        return SeenRequest("asgi", self._upstream, scope["method"], target, scope["headers"], began_ns)


class _Exchange:
    """A request and its response. Capture starts at an LLM request; otherwise only at the head of an event stream."""

    __slots__ = ("_body_bytes", "_capture", "_receive", "_request", "_send", "_sent", "_tap", "_undecided")

    def __init__(self, receive: Receive, send: Send) -> None:
        self._receive = receive
        self._send = send
        self._tap: TapMiddleware | None = None
        self._request: SeenRequest | None = None
        self._capture: ExchangeCapture | None = None  # None: not captured, not captured yet, or ended
        self._undecided = False  # the response's head decides whether it is captured
        self._body_bytes = 0
        self._sent: int | None = None  # when the request was complete

    def begin(self, tap: TapMiddleware, scope: Scope) -> None:
        """Starts the capture, if the request decides it. Called just before the application."""
        self._tap, self._undecided = tap, True
        try:
            self._request = tap.request_of(scope, _clock())
            if is_llm(self._request.method, self._request.target):
                self._capture, self._undecided = tap.capture_of(self._request), False
        except Exception as error:  # noqa: BLE001 - capture fails open
            self._fault(error)

    async def receive(self) -> Message:
        """The application's `receive`: passes on and captures a piece of the request, or the client's disconnect."""
        message = await self._receive()
        if self._capture is not None or self._undecided:
            self._received(message)
        return message

    async def send(self, message: Message) -> None:
        """The application's `send`: passes a message to the server first, then captures it."""
        at_ns = _clock()
        try:
            await self._send(message)
        except OSError:  # the server reports that the client disconnected
            self._end(Ending.CLIENT, at_ns, gone_ns=at_ns)
            raise
        capture = self._capture
        try:
            if capture is None:
                if self._undecided:
                    self._message_without_content(message, at_ns)
            elif body := message.get("body"):  # only pieces of the response have a body
                capture.read(at_ns, body)
                if not message.get("more_body"):
                    self._end(Ending.COMPLETE, at_ns)
            else:
                self._message_without_content(message, at_ns)
        except Exception as error:  # noqa: BLE001 - capture fails open
            self._fault(error)

    def application_ended(self) -> None:
        """Ends a capture without a last piece: the application has returned, raised or been cancelled."""
        if self._capture is not None:
            self._end(Ending.RESET, _clock())
        elif self._request is not None:  # the server responds by itself
            self._count_uncaptured(why_uncaptured(self._request, ()))

    def _count_uncaptured(self, reason: NotCaptured) -> None:
        """Counts the response as not captured, if that is not decided yet."""
        if self._undecided and self._tap is not None:
            self._tap.count_uncaptured(reason)
        self._undecided = False

    def _received(self, message: Message) -> None:
        try:
            at_ns = _clock()
            if message["type"] == "http.disconnect":
                self._end(Ending.CLIENT, at_ns, gone_ns=at_ns)
            elif message["type"] == "http.request":
                self._request_piece(message.get("body") or b"", at_ns, more=bool(message.get("more_body")))
        except Exception as error:  # noqa: BLE001 - capture fails open
            self._fault(error)

    def _request_piece(self, body: bytes, at_ns: int, *, more: bool) -> None:
        self._body_bytes += len(body)
        if self._capture is not None and body:
            self._capture.request_body(body)
        if more or self._sent is not None:
            return
        self._sent = at_ns
        if self._capture is not None:
            self._capture.request_sent(at_ns, None, self._body_bytes)

    def _message_without_content(self, message: Message, at_ns: int) -> None:
        """Handles a message without content: the response's head, or its end."""
        if message["type"] == "http.response.body":
            if not message.get("more_body"):
                self._end(Ending.COMPLETE, at_ns)
        elif message["type"] == "http.response.start":
            self._response_head(message, at_ns)

    def _response_head(self, message: Message, at_ns: int) -> None:
        headers: Iterable[tuple[bytes, bytes]] = message.get("headers") or ()
        if self._undecided and self._tap is not None and self._request is not None:
            if is_event_stream(headers):
                self._capture, self._undecided = self._tap.capture_of(self._request), False
                if self._sent is not None:
                    self._capture.request_sent(self._sent, None, self._body_bytes)
            else:
                self._count_uncaptured(why_uncaptured(self._request, headers))
        if self._capture is not None:
            self._capture.response_head(at_ns, message["status"], headers)

    def _end(self, ending: Ending, at_ns: int, gone_ns: int | None = None) -> None:
        capture, self._capture, self._undecided = self._capture, None, False
        if capture is not None:
            capture.end(at_ns, ending, gone_ns=gone_ns)

    def _fault(self, error: Exception) -> None:
        """An internal error: the stream's capture ends here and is marked incomplete."""
        report_fault("the middleware", error)
        if self._capture is not None:
            self._capture.fail()
        self._count_uncaptured(NotCaptured.CAPTURE_FAULT)
        self._end(Ending.CUT, _clock())


def _finishing(send: Send) -> Send:
    """Wraps a lifespan's `send`: sends captured data before the last message, since a signal may end the server after it."""

    async def finishing(message: Message) -> None:
        if message.get("type") in ("lifespan.shutdown.complete", "lifespan.shutdown.failed"):
            try:
                await asyncio.to_thread(finish, FINISH_S)
            except Exception as error:  # noqa: BLE001 - capture fails open; also if the server's loop is not asyncio
                _log.warning("streamgauge: the data captured last was not sent to the agent")
                report_fault("the middleware's end", error)
        await send(message)

    return finishing


def _name(name: str | None) -> str:
    if name and not _NAME.fullmatch(name):
        _log.warning("streamgauge: %r is not an upstream name: use letters, digits, '.', '_' and '-'", name[:64])
        return _DEFAULT_NAME
    return name or _DEFAULT_NAME
