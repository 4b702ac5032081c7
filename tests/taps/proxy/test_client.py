"""A client's connection: order, refusals, deadlines, and bodies in both directions with bounded memory."""

import asyncio
import contextlib
import hashlib
import socket
import threading
import time
from pathlib import Path
from unittest.mock import Mock

import pytest

from streamgauge.core.capture.segments import Ending
from streamgauge.recorder.protocol import ExchangeEnding
from streamgauge.spool.read_counters import read_clients, read_refusals
from streamgauge.taps.proxy.limits import MAX_CLIENT_BYTES, MAX_PIPELINED_BYTES
from streamgauge.taps.proxy.upstream import UpstreamPool
from tests.running import wait_for
from tests.taps.proxy.rig import (
    PATIENCE_S,
    RawUpstream,
    RunningRelay,
    answering,
    chunked,
    exchange_rig,
    only,
    receive,
    receive_all,
    receive_head,
    receive_request,
    receive_until_reset,
    settings_for,
    waiting_for_clients,
)

CHAT = b"POST /v1/chat/completions HTTP/1.1\r\nHost: c\r\nContent-Length: 2\r\n\r\n{}"
both_loops = pytest.mark.parametrize("uv", [True, False], ids=["uvloop", "asyncio"])
BIG = 20_000_000
# The most that the kernel holds of a connection (bytes): its buffers grow while one side waits.
KERNEL_BYTES = sum(int(Path(f"/proc/sys/net/ipv4/{name}").read_text().split()[2]) for name in ("tcp_rmem", "tcp_wmem"))


def get(path: bytes, *fields: bytes) -> bytes:
    return b"\r\n".join([b"GET " + path + b" HTTP/1.1", b"Host: c", *fields, b"", b""])


def waiting_for_upstreams(relay: RunningRelay) -> int:
    """Bytes of requests that the relay buffers."""
    upstreams = [client.exchange.upstream for client in relay.relay.clients if client.exchange is not None]
    return sum(upstream.transport.get_write_buffer_size() for upstream in upstreams if upstream is not None)


def ok(body: bytes) -> bytes:
    return b"HTTP/1.1 200 OK\r\nContent-Length: %d\r\n\r\n%b" % (len(body), body)


def echoing_path(one: socket.socket) -> None:
    """Answers each request with its path, after a pause, so that responses in the wrong order would be noticed."""
    while request := receive_request(one):
        time.sleep(0.02)
        one.sendall(ok(request.split(b" ")[1]))


@both_loops
def test_pipelined_requests_are_answered_in_order(tmp_path: Path, uv: bool) -> None:
    paths = [b"/%d" % number for number in range(20)]
    post = b"POST /post HTTP/1.1\r\nHost: c\r\nContent-Length: 3\r\n\r\nabc"
    requests = b"".join(get(path) for path in paths) + post + get(b"/last")
    want = b"".join(ok(path) for path in [*paths, b"/post", b"/last"])
    with exchange_rig(tmp_path, echoing_path, uv=uv) as (relay, upstream, _):
        for pieces in ([requests], [requests[:100], requests[100:777], requests[777:]]):
            with relay.connect() as client:
                for piece in pieces:
                    client.sendall(piece)
                    time.sleep(0.03)
                assert receive(client, len(want)) == want
        assert upstream.connections == 2


