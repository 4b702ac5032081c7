"""The streams that wrap those of the libraries: order, ends, and that closing one closes the stream that it wraps."""

import asyncio
import gc
import itertools
import socket
import threading
from collections.abc import AsyncGenerator, AsyncIterator, Iterator
from pathlib import Path
from typing import Any

import h2.config
import h2.connection
import h2.events
import httpx
import httpx2
import pytest

from streamgauge.core.capture.segments import Ending
from streamgauge.recorder.exchange_capture import ExchangeCapture
from streamgauge.recorder.protocol import ExchangeEnding, RequestBody, RequestSent, ResponseHead, ResponseRead
from streamgauge.taps.httpx import TapTransport
from streamgauge.taps.httpx_streams import (
    AsyncResponseStream,
    RequestBodyCapture,
    SyncResponseStream,
    library_of,
    stream_classes_of,
)
from streamgauge.taps.inprocess import background_senders
from streamgauge.taps.inprocess.capture import start_capture
from streamgauge.taps.inprocess.endings import ending_of
from tests.recorder.fake_client import FakeClient
from tests.taps.asking import LIBRARIES
from tests.taps.inprocess.rig import recorder_at, seen_request
from tests.taps.proxy.rig import PATIENCE_S, arrived, only
from tests.taps.talk import BODY, EVENTS


class Below:
    """A stream of two chunks, then an error if one is given. `story`: what happened to it."""

    def __init__(self, error: BaseException | None = None) -> None:
        self.error, self.story = error, list[str]()

    def __iter__(self) -> Iterator[bytes]:
        try:
            yield b"a"
            yield b"b"
            if self.error:
                raise self.error
        finally:
            self.story.append("over")

    async def __aiter__(self) -> AsyncIterator[bytes]:
        try:
            yield b"a"
            yield b"b"
            if self.error:
                raise self.error
        finally:
            self.story.append("over")

    def close(self) -> None:
        self.story.append("closed")

    async def aclose(self) -> None:
        self.story.append("closed")


def capturing() -> tuple[ExchangeCapture, FakeClient]:
    client = FakeClient()
    return start_capture(client, seen_request()), client


def reported(client: FakeClient) -> tuple[list[bytes], list[Ending]]:
    chunks = [message.data for message in client.messages if isinstance(message, ResponseRead)]
    return chunks, [message.ending for message in client.messages if isinstance(message, ExchangeEnding)]


async def read_async(stream: AsyncResponseStream, chunks: int = 9) -> list[bytes]:
    iterator = stream.__aiter__()
    assert isinstance(iterator, AsyncGenerator)  # a reader that stops early closes it, which must work
    read_chunks = []
    async for chunk in iterator:
        read_chunks.append(chunk)
        if len(read_chunks) == chunks:
            await iterator.aclose()
    return read_chunks


@pytest.mark.parametrize("kind", ["sync", "async"])
def test_read_to_the_end(kind: str) -> None:
    below, (capture, client) = Below(), capturing()
    chunks = (
        list(SyncResponseStream(below, capture))
        if kind == "sync"
        else asyncio.run(read_async(AsyncResponseStream(below, capture)))
    )
    assert (chunks, reported(client), below.story) == ([b"a", b"b"], ([b"a", b"b"], [Ending.COMPLETE]), ["over"])


@pytest.mark.parametrize("kind", ["sync", "async"])
def test_stopping_early_closes_the_inner_stream(kind: str) -> None:
    below, (capture, client) = Below(), capturing()
    if kind == "sync":
        stream = SyncResponseStream(below, capture)
        chunks = list(itertools.islice(stream, 1))
        gc.collect()
    else:
        chunks = asyncio.run(read_async(AsyncResponseStream(below, capture), 1))
    assert (chunks, reported(client), below.story) == ([b"a"], ([b"a"], [Ending.CLIENT]), ["over"])


@pytest.mark.parametrize("kind", ["sync", "async"])
@pytest.mark.parametrize(
    ("error", "ending"),
    [
        (httpx.ReadTimeout("t"), Ending.TIMEOUT),
        (httpx2.PoolTimeout("t"), Ending.TIMEOUT),
        (TimeoutError(), Ending.TIMEOUT),
        (httpx.RemoteProtocolError("r"), Ending.RESET),
        (OSError(), Ending.RESET),
        (KeyboardInterrupt(), Ending.CLIENT),
        (asyncio.CancelledError(), Ending.CLIENT),
    ],
    ids=lambda value: type(value).__name__,
)
def test_an_error_is_the_same_error(kind: str, error: BaseException, ending: Ending) -> None:
    below, (capture, client) = Below(error), capturing()
    with pytest.raises(type(error)) as raised:
        if kind == "sync":
            list(SyncResponseStream(below, capture))
        else:
            coroutine = read_async(AsyncResponseStream(below, capture))
            coroutine.send(None)  # nothing in it waits, so no loop is needed
    assert raised.value is error
    assert reported(client) == ([b"a", b"b"], [ending])
    assert ending_of(error) is ending


