"""A simulated provider: an HTTP/1.1 server whose response to each request is a script.

A script is a coroutine function of one exchange: it reads the request's body, sends bytes, waits, and ends the connection.
`stream`, `whole` and `answer` make the usual ones:

    Provider({"ok": stream(*events, pause_s=0.02), "cut": stream(*events[:3], end="reset"), "busy": whole(b"{}", 503)})

`with Provider(...)` serves in a thread with its own event loop, `async with` in the running loop. `simulator.py` serves the
demo's scenarios, in a process too.
"""

import asyncio
import contextlib
import socket
import ssl
import struct
import threading
import time
from collections.abc import Awaitable, Callable, Iterable, Mapping
from concurrent.futures import Future
from http import HTTPStatus
from types import TracebackType
from typing import Literal, NamedTuple, Self, cast

# Limits of a request's head, and of its body (bytes): users' prompts may be long.
MAX_HEAD_BYTES = 256 * 1024
MAX_BODY_BYTES = 64 * 1024 * 1024

# Above this many unread bytes of a connection no more are received (bytes).
_UNREAD_BYTES = 256 * 1024

# A thousand streams may start at once: a full queue would reset connections, which no script asks for.
BACKLOG = 2_048

# Pause between the last bytes and an end that may discard them (seconds), so that the other side reads them before.
RESET_LAG_S = 0.05

# How often a script looks for an event of another thread (seconds).
_LOOK_S = 0.01

# How long the thread of a provider may take to start, or to stop (seconds).
_THREAD_S = 60.0

# SO_LINGER with a time of 0: close sends a reset.
_RESET = struct.pack("ii", 1, 0)

LAST_CHUNK = b"0\r\n\r\n"

# What happens to the connection after a response: the next request is read; it is closed (with TLS without close_notify);
# closed with close_notify; reset; or nothing until the other side leaves.
End = Literal["keep", "close", "notify", "reset", "stay"]


class BadRequestError(Exception):
    """The bytes are not a request that this server reads: only as much of HTTP as clients and taps send here."""


class Sent(NamedTuple):
    """Bytes, and the monotonic time just before they were sent (seconds)."""

    at: float
    data: bytes


class Request:
    """A request's head. `at`: the monotonic time when its first byte was read (seconds); `headers`: names in lower case."""

    def __init__(self, at: float, head: bytes) -> None:
        """Raises BadRequestError."""
        self.at = at
        self.head = head
        self.line, *lines = head.decode("latin-1").removesuffix("\r\n\r\n").split("\r\n")
        try:
            self.method, self.target, _ = self.line.split(" ")
        except ValueError as error:
            raise BadRequestError(self.line) from error
        self.path = self.target.partition("?")[0]
        self.headers = {name.lower(): value.strip() for name, _, value in (line.partition(":") for line in lines)}
        self.body = b""