@pytest.mark.slow
def test_h5_too_many_pipelined_requests_are_refused_after_the_running_response(tmp_path: Path) -> None:
    """What fits into the limit is answered; the running stream is not affected; the relay buffers no more than the
    limit.
    """
    go = threading.Event()

    def slow(one: socket.socket) -> None:
        receive_head(one)
        one.sendall(b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\no")
        assert go.wait(PATIENCE_S)
        one.sendall(b"k")
        while data := one.recv(65536):
            one.sendall(ok(b"/x") * data.count(b"\r\n\r\n"))

    flood = get(b"/x") * (4_000_000 // len(get(b"/x")))
    with exchange_rig(tmp_path, slow) as (relay, _, _), relay.connect() as client:
        client.sendall(CHAT)
        receive_head(client)
        client.sendall(flood)
        full = MAX_CLIENT_BYTES - MAX_PIPELINED_BYTES
        wait_for(lambda: relay.call(lambda: relay.relay.client_bytes.left) <= full, "as many bytes as are held at most")
        assert relay.call(lambda: relay.relay.client_bytes.left) == full
        go.set()
        assert receive(client, 2) == b"ok"
        answers = receive_all(client)
        answered = answers.count(ok(b"/x"))
        assert MAX_PIPELINED_BYTES // len(get(b"/x")) - 100 <= answered <= MAX_PIPELINED_BYTES // len(get(b"/x"))
        assert answers[answered * len(ok(b"/x")) :].startswith(b"HTTP/1.1 431 ")
        assert b'"code":"pipelined_too_much"' in answers
        wait_for(lambda: relay.relay.client_bytes.left == MAX_CLIENT_BYTES, "an empty budget")


@pytest.mark.parametrize("size", [len(CHAT), 1_000_000])
def test_h5_connections_of_clients_that_pipeline_and_leave_are_released(tmp_path: Path, size: int) -> None:
    """Their requests wait for a silent upstream. The end of their connections comes after the pipelined bytes."""
    left = threading.Semaphore(0)

    def silent(one: socket.socket) -> None:
        receive_head(one)
        receive_until_reset(one)
        left.release()

    with exchange_rig(tmp_path, silent) as (relay, upstream, _):
        for _ in range(20):
            client = relay.connect()
            client.sendall(CHAT + (get(b"/x") * (size // len(get(b"/x")))))
            client.close()
        for _ in range(20):
            assert left.acquire(timeout=PATIENCE_S)
        assert upstream.connections == 20
        wait_for(lambda: relay.relay.client_bytes.left == MAX_CLIENT_BYTES, "an empty budget")


def test_h5_all_clients_together_have_one_memory_limit(tmp_path: Path) -> None:
    """Unfinished heads and pipelined requests: the client that would exceed the limit is refused, the others are served."""
    with exchange_rig(tmp_path, echoing_path) as (relay, _, _), contextlib.ExitStack() as stack:
        relay.call(lambda: setattr(relay.relay.client_bytes, "left", 100_000))
        clients = [stack.enter_context(relay.connect()) for _ in range(3)]
        for left, client in zip((60_000, 20_000, 20_000), clients, strict=True):
            client.sendall(b"GET /x HTTP/1.1\r\nHost: c\r\nA: " + b"a" * 40_000)
            wait_for(lambda left=left: relay.call(lambda: relay.relay.client_bytes.left) <= left, "the bytes of a head")
        assert receive_all(clients[2]).startswith(b"HTTP/1.1 503 ")
        for client in clients[:2]:
            client.sendall(b"\r\n\r\n")
            assert receive(client, len(ok(b"/x"))) == ok(b"/x")
        assert relay.call(lambda: relay.relay.client_bytes.left) == 100_000


def test_a_client_that_leaves_while_the_relay_does_not_read_from_it(tmp_path: Path) -> None:
    """Its second request waits, so nothing is read; the response to the first has begun, and its upstream is silent."""
    gone = threading.Event()

    def silent(one: socket.socket) -> None:
        receive_head(one)
        one.sendall(b"HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\nTransfer-Encoding: chunked\r\n\r\n")
        receive_until_reset(one)
        gone.set()

    with exchange_rig(tmp_path, silent) as (relay, _, recorder):
        client = relay.connect()
        client.sendall(CHAT + CHAT)
        receive_head(client)
        client.close()
        assert gone.wait(PATIENCE_S)
        ended = only(recorder.ended(), ExchangeEnding)
    assert ended.ending is Ending.CLIENT
    assert ended.client_gone_ns is not None


def test_unsent_bytes_of_a_lost_connection_are_not_counted(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Checked after the connection of a blocked client is lost and before the relay is notified of it: no bytes wait
    there.
    """
    monkeypatch.setattr("streamgauge.taps.proxy.client.TICK_S", 0.02)
    begun = threading.Event()

    def flooding(one: socket.socket) -> None:
        receive_head(one)
        one.sendall(b"HTTP/1.1 200 OK\r\nContent-Length: %d\r\n\r\n" % BIG)
        begun.set()
        with contextlib.suppress(OSError):
            one.sendall(bytes(BIG))

    with exchange_rig(tmp_path, flooding) as (relay, _, recorder):
        client = relay.connect()
        client.sendall(CHAT)
        assert begun.wait(PATIENCE_S)

        def blocked() -> bool:
            return any(client.blocked_ns is not None for client in relay.relay.clients)

        deadline = time.monotonic() + PATIENCE_S
        while not relay.call(blocked) and time.monotonic() < deadline:
            time.sleep(0.01)

        checked = Mock(return_value=0)

        def lose() -> tuple[int, asyncio.Transport]:
            (one,) = relay.relay.clients
            waits = one.transport.get_write_buffer_size()
            one.transport = Mock(wraps=one.transport, get_write_buffer_size=checked)
            return waits, one.transport

        with client:
            waits, lost = relay.call(lose)
            wait_for(lambda: checked.called, "a check of the blocked client")
            relay.call(lost.abort)
            ended = only(recorder.ended(), ExchangeEnding)
    assert ended.unsent_bytes == waits > 0


def test_a_malformed_request_after_a_valid_one_is_refused_in_order(tmp_path: Path) -> None:
    with exchange_rig(tmp_path, echoing_path) as (relay, _, _), relay.connect() as client:
        client.sendall(get(b"/1") + get(b"/2") + b"BREW / HTTP/1.1\r\n\r\n" + get(b"/3"))
        received = receive_all(client)
        assert received.startswith(ok(b"/1") + ok(b"/2") + b"HTTP/1.1 400 Bad Request\r\n")
        assert b"/3" not in received


ALIVE = b"HTTP/1.1 200 OK\r\nConnection: keep-alive\r\nContent-Length: 2\r\n\r\nhi"


@pytest.mark.parametrize("answer", [ok(b"hi"), ALIVE], ids=["silent", "keep-alive"])
@pytest.mark.parametrize(
    ("request_bytes", "upstream_head_has", "keeps"),
    [
        (b"GET /x HTTP/1.1\r\nHost: c\r\nConnection: close\r\n\r\n", b"GET /x HTTP/1.1\r\nHost: 127.0.0.1:", False),
        (b"GET /x HTTP/1.0\r\n\r\n", b"GET /x HTTP/1.0\r\nHost: 127.0.0.1:", False),
        (b"GET /x HTTP/1.0\r\nConnection: keep-alive\r\n\r\n", b"\r\nConnection: keep-alive\r\n", None),
        (b"GET /x HTTP/1.1\r\nHost: c\r\n\r\n", b"GET /x HTTP/1.1\r\n", True),
    ],
)
def test_which_connections_may_be_used_for_another_request(
    tmp_path: Path, request_bytes: bytes, upstream_head_has: bytes, keeps: bool | None, answer: bytes
) -> None:
    """`keeps` None: as the upstream's head says."""
    heads: list[bytes] = []

    def handler(one: socket.socket) -> None:
        while head := receive_head(one):
            heads.append(head)
            one.sendall(answer)

    with exchange_rig(tmp_path, handler) as (relay, _, _), relay.connect() as client:
        client.sendall(request_bytes)
        assert receive(client, len(answer)) == answer
        assert upstream_head_has in heads[0]
        if keeps or (keeps is None and answer is ALIVE):
            client.sendall(get(b"/y"))
            assert receive(client, len(answer)) == answer
        else:
            assert receive_all(client) == b""


def http_1_0(*fields: bytes, body: bytes = b"hi") -> bytes:
    return b"\r\n".join((b"HTTP/1.0 200 OK", *fields, b"", body))


@pytest.mark.parametrize(
    ("answer", "minor", "keeps"),
    [
        (http_1_0(b"Content-Length: 2"), 1, True),
        (http_1_0(b"Content-Length: 2", b"Connection: keep-alive"), 1, True),
        (http_1_0(b"Content-Length: 2"), 0, False),
        (http_1_0(b"Content-Length: 2", b"Connection: keep-alive"), 0, True),
        (http_1_0(b"Content-Length: 2", b"Connection: close"), 1, False),
        (http_1_0(), 1, False),
        (http_1_0(b"Transfer-Encoding: chunked", body=chunked(b"hi")), 1, False),
    ],
    ids=["length", "keep-alive", "1.0 asks", "1.0 asks, keep-alive", "close", "no length", "chunks"],
)
def test_a_client_may_send_its_next_request_after_a_response_of_http_1_0(
    tmp_path: Path, answer: bytes, minor: int, keeps: bool
) -> None:
    """Java's HttpClient and wget do so although the upstream closes its connection. A POST must not be lost by that."""
    post = b"POST /x HTTP/1.%d\r\nHost: c\r\nConnection: keep-alive\r\nContent-Length: 2\r\n\r\n{}" % minor
    with exchange_rig(tmp_path, answering(answer, end="fin")) as (relay, upstream, _), relay.connect() as client:
        client.sendall(post)
        assert receive(client, len(answer)) == answer
        if keeps:
            time.sleep(0.05)  # the upstream has closed its connection
            client.sendall(post)
            assert receive(client, len(answer)) == answer
            assert upstream.connections == 2
        else:
            assert receive_all(client) == b""


@pytest.mark.parametrize(
    ("request_bytes", "status", "code"),
    [
        (b"GET /nobody/x HTTP/1.1\r\nHost: c\r\n\r\n", 404, b"unknown_upstream"),
        (b"GET http://u0/x HTTP/1.1\r\nHost: c\r\n\r\n", 400, b"target_refused"),
        (b"CONNECT u0:80 HTTP/1.1\r\nHost: c\r\n\r\n", 400, b"method_refused"),
        (
            b"POST /u0/x HTTP/1.1\r\nHost: c\r\nContent-Length: 1\r\nTransfer-Encoding: chunked\r\n\r\n",
            400,
            b"malformed_request",
        ),
        (b"POST /u0/x HTTP/1.1\r\nHost: c\r\nTransfer-Encoding: gzip, chunked\r\n\r\n", 400, b"ambiguous_framing"),
        (b"POST /u0/x HTTP/1.0\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n", 400, b"ambiguous_framing"),
        (b"GET /u0/x HTTP/1.1\r\nHost: c\r\nA: " + b"a" * 70_000 + b"\r\n\r\n", 431, b"headers_too_large"),
        (b"GET /u0/x HTTP/1.1\r\nHost: c\r\nHost: d\r\n\r\n", 400, b"malformed_request"),
    ],
)
def test_refusals_give_a_reason_and_reach_no_upstream(
    tmp_path: Path, request_bytes: bytes, status: int, code: bytes
) -> None:
    with RawUpstream(echoing_path) as upstream:
        settings = settings_for(tmp_path, upstream.url, upstream.url)
        with RunningRelay(settings) as relay, relay.connect() as client:
            client.sendall(
                request_bytes + bytes(200_000)
            )  # it is still sending: the response must not be lost to a reset
            received = receive_all(client)
            assert received.startswith(b"HTTP/1.1 %d " % status) and b'"code":"%b"' % code in received
            assert b"\r\nConnection: close\r\n" in received
        assert upstream.connections == 0


def test_a_refused_head_request_gets_no_body(tmp_path: Path) -> None:
    settings = settings_for(tmp_path, "http://127.0.0.1:1", "http://127.0.0.1:1")
    with RunningRelay(settings) as relay, relay.connect() as client:
        client.sendall(b"HEAD /nobody HTTP/1.1\r\nHost: c\r\n\r\n")
        received = receive_all(client)
        assert received.startswith(b"HTTP/1.1 404 ") and received.endswith(b"\r\n\r\n")


def test_names_choose_the_upstream(tmp_path: Path) -> None:
    with RawUpstream(echoing_path) as one, RawUpstream(echoing_path) as two:
        settings = settings_for(tmp_path, one.url + "/base", two.url)
        with RunningRelay(settings) as relay, relay.connect() as client:
            for path, want in ((b"/u0/a?b=/c", b"/base/a?b=/c"), (b"/u1//evil/x", b"//evil/x"), (b"/u0", b"/base")):
                client.sendall(get(path))
                assert receive(client, len(ok(want))) == ok(want)
        assert (one.connections, two.connections) == (1, 1)


def test_a_body_is_passed_on_at_once_in_chunks_of_the_relays_own(tmp_path: Path) -> None:
    seen: list[bytes] = []
    step = threading.Event()

    def handler(one: socket.socket) -> None:
        seen.append(receive_head(one))
        for piece in (b"5\r\nhello\r\n", b"5\r\nworld\r\n0\r\n\r\n"):
            seen.append(receive(one, len(piece)))
            step.set()
        one.sendall(ok(b"done"))

    with exchange_rig(tmp_path, handler) as (relay, _, _), relay.connect() as client:
        client.sendall(
            b"POST /x HTTP/1.1\r\nHost: c\r\ntransfer-encoding: CHUNKED\r\nX: y\r\n\r\n5;evil=1\r\nhello\r\n"
        )
        assert step.wait(PATIENCE_S)
        client.sendall(b"5\r\nworld\r\n0\r\nX-Trailer: 1\r\n\r\n")
        assert receive(client, len(ok(b"done"))) == ok(b"done")
    assert seen[0].endswith(b"\r\ntransfer-encoding: chunked\r\nX: y\r\n\r\n")
    assert seen[1:] == [b"5\r\nhello\r\n", b"5\r\nworld\r\n0\r\n\r\n"]


def test_expect_is_passed_to_the_upstream(tmp_path: Path) -> None:
    interim = b"HTTP/1.1 100 Continue\r\n\r\n"

    def handler(one: socket.socket) -> None:
        assert b"\r\nExpect: 100-continue\r\n" in receive_head(one)
        one.sendall(interim)
        assert receive(one, 3) == b"abc"
        one.sendall(ok(b"done"))

    with exchange_rig(tmp_path, handler) as (relay, _, _), relay.connect() as client:
        client.sendall(b"PUT /x HTTP/1.1\r\nHost: c\r\nExpect: 100-continue\r\nContent-Length: 3\r\n\r\n")
        assert receive(client, len(interim)) == interim
        client.sendall(b"abc")
        assert receive(client, len(ok(b"done"))) == ok(b"done")


def test_an_upgrade_is_not_made_and_its_request_is_served(tmp_path: Path) -> None:
    def handler(one: socket.socket) -> None:
        head = receive_head(one)
        assert b"pgrade" not in head and b"HTTP2-Settings" not in head
        assert receive(one, 2) == b"{}"
        one.sendall(ok(b"done"))

    with exchange_rig(tmp_path, handler) as (relay, _, _), relay.connect() as client:
        client.sendall(
            b"POST /x HTTP/1.1\r\nConnection: Upgrade, HTTP2-Settings\r\nContent-Length: 2\r\nHost: c\r\n"
            b"HTTP2-Settings: AAE\r\nUpgrade: h2c\r\n\r\n{}"
        )
        assert receive(client, len(ok(b"done"))) == ok(b"done")


@both_loops
def test_a_large_request_body_with_a_slow_upstream(tmp_path: Path, uv: bool) -> None:
    body = bytes(range(256)) * (BIG // 256)
    digest: list[bytes] = []

    go = threading.Event()

    def handler(one: socket.socket) -> None:
        receive_head(one)
        assert go.wait(PATIENCE_S)
        digest.append(hashlib.sha256(receive(one, len(body))).digest())
        one.sendall(ok(b"done"))

    with exchange_rig(tmp_path, handler, uv=uv) as (relay, _, _), relay.connect() as client:
        client.sendall(b"POST /x HTTP/1.1\r\nHost: c\r\nContent-Length: %d\r\n\r\n" % len(body))
        sender = threading.Thread(target=client.sendall, args=(body,))
        sender.start()
        wait_for(lambda: relay.call(lambda: waiting_for_upstreams(relay)), "bytes that wait for the upstream")
        time.sleep(0.3)
        assert 0 < relay.call(lambda: waiting_for_upstreams(relay)) < 1_000_000
        go.set()
        assert receive(client, len(ok(b"done"))) == ok(b"done")
        sender.join()
        assert digest == [hashlib.sha256(body).digest()]


@pytest.mark.slow
@both_loops
def test_a_large_response_with_a_slow_reader_throttles_the_upstream(tmp_path: Path, uv: bool) -> None:
    body = bytes(range(256)) * ((BIG + KERNEL_BYTES) // 256)
    sent = 0

    def handler(one: socket.socket) -> None:
        nonlocal sent
        receive_head(one)
        one.sendall(b"HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\nContent-Length: %d\r\n\r\n" % len(body))
        for start in range(0, len(body), 100_000):
            one.sendall(body[start : start + 100_000])
            sent = start
        receive_all(one)

    with exchange_rig(tmp_path, handler, uv=uv, upstream_idle_timeout=0.6) as (relay, _, recorder):
        with relay.connect(receive_buffer=4096) as client:
            client.sendall(get(b"/x"))
            receive_head(client)
            wait_for(lambda: waiting_for_clients(relay), "bytes that wait for the client")
            time.sleep(2.0)  # longer than the upstream's time-out; here the upstream waits for the client
            assert sent < len(body) - BIG / 2
            assert 0 < waiting_for_clients(relay) < 1_000_000
            assert hashlib.sha256(receive(client, len(body))).digest() == hashlib.sha256(body).digest()
        ended = only(recorder.ended(), ExchangeEnding)
        assert ended.ending is Ending.COMPLETE
        assert ended.client_blocked_ns is not None and ended.client_blocked_ns > 1_000_000_000


@both_loops
def test_a_slow_reader_that_leaves_does_not_get_all_bytes(tmp_path: Path, uv: bool) -> None:
    def handler(one: socket.socket) -> None:
        receive_head(one)
        one.sendall(b"HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\n\r\n")
        while True:
            one.sendall(bytes(65536))

    with exchange_rig(tmp_path, handler, uv=uv) as (relay, _, recorder):
        client = relay.connect(receive_buffer=4096)
        client.sendall(get(b"/x"))
        time.sleep(0.5)
        client.close()
        ended = only(recorder.ended(), ExchangeEnding)
        assert ended.ending is Ending.CLIENT
        assert ended.unsent_bytes > 0 and ended.client_blocked_ns is not None and ended.client_blocked_ns > 0


def test_a_client_that_reads_nothing_counts_as_disconnected(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("streamgauge.taps.proxy.client.BLOCKED_S", 0.5)
    gone = threading.Event()

    def handler(one: socket.socket) -> None:
        receive_head(one)
        one.sendall(b"HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\n\r\n")
        try:
            while True:
                one.sendall(bytes(65536))
        except OSError:
            gone.set()

    with exchange_rig(tmp_path, handler) as (relay, _, recorder), relay.connect(receive_buffer=4096) as client:
        client.sendall(get(b"/x"))
        assert gone.wait(PATIENCE_S)
        ended = only(recorder.ended(), ExchangeEnding)
        assert ended.ending is Ending.CLIENT and ended.unsent_bytes > 0


def test_a_client_that_does_not_read_the_end_of_its_response_is_disconnected(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The response is complete and its connection is closing: the place of the client must become free."""

    # The relay reads to the end of the response, however much of it waits for the client.
    monkeypatch.setattr("streamgauge.taps.proxy.client.WRITE_BUFFER_BYTES", 2**30)
    relays: list[RunningRelay] = []

    def handler(one: socket.socket) -> None:
        receive_head(one)
        one.sendall(b"HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\nTransfer-Encoding: chunked\r\n\r\n")
        while not waiting_for_clients(relays[0]):  # the kernel still takes all
            one.sendall(b"2000\r\n" + bytes(0x2000) + b"\r\n")
        one.sendall(b"0\r\n\r\n")

    with exchange_rig(tmp_path, handler) as (relay, _, recorder), relay.connect(receive_buffer=4096) as client:
        relays.append(relay)
        client.sendall(b"GET /x HTTP/1.1\r\nHost: c\r\nConnection: close\r\n\r\n")
        assert only(recorder.ended(), ExchangeEnding).ending is Ending.COMPLETE
        monkeypatch.setattr("streamgauge.taps.proxy.client.BLOCKED_S", 0.5)
        wait_for(lambda: read_clients(tmp_path / "counters")[0] == 0, "the end of the connection")


@both_loops
@pytest.mark.parametrize("half_head", [b"", b"GET /x HTTP/1.1\r\nHo"], ids=["no_head", "half_a_head"])
def test_a_client_that_ends_its_side_and_leaves_its_response_unread_is_disconnected(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, uv: bool, half_head: bytes
) -> None:
    """The exchange is over, so that the transport closes by itself, once the client has read the rest: it never does."""
    # The relay reads to the end of the response, however much of it waits for the client.
    monkeypatch.setattr("streamgauge.taps.proxy.client.WRITE_BUFFER_BYTES", 2**30)
    monkeypatch.setattr("streamgauge.taps.proxy.client.BLOCKED_S", 0.5)
    relays: list[RunningRelay] = []

    def handler(one: socket.socket) -> None:
        receive_head(one)
        one.sendall(b"HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\nTransfer-Encoding: chunked\r\n\r\n")
        while not waiting_for_clients(relays[0]):  # the kernel still takes all
            one.sendall(b"2000\r\n" + bytes(0x2000) + b"\r\n")
        one.sendall(b"0\r\n\r\n")
        receive_all(one)

    with (
        exchange_rig(tmp_path, handler, uv=uv, header_timeout_s=0.3) as (relay, _, recorder),
        relay.connect(receive_buffer=4096) as client,
    ):
        relays.append(relay)
        client.sendall(get(b"/x") + half_head)
        assert only(recorder.ended(), ExchangeEnding).ending is Ending.COMPLETE
        client.shutdown(socket.SHUT_WR)
        wait_for(lambda: read_clients(tmp_path / "counters")[0] == 0, "the end of the connection")
    assert sum(read_refusals(tmp_path / "counters").values()) == 0, "a client that has ended its side gets no 408"


def test_a_slow_head_is_a_408(tmp_path: Path) -> None:
    with exchange_rig(tmp_path, echoing_path, header_timeout_s=0.3) as (relay, _, _), relay.connect() as client:
        client.sendall(b"GET /x HTTP/1.1\r\nHo")
        received = receive_all(client)
        assert received.startswith(b"HTTP/1.1 408 ") and b"header_timeout" in received


def test_an_idle_client_is_closed_and_so_is_a_new_one(tmp_path: Path) -> None:
    with exchange_rig(tmp_path, echoing_path, keep_alive_s=0.5) as (relay, _, _):
        with relay.connect() as client:
            client.sendall(get(b"/x"))
            assert receive(client, len(ok(b"/x"))) == ok(b"/x")
            assert receive_all(client) == b""
        with relay.connect() as client:
            assert receive_all(client) == b""


def test_an_idle_client_costs_no_timer_and_its_next_head_has_its_deadline(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """After a response, its upstream connection is dropped first; a second connection never sends anything."""
    checks: list[UpstreamPool] = []
    real = UpstreamPool.sweep

    def counted(self: UpstreamPool) -> None:
        checks.append(self)
        real(self)

    monkeypatch.setattr(UpstreamPool, "sweep", counted)  # each check of a client sweeps its pool
    monkeypatch.setattr("streamgauge.taps.proxy.client.TICK_S", 0.02)
    monkeypatch.setattr("streamgauge.taps.proxy.upstream.KEPT_S", 0.1)
    with (
        exchange_rig(tmp_path, echoing_path, header_timeout_s=0.2) as (relay, upstream, _),
        relay.connect() as client,
        relay.connect(),
    ):
        for _ in range(2):
            client.sendall(get(b"/x"))
            assert receive(client, len(ok(b"/x"))) == ok(b"/x")
            time.sleep(0.5)
            before = len(checks)
            time.sleep(0.5)
            assert len(checks) == before > 5, "it is checked while it keeps an upstream connection, and not later"
        assert upstream.connections == 2
        client.sendall(b"GET /x HTTP/1.1\r\nHo")
        client.settimeout(PATIENCE_S)
        assert receive_all(client).startswith(b"HTTP/1.1 408 ")


def test_a_body_that_stops_is_reported_as_the_clients_fault(tmp_path: Path) -> None:
    def handler(one: socket.socket) -> None:
        receive_until_reset(one)

    with exchange_rig(tmp_path, handler, upstream_idle_timeout=0.3) as (relay, _, recorder):
        with relay.connect() as client:
            client.sendall(b"POST /v1/messages HTTP/1.1\r\nHost: c\r\nContent-Length: 9\r\n\r\nabc")
            received = receive_all(client)
            assert received.startswith(b"HTTP/1.1 408 ") and b"body_timeout" in received
        assert only(recorder.ended(), ExchangeEnding).ending is Ending.CLIENT


@pytest.mark.parametrize("answered", [False, True])
def test_malformed_chunks_within_a_body_end_the_exchange(tmp_path: Path, answered: bool) -> None:
    early = b"HTTP/1.1 200 OK\r\n\r\nearly"

    def handler(one: socket.socket) -> None:
        receive_head(one)
        if answered:
            one.sendall(early)
        assert b"0\r\n\r\n" not in receive_until_reset(one)[0]  # the upstream never sees a complete request

    with exchange_rig(tmp_path, handler) as (relay, _, recorder):
        with relay.connect() as client:
            client.sendall(b"POST /v1/messages HTTP/1.1\r\nHost: c\r\nTransfer-Encoding: chunked\r\n\r\n3\r\nabc\r\n")
            if answered:
                assert receive(client, len(early)) == early
            client.sendall(b"oops\r\n")
            data, was_reset = receive_until_reset(client)
            assert was_reset if answered else data.startswith(b"HTTP/1.1 400 ")
        assert only(recorder.ended(), ExchangeEnding).ending is Ending.CLIENT


def test_t5_hundreds_of_silent_clients_do_not_slow_one(tmp_path: Path) -> None:
    answer = b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n" + chunked(b"a")
    with exchange_rig(tmp_path, answering(*[answer] * 50)) as (relay, _, _):
        silent = [relay.connect() for _ in range(400)]
        for one in silent[:200]:
            one.sendall(b"POST /x HTTP/1.1\r\nHos")
        with relay.connect() as client:
            for _ in range(50):
                client.sendall(get(b"/x"))
                assert receive(client, len(answer)) == answer
        for one in silent:
            one.close()


def test_a_client_that_ends_between_requests_is_not_a_fault(tmp_path: Path) -> None:
    with exchange_rig(tmp_path, echoing_path) as (relay, _, _):
        for last in (b"", b"GET /x HT"):
            with relay.connect() as client:
                client.sendall(get(b"/x"))
                assert receive(client, len(ok(b"/x"))) == ok(b"/x")
                client.sendall(last)
                client.shutdown(socket.SHUT_WR)
                assert receive_all(client) == b""
