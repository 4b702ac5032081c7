"""One exchange: the client gets all of the upstream's bytes, and sees each break as it happened."""

import contextlib
import socket
import threading
import time
from pathlib import Path

import pytest

from streamgauge.core.capture.segments import Ending, TransportFault
from streamgauge.recorder.protocol import ExchangeEnding, RequestSent, RequestStarted
from streamgauge.spool.read_counters import Refusal, read_clients, read_heads_passed_on, read_refusals
from tests.running import wait_for
from tests.taps.proxy.rig import (
    EVENTS,
    PATIENCE_S,
    RawRecorder,
    RunningRelay,
    answering,
    arrived,
    chunked,
    exchange_rig,
    kinds,
    only,
    receive,
    receive_all,
    receive_head,
    receive_request,
    receive_until_reset,
    settings_for,
)

GET = b"GET /v1/models HTTP/1.1\r\nHost: client\r\n\r\n"
STREAM = b"POST /v1/chat/completions HTTP/1.1\r\nHost: client\r\nContent-Length: 2\r\n\r\n{}"
SSE_HEAD = b"HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\nX-odd:  kept \r\n"
CHUNKED = SSE_HEAD + b"Transfer-Encoding: chunked\r\n\r\n" + chunked(*EVENTS)
# How an early end is reported, by how the upstream makes it.
AMISS = {"fin": TransportFault.CLOSED, "reset": TransportFault.RESET}
LENGTH = SSE_HEAD + b"Content-Length: %d\r\n\r\n" % len(b"".join(EVENTS)) + b"".join(EVENTS)

both_loops = pytest.mark.parametrize("uv", [True, False], ids=["uvloop", "asyncio"])


def end_of(recorder: RawRecorder) -> tuple[Ending, TransportFault | None]:
    """How the recorder saw the exchange end."""
    ended = only(recorder.ended(), ExchangeEnding)
    return ended.ending, ended.fault


def received(relay: RunningRelay) -> tuple[bytes, bool]:
    """What a client gets of a stream that breaks, and whether its connection was reset."""
    with relay.connect() as client:
        client.sendall(STREAM)
        return receive_until_reset(client)


@both_loops
@pytest.mark.parametrize("answer", [CHUNKED, LENGTH], ids=["chunked", "length"])
def test_bytes_are_the_upstreams_and_both_connections_are_kept(tmp_path: Path, answer: bytes, uv: bool) -> None:
    with exchange_rig(tmp_path, answering(answer, answer, answer), uv=uv) as (relay, upstream, _):
        with relay.connect() as client:
            for _ in range(3):
                client.sendall(GET)
                assert receive(client, len(answer)) == answer
        assert upstream.connections == 1


def test_the_time_that_the_relay_adds_to_a_head_is_counted_once_a_response(tmp_path: Path) -> None:
    """The head comes in two reads, after an interim one; the time counts from the read that completes it."""

    def handler(one: socket.socket) -> None:
        while receive_request(one):
            one.sendall(b"HTTP/1.1 103 Early Hints\r\n\r\n" + SSE_HEAD)
            time.sleep(0.2)
            one.sendall(LENGTH[len(SSE_HEAD) :])

    with exchange_rig(tmp_path, handler) as (relay, _, _), relay.connect() as client:
        for _ in range(2):
            client.sendall(STREAM)
            assert receive(client, len(LENGTH)) == LENGTH
        wait_for(lambda: read_heads_passed_on(tmp_path / "counters")[0] == 2, "both heads to be counted")
        assert 0 < read_heads_passed_on(tmp_path / "counters")[1] < 200_000_000


@both_loops
def test_a_body_that_ends_with_the_connection_ends_the_clients(tmp_path: Path, uv: bool) -> None:
    answer = SSE_HEAD + b"\r\n" + b"".join(EVENTS)
    with exchange_rig(tmp_path, answering(answer, end="fin"), uv=uv) as (relay, _, recorder):
        with relay.connect() as client:
            client.sendall(STREAM)
            assert receive_all(client) == answer
        assert only(recorder.ended(), ExchangeEnding).ending is Ending.COMPLETE


