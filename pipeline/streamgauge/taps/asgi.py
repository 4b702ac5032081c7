"""A tap inside of an ASGI server: pure middleware, one line in FastAPI, Starlette or vLLM.

    app.add_middleware(TapMiddleware)
    vllm serve MODEL --middleware streamgauge.taps.asgi.TapMiddleware

Messages pass as they are, at once; what they say is told to the recorder of an agent on this host (`streamgauge up --agent`,
or `streamgauge tap --agent`). Set by the environment, or by arguments:

    STREAMGAUGE_DATA_DIR        the agent's data directory; or STREAMGAUGE_CONFIG, its settings file
    STREAMGAUGE_TAP_NAME        what records call this application (default: app)
    STREAMGAUGE_TENANT_HEADER   the request header that names the tenant
    STREAMGAUGE_KAFKA           start an agent where none runs (see taps/inprocess/agent.py)

Times are the server's: zero is the call of the application, a piece's time is when the application sent it. How the
exchange ended, by what is seen here (https://asgi.readthedocs.io/en/latest/specs/www.html):

    the last piece (more_body false)                complete
    http.disconnect before it, or an OSError of send    the client left
    an exception or a cancellation of the application, or its return without a last piece    the upstream broke off
"""

import asyncio
import logging
import os
import re
import time
from collections.abc import Awaitable, Callable, Iterable, MutableMapping
from pathlib import Path
from typing import Any
from urllib.parse import quote

from streamgauge.core.capture.segments import Ending
from streamgauge.runtime.faults import report_fault
from streamgauge.taps.inprocess.background_senders import finish, sender_of
from streamgauge.taps.inprocess.capture import Asking, NotedStream, is_event_stream, is_llm

Scope = MutableMapping[str, Any]
Message = MutableMapping[str, Any]
Receive = Callable[[], Awaitable[Message]]
Send = Callable[[Message], Awaitable[None]]
Application = Callable[[Scope, Receive, Send], Awaitable[None]]

_DEFAULT_NAME = "app"
# A metric's label, as the command line's upstreams have it.
_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,63}")
# How long the server's end is held up for what has not been handed over (seconds): as a rule there is nothing.
FINISH_S = 3.0

# What a path's segments hold unquoted (RFC 3986, 3.3), and what parts them.
_AS_THEY_ARE = "/:@!$&'()*+,;=~"

_clock = time.monotonic_ns
_log = logging.getLogger("streamgauge")


class TapMiddleware:
    """Wraps an ASGI application. What is not HTTP passes untouched; nothing here raises, or changes a message."""

    def __init__(
        self,
        app: Application,
        *,
        upstream: str | None = None,
        data_dir: str | Path | None = None,
        tenant_header: str | None = None,
    ) -> None:
        self._app = app
        self._upstream = _name(upstream or os.environ.get("STREAMGAUGE_TAP_NAME"))
        self._data_dir = data_dir
        self._tenant_header = tenant_header or os.environ.get("STREAMGAUGE_TENANT_HEADER") or None

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self._app(scope, receive, _finishing(send) if scope["type"] == "lifespan" else send)
            return
        exchange = _Exchange(receive, send)
        exchange.begin(self, scope)
        try:
            await self._app(scope, exchange.receive, exchange.send)
        finally:
            exchange.over()

    def capture_of(self, asking: Asking) -> NotedStream:
        """The telling of one stream."""
        return NotedStream(sender_of(self._data_dir), asking, tenant_header=self._tenant_header)

    def asking(self, scope: Scope, began_ns: int) -> Asking:
        """What a request says before its body."""
        path, query = scope.get("raw_path"), scope.get("query_string")
        target = path.decode("latin-1") if path else quote(scope["path"], safe=_AS_THEY_ARE)
        if query:
            target = f"{target}?{query.decode('latin-1')}"
        return Asking("asgi", self._upstream, scope["method"], target, scope["headers"], began_ns)