class Exchange:
    """One request and its response, for a script.

    `sent`: what was sent so far. `received`: the bytes of the body that were read.
    """

    def __init__(self, request: Request, connection: "_Connection") -> None:
        self.request = request
        self.sent: list[Sent] = []
        self.received = 0
        self._connection = connection
        self._body_was_read = False

    @property
    def left_at(self) -> float | None:
        """When the other side ended its half of the connection, or all of it (monotonic seconds)."""
        return self._connection.left_at

    async def read_body(self, *, keep: bool = True) -> bytes:
        """The request's body without its framing, also as `request.body`. `keep`: False only counts its bytes.

        Raises ConnectionError if it does not come, and BadRequestError if its framing is wrong.
        """
        if self._body_was_read:
            return self.request.body
        self._body_was_read = True
        parts: list[bytes] = []
        if "chunked" in self.request.headers.get("transfer-encoding", "").lower():
            while size := _size((await self._connection.line()).partition(b";")[0], 16):
                await self._read(size, parts, keep)
                await self._connection.line()
            while await self._connection.line():
                pass
        else:
            await self._read(_size(self.request.headers.get("content-length", "0")), parts, keep)
        self.request.body = b"".join(parts)
        return self.request.body

    async def _read(self, size: int, parts: list[bytes], keep: bool) -> None:
        if size > MAX_BODY_BYTES - self.received:
            raise BadRequestError(f"a body of {self.received + size} bytes: the limit is {MAX_BODY_BYTES}")
        while size:
            data = await self._connection.read(size)
            size -= len(data)
            self.received += len(data)
            if keep:
                parts.append(data)

    async def send(self, data: bytes) -> None:
        """Sends all of the bytes; returns when the kernel has them. Raises ConnectionError if the other side is gone."""
        self.sent.append(Sent(time.monotonic(), data))
        await self._connection.write(data)

    async def play(self, pieces: Iterable[bytes], pause_s: float = 0.0) -> None:
        """Sends each piece, with a pause between two."""
        for number, data in enumerate(pieces):
            if number and pause_s:
                await asyncio.sleep(pause_s)
            await self.send(data)

    async def left_within(self, seconds: float | None) -> bool:
        """Waits for so long (None: without limit); returns True as soon as the other side has left."""
        return await self._connection.left_within(seconds)

    async def until(self, event: threading.Event) -> bool:
        """Waits for an event that another thread sets. Returns False if the other side left before."""
        while not event.is_set():
            if await self.left_within(_LOOK_S):
                return False
        return True

    async def end(self, how: End) -> None:
        """Ends the connection."""
        await self._connection.end(how)


def _size(digits: str | bytes, base: int = 10) -> int:
    try:
        size = int(digits, base)
    except ValueError:
        size = -1
    if size < 0:
        raise BadRequestError(f"a size of {digits!r}")
    return size


Script = Callable[[Exchange], Awaitable[None]]
# The pieces of a response, or what makes them while they are sent: a response may be larger than the memory.
Pieces = Iterable[bytes] | Callable[[], Iterable[bytes]]


def head(
    status: int = 200,
    kind: str = "text/event-stream",
    framing: str | int = "chunked",
    headers: Mapping[str, str] = {},
) -> bytes:
    """A response's head. `framing`: chunked, close (the body ends with the connection), or the length of the body."""
    lines = [f"HTTP/1.1 {status} {_phrase(status)}", f"content-type: {kind}"]
    lines += [f"{name}: {value}" for name, value in headers.items()]
    if framing != "close":
        lines.append("transfer-encoding: chunked" if framing == "chunked" else f"content-length: {framing}")
    return "".join(f"{line}\r\n" for line in [*lines, ""]).encode("latin-1")


def _phrase(status: int) -> str:
    try:
        return HTTPStatus(status).phrase
    except ValueError:  # a provider's own status, as 529
        return "Error"


def chunk(data: bytes, extension: bytes = b"") -> bytes:
    """One chunk of HTTP/1.1."""
    return b"%x%b\r\n%b\r\n" % (len(data), extension, data)


def answer(*pieces: bytes, more: Pieces = (), pause_s: float = 0.0, end: End = "keep") -> Script:
    """A response of these bytes, its head included, each piece in one write, and then of `more`; `pause_s` between two."""

    async def script(exchange: Exchange) -> None:
        await exchange.read_body()
        await exchange.play(pieces, pause_s)
        for data in more() if callable(more) else more:
            await exchange.send(data)
            await asyncio.sleep(pause_s)
        await exchange.end(end)

    return script


def stream(
    *events: bytes,
    headers: Mapping[str, str] = {},
    pause_s: float = 0.0,
    end: End = "keep",
) -> Script:
    """An event stream with each event in a chunk. The last chunk is sent only if the connection is kept (`end`)."""
    last = [LAST_CHUNK] if end == "keep" else []
    return answer(head(headers=headers), *map(chunk, filter(None, events)), *last, pause_s=pause_s, end=end)


def whole(body: bytes, status: int = 200, kind: str = "application/json", headers: Mapping[str, str] = {}) -> Script:
    """A response of one write whose length is in its head."""
    return answer(head(status, kind, len(body), headers) + body)