def test_a_request_is_reported_before_its_response_arrives(tmp_path: Path) -> None:
    reported = threading.Event()

    def handler(one: socket.socket) -> None:
        for _ in range(2):
            receive_request(one)
            assert reported.wait(10)
            one.sendall(CHUNKED)

    with exchange_rig(tmp_path, handler) as (relay, _, recorder), relay.connect() as client:
        for number in (1, 2):
            reported.clear()
            client.sendall(STREAM)
            recorder.wait(lambda some, number=number: sum(isinstance(one, RequestSent) for one in some) == number)  # type: ignore[misc]
            reported.set()
            assert receive(client, len(CHUNKED)) == CHUNKED


def test_every_split_of_the_upstreams_bytes(tmp_path: Path) -> None:
    final = b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n" + chunked(b"ab\r\n\r\nc", b"d")
    answer = b"HTTP/1.1 103 Early\r\n\r\n" + final
    places = [(cut,) for cut in range(1, len(answer))] + [tuple(range(1, len(answer)))]

    def handler(one: socket.socket) -> None:
        for cuts in places:
            assert receive_head(one)
            for start, end in zip((0, *cuts), (*cuts, len(answer)), strict=True):
                one.sendall(answer[start:end])
                time.sleep(0.001)

    with exchange_rig(tmp_path, handler) as (relay, upstream, _), relay.connect() as client:
        for _ in places:
            client.sendall(GET)
            assert receive(client, len(final)) == final
        assert upstream.connections == 1


def test_each_read_is_passed_on_at_once(tmp_path: Path) -> None:
    received_all = threading.Event()

    def handler(one: socket.socket) -> None:
        receive_head(one)
        receive(one, 2)
        one.sendall(SSE_HEAD + b"\r\n")
        for event in EVENTS:
            received_all.clear()
            one.sendall(event)
            assert received_all.wait(10)
        one.close()

    with exchange_rig(tmp_path, handler) as (relay, _, _), relay.connect() as client:
        client.sendall(STREAM)
        assert receive_head(client) == SSE_HEAD + b"\r\n"
        for event in EVENTS:  # the next chunk is sent only when this one has arrived
            assert receive(client, len(event)) == event
            received_all.set()
        assert receive_all(client) == b""


