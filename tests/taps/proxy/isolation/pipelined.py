"""Two requests at once on one connection, to the hostile upstream and to the good one, and how readers divide what comes."""

import contextlib
import http.client
import io
import socket
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor

import h11
import httptools

from tests.taps.proxy.rig import receive_until_reset

AT_A_TIME = 16
Reader = Callable[[bytes], list[bytes]]


def ask(port: int, numbers: Sequence[int]) -> dict[int, bytes]:
    """For each case all bytes that come for its two requests, until the relay ends the connection."""

    def ask_both(number: int) -> bytes:
        with socket.create_connection(("127.0.0.1", port), 10) as one:
            first = b"GET /u0/%d HTTP/1.1\r\nHost: c\r\n\r\n" % number
            second = b"GET /u1/%d HTTP/1.1\r\nHost: c\r\nConnection: close\r\n\r\n" % number
            one.sendall(first + second)
            return receive_until_reset(one)[0]

    with ThreadPoolExecutor(AT_A_TIME) as pool:
        return dict(zip(numbers, pool.map(ask_both, numbers), strict=True))


class _Connected:
    """A socket for http.client, of which each response reads on."""

    def __init__(self, data: bytes) -> None:
        self._file = io.BytesIO(data)
        self._file.close = lambda: None  # type: ignore[method-assign]

    def makefile(self, _: str) -> io.BytesIO:
        return self._file


def by_http_client(data: bytes) -> list[bytes]:
    """The bodies of the responses, in order, up to an error or a response that closes the connection."""
    connected, bodies = _Connected(data), []
    for _ in range(2):
        response = http.client.HTTPResponse(connected, method="GET")  # type: ignore[arg-type]
        try:
            response.begin()
            closes = response.will_close
            bodies.append(response.read())
        except (http.client.HTTPException, ValueError, OSError, OverflowError):
            return bodies
        if closes:
            return bodies
    return bodies


def by_h11(data: bytes) -> list[bytes]:
    """See `by_http_client`."""
    bodies: list[bytes] = []
    connection = h11.Connection(h11.CLIENT)
    connection.receive_data(data)
    try:
        for _ in range(2):
            connection.send(h11.Request(method="GET", target="/", headers=[("Host", "c")]))
            connection.send(h11.EndOfMessage())
            body = b""
            while not isinstance(event := connection.next_event(), h11.EndOfMessage):
                if event is h11.NEED_DATA or isinstance(event, h11.ConnectionClosed):
                    return bodies
                body += bytes(event.data) if isinstance(event, h11.Data) else b""
            bodies.append(body)
            connection.start_next_cycle()
    except h11.ProtocolError:
        pass
    return bodies


class _Messages:
    def __init__(self) -> None:
        self.bodies: list[bytes] = []
        self.parser = httptools.HttpResponseParser(self)
        self._body = b""

    def on_body(self, body: bytes) -> None:
        self._body += body

    def on_message_complete(self) -> None:
        if self.parser.get_status_code() >= 200:
            self.bodies.append(self._body)
        self._body = b""


def by_llhttp(data: bytes) -> list[bytes]:
    """See `by_http_client`."""
    messages = _Messages()
    with contextlib.suppress(httptools.HttpParserError, httptools.HttpParserUpgrade):
        messages.parser.feed_data(data)
    return messages.bodies


READERS: dict[str, Reader] = {"http.client": by_http_client, "h11": by_h11, "llhttp": by_llhttp}
