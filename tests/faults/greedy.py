"""Clients and upstreams that take all that they can get, beside an ordinary one, through a real `streamgauge up`."""

import contextlib
import socket
import threading
import time
from collections.abc import Iterator, Sequence
from urllib.parse import urlsplit

from tests.running import PATIENCE_S, Running

ORDINARY = (
    b'data: {"id":"x","object":"chat.completion.chunk","choices":[{"index":0,"delta":{"content":"hi"},'
    b'"finish_reason":"stop"}]}\n\ndata: [DONE]\n\n'
)

# Between the pieces of an upload, so that the relay hands all of it over to the recorder and leaves nothing out (seconds).
_PAUSE_S = 0.004


@contextlib.contextmanager
def upstream(floods: Sequence[bytes] = ()) -> Iterator[str]:
    """The URL of an upstream that answers `/N/v1/chat/completions` with the so-manyth flood, any other path ordinarily."""
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
    """One request, whose body has Content-Length, and its answer."""
    with contextlib.suppress(OSError), connection, connection.makefile("rb") as asked:
        path = asked.readline().split()[1].decode()
        length = 0
        while (line := asked.readline().strip()) != b"":
            if line.lower().startswith(b"content-length:"):
                length = int(line.partition(b":")[2])
        asked.read(length)
        first = path.split("/")[1]
        body = floods[int(first)] if first.isdigit() else ORDINARY
        head = b"HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\nconnection: close\r\ncontent-length: %d\r\n\r\n"
        connection.sendall(head % len(body) + body)


def connect(up: Running) -> socket.socket:
    address = urlsplit(up.url)
    assert address.hostname and address.port
    return socket.create_connection((address.hostname, address.port), PATIENCE_S)


def ask(up: Running, path: str = "", body: bytes = b'{"model":"m-1","n":1}') -> int:
    """A chat through the tap, to its end; gives the bytes of the answer."""
    with connect(up) as client:
        client.sendall(_request(path, len(body)) + body)
        size = 0
        while got := client.recv(1 << 20):
            size += len(got)
    return size


@contextlib.contextmanager
def stalled_uploads(up: Running, count: int, size: int) -> Iterator[None]:
    """Requests of which so many bytes have been sent, and more are announced."""
    piece = b"a" * (256 * 1024)
    with contextlib.ExitStack() as stack:
        for _ in range(count):
            client = stack.enter_context(connect(up))
            client.sendall(_request("", size + 1_000_000))
            for at in range(0, size, len(piece)):
                client.sendall(piece[: size - at])
                time.sleep(_PAUSE_S)
        yield


def _request(path: str, length: int) -> bytes:
    head = b"POST %s/v1/chat/completions HTTP/1.1\r\nHost: a\r\nConnection: close\r\nContent-Length: %d\r\n\r\n"
    return head % (path.encode(), length)