@pytest.mark.parametrize(
    ("method", "answer"),
    [
        (b"HEAD", b"HTTP/1.1 200 OK\r\nContent-Length: 1000\r\n\r\n"),
        (b"HEAD", b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n"),
        (b"GET", b"HTTP/1.1 204 No Content\r\n\r\n"),
        (b"GET", b"HTTP/1.1 304 Not Modified\r\nContent-Length: 7\r\n\r\n"),
        (b"GET", b"HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n"),
        (b"GET", b"HTTP/1.1 200\nContent-length:3\n\nabc"),
    ],
)
def test_responses_without_a_body_and_unusual_ones(tmp_path: Path, method: bytes, answer: bytes) -> None:
    ask = method + b" /x HTTP/1.1\r\nHost: a\r\n\r\n"
    with exchange_rig(tmp_path, answering(answer, answer)) as (relay, upstream, _), relay.connect() as client:
        for _ in range(2):
            client.sendall(ask)
            assert receive(client, len(answer)) == answer
        assert upstream.connections == 1


def test_an_upstream_that_closes_closes_the_client(tmp_path: Path) -> None:
    answer = b"HTTP/1.1 200 OK\r\nConnection: close\r\nContent-Length: 2\r\n\r\nhi"
    with exchange_rig(tmp_path, answering(answer)) as (relay, upstream, _):
        for number in (1, 2):
            with relay.connect() as client:
                client.sendall(GET)
                assert receive_all(client) == answer
            assert upstream.connections == number


def test_bytes_after_a_response_reach_no_client(tmp_path: Path) -> None:
    extra = b"HTTP/1.1 200 OK\r\nContent-Length: 6\r\n\r\npoison"
    for answer in (CHUNKED, LENGTH):
        with exchange_rig(tmp_path, answering(answer + extra)) as (relay, upstream, _), relay.connect() as client:
            for number in (1, 2):
                client.sendall(GET)
                assert receive(client, len(answer)) == answer
                assert upstream.connections == number


def test_bytes_of_an_idle_upstream_reach_no_client(tmp_path: Path) -> None:
    def handler(one: socket.socket) -> None:
        receive_head(one)
        one.sendall(LENGTH)
        time.sleep(0.2)
        one.sendall(b"HTTP/1.1 200 OK\r\nContent-Length: 6\r\n\r\npoison")

    with exchange_rig(tmp_path, handler) as (relay, upstream, _), relay.connect() as client:
        client.sendall(GET)
        assert receive(client, len(LENGTH)) == LENGTH
        time.sleep(0.4)
        client.sendall(GET)
        assert receive(client, len(LENGTH)) == LENGTH
        assert upstream.connections == 2


@both_loops
@pytest.mark.parametrize(
    "body", [CHUNKED[:-20], LENGTH[:-3], SSE_HEAD + b"\r\ndata: 1\n\n"], ids=["chunked", "length", "eof"]
)
def test_a_reset_is_passed_on_as_a_reset_after_the_bytes_before_it(tmp_path: Path, body: bytes, uv: bool) -> None:
    with exchange_rig(tmp_path, answering(body, end="reset"), uv=uv) as (relay, _, recorder):
        with relay.connect() as client:
            client.sendall(STREAM)
            time.sleep(0.3)  # the reset is here before the first byte is read
            assert receive_until_reset(client) == (body, True)
        messages = recorder.ended()
        ended = only(messages, ExchangeEnding)
        assert (ended.ending, ended.fault) == (Ending.RESET, TransportFault.RESET)
        assert arrived(messages) == body


@both_loops
@pytest.mark.parametrize("body", [CHUNKED[:-20], LENGTH[:-3]], ids=["chunked", "length"])
def test_an_early_end_is_passed_on_as_an_early_end(tmp_path: Path, body: bytes, uv: bool) -> None:
    with exchange_rig(tmp_path, answering(body, end="fin"), uv=uv) as (relay, _, recorder):
        assert received(relay) == (body, False)
        assert end_of(recorder) == (Ending.RESET, TransportFault.CLOSED)


def test_a_large_body_arrives_whole_before_the_reset(tmp_path: Path) -> None:
    body = b"HTTP/1.1 200 OK\r\nContent-Length: 90000000\r\n\r\n" + bytes(3_000_000)
    with exchange_rig(tmp_path, answering(body, end="reset")) as (relay, _, _), relay.connect() as client:
        client.sendall(GET)
        time.sleep(0.2)
        data, was_reset = receive_until_reset(client)
        # bytes that the kernel of the upstream's host still held when it reset are lost
        assert body.startswith(data) and was_reset


@pytest.mark.parametrize("end", ["fin", "reset"])
def test_a_missing_head_is_a_502_with_advice(tmp_path: Path, end: str) -> None:
    with exchange_rig(tmp_path, answering(b"", end=end)) as (relay, _, recorder):
        with relay.connect() as client:
            client.sendall(STREAM)
            head, _, body = receive_all(client).partition(b"\r\n\r\n")
            assert head.startswith(b"HTTP/1.1 502 Bad Gateway\r\n")
            assert b'"code":"upstream_unreachable"' in body and b"Try again" in body
        messages = recorder.ended()
        assert kinds(messages) == ["RequestStarted", "RequestBody", "RequestSent", "ExchangeEnding"]
        ended = only(messages, ExchangeEnding)
        assert (ended.ending, ended.fault) == (Ending.RESET, AMISS[end])


@pytest.mark.parametrize(
    ("answer", "status"),
    [
        (b"SSH-2.0-OpenSSH_9.6\r\n", b"502"),
        (b"HTTP/1.1 101 Switching Protocols\r\nUpgrade: h2c\r\n\r\n", b"502"),
        (b"HTTP/2.0 200 OK\r\n\r\n", b"502"),
        (b"HTTP/1.1 200 OK\r\nContent-Length: 3\r\nContent-Length: 4\r\n\r\nabcd", b"502"),
    ],
)
def test_a_malformed_response_is_a_502(tmp_path: Path, answer: bytes, status: bytes) -> None:
    with exchange_rig(tmp_path, answering(answer)) as (relay, _, recorder):
        with relay.connect() as client:
            client.sendall(STREAM)
            received = receive_all(client)
            assert received.startswith(b"HTTP/1.1 " + status) and b"upstream_invalid" in received
        assert end_of(recorder) == (Ending.RESET, TransportFault.NOT_HTTP)


@both_loops
@pytest.mark.parametrize("pump", [True, False], ids=["pump", "no pump"])
@pytest.mark.parametrize(
    "doubtful", [b"XX\r\nnothing", b"\n5\nabcde\n0\n\n", b"\r\n0\r\nContent-Length: 0\r\n\r\n", b"\r\n0;\x01\r\n\r\n"]
)
def test_chunks_end_with_a_reset_before_the_first_doubtful_line(
    tmp_path: Path, doubtful: bytes, pump: bool, uv: bool
) -> None:
    """The client gets what came before that line, and the capture holds just that."""
    head = SSE_HEAD + b"Transfer-Encoding: chunked\r\n\r\n"
    pieces = [head, b"1\r\na\r\n", b"1\r\nb\r\n", b"5\r\nabcde\r\n", b"5\r\nabcde" + doubtful]
    arrived_there = threading.Semaphore(1)  # each piece is a read of the relay's own

    def handler(one: socket.socket) -> None:
        receive_request(one)
        for piece in pieces:
            assert arrived_there.acquire(timeout=PATIENCE_S)
            one.sendall(piece)
        receive_all(one)

    with exchange_rig(tmp_path, handler, pump=pump, uv=uv) as (relay, _, recorder):
        with relay.connect() as client:
            client.sendall(STREAM)
            sure = pieces[-1].removesuffix(doubtful) + (b"\r\n" if doubtful.startswith(b"\r\n") else b"")
            if b"Content-Length" in doubtful:
                sure += b"0\r\n"
            for piece in pieces[:-1]:
                assert receive(client, len(piece)) == piece
                arrived_there.release()
            assert receive_until_reset(client) == (sure, True)
            sure = b"".join(pieces[:-1]) + sure
        messages = recorder.ended()
        assert arrived(messages) == sure
        ended = only(messages, ExchangeEnding)
        assert (ended.ending, ended.fault) == (Ending.RESET, TransportFault.NOT_HTTP)
        assert read_refusals(tmp_path / "counters")[Refusal.UPSTREAM_INVALID] == 1


def test_doubtful_chunks_in_the_read_of_the_head_are_a_502(tmp_path: Path) -> None:
    answer = SSE_HEAD + b"Transfer-Encoding: chunked\r\n\r\n2\nok\n0\n\n"
    with exchange_rig(tmp_path, answering(answer)) as (relay, _, recorder):
        with relay.connect() as client:
            client.sendall(STREAM)
            received = receive_all(client)
            assert received.startswith(b"HTTP/1.1 502 ") and b"(bad_chunks)" in received
        assert end_of(recorder) == (Ending.RESET, TransportFault.NOT_HTTP)


@pytest.mark.parametrize("pump", [True, False], ids=["pump", "no pump"])
def test_a_request_during_a_body_without_an_end_resets_the_client(tmp_path: Path, pump: bool) -> None:
    """The client may have seen an end, and would take later bytes for its next response."""
    more = threading.Event()

    def handler(one: socket.socket) -> None:
        receive_request(one)
        one.sendall(SSE_HEAD + b"\r\n" + EVENTS[0])
        for _ in range(4):
            time.sleep(0.03)
            one.sendall(EVENTS[1])
        more.wait(PATIENCE_S)
        with contextlib.suppress(OSError):
            one.sendall(b"HTTP/1.1 200 OK\r\nContent-Length: 6\r\n\r\npoison")

    sent = SSE_HEAD + b"\r\n" + EVENTS[0] + EVENTS[1] * 4
    with exchange_rig(tmp_path, handler, pump=pump) as (relay, upstream, recorder):
        with relay.connect() as client:
            client.sendall(STREAM)
            assert receive(client, len(sent)) == sent
            client.sendall(STREAM[:9])
            assert receive_until_reset(client) == (b"", True)
            more.set()
        assert end_of(recorder)[0] is Ending.CLIENT
        assert upstream.connections == 1


@pytest.mark.parametrize("end", ["fin", "reset"])
def test_an_incomplete_head_is_not_passed_on(tmp_path: Path, end: str) -> None:
    """It is held back, so that the relay's own response never follows a part of it."""
    with exchange_rig(tmp_path, answering(b"HTTP/1.1 200 OK\r\nContent-Ty", end=end)) as (relay, _, recorder):
        with relay.connect() as client:
            client.sendall(STREAM)
            assert receive_all(client).startswith(b"HTTP/1.1 502 ")
        assert end_of(recorder) == (Ending.RESET, AMISS[end])


def test_a_head_in_pieces_arrives_complete_and_unchanged(tmp_path: Path) -> None:
    pieces = [b"HTTP/1.1 100 Continue\r\n\r\nHTT", b"P/1.1 200 OK\r\nContent-", b"Length: 2\r\n\r\nh", b"i"]

    def handler(one: socket.socket) -> None:
        receive_request(one)
        for piece in pieces:
            one.sendall(piece)
            time.sleep(0.05)

    with exchange_rig(tmp_path, handler) as (relay, _, _), relay.connect() as client:
        client.sendall(GET)
        whole = b"".join(pieces).removeprefix(b"HTTP/1.1 100 Continue\r\n\r\n")
        assert receive(client, len(whole)) == whole


@pytest.mark.parametrize("status", [b"100 Continue", b"102 Processing", b"103 Early Hints", b"199 X"])
@pytest.mark.parametrize("cut", [7, len(LENGTH)], ids=["with a part of the final head", "with the final head"])
def test_no_interim_head_of_an_upstream_reaches_the_client(tmp_path: Path, status: bytes, cut: int) -> None:
    interim = b"HTTP/1.1 " + status + b"\r\nContent-Length: 0\r\n\r\n"

    def handler(one: socket.socket) -> None:
        receive_request(one)
        for piece in (interim[:9], interim[9:], interim, b"\r\n", interim + LENGTH[:cut], LENGTH[cut:]):
            one.sendall(piece)
            time.sleep(0.02)

    with exchange_rig(tmp_path, handler) as (relay, _, recorder), relay.connect() as client:
        client.sendall(STREAM)
        assert receive(client, len(LENGTH)) == LENGTH
        assert arrived(recorder.ended()) == interim * 2 + b"\r\n" + interim + LENGTH


def test_an_expected_100_is_written_once_without_the_upstreams_fields(tmp_path: Path) -> None:
    interim = b"HTTP/1.1 100 Continue\r\nContent-Length: 0\r\n\r\n"

    def handler(one: socket.socket) -> None:
        head = receive_head(one)
        for _ in range(3):  # in one read, and in others
            one.sendall(interim * 2)
            time.sleep(0.05)
        assert receive(one, 3) == b"abc" and b"\r\nExpect: 100-continue\r\n" in head
        one.sendall(interim + LENGTH)

    with exchange_rig(tmp_path, handler) as (relay, _, _), relay.connect() as client:
        client.sendall(b"PUT /x HTTP/1.1\r\nHost: c\r\nExpect: 100-continue\r\nContent-Length: 3\r\n\r\n")
        expected = b"HTTP/1.1 100 Continue\r\n\r\n"
        assert receive(client, len(expected)) == expected
        client.sendall(b"abc")
        assert receive(client, len(LENGTH)) == LENGTH


def test_after_an_interim_response_a_502_is_a_complete_response(tmp_path: Path) -> None:
    interim = b"HTTP/1.1 103 Early Hints\r\nLink: </a>\r\n\r\n"
    with exchange_rig(tmp_path, answering(interim, end="fin")) as (relay, _, _), relay.connect() as client:
        client.sendall(GET)
        assert receive_all(client).startswith(b"HTTP/1.1 502 ")


@both_loops
@pytest.mark.parametrize("how", ["fin", "reset"])
def test_a_client_that_leaves_cancels_the_upstream(tmp_path: Path, how: str, uv: bool) -> None:
    gone = threading.Event()

    def handler(one: socket.socket) -> None:
        receive_head(one)
        receive(one, 2)
        one.sendall(SSE_HEAD + b"\r\n" + EVENTS[0])
        receive_until_reset(one)
        gone.set()

    with exchange_rig(tmp_path, handler, uv=uv) as (relay, _, recorder):
        client = relay.connect()
        client.sendall(STREAM)
        receive(client, len(SSE_HEAD) + 2 + len(EVENTS[0]))
        if how == "reset":
            client.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, b"\1\0\0\0\0\0\0\0")
        client.close()
        assert gone.wait(10)
        messages = recorder.ended()
        ended, opened = only(messages, ExchangeEnding), only(messages, RequestStarted)
        assert ended.ending is Ending.CLIENT and ended.unsent_bytes == 0
        assert opened.at_ns is not None and ended.client_gone_ns is not None and ended.at_ns is not None
        assert opened.at_ns < ended.client_gone_ns == ended.at_ns


