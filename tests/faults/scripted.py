"""`streamgauge up` in front of a provider whose responses are scripts; clients that keep a digest of what they receive.

No body is held in memory here, so a response may be of any size. Each script has a name, which the request's path begins
with: `/NAME/v1/chat/completions`.
"""

import contextlib
import hashlib
import socket
import ssl
import struct
import threading
import time
import uuid
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any, Literal
from urllib.parse import urlsplit

import msgspec

from tests.processes import children
from tests.running import PATIENCE_S, Running, wait_for

MIB = 1024 * 1024
_PIECE_BYTES = 1 << 16
CHAT = "/v1/chat/completions"
BODY = b'{"model":"m-1","stream":true}'
HEAD = b"HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\n"
# The end of the connection ends the body.
UNFRAMED = HEAD + b"Connection: close\r\n\r\n"
CHUNKED = HEAD + b"Transfer-Encoding: chunked\r\n\r\n"

Json = dict[str, Any]
# How a connection ends after the script: closed (with TLS: without close_notify), closed with close_notify, reset, or not
# before the other side leaves.
End = Literal["fin", "notify", "reset", "stay"]


def chunk(data: bytes) -> bytes:
    return b"%x\r\n%b\r\n" % (len(data), data)


def event(content: str | None = None, *, usage: object = None, finish: str | None = None) -> bytes:
    """One event of a chat completion."""
    choice = {"index": 0, "delta": {} if content is None else {"content": content}, "finish_reason": finish}
    body = {"id": "c-1", "object": "chat.completion.chunk", "model": "m-1", "choices": [choice]}
    return b"data: " + msgspec.json.encode(body if usage is None else {**body, "usage": usage}) + b"\n\n"


DONE = b"data: [DONE]\n\n"
ORDINARY = event("one") + event(" two") + event(finish="stop") + DONE


@dataclass(frozen=True)
class Script:
    """One response: all of its bytes, made while they are sent, and the end of its connection."""

    pieces: Callable[[], Iterable[bytes]]
    end: End = "fin"
    pause_s: float = 0.0


def whole(body: bytes, head: bytes = UNFRAMED, end: End = "fin") -> Script:
    return Script(lambda: [head + body], end)


# For paths that name no script.
_NOT_FOUND = whole(b"", b"HTTP/1.1 404 Not Found\r\nContent-Length: 0\r\nConnection: close\r\n\r\n")


@dataclass
class Sent:
    """What one response sent: the digest of its bytes, their number, and when the other side left (monotonic seconds)."""

    digest: str = ""
    size: int = 0
    left_at: float | None = None


class Provider:
    """Plays the script that each request names; `context` for TLS.

    `heads`: all heads that it received. `sent`: what was sent last, by the script's name.
    """

    def __init__(self, scripts: Mapping[str, Script], context: ssl.SSLContext | None = None) -> None:
        self.scripts, self.heads = scripts, list[bytes]()
        self.sent: dict[str, Sent] = {}
        self._context = context
        self._listening = socket.create_server(("127.0.0.1", 0), backlog=1024)
        port = self._listening.getsockname()[1]
        self.url = f"http{'s' if context else ''}://127.0.0.1:{port}"
        self.connections = 0
        self._acceptor = threading.Thread(target=self._accept)

    def __enter__(self) -> "Provider":
        self._acceptor.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._listening.shutdown(socket.SHUT_RDWR)
        self._acceptor.join()
        self._listening.close()

    def _accept(self) -> None:
        with contextlib.suppress(OSError):
            while True:
                one, _ = self._listening.accept()
                self.connections += 1
                threading.Thread(target=self._serve, args=(one,), daemon=True).start()

    def _serve(self, plain: socket.socket) -> None:
        plain.settimeout(PATIENCE_S)
        plain.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        with contextlib.suppress(OSError), contextlib.closing(plain):
            one = self._context.wrap_socket(plain, server_side=True) if self._context else plain
            head = self._receive_request(one)
            if head:
                name = head.split(b" ", 2)[1].split(b"/")[1].decode()
                script = self.scripts.get(name, _NOT_FOUND)
                sent = self.sent[name] = Sent()
                self._play(one, script, sent)
                self._end(one, script.end, sent)

    def _receive_request(self, one: socket.socket) -> bytes:
        with one.makefile("rb") as reading:
            lines = list(iter(reading.readline, b"\r\n"))
            if not lines or lines[-1] == b"":
                return b""
            self.heads.append(b"".join(lines))
            for line in lines:
                if line.lower().startswith(b"content-length:"):
                    reading.read(int(line.partition(b":")[2]))
        return self.heads[-1]

    def _play(self, one: socket.socket, script: Script, sent: Sent) -> None:
        digest = hashlib.sha256()
        for piece in script.pieces():
            digest.update(piece)
            sent.size += len(piece)
            sent.digest = digest.hexdigest()
            one.sendall(piece)
            time.sleep(script.pause_s)

    def _end(self, one: socket.socket, end: End, sent: Sent) -> None:
        if end == "stay":
            with contextlib.suppress(OSError):
                while one.recv(_PIECE_BYTES):
                    pass
            sent.left_at = time.monotonic()
        elif end == "reset":
            time.sleep(0.05)  # so that what was sent arrives before it
            one.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        elif end == "notify" and isinstance(one, ssl.SSLSocket):
            one.unwrap()
        one.close()


