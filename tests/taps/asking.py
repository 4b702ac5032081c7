"""The same request by each of the two libraries, sync and async, with and without the tap: what the caller gets."""

import asyncio
import socket
import time
from collections.abc import AsyncIterator, Callable, Iterator
from pathlib import Path
from typing import Any, Literal, NamedTuple

import httpx
import httpx2

from streamgauge.taps.httpx import AsyncTapTransport, TapTransport
from tests.taps.proxy.rig import Handler, RawUpstream, chunked, receive_all, receive_request
from tests.taps.talk import EVENTS

LIBRARIES: tuple[Any, ...] = (httpx, httpx2)
Kind = Literal["sync", "async"]
WAYS = [(library, kind) for library in LIBRARIES for kind in ("sync", "async")]
BODY = b'{"model":"m","stream":true}'
HEAD = b"HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\nX-Request-Id: req_7\r\nSet-Cookie: secret\r\n"
STREAM = HEAD + b"Transfer-Encoding: chunked\r\n\r\n" + chunked(*EVENTS)
CHAT = "/v1/chat/completions"
WHOLE = ["RequestStarted", "RequestBody", "RequestSent", "ResponseHead", "ResponseRead", "ExchangeEnding"]
# The client's time-out (seconds), and a shorter one for an upstream that sends nothing.
TIMEOUT_S, SHORT_TIMEOUT_S = 20.0, 0.3


class Received(NamedTuple):
    """What a caller got: a response's status, headers and raw chunks, or the error that it raised, by name and text."""

    status: int | None
    headers: list[tuple[bytes, bytes]]
    chunks: list[bytes]
    error: tuple[str, str] | None

    @property
    def body(self) -> bytes:
        return b"".join(self.chunks)


class Asker:
    """`data_dir` None: without the tap. `leave_after`: the response is closed after this many chunks."""

    url = ""  # of the upstream, where `both_ways` asks

    def __init__(self, library: Any, kind: Kind, data_dir: Path | None, **settings: Any) -> None:
        self.library, self.kind = library, kind
        self.timeout_s = TIMEOUT_S
        self.on_chunk: Callable[[], object] = lambda: None  # called with each chunk that was read
        self._data_dir, self._settings = data_dir, settings

    def ask(
        self,
        url: str,
        method: str = "POST",
        *,
        content: Any = BODY,
        leave_after: int | None = None,
        headers: Any = None,
        inner: Any = None,
    ) -> Received:
        given = {"method": method, "url": url, "content": content, "headers": headers}
        if self.kind == "sync":
            return self._ask_sync(given, leave_after, inner)
        return asyncio.run(self._ask_async(given, leave_after, inner))

    def transport(self, inner: Any = None) -> Any:
        sync = self.kind == "sync"
        if self._data_dir is None:
            return inner or (self.library.HTTPTransport() if sync else self.library.AsyncHTTPTransport())
        return (TapTransport if sync else AsyncTapTransport)(inner, data_dir=self._data_dir, **self._settings)

    def _ask_sync(self, given: dict[str, Any], leave_after: int | None, inner: Any) -> Received:
        status, headers, chunks = None, [], []
        with self.library.Client(transport=self.transport(inner), timeout=self.timeout_s) as client:
            try:
                with client.stream(**given) as response:
                    status, headers = response.status_code, response.headers.raw
                    for chunk in [response.content] if response.is_closed else response.iter_raw():
                        chunks.append(chunk)
                        self.on_chunk()
                        if len(chunks) == leave_after:
                            break
            except self.library.HTTPError as error:
                return Received(status, headers, chunks, (type(error).__name__, str(error)))
        return Received(status, headers, chunks, None)

    async def _ask_async(self, given: dict[str, Any], leave_after: int | None, inner: Any) -> Received:
        status, headers, chunks = None, [], []
        async with self.library.AsyncClient(transport=self.transport(inner), timeout=self.timeout_s) as client:
            try:
                async with client.stream(**given) as response:
                    status, headers = response.status_code, response.headers.raw
                    if response.is_closed:
                        chunks.append(response.content)
                        return Received(status, headers, chunks, None)
                    async for chunk in response.aiter_raw():
                        chunks.append(chunk)
                        self.on_chunk()
                        if len(chunks) == leave_after:
                            break
            except self.library.HTTPError as error:
                return Received(status, headers, chunks, (type(error).__name__, str(error)))
        return Received(status, headers, chunks, None)

    def pieces(self, *data: bytes) -> Any:
        """A body that can be read only once, in the form that this kind of client takes."""

        def some() -> Iterator[bytes]:
            yield from data

        async def some_async() -> AsyncIterator[bytes]:
            for one in data:
                yield one

        return some() if self.kind == "sync" else some_async()


def outcomes(
    way: tuple[Any, Kind], folder: Path, ask: Callable[[Asker], Received], *handlers: Handler
) -> tuple[Received, Received]:
    """What the caller gets without the tap, and through it."""
    results = []
    for data_dir in (None, folder):
        asker = Asker(*way, data_dir)
        with RawUpstream(*handlers) as upstream:
            asker.url = upstream.url
            results.append(ask(asker))
    plain, tapped = results
    return plain, tapped


def both_ways(way: tuple[Any, Kind], folder: Path, ask: Callable[[Asker], Received], *handlers: Handler) -> Received:
    """What the caller gets through the tap; asserts that it gets the same without, except for chunk boundaries, which
    depend on timing.
    """
    plain, tapped = outcomes(way, folder, ask, *handlers)
    assert (tapped.status, tapped.headers, tapped.body, tapped.error) == (
        plain.status,
        plain.headers,
        plain.body,
        plain.error,
    )
    return tapped


def pausing(*pieces: bytes, end: Callable[[socket.socket], object] = receive_all) -> Handler:
    """A handler that reads a whole request, sends these pieces one by one, and then calls `end`."""

    def handler(one: socket.socket) -> None:
        head = receive_request(one)
        if b"\r\nTransfer-Encoding: chunked\r\n" in head:  # a client that is still writing gets another error
            receive_chunked(one)
        if head:
            for piece in pieces:
                one.sendall(piece)
                time.sleep(0.02)
            end(one)

    return handler


def receive_chunked(one: socket.socket) -> None:
    """A whole chunked body, or what came before the other side ended."""
    data = bytearray()
    while not data.endswith(b"0\r\n\r\n") and (piece := one.recv(65536)):
        data += piece


def ask_chat(asker: Any, **more: Any) -> Received:
    result: Received = asker.ask(asker.url + CHAT, **more)
    return result
