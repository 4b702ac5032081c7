"""Clients and upstreams that use as much as they can, next to an ordinary one, through a real `streamgauge up`."""

import contextlib
import resource
import socket
import threading
from collections.abc import Iterator, Sequence
from functools import partial
from pathlib import Path
from urllib.parse import urlsplit

from tests.processes import children
from tests.running import PATIENCE_S, Running, wait_for

ORDINARY = (
    b'data: {"id":"x","object":"chat.completion.chunk","choices":[{"index":0,"delta":{"content":"hi"},'
    b'"finish_reason":"stop"}]}\n\ndata: [DONE]\n\n'
)

# Sent before the recorder's memory is checked: little compared with what the relay holds for it (bytes).
_STEP_BYTES = 1024 * 1024


@contextlib.contextmanager
def upstream(floods: Sequence[bytes] = ()) -> Iterator[str]:
    """The URL of an upstream that answers `/N/v1/chat/completions` with flood number N, any other path with an ordinary
    response.
    """
    with socket.create_server(("127.0.0.1", 0), backlog=256) as listening:
        threading.Thread(target=_serve, args=(listening, floods), daemon=True).start()
        yield f"http://127.0.0.1:{listening.getsockname()[1]}"
        listening.shutdown(socket.SHUT_RDWR)


def _serve(listening: socket.socket, floods: Sequence[bytes]) -> None:
    while True:
        try:
            connection, _ = listening.accept()
        except OSError:  # the test is over
            return
        threading.Thread(target=_answer, args=(connection, floods), daemon=True).start()


def _answer(connection: socket.socket, floods: Sequence[bytes]) -> None:
    """One request, whose body has Content-Length, and its response."""
    with contextlib.suppress(OSError), connection, connection.makefile("rb") as request:
        path = request.readline().split()[1].decode()
        length = 0
        while (line := request.readline().strip()) != b"":
            if line.lower().startswith(b"content-length:"):
                length = int(line.partition(b":")[2])
        request.read(length)
        first = path.split("/")[1]
        body = floods[int(first)] if first.isdigit() else ORDINARY
        head = b"HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\nconnection: close\r\ncontent-length: %d\r\n\r\n"
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
def stalled_uploads(up: Running, count: int, size: int) -> Iterator[None]:
    """Requests of which this many bytes have been sent, and more are announced. The recorder holds all of these bytes."""
    held = _recorder_bytes(up)
    with contextlib.ExitStack() as stack:
        for _ in range(count):
            client = stack.enter_context(connect(up))
            client.sendall(_request("", size + 1_000_000))
            for at in range(0, size, _STEP_BYTES):
                step = min(_STEP_BYTES, size - at)
                client.sendall(b"a" * step)
                held += step
                wait_for(partial(_holds, up, held), f"{held} bytes in the recorder")
        yield


def _holds(up: Running, size: int) -> bool:
    """Whether the recorder's memory has grown by this: pieces take a seventh more than their bytes."""
    return _recorder_bytes(up) >= size


def _recorder_bytes(up: Running) -> int:
    """The resident memory of the tap's recorder."""
    [recorder] = [pid for pid, line in children(up.process.pid).items() if "streamgauge.recorder.process" in line]
    resident = Path(f"/proc/{recorder}/statm").read_text().split()[1]
    return int(resident) * resource.getpagesize()


def _request(path: str, length: int) -> bytes:
    head = b"POST %s/v1/chat/completions HTTP/1.1\r\nHost: a\r\nConnection: close\r\nContent-Length: %d\r\n\r\n"
    return head % (path.encode(), length)