@dataclass
class Received:
    """What one client received: as `Sent`, the first 64 KiB, and how it ended."""

    trace: str
    digest: str = ""
    size: int = 0
    first: bytes = b""
    ended: Literal["fin", "reset", "left"] = "fin"
    left_at: float = 0.0
    record: Json = field(default_factory=dict)

    @property
    def status(self) -> int:
        return int(self.first[9:12]) if self.first[:5] == b"HTTP/" else 0


def connect(up: Running) -> socket.socket:
    address = urlsplit(up.url)
    assert address.hostname and address.port
    return socket.create_connection((address.hostname, address.port), PATIENCE_S)


def ask(
    up: Running,
    name: str,
    *,
    prefix: str = "",
    body: bytes = BODY,
    headers: bytes = b"",
    leave_after: int | None = None,
) -> Received:
    """One request on a connection of its own, and its response. `leave_after`: resets the connection after these bytes."""
    received, digest = Received(uuid.uuid4().hex), hashlib.sha256()
    trace = f"traceparent: 00-{received.trace}-00000000000000ab-01\r\n".encode()
    head = f"POST {prefix}/{name}{CHAT} HTTP/1.1\r\nHost: a\r\nConnection: close\r\n".encode()
    with connect(up) as client:
        client.sendall(head + trace + headers + b"Content-Length: %d\r\n\r\n" % len(body) + body)
        try:
            while data := client.recv(_PIECE_BYTES):
                digest.update(data)
                received.size += len(data)
                received.first += data[: _PIECE_BYTES - len(received.first)]
                received.digest = digest.hexdigest()
                if leave_after is not None and received.size >= leave_after:
                    client.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
                    received.ended, received.left_at = "left", time.monotonic()
                    break
        except ConnectionResetError:
            received.ended = "reset"
    return received


def exchange(up: Running, raw: bytes) -> bytes:
    """Sends these bytes, and gives all that comes back until the other side ends the connection."""
    parts = []
    with connect(up) as client, contextlib.suppress(ConnectionResetError):
        client.sendall(raw)
        while data := client.recv(_PIECE_BYTES):
            parts.append(data)
    return b"".join(parts)


def same_bytes(received: Received, provider: Provider, name: str) -> bool:
    """Whether a client received exactly what the provider sent, head included."""
    sent = provider.sent[name]
    return (received.size, received.digest) == (sent.size, sent.digest)


def with_records(up: Running, asked: Iterable[Received]) -> None:
    """Gives each exchange its record, once all are there; each has exactly one."""
    wanted = {one.trace: one for one in asked}
    earlier = 0

    def all_there() -> list[Json]:
        nonlocal earlier
        if up.recorded() < earlier + len(wanted):
            return []
        records = up.records()
        found = [record for record in records if record["trace_id"] in wanted]
        earlier = len(records) - len(found)
        return found if len(found) >= len(wanted) else []

    found = wait_for(all_there, f"{len(wanted)} records")
    assert sorted(record["trace_id"] for record in found) == sorted(wanted)
    for record in found:
        wanted[record["trace_id"]].record = record


def judge(up: Running, *, drops: bool = False) -> None:
    """What holds whatever the traffic was: reads are in balance, and nothing failed inside. `drops`: whether any may be
    dropped.
    """
    page = up.metrics()
    seen, delivered = page["streamgauge_tap_reads_seen_total"], page["streamgauge_tap_reads_delivered_total"]
    dropped = sum(value for name, value in page.items() if name.startswith("streamgauge_tap_reads_dropped_total"))
    assert seen == delivered + page["streamgauge_tap_reads_waiting"] + dropped
    assert drops or dropped == 0
    assert page['streamgauge_tap_incidents_total{kind="capture_fault"}'] == 0, up.log
    assert "internal error" not in up.log and "Traceback" not in up.log, up.log
    assert up.process.poll() is None


def peak_memory(up: Running) -> int:
    """The sum of the largest resident memory so far of the command and of each process that it started (bytes)."""
    return sum(map(_peak, (up.process.pid, *children(up.process.pid))))


def _peak(pid: int) -> int:
    lines = Path(f"/proc/{pid}/status").read_text().splitlines()
    return next(int(line.split()[1]) * 1024 for line in lines if line.startswith("VmHWM:"))


def in_parallel(work: Iterable[Callable[[], None]], at_once: int = 16) -> None:
    """Runs each, `at_once` at a time; raises the first error."""
    waiting, errors = iter(list(work)), list[BaseException]()
    lock = threading.Lock()

    def run() -> None:
        while not errors:
            with lock:
                one = next(waiting, None)
            if one is None:
                return
            try:
                one()
            except BaseException as error:  # noqa: BLE001 - the test's own thread raises it
                errors.append(error)

    threads = [threading.Thread(target=run) for _ in range(at_once)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    if errors:
        raise errors[0]


def repeated(data: bytes, size: int) -> Iterator[bytes]:
    """`size` bytes of `data`, in pieces."""
    piece = data * (_PIECE_BYTES // len(data))
    yield from map(partial(lambda of, _: of, piece), range(size // len(piece)))
    yield piece[: size % len(piece)]