def test_a_client_that_leaves_before_the_upstream_is_connected(tmp_path: Path) -> None:
    # a listener whose backlog is full completes no handshake: the connection stays pending
    with socket.socket() as listening:
        listening.bind(("127.0.0.1", 0))
        listening.listen(0)
        fillers = [socket.socket() for _ in range(4)]
        for one in fillers:
            one.setblocking(False)
            one.connect_ex(listening.getsockname())
        time.sleep(0.1)
        url = f"http://127.0.0.1:{listening.getsockname()[1]}"
        with RunningRelay(settings_for(tmp_path, url)) as relay:
            client = relay.connect()
            client.sendall(STREAM)
            wait_for(lambda: read_clients(tmp_path / "counters")[0] == 1, "client in the relay")
            client.close()
            wait_for(lambda: read_clients(tmp_path / "counters")[0] == 0, "end of the client's connection")
        for one in fillers:
            one.close()


def test_silence_before_a_head_is_a_504(tmp_path: Path) -> None:
    def handler(one: socket.socket) -> None:
        receive_until_reset(one)

    with exchange_rig(tmp_path, handler, upstream_idle_timeout=0.3) as (relay, _, recorder):
        with relay.connect() as client:
            client.sendall(STREAM)
            received = receive_all(client)
            assert received.startswith(b"HTTP/1.1 504 Gateway Timeout\r\n") and b"upstream_timeout" in received
        assert end_of(recorder) == (Ending.TIMEOUT, TransportFault.IDLE_TIMEOUT)


