"""A client on raw sockets: sends exact bytes, and keeps what it receives with the times of its reads."""

import asyncio
import contextlib
import hashlib
import re
import socket
import struct
import time
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from typing import Any
from urllib.parse import urlsplit

from streamgauge_demo.provider import Sent

READ_BYTES = 1 << 16
# No answer on a shared machine takes longer (seconds).
PATIENCE_S = 60.0


@dataclass
class Received:
    """What a client sent and received. Times are monotonic seconds.

    `end`: done (by the framing), fin, rst, left (by the client), silence. `reads`: with their data until `kept` bytes are
    kept. `digest`: of all bytes.
    """

    trace: str = ""
    kept: int | None = None
    sent_at: float = 0.0
    done_sending_at: float = 0.0
    reads: list[Sent] = field(default_factory=list)
    end: str = "silence"
    ended_at: float = 0.0
    left_at: float | None = None
    size: int = 0
    record: dict[str, Any] = field(default_factory=dict)  # for tests that look for it
    _digest: "hashlib._Hash" = field(default_factory=hashlib.sha256)

    def add(self, data: bytes) -> None:
        """One read."""
        self._digest.update(data)
        room = len(data) if self.kept is None else max(0, self.kept - self.size)
        self.reads.append(Sent(time.monotonic(), data[:room]))
        self.size += len(data)

    @property
    def digest(self) -> str:
        return self._digest.hexdigest()

    @property
    def raw(self) -> bytes:
        return b"".join(read.data for read in self.reads)

    @property
    def status(self) -> int:
        head = re.match(rb"HTTP/1\.[01] (\d{3})", self.raw)
        return int(head[1]) if head else 0

    @property
    def body(self) -> bytes:
        """The body with its framing."""
        return self.raw.partition(b"\r\n\r\n")[2]

    @property
    def first_s(self) -> float:
        """From the request's first byte to the response's (seconds)."""
        return self.reads[0].at - self.sent_at

    @property
    def gap_s(self) -> float:
        """The longest wait between two reads (seconds)."""
        return max(
            (after.at - before.at for before, after in zip(self.reads, self.reads[1:], strict=False)), default=0.0
        )


# Whether a client has received enough, and leaves.
Leaves = Callable[[Received], bool]


class _Framing:
    """Finds where a response ends by its own framing, while it arrives; 1xx responses are skipped."""

    def __init__(self, method: str) -> None:
        self._method = method
        self._at = 0  # before it everything has been read
        self._head = b""

    def end(self, raw: bytearray) -> int | None:
        """None while it is unknown, or if the response ends with its connection."""
        while not self._head:
            if (at := raw.find(b"\r\n\r\n", self._at)) < 0:
                return None
            head, self._at = bytes(raw[self._at : at]).lower(), at + 4
            if head[9:10] != b"1" or head[9:12] == b"101":
                self._head = head
        if self._method == "HEAD" or self._head[9:12] in (b"204", b"304"):
            return self._at
        if re.search(rb"\r\ntransfer-encoding:[^\r]*chunked", self._head):
            return self._chunks_end(raw)
        if length := re.search(rb"\r\ncontent-length:\s*(\d+)", self._head):
            end = self._at + int(length[1])
            return end if len(raw) >= end else None
        return None

    def _chunks_end(self, raw: bytearray) -> int | None:
        while (line := raw.find(b"\r\n", self._at)) >= 0:
            size = int(raw[self._at : line].split(b";")[0], 16)
            if size == 0:
                end = raw.find(b"\r\n\r\n", line)
                return end + 4 if end >= 0 else None
            after = line + 2 + size + 2
            if after > len(raw):
                return None
            self._at = after
        return None