@pytest.mark.parametrize("kind", ["sync", "async"])
def test_a_close_is_passed_on_before_it_is_reported(kind: str) -> None:
    below, (capture, client) = Below(), capturing()
    if kind == "sync":
        SyncResponseStream(below, capture).close()
    else:
        asyncio.run(AsyncResponseStream(below, capture).aclose())
    assert (reported(client), below.story) == (([], [Ending.CLIENT]), ["closed"])


def test_an_error_of_close_is_raised_unchanged() -> None:
    class Broken(Below):
        def close(self) -> None:
            raise OSError("broken")

    capture, client = capturing()
    with pytest.raises(OSError, match="broken"):
        SyncResponseStream(Broken(), capture).close()
    assert reported(client) == ([], [Ending.CLIENT])


def test_a_chunk_that_is_in_flight_when_the_response_is_closed_is_reported() -> None:
    """As async readers do: the response is closed, the iterator only later."""

    async def run() -> None:
        stream = AsyncResponseStream(Below(), capture)
        iterator = stream.__aiter__()
        assert await anext(iterator) == b"a"
        await stream.aclose()
        assert reported(client) == ([b"a"], [Ending.CLIENT])

    capture, client = capturing()
    asyncio.run(run())


@pytest.mark.parametrize("library", LIBRARIES)
def test_streams_have_the_class_of_the_requests_library(library: Any) -> None:
    class Own(library.Request):
        pass

    request = Own("POST", "http://u/", content=b"x")
    assert library_of(request) is library
    kinds = stream_classes_of(request)
    assert kinds is stream_classes_of(library.Request("GET", "http://u/"))
    assert issubclass(kinds.sync_response, library.SyncByteStream)
    assert issubclass(kinds.async_response, library.AsyncByteStream)
    assert isinstance(kinds.request(request.stream, RequestBodyCapture(None, b"x")), library.ByteStream)
    pieces = library.Request("POST", "http://u/", content=iter([b"x"])).stream
    assert not isinstance(kinds.request(pieces, RequestBodyCapture(None, None)), library.ByteStream)


def test_a_body_that_is_sent_twice_is_reported_once() -> None:
    capture, client = capturing()
    body_capture = RequestBodyCapture(capture, None)
    request = httpx.Request("POST", "http://u/", content=iter([]))
    stream = stream_classes_of(request).request([b"a", b"b"], body_capture)
    assert [b"".join(stream) for _ in range(2)] == [b"ab", b"ab"]
    assert [message.data for message in client.messages if isinstance(message, RequestBody)] == [b"a", b"b"]
    assert [message.body_bytes for message in client.messages if isinstance(message, RequestSent)] == [2]


class Http2Server:
    """Responds to each request of one HTTP/2 connection (prior knowledge is httpx's `http1=False`) with an event stream."""

    def __init__(self) -> None:
        self._listening = socket.create_server(("127.0.0.1", 0))
        self.url = f"http://127.0.0.1:{self._listening.getsockname()[1]}"
        self._thread = threading.Thread(target=self._serve)

    def __enter__(self) -> "Http2Server":
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._thread.join(PATIENCE_S)
        self._listening.close()

    def _serve(self) -> None:
        one, _ = self._listening.accept()
        with one:
            connection = h2.connection.H2Connection(h2.config.H2Configuration(client_side=False))
            connection.initiate_connection()
            one.sendall(connection.data_to_send())
            while data := one.recv(65_536):
                for event in connection.receive_data(data):
                    if isinstance(event, h2.events.StreamEnded):
                        self._answer(connection, event.stream_id)
                one.sendall(connection.data_to_send())

    def _answer(self, connection: h2.connection.H2Connection, stream: int) -> None:
        connection.send_headers(stream, [(":status", "200"), ("content-type", "text/event-stream")])
        for event in EVENTS:
            connection.send_data(stream, event)
        connection.send_headers(stream, [("x-trailer", "t")], end_stream=True)


@pytest.mark.parametrize("library", LIBRARIES)
def test_http_2(library: Any, tmp_path: Path) -> None:
    with recorder_at(tmp_path) as recorder, Http2Server() as server:
        inner = library.HTTPTransport(http1=False, http2=True)
        with library.Client(transport=TapTransport(inner, data_dir=tmp_path)) as client:
            for _ in range(2):
                response = client.post(f"{server.url}/v1/chat/completions", json={"model": "m"})
                assert (response.http_version, response.content) == ("HTTP/2", BODY)
        messages = recorder.ended(2)
        background_senders.end()
    assert arrived(messages) == BODY + BODY
    assert [message.whole for message in messages if isinstance(message, RequestSent)] == [True, True]
    first = [message for message in messages if message.stream == messages[0].stream]
    assert (only(first, ResponseHead).status, only(first, ExchangeEnding).ending) == (200, Ending.COMPLETE)