class _Exchange:
    """One request and its answer. The capture is there from the beginning, or from a head that shows an event stream."""

    __slots__ = ("_asked", "_asking", "_capture", "_receive", "_send", "_sent", "_tap", "_undecided")

    def __init__(self, receive: Receive, send: Send) -> None:
        self._receive = receive
        self._send = send
        self._tap: TapMiddleware | None = None
        self._asking: Asking | None = None
        self._capture: NotedStream | None = None  # None: not captured, not yet, or no more
        self._undecided = False  # the head will tell whether it is captured
        self._asked = 0
        self._sent: int | None = None  # when the request was whole

    def begin(self, tap: TapMiddleware, scope: Scope) -> None:
        """The application is about to be called."""
        try:
            self._tap, self._asking = tap, tap.asking(scope, _clock())
            if is_llm(self._asking.method, self._asking.target):
                self._capture = tap.capture_of(self._asking)
            else:
                self._undecided = True
        except Exception as error:  # noqa: BLE001 - capture fails open
            self._fault(error)

    async def receive(self) -> Message:
        """The application asks for the request's next piece, or waits for the client's end."""
        message = await self._receive()
        if self._capture is not None or self._undecided:
            self._received(message)
        return message

    async def send(self, message: Message) -> None:
        """The application answers. The server has each message first."""
        at_ns = _clock()
        try:
            await self._send(message)
        except OSError:  # the server says that the client is gone
            self._end(Ending.CLIENT, at_ns, gone_ns=at_ns)
            raise
        capture = self._capture
        try:
            if capture is None:
                if self._undecided:
                    self._answered(message, at_ns)
            elif body := message.get("body"):  # of all messages the answer's pieces alone have one
                capture.arrived(at_ns, body)
                if not message.get("more_body"):
                    self._end(Ending.COMPLETE, at_ns)
            else:
                self._answered(message, at_ns)
        except Exception as error:  # noqa: BLE001 - capture fails open
            self._fault(error)

    def over(self) -> None:
        """The application has returned, or raised, or was cancelled."""
        if self._capture is not None:
            self._end(Ending.RESET, _clock())

    def _received(self, message: Message) -> None:
        try:
            at_ns = _clock()
            if message["type"] == "http.disconnect":
                self._end(Ending.CLIENT, at_ns, gone_ns=at_ns)
            elif message["type"] == "http.request":
                self._asked_for(message.get("body") or b"", at_ns, more=bool(message.get("more_body")))
        except Exception as error:  # noqa: BLE001 - capture fails open
            self._fault(error)

    def _asked_for(self, body: bytes, at_ns: int, *, more: bool) -> None:
        self._asked += len(body)
        if self._capture is not None and body:
            self._capture.asked(body)
        if more or self._sent is not None:
            return
        self._sent = at_ns
        if self._capture is not None:
            self._capture.sent(at_ns, self._asked)

    def _answered(self, message: Message, at_ns: int) -> None:
        """A message that is no piece of the answer with content: its head, or its end."""
        if message["type"] == "http.response.body":
            if not message.get("more_body"):
                self._end(Ending.COMPLETE, at_ns)
        elif message["type"] == "http.response.start":
            self._begin_answer(message, at_ns)

    def _begin_answer(self, message: Message, at_ns: int) -> None:
        headers: Iterable[tuple[bytes, bytes]] = message.get("headers") or ()
        if self._undecided:
            self._undecided = False
            if self._tap is not None and self._asking is not None and is_event_stream(headers):
                self._capture = self._tap.capture_of(self._asking)
                if self._sent is not None:
                    self._capture.sent(self._sent, self._asked)
        if self._capture is not None:
            self._capture.answered(at_ns, message["status"], headers)

    def _end(self, ending: Ending, at_ns: int, gone_ns: int | None = None) -> None:
        capture, self._capture, self._undecided = self._capture, None, False
        if capture is not None:
            capture.ended(at_ns, ending, gone_ns)

    def _fault(self, error: Exception) -> None:
        """A bug of ours: what has begun to be told ends here, and says so."""
        report_fault("the middleware", error)
        if self._capture is not None:
            self._capture.fault()
        self._end(Ending.CUT, _clock())


def _finishing(send: Send) -> Send:
    """A lifespan's send, before whose last word what was captured is handed over: servers may end by a signal after it."""

    async def finishing(message: Message) -> None:
        if message.get("type") in ("lifespan.shutdown.complete", "lifespan.shutdown.failed"):
            try:
                await asyncio.to_thread(finish, FINISH_S)
            except Exception as error:  # noqa: BLE001 - capture fails open; a server on another loop than asyncio's, too
                _log.warning("streamgauge: the data captured last was not sent to the agent")
                report_fault("the middleware's end", error)
        await send(message)

    return finishing


def _name(given: str | None) -> str:
    if given and not _NAME.fullmatch(given):
        _log.warning("streamgauge: %r is not an upstream name: use letters, digits, '.', '_' and '-'", given[:64])
        return _DEFAULT_NAME
    return given or _DEFAULT_NAME