_NOT_FOUND = whole(b'{"error":{"message":"No such script.","type":"not_found_error","code":"not_found"}}', 404)


def script_name(request: Request) -> str:
    """The name of the script that a request asks for: its `x-case` header, or the first part of its path."""
    return request.headers.get("x-case") or request.path.lstrip("/").partition("/")[0]


class Provider:
    """The server: one script for all requests, or scripts by the name that each request gives (`script_name`).

    `exchanges`: all so far, if it `keeps` them. `connections`: how many were accepted. A script that raises an error of its
    own breaks its connection, and the context of the provider raises the error at its end.
    """

    def __init__(
        self, scripts: Script | Mapping[str, Script], *, tls: ssl.SSLContext | None = None, keeps: bool = True
    ) -> None:
        self.scripts = {} if callable(scripts) else dict(scripts)
        self.tls = tls
        self.exchanges: list[Exchange] = []
        self.connections = 0
        self.url = ""  # valid once it listens; without a final slash
        self.errors: list[Exception] = []
        self.open: set[_Connection] = set()
        self._keeps = keeps
        self._other = scripts if callable(scripts) else _NOT_FOUND
        self._server: asyncio.Server | None = None
        self._thread: threading.Thread | None = None
        self._stop_thread: Callable[[], object] = lambda: None

    def played(self, name: str) -> list[Exchange]:
        """The exchanges so far that asked for a script."""
        return [exchange for exchange in self.exchanges if script_name(exchange.request) == name]

    async def start(self, host: str = "127.0.0.1", port: int = 0) -> None:
        """Listens. Raises OSError if it cannot."""
        loop = asyncio.get_running_loop()
        self._server = await loop.create_server(lambda: _Connection(self), host, port, ssl=self.tls, backlog=BACKLOG)
        host, port = self._server.sockets[0].getsockname()[:2]
        self.url = f"http{'s' if self.tls else ''}://{host}:{port}"

    async def stop(self) -> None:
        """Closes the listening socket and breaks every connection."""
        if self._server is None:
            return
        self._server.close()
        tasks = [connection.abort() for connection in list(self.open)]
        await asyncio.gather(*tasks, return_exceptions=True)
        await self._server.wait_closed()

    async def serve(self, exchange: Exchange) -> None:
        """Plays the script of an exchange."""
        if self._keeps:
            self.exchanges.append(exchange)
        await self.scripts.get(script_name(exchange.request), self._other)(exchange)

    async def __aenter__(self) -> Self:
        await self.start()
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.stop()
        self._raise_unless(kind)

    def __enter__(self) -> Self:
        listening: Future[None] = Future()
        self._thread = threading.Thread(target=lambda: asyncio.run(self._serve_in_thread(listening)), daemon=True)
        self._thread.start()
        listening.result(_THREAD_S)
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        assert self._thread is not None
        self._stop_thread()
        self._thread.join(_THREAD_S)
        self._raise_unless(kind)

    async def _serve_in_thread(self, listening: "Future[None]") -> None:
        loop, over = asyncio.get_running_loop(), asyncio.Event()
        self._stop_thread = lambda: loop.call_soon_threadsafe(over.set)
        try:
            await self.start()
        except OSError as error:
            listening.set_exception(error)
            return
        listening.set_result(None)
        await over.wait()
        await self.stop()

    def _raise_unless(self, failed: object) -> None:
        if self.errors and not failed:
            raise self.errors[0]


