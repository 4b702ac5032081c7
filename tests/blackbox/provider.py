"""A fake provider on raw sockets: sends exact bytes at exact times, and stamps each of them with the monotonic clock."""

import asyncio
import contextlib
import re
import socket
import struct
import time
from collections.abc import Awaitable, Callable, Coroutine
from dataclasses import dataclass, field

# The size of one read of a request; large, so that a prompt of megabytes does not need a thousand reads (bytes).
READ_BYTES = 1 << 18
# A connection of the proxy that is silent for this long is closed (seconds).
IDLE_S = 120.0


@dataclass
class Piece:
    """Bytes, and the monotonic second just before they were sent (or just after they were read)."""

    at: float
    data: bytes


@dataclass
class Heard:
    """A request as the provider got it."""

    head: bytes
    body: bytes = b""
    at: float = 0.0

    @property
    def line(self) -> str:
        return self.head.split(b"\r\n", 1)[0].decode("latin-1")

    def header(self, name: str) -> list[str]:
        lines = [line.split(b":", 1) for line in self.head.split(b"\r\n")[1:] if b":" in line]
        return [value.strip().decode("latin-1") for key, value in lines if key.lower() == name.encode()]


@dataclass
class Wire:
    """One connection that the proxy opened: what a script reads from and plays on."""

    sock: socket.socket
    pending: bytes = b""
    sent: list[Piece] = field(default_factory=list)
    requests: int = 0
    peer_gone_at: float | None = None

    async def read(self) -> bytes:
        try:
            data = await asyncio.get_running_loop().sock_recv(self.sock, READ_BYTES)
        except ConnectionError:
            data = b""
        if not data and self.peer_gone_at is None:
            self.peer_gone_at = time.monotonic()
        return data

    async def read_head(self) -> Heard | None:
        while b"\r\n\r\n" not in self.pending:
            data = await self.read()
            if not data:
                return None
            self.pending += data
        head, _, self.pending = self.pending.partition(b"\r\n\r\n")
        self.requests += 1
        return Heard(head + b"\r\n\r\n", at=time.monotonic())

    async def read_body(self, heard: Heard) -> None:
        """The request's body, without its framing, into `heard`."""
        if length := heard.header("content-length"):
            heard.body = await self._exactly(int(length[0]))
        elif "chunked" in "".join(heard.header("transfer-encoding")).lower():
            heard.body = await self._chunks()

    async def _exactly(self, count: int) -> bytes:
        parts, have = [self.pending], len(self.pending)
        while have < count:
            data = await self.read()
            if not data:
                break
            parts.append(data)
            have += len(data)
        whole = b"".join(parts)
        self.pending = whole[count:]
        return whole[:count]

    async def _line(self) -> bytes:
        while b"\r\n" not in self.pending:
            data = await self.read()
            if not data:
                raise ConnectionResetError
            self.pending += data
        line, _, self.pending = self.pending.partition(b"\r\n")
        return line

    async def _chunks(self) -> bytes:
        body = b""
        while size := int((await self._line()).split(b";")[0], 16):
            body += await self._exactly(size)
            await self._line()
        while await self._line():
            pass
        return body

    async def send(self, data: bytes) -> None:
        """All of the data; its stamp is taken before the first byte goes."""
        self.sent.append(Piece(time.monotonic(), data))
        try:
            await asyncio.get_running_loop().sock_sendall(self.sock, data)
        except OSError:
            self.peer_gone_at = self.peer_gone_at or time.monotonic()
            raise

    async def play(self, pieces: list[bytes], pause_s: float = 0.0) -> None:
        for number, data in enumerate(pieces):
            if number and pause_s:
                await asyncio.sleep(pause_s)
            await self.send(data)

    def fin(self) -> None:
        """No more bytes from here; the other direction stays open."""
        with contextlib.suppress(OSError):
            self.sock.shutdown(socket.SHUT_WR)

    def reset(self) -> None:
        """RST instead of FIN."""
        self.sock.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        self.sock.close()

    async def until_peer_leaves(self, patience_s: float = IDLE_S) -> bool:
        """Whether the proxy closed within the time."""
        with contextlib.suppress(TimeoutError, OSError):
            async with asyncio.timeout(patience_s):
                while await self.read():
                    pass
        return self.peer_gone_at is not None


Script = Callable[[Wire, Heard], Awaitable[None]]


@dataclass
class Played:
    """One exchange as the provider had it."""

    heard: Heard
    sent: list[Piece]
    wire: Wire


class Provider:
    """Listens on a free port; each request's `x-case` header names the script that answers it.

    A script gets the wire after the head was read; it reads the body itself if `raw`, else that is done before.
    """

    def __init__(self) -> None:
        self.scripts: dict[str, Script] = {}
        self.raw: set[str] = set()
        self.played: dict[str, list[Played]] = {}
        self.connections = 0
        self._socket = socket.create_server(("127.0.0.1", 0), backlog=1024)
        self._socket.setblocking(False)
        self.port: int = self._socket.getsockname()[1]
        self._tasks: set[asyncio.Task[None]] = set()

    async def __aenter__(self) -> "Provider":
        self._keep(self._accept())
        return self

    async def __aexit__(self, *_: object) -> None:
        for task in list(self._tasks):
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        self._socket.close()

    def _keep(self, work: Coroutine[None, None, None]) -> None:
        task = asyncio.ensure_future(work)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def _accept(self) -> None:
        loop = asyncio.get_running_loop()
        while True:
            sock, _ = await loop.sock_accept(self._socket)
            sock.setblocking(False)
            sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            self.connections += 1
            self._keep(self._serve(Wire(sock)))

    async def _serve(self, wire: Wire) -> None:
        with contextlib.suppress(OSError, asyncio.CancelledError), contextlib.closing(wire.sock):
            while wire.sock.fileno() >= 0 and (heard := await wire.read_head()):
                case = (heard.header("x-case") or ["?"])[0]
                wire.sent = []
                self.played.setdefault(case, []).append(Played(heard, wire.sent, wire))
                if case not in self.raw:
                    await wire.read_body(heard)
                await self.scripts[case](wire, heard)


def answer(*pieces: bytes, pause_s: float = 0.0, end: str = "keep", hold_s: float = 0.0) -> Script:
    """Play the pieces, then `end`: keep the connection, fin, rst, or wait until the proxy leaves (leave)."""

    async def script(wire: Wire, _heard: Heard) -> None:
        await wire.play(list(pieces), pause_s)
        if hold_s:
            await asyncio.sleep(hold_s)
        if end == "fin":
            wire.fin()
            wire.sock.close()
        elif end == "rst":
            wire.reset()
        elif end == "leave":
            await wire.until_peer_leaves()
            wire.sock.close()

    return script


def chunk(data: bytes, extension: bytes = b"") -> bytes:
    return b"%x%s\r\n%s\r\n" % (len(data), extension, data)


LAST_CHUNK = b"0\r\n\r\n"


def head(status: int = 200, kind: str = "text/event-stream", framing: str = "chunked", extra: str = "") -> bytes:
    """A response head; framing is chunked, close or a number of bytes."""
    line = {"chunked": "Transfer-Encoding: chunked\r\n", "close": ""}.get(framing, f"Content-Length: {framing}\r\n")
    reason = {200: "OK", 429: "Too Many Requests", 500: "Internal Server Error"}.get(status, "Whatever")
    return re.sub(r"\r?\n", "\r\n", f"HTTP/1.1 {status} {reason}\r\nContent-Type: {kind}\r\n{line}{extra}\r\n").encode(
        "latin-1"
    )
