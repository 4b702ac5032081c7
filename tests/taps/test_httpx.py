"""The httpx tap on real sockets: callers get what they get without it, and a recorder gets every exchange."""

import asyncio
import gzip
import socket
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from streamgauge.core.capture.segments import Ending
from streamgauge.recorder.protocol import (
    MAX_REQUEST_BODY,
    ExchangeEnding,
    Message,
    RequestBody,
    RequestSent,
    RequestStarted,
    ResponseHead,
    ResponseRead,
)
from streamgauge.spool.read_counters import read_balance
from streamgauge.taps.httpx import TapTransport
from tests.taps.asking import (
    BODY,
    CHAT,
    HEAD,
    LIBRARIES,
    STREAM,
    WAYS,
    WHOLE,
    Asker,
    Kind,
    Received,
    ask_chat,
    both_ways,
    outcomes,
)
from tests.taps.inprocess.rig import PATIENCE_S
from tests.taps.proxy.rig import (
    RawRecorder,
    RawUpstream,
    answering,
    arrived,
    chunked,
    kinds,
    only,
    receive_all,
    receive_request,
)
from tests.taps.talk import BODY as ANSWER
from tests.taps.talk import EVENTS, gzip_flushed


def test_a_stream_in_order(way: tuple[Any, Kind], tmp_path: Path, recorder: RawRecorder) -> None:
    begun = time.monotonic_ns()
    result = both_ways(way, tmp_path, ask_chat, answering(STREAM))
    assert (result.status, result.body, result.error) == (200, ANSWER, None)
    messages = recorder.ended()
    assert kinds(messages) == WHOLE
    opened = only(messages, RequestStarted)
    assert (opened.tap, opened.method, opened.target, opened.upstream) == ("httpx", "POST", CHAT, opened.upstream)
    assert opened.upstream is not None
    assert opened.upstream.startswith("127.0.0.1:")
    assert opened.wall_ns is not None
    assert abs(time.time_ns() - opened.wall_ns) < PATIENCE_S * 1e9
    assert only(messages, RequestBody).data == BODY
    sent, answered, ended = only(messages, RequestSent), only(messages, ResponseHead), only(messages, ExchangeEnding)
    assert (sent.body_bytes, sent.whole) == (len(BODY), True)
    assert (answered.status, answered.headers) == (
        200,
        [("content-type", "text/event-stream"), ("x-request-id", "req_7")],
    )
    assert (arrived(messages), ended.ending, ended.client_gone_ns) == (ANSWER, Ending.COMPLETE, None)
    reads = [message.at_ns for message in messages if isinstance(message, ResponseRead)]
    stamps = [begun, opened.at_ns, sent.at_ns, answered.at_ns, *reads, ended.at_ns, time.monotonic_ns()]
    assert stamps == sorted(stamps)  # type: ignore[type-var]


def test_chunks_reach_the_caller_unchanged(way: tuple[Any, Kind], tmp_path: Path, recorder: RawRecorder) -> None:
    has_read = threading.Semaphore(0)

    def handler(one: socket.socket) -> None:
        receive_request(one)
        one.sendall(STREAM[:-200])
        assert has_read.acquire(timeout=20), "the caller reads the first part before the second is sent"
        one.sendall(STREAM[-200:])
        receive_all(one)

    def ask(asker: Asker) -> Received:
        asker.on_chunk = has_read.release
        result = ask_chat(asker)
        while has_read.acquire(blocking=False):
            pass
        return result

    plain, tapped = outcomes(way, tmp_path, ask, handler)
    assert tapped == plain
    assert len(tapped.chunks) > 1
    reads = [message.data for message in recorder.ended() if isinstance(message, ResponseRead)]
    assert reads == tapped.chunks


def test_a_compressed_response_is_reported_compressed(
    way: tuple[Any, Kind], tmp_path: Path, recorder: RawRecorder
) -> None:
    coded = gzip_flushed(*EVENTS)
    wire = HEAD + b"Content-Encoding: gzip\r\nTransfer-Encoding: chunked\r\n\r\n" + chunked(coded)
    result = both_ways(way, tmp_path, ask_chat, answering(wire))
    messages = recorder.ended()
    assert arrived(messages) == coded == result.body
    assert gzip.decompress(coded) == ANSWER
    assert ("content-encoding", "gzip") in only(messages, ResponseHead).headers