class Line:
    """One connection to the server at `url`."""

    def __init__(self, url: str, receive_buffer: int | None = None) -> None:
        address = urlsplit(url)
        self._address = (address.hostname, address.port)
        self.sock = socket.socket()
        if receive_buffer:
            self.sock.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, receive_buffer)
        self.sock.setblocking(False)
        self.pending = b""

    async def __aenter__(self) -> "Line":
        await asyncio.get_running_loop().sock_connect(self.sock, self._address)
        self.sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        return self

    async def __aexit__(self, *_: object) -> None:
        self.sock.close()

    async def send(self, received: Received, pieces: Iterable[bytes], pause_s: float = 0.0) -> None:
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
        *,
        to_close: bool = False,
        leave_after: int | None = None,
        leave_after_s: float = 0.0,
        leaves: Leaves | None = None,
        leaves_by: str = "rst",
        slow_s: float = 0.0,
        chunk: int = READ_BYTES,
        patience_s: float = PATIENCE_S,
    ) -> Received:
        """Reads up to the answer's end or the connection's (`to_close`: always that), or until the client leaves: after
        exactly `leave_after` bytes and a wait, or when it `leaves`.
        """
        loop, framing, raw = asyncio.get_running_loop(), _Framing(method), bytearray()
        try:
            async with asyncio.timeout(patience_s):
                while received.end == "silence":
                    most = chunk if leave_after is None else min(chunk, leave_after - received.size)
                    data, self.pending = self.pending, b""
                    if not (data := data or await loop.sock_recv(self.sock, most)):
                        received.end = "fin"
                        break
                    received.add(data)
                    if leave_after is not None and received.size >= leave_after:
                        await asyncio.sleep(leave_after_s)
                        self.leave(received)
                    elif leaves and leaves(received):
                        self.leave(received, leaves_by)
                        continue
                    if not to_close:
                        raw += data
                        if (end := framing.end(raw)) is not None:
                            self._keep(len(raw) - end, received)
                            received.end = "done"
                    if slow_s:
                        await asyncio.sleep(slow_s)
        except TimeoutError:
            pass
        except OSError:
            received.end = "rst"
        received.ended_at = time.monotonic()
        return received

    def _keep(self, over: int, received: Received) -> None:
        """The last bytes that were read belong to the next response."""
        if over:
            last = received.reads[-1]
            self.pending = last.data[len(last.data) - over :]
            received.reads[-1] = Sent(last.at, last.data[: len(last.data) - over])

    def leave(self, received: Received, how: str = "rst") -> None:
        """Ends the connection: rst, or fin."""
        if how == "rst":
            self.sock.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        received.left_at = time.monotonic()
        received.end = "left"
        with contextlib.suppress(OSError):
            self.sock.close()


async def talk(
    url: str,
    pieces: Iterable[bytes],
    *,
    pause_s: float = 0.0,
    method: str = "POST",
    receive_buffer: int | None = None,
    received: Received | None = None,
    **reading: object,
) -> Received:
    """One request on a separate connection; the response is read while the request is sent. `reading`: as `read_answer`."""
    received = received or Received()
    async with Line(url, receive_buffer) as line:
        sending = asyncio.ensure_future(line.send(received, pieces, pause_s))
        try:
            await line.read_answer(received, method, **reading)  # type: ignore[arg-type]
        finally:
            sending.cancel()
            with contextlib.suppress(asyncio.CancelledError, OSError):
                await sending
    return received


def request(
    path: str,
    body: bytes = b'{"stream":true}',
    *,
    case: str = "",
    trace: str = "",
    headers: str = "",
    method: str = "POST",
) -> bytes:
    """A request as an SDK would send it. `case`: the script that the provider plays; `trace`: 32 hex digits."""
    own = f"x-case: {case}\r\n" if case else ""
    own += f"traceparent: 00-{trace}-00000000000000ab-01\r\n" if trace else ""
    return (
        f"{method} {path} HTTP/1.1\r\nHost: proxy.test\r\n{own}Content-Type: application/json\r\n{headers}"
        f"Content-Length: {len(body)}\r\n\r\n"
    ).encode("latin-1") + body
