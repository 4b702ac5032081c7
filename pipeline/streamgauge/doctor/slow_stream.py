"""The doctor's own slow event stream: served here, requested through taps and proxies. Both ends note each event's time.

Its path and its events are those of no LLM, so a tap forwards it and records nothing.
"""

import asyncio
import contextlib
import http.client
import itertools
import ssl
import time
import zlib
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from typing import Any
from urllib.parse import urlsplit

# How many events, and the time between two of them (seconds): long beside any network's jitter, short beside a check's limit.
EVENTS = 12
GAP_S = 0.1

PATH = "/slow-stream"
_TIMEOUT_S = 10.0
_HEAD = b"HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\nCache-Control: no-cache\r\nConnection: close\r\n"
# What clients of LLMs accept: a proxy that compresses may buffer only then.
_HEADERS = {"Accept": "text/event-stream", "Accept-Encoding": "gzip"}


class StreamFailedError(Exception):
    """The stream did not arrive. `status`: that of the answer, None without one."""

    def __init__(self, why: str, status: int | None = None) -> None:
        super().__init__(why)
        self.status = status


@dataclass
class SlowStream:
    """The server. `sent`: by the number in a request's query, when each event was written (monotonic seconds); `open`:
    the connections that are being answered.
    """

    sent: dict[str, list[float]] = field(default_factory=dict)
    open: dict[asyncio.Task[None], asyncio.StreamWriter] = field(default_factory=dict)
    _numbers: Any = field(default_factory=itertools.count)

    def next_number(self) -> str:
        """A number for one request."""
        return str(next(self._numbers))

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        """Answers one request."""
        task = asyncio.current_task()
        assert task is not None
        self.open[task] = writer
        with contextlib.suppress(OSError, ValueError, asyncio.IncompleteReadError, asyncio.LimitOverrunError):
            head = await reader.readuntil(b"\r\n\r\n")
            _, target, version = head.split(b"\r\n", 1)[0].decode("latin-1").split(" ", 2)
            times = self.sent.setdefault(target.partition("?")[2], [])
            # As servers of LLMs do. Of a body that only the end of the connection ends, a proxy may wait for more.
            chunked = version != "HTTP/1.0"
            writer.write(_HEAD + (b"Transfer-Encoding: chunked\r\n\r\n" if chunked else b"\r\n"))
            for number in range(EVENTS):
                event = b"data: event %d of the doctor's slow stream\n\n" % number
                writer.write(b"%x\r\n%b\r\n" % (len(event), event) if chunked else event)
                await writer.drain()
                times.append(time.monotonic())
                await asyncio.sleep(GAP_S)
            writer.write(b"0\r\n\r\n" if chunked else b"")
            await writer.drain()
        writer.close()
        del self.open[task]


@asynccontextmanager
async def serving(host: str, port: int) -> AsyncIterator[SlowStream]:
    """The stream at this address, as a context; at its end all connections are closed. Raises OSError if the address
    cannot be used.
    """
    stream = SlowStream()
    server = await asyncio.start_server(stream.serve, host, port)
    try:
        yield stream
    finally:
        server.close()
        for client in stream.open.values():
            client.transport.abort()
        await asyncio.gather(*stream.open)


def arrivals(url: str, tls: ssl.SSLContext | None) -> list[float]:
    """Requests the stream at `url`; when each event arrived (monotonic seconds). Raises StreamFailedError."""
    parts = urlsplit(url)
    try:
        connection: http.client.HTTPConnection = (
            http.client.HTTPSConnection(parts.hostname or "", parts.port, timeout=_TIMEOUT_S, context=tls)
            if parts.scheme == "https"
            else http.client.HTTPConnection(parts.hostname or "", parts.port, timeout=_TIMEOUT_S)
        )
        with contextlib.closing(connection):
            connection.request("GET", f"{parts.path}?{parts.query}", headers=_HEADERS)
            with connection.getresponse() as answer:
                if answer.status != 200:
                    raise StreamFailedError(f"the answer is {answer.status}", answer.status)
                compressed = answer.getheader("Content-Encoding", "") == "gzip"
                return _times(answer, zlib.decompressobj(wbits=31).decompress if compressed else bytes)
    except (OSError, http.client.HTTPException, ValueError, zlib.error) as error:
        why = error.strerror if isinstance(error, OSError) and error.strerror else str(error) or type(error).__name__
        raise StreamFailedError(why) from error


def _times(answer: http.client.HTTPResponse, decode: Callable[[bytes], bytes]) -> list[float]:
    times: list[float] = []
    text = b""
    while piece := answer.read1():
        text += decode(piece)
        now = time.monotonic()
        times += [now] * (text.count(b"\n\n") - len(times))
    return times