def test_a_body_that_can_be_read_once_passes_through(
    way: tuple[Any, Kind], tmp_path: Path, recorder: RawRecorder
) -> None:
    requests: list[bytes] = []

    def handler(one: socket.socket) -> None:
        data = b""
        while not data.endswith(b"0\r\n\r\n") and (piece := one.recv(65_536)):
            data += piece
        requests.append(data.partition(b"\r\n\r\n")[2])
        one.sendall(STREAM)
        receive_all(one)

    both_ways(way, tmp_path, lambda asker: ask_chat(asker, content=asker.pieces(b"one", b"", b"two")), handler)
    assert requests == [b"3\r\none\r\n3\r\ntwo\r\n0\r\n\r\n"] * 2
    messages = recorder.ended()
    assert [message.data for message in messages if isinstance(message, RequestBody)] == [b"one", b"two"]
    sent = only(messages, RequestSent)
    assert (sent.body_bytes, sent.whole) == (6, True)
    assert sent.at_ns is not None


def test_a_long_body_is_counted_but_not_kept(way: tuple[Any, Kind], tmp_path: Path, recorder: RawRecorder) -> None:
    half = bytes(MAX_REQUEST_BODY // 2 + 1)

    def handler(one: socket.socket) -> None:
        tail = b""
        while not tail.endswith(b"0\r\n\r\n") and (piece := one.recv(1 << 20)):
            tail = (tail + piece)[-5:]
        one.sendall(STREAM)
        receive_all(one)

    with RawUpstream(handler) as upstream:
        asker = Asker(*way, tmp_path)
        assert asker.ask(upstream.url + CHAT, content=asker.pieces(half, half)).body == ANSWER
    sent = only(recorder.ended(), RequestSent)
    assert (sent.body_bytes, sent.whole) == (2 * len(half), False)


@pytest.mark.parametrize("status", [b"200 OK", b"429 Too Many Requests"])
def test_a_response_that_is_not_a_stream(
    way: tuple[Any, Kind], tmp_path: Path, recorder: RawRecorder, status: bytes
) -> None:
    body = b'{"error":{"code":"x"}}'
    wire = b"HTTP/1.1 %b\r\nContent-Type: application/json\r\nRetry-After: 3\r\nContent-Length: %d\r\n\r\n%b"
    both_ways(way, tmp_path, ask_chat, answering(wire % (status, len(body), body)))
    messages = recorder.ended()
    answered = only(messages, ResponseHead)
    assert (answered.status, dict(answered.headers)["retry-after"]) == (int(status[:3]), "3")
    assert (arrived(messages), only(messages, ExchangeEnding).ending) == (body, Ending.COMPLETE)


def test_no_body_at_all(way: tuple[Any, Kind], tmp_path: Path, recorder: RawRecorder) -> None:
    wire = b"HTTP/1.1 204 No Content\r\n\r\n"
    both_ways(
        way,
        tmp_path,
        lambda asker: asker.ask(asker.url + "/v1/responses/r1", "GET", content=None),
        answering(wire),
    )
    messages = recorder.ended()
    assert kinds(messages) == ["RequestStarted", "RequestSent", "ResponseHead", "ExchangeEnding"]
    assert (only(messages, RequestSent).body_bytes, only(messages, ExchangeEnding).ending) == (0, Ending.COMPLETE)


def test_other_paths_are_captured_only_with_an_event_stream(
    way: tuple[Any, Kind], tmp_path: Path, recorder: RawRecorder
) -> None:
    plain = b"HTTP/1.1 200 OK\r\nContent-Type: text/html\r\nContent-Length: 2\r\n\r\nok"
    both_ways(way, tmp_path, lambda asker: asker.ask(asker.url + "/v1/embeddings"), answering(plain))
    both_ways(way, tmp_path, lambda asker: asker.ask(asker.url + "/v1/mystery?key=k"), answering(STREAM))
    messages = recorder.ended()
    assert kinds(messages) == ["RequestStarted", "RequestSent", "ResponseHead", "ResponseRead", "ExchangeEnding"]
    opened, sent = only(messages, RequestStarted), only(messages, RequestSent)
    assert (opened.target, arrived(messages)) == ("/v1/mystery?key=k", ANSWER)
    assert (sent.body_bytes, sent.whole) == (len(BODY), False)
    assert opened.at_ns is not None and sent.at_ns is not None and opened.at_ns < sent.at_ns


def test_facts_of_the_request(way: tuple[Any, Kind], tmp_path: Path, recorder: RawRecorder) -> None:
    headers = {"Authorization": "Bearer k", "X-Tenant": "blue", "Cookie": "c", "X-Stainless-Retry-Count": "1"}
    headers["X-Agent"] = "planner"
    with RawUpstream(answering(STREAM)) as upstream:
        asker = Asker(*way, tmp_path, upstream="prod", tenant_header="x-tenant", attributes={"agent": "X-Agent"})
        asker.ask(f"{upstream.url}/base/v1/models/m%2F1:streamGenerateContent?alt=sse&key=k", headers=headers)
    opened = only(recorder.ended(), RequestStarted)
    assert (opened.upstream, opened.target) == ("prod", "/base/v1/models/m%2F1:streamGenerateContent?alt=sse&key=k")
    kept = {("authorization", "Bearer k"), ("x-tenant", "blue"), ("x-stainless-retry-count", "1")}
    assert set(opened.headers) == kept
    assert opened.attributes == [("agent", "planner")]


def test_a_redirect_is_a_separate_exchange(way: tuple[Any, Kind], tmp_path: Path, recorder: RawRecorder) -> None:
    library, kind = way
    moved = b"HTTP/1.1 307 Moved\r\nLocation: %b\r\nContent-Length: 0\r\n\r\n"
    with (
        RawUpstream(answering(STREAM)) as second,
        RawUpstream(answering(moved % f"{second.url}/v1/completions".encode())) as first,
    ):
        transport = Asker(library, kind, tmp_path).transport()
        given = {"url": first.url + CHAT, "content": BODY, "follow_redirects": True}
        if kind == "sync":
            with library.Client(transport=transport) as client:
                response = client.post(**given)
        else:

            async def ask() -> Any:
                async with library.AsyncClient(transport=transport) as client:
                    return await client.post(**given)

            response = asyncio.run(ask())
    assert (response.content, len(response.history)) == (ANSWER, 1)
    messages = recorder.ended(2)
    assert [(message.target) for message in messages if isinstance(message, RequestStarted)] == [
        CHAT,
        "/v1/completions",
    ]
    assert [message.status for message in messages if isinstance(message, ResponseHead)] == [307, 200]
    assert [message.data for message in messages if isinstance(message, RequestBody)] == [BODY, BODY]


def test_a_response_that_is_in_memory(way: tuple[Any, Kind], tmp_path: Path, recorder: RawRecorder) -> None:
    library, _ = way
    seen: list[Any] = []

    def handle(request: Any) -> Any:
        seen.append((request.content, request.stream))
        return library.Response(200, headers={"content-type": "text/event-stream"}, content=ANSWER, extensions={"a": 1})

    result = Asker(*way, tmp_path).ask("http://mock" + CHAT, inner=library.MockTransport(handle))
    assert result == Asker(*way, None).ask("http://mock" + CHAT, inner=library.MockTransport(handle))
    assert [content for content, _ in seen] == [BODY, BODY]
    messages = recorder.ended()
    assert (kinds(messages), arrived(messages), only(messages, RequestStarted).upstream) == (WHOLE, ANSWER, "mock")
    assert only(messages, RequestSent) == RequestSent(
        only(messages, RequestStarted).stream, None, None, len(BODY), True
    )


@pytest.mark.parametrize("library", LIBRARIES)
def test_request_and_response_are_the_inner_transports(library: Any, tmp_path: Path) -> None:
    made = library.Response(200, headers={"x": "y"}, stream=Pieces(library), extensions={"trailing": object()})
    during: list[Any] = []

    class Inner:
        def handle_request(self, request: Any) -> Any:
            during.append(request.stream)
            return made

    request = library.Request("POST", "http://u" + CHAT, content=BODY, extensions={"timeout": {}, "trace": None})
    own, extensions = request.stream, request.extensions
    response = TapTransport(Inner(), data_dir=tmp_path).handle_request(request)
    assert response is made
    assert request.stream is own is not during[0]
    assert isinstance(during[0], library.ByteStream)
    assert request.extensions is extensions
    assert isinstance(response.stream, library.SyncByteStream)
    assert b"".join(response.stream) == b"ab"


def Pieces(library: Any) -> Any:  # noqa: N802 - a class of either library
    class Some(library.SyncByteStream):
        def __iter__(self) -> Iterator[bytes]:
            yield b"a"
            yield b"b"

    return Some()


@pytest.mark.parametrize("library", LIBRARIES)
def test_many_threads_and_one_transport(library: Any, tmp_path: Path, recorder: RawRecorder) -> None:
    bodies: list[bytes] = []
    with (
        RawUpstream(answering(*[STREAM] * 80)) as upstream,
        library.Client(transport=TapTransport(data_dir=tmp_path), timeout=PATIENCE_S) as client,
    ):

        def ask() -> None:
            for _ in range(10):
                bodies.append(client.post(upstream.url + CHAT, content=BODY).content)

        running = [threading.Thread(target=ask) for _ in range(8)]
        for thread in running:
            thread.start()
        for thread in running:
            thread.join()
    assert bodies == [ANSWER] * 80
    messages = recorder.ended(80)
    for stream in {message.stream for message in messages}:
        mine = [message for message in messages if message.stream == stream]
        assert (kinds(mine), arrived(mine)) == (WHOLE, ANSWER)
    assert read_balance(tmp_path / "counters").seen == sum(isinstance(message, ResponseRead) for message in messages)


def test_the_inner_transport_is_entered_and_closed(way: tuple[Any, Kind], tmp_path: Path) -> None:
    library, kind = way
    calls: list[str] = []
    base = library.HTTPTransport if kind == "sync" else library.AsyncHTTPTransport

    class Inner(base):  # type: ignore[misc, valid-type]
        def __enter__(self) -> Any:
            calls.append("enter")
            return super().__enter__()

        def __exit__(self, *error: Any) -> None:
            calls.append("exit")
            super().__exit__(*error)

        async def __aenter__(self) -> Any:
            calls.append("enter")
            return await super().__aenter__()

        async def __aexit__(self, *error: Any) -> None:
            calls.append("exit")
            await super().__aexit__(*error)

        def close(self) -> None:
            calls.append("close")
            super().close()

        async def aclose(self) -> None:
            calls.append("close")
            await super().aclose()

    with RawUpstream(answering(STREAM)) as upstream:
        assert Asker(*way, tmp_path).ask(upstream.url + CHAT, inner=Inner()).body == ANSWER
        assert calls == ["enter", "exit"]
        transport = Asker(*way, tmp_path).transport(Inner())
        if kind == "sync":
            transport.close()
        else:
            asyncio.run(transport.aclose())
        assert calls[2:] == ["close"]
    unused = Asker(*way, tmp_path).transport()  # no inner transport was created
    if kind == "sync":
        unused.close()
    else:
        asyncio.run(unused.aclose())


def test_both_libraries_in_one_process(tmp_path: Path, recorder: RawRecorder) -> None:
    reported: list[list[type[Message]]] = []
    for library, kind in WAYS:
        with RawUpstream(answering(STREAM)) as upstream:
            Asker(library, kind, tmp_path).ask(upstream.url + CHAT)  # type: ignore[arg-type]
        messages = recorder.ended(len(reported) + 1)
        reported.append([type(message) for message in messages if message.stream == messages[-1].stream])
    without_reads = [[kind for kind in one if kind is not ResponseRead] for one in reported]
    assert without_reads == [[RequestStarted, RequestBody, RequestSent, ResponseHead, ExchangeEnding]] * 4
