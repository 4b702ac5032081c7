"""A client on raw sockets: sends exact bytes, and keeps every byte that it receives with its time."""

import asyncio
import contextlib
import re
import socket
import struct
import time
from dataclasses import dataclass, field

from tests.blackbox.provider import Piece

READ_BYTES = 1 << 16
# Longer responses are chunked here, and checked again only where they may end (bytes).
LONG_BYTES = 1 << 20
# No answer on a shared machine takes longer (seconds).
PATIENCE_S = 60.0


@dataclass
class Received:
    """What a client sent and received. `end`: done (by the framing), fin, rst, left (by the client), silence."""

    sent_at: float = 0.0
    done_sending_at: float = 0.0
    reads: list[Piece] = field(default_factory=list)
    end: str = "silence"
    left_at: float | None = None
    size: int = 0

    @property
    def raw(self) -> bytes:
        return b"".join(piece.data for piece in self.reads)

    @property
    def status(self) -> int:
        found = re.match(rb"HTTP/1\.[01] (\d{3})", self.raw)
        return int(found[1]) if found else 0

    @property
    def body(self) -> bytes:
        return self.raw.partition(b"\r\n\r\n")[2]


def response_end(raw: bytes, method: str = "POST") -> int | None:
    """Where the first response ends by its own framing, 1xx skipped; None while unknown or up to the close."""
    start = 0
    while True:
        at = raw.find(b"\r\n\r\n", start)
        if at < 0:
            return None
        head, body = raw[start:at].lower(), at + 4
        status = int(head[9:12])
        if 100 <= status < 200 and status != 101:
            start = body
            continue
        break
    if method == "HEAD" or status in (204, 304):
        return body
    if re.search(rb"\r\ntransfer-encoding:[^\r]*chunked", head):
        return _chunks_end(raw, body)
    if found := re.search(rb"\r\ncontent-length:\s*(\d+)", head):
        end = body + int(found[1])
        return end if len(raw) >= end else None
    return None


def _chunks_end(raw: bytes, at: int) -> int | None:
    while True:
        line = raw.find(b"\r\n", at)
        if line < 0:
            return None
        size = int(raw[at:line].split(b";")[0], 16)
        if size == 0:
            end = raw.find(b"\r\n\r\n", line)
            return end + 4 if end >= 0 else None
        at = line + 2 + size + 2
        if at > len(raw):
            return None


class Line:
    """One connection to the proxy."""

    def __init__(self, port: int, receive_buffer: int | None = None) -> None:
        self.port = port
        self.sock = socket.socket()
        if receive_buffer:
            self.sock.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, receive_buffer)
        self.sock.setblocking(False)
        self.pending = b""

    async def __aenter__(self) -> "Line":
        await asyncio.get_running_loop().sock_connect(self.sock, ("127.0.0.1", self.port))
        self.sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        return self

    async def __aexit__(self, *_: object) -> None:
        self.sock.close()

    async def send(self, received: Received, pieces: list[bytes], pause_s: float = 0.0) -> None:
        loop = asyncio.get_running_loop()
        received.sent_at = time.monotonic()
        for number, data in enumerate(pieces):
            if number and pause_s:
                await asyncio.sleep(pause_s)
            await loop.sock_sendall(self.sock, data)
        received.done_sending_at = time.monotonic()

    async def read_answer(
        self,
        received: Received,
        method: str = "POST",
        leave_after: int | None = None,
        slow_s: float = 0.0,
        chunk: int = READ_BYTES,
        leave_after_s: float = 0.0,
    ) -> Received:
        """Read up to the answer's end or the connection's; or `leave_after` bytes, then wait so long and reset it."""
        loop = asyncio.get_running_loop()
        try:
            async with asyncio.timeout(PATIENCE_S):
                while True:
                    if self.pending:
                        data, self.pending = self.pending, b""
                    else:
                        data = await loop.sock_recv(self.sock, self._most(received, chunk, leave_after))
                    if not data:
                        received.end = "fin"
                        return received
                    received.reads.append(Piece(time.monotonic(), data))
                    if leave_after is not None and len(received.raw) >= leave_after:
                        await asyncio.sleep(leave_after_s)
                        self.leave(received)
                        return received
                    if self._complete(received, method):
                        return received
                    if slow_s:
                        await asyncio.sleep(slow_s)
        except TimeoutError:
            return received
        except OSError:
            received.end = "rst"
            return received

    def _most(self, received: Received, chunk: int, leave_after: int | None) -> int:
        return chunk if leave_after is None else min(chunk, leave_after - len(received.raw))

    def _complete(self, received: Received, method: str) -> bool:
        received.size += len(received.reads[-1].data)
        if received.size > LONG_BYTES and not received.reads[-1].data.endswith(b"0\r\n\r\n"):
            return False
        raw = received.raw
        end = response_end(raw, method)
        if end is None:
            return False
        over = len(raw) - end
        if over:
            last = received.reads[-1]
            self.pending = last.data[len(last.data) - over :]
            received.reads[-1] = Piece(last.at, last.data[: len(last.data) - over])
        received.end = "done"
        return True

    def leave(self, received: Received, reset: bool = True) -> None:
        if reset:
            self.sock.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        received.left_at = time.monotonic()
        received.end = "left"
        with contextlib.suppress(OSError):
            self.sock.close()


async def talk(
    port: int,
    pieces: list[bytes],
    *,
    pause_s: float = 0.0,
    method: str = "POST",
    leave_after: int | None = None,
    slow_s: float = 0.0,
    chunk: int = READ_BYTES,
    receive_buffer: int | None = None,
    leave_after_s: float = 0.0,
) -> Received:
    """One request on a separate connection; the response is read while the request is sent."""
    received = Received()
    async with Line(port, receive_buffer) as line:
        sending = asyncio.ensure_future(line.send(received, pieces, pause_s))
        try:
            await line.read_answer(received, method, leave_after, slow_s, chunk, leave_after_s)
        finally:
            sending.cancel()
            with contextlib.suppress(asyncio.CancelledError, OSError):
                await sending
    return received


def request(
    path: str, case: str, trace: str, body: bytes = b'{"stream":true}', headers: str = "", method: str = "POST"
) -> bytes:
    """A request as an SDK would send it, with the case's name and a trace id of its own."""
    return (
        f"{method} {path} HTTP/1.1\r\nHost: proxy.test\r\nx-case: {case}\r\ntraceparent: 00-{trace}-00000000000000ab-01\r\n"
        f"Content-Type: application/json\r\n{headers}Content-Length: {len(body)}\r\n\r\n"
    ).encode("latin-1") + body
