"""Clients and upstreams that use as much as they can, next to an ordinary one, through a real `streamgauge up`."""

import contextlib
import itertools
import socket
import threading
from collections.abc import Iterator, Sequence
from functools import partial
from urllib.parse import urlsplit

from tests.running import PATIENCE_S, Running, wait_for

ORDINARY = (
    b'data: {"id":"x","object":"chat.completion.chunk","choices":[{"index":0,"delta":{"content":"hi"},'
    b'"finish_reason":"stop"}]}\n\ndata: [DONE]\n\n'
)

# Half of what the relay holds for a recorder that is behind (bytes).
_STEP_BYTES = 8 * 1024 * 1024


class Upstream:
    """Answers `/N/v1/chat/completions` with flood number N, any other path with an ordinary response."""

    def __init__(self, floods: Sequence[bytes] = ()) -> None:
        self._floods = floods
        self._listening = socket.create_server(("127.0.0.1", 0), backlog=256)
        self._received: list[int] = []  # bytes of each request's body
        self.url = f"http://127.0.0.1:{self._listening.getsockname()[1]}"

    def __enter__(self) -> "Upstream":
        threading.Thread(target=self._serve, daemon=True).start()
        return self

    def __exit__(self, *_: object) -> None:
        self._listening.shutdown(socket.SHUT_RDWR)
        self._listening.close()

    @property
    def received(self) -> int:
        """The bytes of all requests' bodies so far."""
        return sum(self._received)

    def has_received(self, size: int) -> bool:
        return self.received >= size

    def _serve(self) -> None:
        for number in itertools.count():
            try:
                connection, _ = self._listening.accept()
            except OSError:  # the test is over
                return
            self._received.append(0)
            threading.Thread(target=self._answer, args=(connection, number), daemon=True).start()

    def _answer(self, connection: socket.socket, number: int) -> None:
        """One request, whose body has Content-Length, and its response."""
        with contextlib.suppress(OSError), connection, connection.makefile("rb") as request:
            path = request.readline().split()[1].decode()
            length = 0
            while (line := request.readline().strip()) != b"":
                if line.lower().startswith(b"content-length:"):
                    length = int(line.partition(b":")[2])
            while self._received[number] < length and (piece := request.read1(length - self._received[number])):
                self._received[number] += len(piece)
            first = path.split("/")[1]
            body = self._floods[int(first)] if first.isdigit() else ORDINARY
            head = (
                b"HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\nconnection: close\r\ncontent-length: %d\r\n\r\n"
            )
            connection.sendall(head % len(body) + body)


def connect(up: Running) -> socket.socket:
    address = urlsplit(up.url)
    assert address.hostname and address.port
    return socket.create_connection((address.hostname, address.port), PATIENCE_S)


def ask(up: Running, path: str = "", body: bytes = b'{"model":"m-1","n":1}') -> int:
    """A chat through the tap, to its end; gives the bytes of the response."""
    with connect(up) as client:
        client.sendall(_request(path, len(body)) + body)
        size = 0
        while data := client.recv(1 << 20):
            size += len(data)
    return size


@contextlib.contextmanager
def stalled_uploads(up: Running, upstream: Upstream, count: int) -> Iterator[int]:
    """Requests of which 16 MiB have been sent, and more are announced. The relay has read all of these bytes, and its
    recorder reads them before those of a later request. Yields how many ordinary requests were made.
    """
    with contextlib.ExitStack() as stack:
        for step in range(2 * count):
            if step:
                # The record of a later request shows that the recorder has read the step before: little waits for it.
                ask(up)
                up.wait_for_records(step)
            if step % 2 == 0:
                client = stack.enter_context(connect(up))
                client.sendall(_request("", 2 * _STEP_BYTES + 1_000_000))
            expected = upstream.received + _STEP_BYTES
            client.sendall(b"a" * _STEP_BYTES)
            wait_for(partial(upstream.has_received, expected), f"{expected} bytes at the upstream")
        yield step


def _request(path: str, length: int) -> bytes:
    head = b"POST %s/v1/chat/completions HTTP/1.1\r\nHost: a\r\nConnection: close\r\nContent-Length: %d\r\n\r\n"
    return head % (path.encode(), length)