@pytest.mark.parametrize(("framed", "was_reset"), [(True, False), (False, True)])
def test_silence_within_a_body_never_looks_like_its_end(tmp_path: Path, framed: bool, was_reset: bool) -> None:
    body = CHUNKED[:-20] if framed else SSE_HEAD + b"\r\n" + EVENTS[0]
    with exchange_rig(tmp_path, answering(body), upstream_idle_timeout=0.3) as (relay, _, recorder):
        assert received(relay) == (body, was_reset)
        assert end_of(recorder) == (Ending.TIMEOUT, TransportFault.IDLE_TIMEOUT)


def test_an_upstream_that_keeps_sending_does_not_time_out(tmp_path: Path) -> None:
    def handler(one: socket.socket) -> None:
        receive_head(one)
        receive(one, 2)
        one.sendall(SSE_HEAD + b"\r\n")
        for event in EVENTS[:8]:
            time.sleep(0.2)
            one.sendall(event)
        one.close()

    with exchange_rig(tmp_path, handler, upstream_idle_timeout=1.0) as (relay, _, _), relay.connect() as client:
        client.sendall(STREAM)
        assert receive_all(client) == SSE_HEAD + b"\r\n" + b"".join(EVENTS[:8])


def test_the_response_may_start_before_the_request_is_complete(tmp_path: Path) -> None:
    answer = b"HTTP/1.1 413 Content Too Large\r\nContent-Length: 2\r\n\r\nno"

    def handler(one: socket.socket) -> None:
        receive_head(one)
        one.sendall(answer)
        receive_until_reset(one)

    with exchange_rig(tmp_path, handler) as (relay, _, recorder):
        with relay.connect() as client:
            client.sendall(STREAM.replace(b"Length: 2", b"Length: 90000000") + bytes(100_000))
            time.sleep(0.2)
            client.sendall(bytes(3_000_000))
            assert receive_all(client) == answer  # and no reset that would discard it
        messages = recorder.ended()
        assert only(messages, ExchangeEnding).ending is Ending.COMPLETE
        assert not [message for message in messages if isinstance(message, RequestSent)]


@both_loops
@pytest.mark.parametrize("reused", [False, True])
def test_bytes_of_one_read_are_sent_in_one_piece(tmp_path: Path, reused: bool, uv: bool) -> None:
    pieces: list[bytes] = []

    def handler(one: socket.socket) -> None:
        while piece := one.recv(65536):
            pieces.append(piece)
            one.sendall(LENGTH)

    with exchange_rig(tmp_path, handler, uv=uv) as (relay, upstream, _), relay.connect() as client:
        for _ in range(1 + reused):
            client.sendall(STREAM)
            assert receive(client, len(LENGTH)) == LENGTH
        assert upstream.connections == 1
    assert all(piece.endswith(b"\r\n\r\n{}") for piece in pieces) and len(pieces) == 1 + reused