class _Connection(asyncio.Protocol):
    """One connection: its unread bytes, and when the other side left."""

    def __init__(self, provider: Provider) -> None:
        self._provider = provider
        self._unread = bytearray()
        self._arrived_at = 0.0  # of the first unread byte
        self._arrived, self._writable, self._left = asyncio.Event(), asyncio.Event(), asyncio.Event()
        self._writable.set()
        self._paused = False
        self.left_at: float | None = None

    # --- called by the event loop ---

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast(asyncio.Transport, transport)  # uvloop's has no base class of asyncio's
        self._transport.set_write_buffer_limits(high=1, low=0)  # a write has been made once the kernel has all of it
        self._provider.connections += 1
        self._provider.open.add(self)
        self._task = asyncio.get_running_loop().create_task(self._serve())

    def data_received(self, data: bytes) -> None:
        if not self._unread:
            self._arrived_at = time.monotonic()
        self._unread += data
        self._arrived.set()
        if len(self._unread) > _UNREAD_BYTES:
            self._paused = True
            self._transport.pause_reading()

    def eof_received(self) -> bool:
        self._leave()
        return self._provider.tls is None  # the other direction stays open

    def connection_lost(self, error: Exception | None) -> None:
        self._leave()
        self._writable.set()
        self._provider.open.discard(self)

    def pause_writing(self) -> None:
        self._writable.clear()

    def resume_writing(self) -> None:
        self._writable.set()

    def _leave(self) -> None:
        self.left_at = self.left_at or time.monotonic()
        self._left.set()
        self._arrived.set()

    # --- called by the exchange ---

    async def read(self, size: int) -> bytes:
        """Up to `size` bytes, at least one. Raises ConnectionResetError if none come."""
        while not self._unread:
            await self._more()
        data = bytes(self._unread[:size])
        del self._unread[:size]
        self._resume()
        return data

    async def line(self) -> bytes:
        """The bytes up to CR LF, without it."""
        return (await self._up_to(b"\r\n"))[:-2]

    async def _up_to(self, mark: bytes) -> bytes:
        while (at := self._unread.find(mark)) < 0:
            if len(self._unread) > MAX_HEAD_BYTES:
                raise BadRequestError("a head, or a line, that is too long")
            await self._more()
        return await self.read(at + len(mark))

    async def _more(self) -> None:
        """Waits for bytes, or until the other side leaves. Raises ConnectionResetError if it has left."""
        if self.left_at is not None:
            raise ConnectionResetError("the other side has left")
        self._arrived.clear()
        self._resume()
        await self._arrived.wait()

    def _resume(self) -> None:
        if self._paused:
            self._paused = False
            self._transport.resume_reading()

    async def write(self, data: bytes) -> None:
        if not self._transport.is_closing():
            self._transport.write(data)
            await self._writable.wait()
        if self._transport.is_closing():
            raise ConnectionResetError("the connection is closed")

    async def left_within(self, seconds: float | None) -> bool:
        if self.left_at is None and (seconds is None or seconds > 0):
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(seconds):
                    await self._left.wait()
        return self.left_at is not None

    async def end(self, how: End) -> None:
        if how == "keep":
            return
        if how == "stay":
            await self.left_within(None)
        if how == "reset":
            await asyncio.sleep(RESET_LAG_S)
            sock: socket.socket = self._transport.get_extra_info("socket")
            sock.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, _RESET)
            self._transport.abort()
        elif how == "close" and self._provider.tls:
            await asyncio.sleep(RESET_LAG_S)
            self._transport.abort()
        else:
            self._transport.close()

    def abort(self) -> "asyncio.Task[None]":
        """Breaks the connection; gives its task, which ends then."""
        self._task.cancel()
        self._transport.abort()
        return self._task

    # --- its task ---

    async def _serve(self) -> None:
        try:
            while not self._transport.is_closing() and (request := await self._next_request()):
                exchange = Exchange(request, self)
                await self._provider.serve(exchange)
                await exchange.read_body(keep=False)
            self._transport.close()
        except (ConnectionError, BadRequestError):
            self._transport.abort()
        except Exception as error:  # noqa: BLE001 - the provider's context raises it
            self._transport.abort()
            self._provider.errors.append(error)

    async def _next_request(self) -> Request | None:
        """None if the other side left before it began."""
        while not self._unread:
            if self.left_at is not None:
                return None
            await self._more()
        at = self._arrived_at
        return Request(at, await self._up_to(b"\r\n\r\n"))
