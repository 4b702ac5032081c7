"""Connections to upstreams: how they are made, kept, found closed, and refused."""

import contextlib
import os
import socket
import ssl
import threading
import time
from pathlib import Path
from typing import ClassVar

import pytest
import uvloop

from streamgauge.core.capture.segments import Ending, TransportFault
from streamgauge.recorder.protocol import ExchangeEnding, RequestSent
from streamgauge.taps.proxy.upstream import WATCH_S, Upstream
from streamgauge.taps.proxy.wire import Wire
from tests.ports import free_port
from tests.running import wait_for
from tests.taps.proxy.rig import (
    PATIENCE_S,
    Handler,
    RawRecorder,
    RawUpstream,
    RunningRelay,
    answering,
    exchange_rig,
    make_certificate,
    only,
    receive,
    receive_all,
    receive_head,
    receive_request,
    receive_until_reset,
    reset,
    settings_for,
)

pytestmark = pytest.mark.slow

both_loops = pytest.mark.parametrize("uv", [True, False], ids=["uvloop", "asyncio"])

OK = b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nhi"
POST = b"POST /v1/chat/completions HTTP/1.1\r\nHost: c\r\nContent-Length: 2\r\n\r\n{}"


def ask(method: bytes) -> bytes:
    return method + b" /v1/messages HTTP/1.1\r\nHost: c\r\n\r\n"


def test_each_client_has_its_own_upstream_connection(tmp_path: Path) -> None:
    """It is used for all requests of that client's connection, and for no other client."""
    talks: list[bytes] = []

    def handler(one: socket.socket) -> None:
        requested = b""
        while request := receive_request(one):
            requested += request
            one.sendall(OK)
        talks.append(requested)

    with exchange_rig(tmp_path, handler) as (relay, upstream, _):
        clients = [relay.connect() for _ in range(3)]
        for _ in range(3):
            for number, client in enumerate(clients):
                client.sendall(POST.replace(b"Host: c", b"Host: c\r\nX-Client: %d" % number))
                assert receive(client, len(OK)) == OK
        assert upstream.connections == 3
        for client in clients:
            client.close()
        wait_for(lambda: len(talks) == 3, "ends of the upstream's connections")
    for number in range(3):
        assert sum(talk.count(b"X-Client: %d" % number) == talk.count(b"X-Client: ") == 3 for talk in talks) == 1


def test_a_client_keeps_its_connections_to_the_last_two_upstreams(tmp_path: Path) -> None:
    with contextlib.ExitStack() as stack:
        upstreams = [stack.enter_context(RawUpstream(answering(*[OK] * 10))) for _ in range(3)]
        settings = settings_for(tmp_path, *[upstream.url for upstream in upstreams])
        with RunningRelay(settings) as relay, relay.connect() as client:
            for name in (b"u0", b"u1", b"u0", b"u1", b"u2", b"u1", b"u0"):
                client.sendall(b"GET /" + name + b"/x HTTP/1.1\r\nHost: c\r\n\r\n")
                assert receive(client, len(OK)) == OK
            assert [upstream.connections for upstream in upstreams] == [2, 1, 1]


class Closing:
    """A server that closes each connection `after_s` after its response, without announcing it. It counts requests."""

    def __init__(self, after_s: float) -> None:
        self.after_s = after_s
        self.requests = 0

    def __call__(self, one: socket.socket) -> None:
        while receive_request(one):
            self.requests += 1
            one.sendall(OK)
            one.settimeout(self.after_s or 1e-6)
            try:
                peeked = one.recv(1, socket.MSG_PEEK)
            except TimeoutError:
                peeked = b""
            if not peeked:
                one.close()
                return
            one.settimeout(PATIENCE_S)


# Of each kind; STREAMGAUGE_REQUESTS=2000 takes some minutes.
REQUESTS = int(os.environ.get("STREAMGAUGE_REQUESTS", "250"))


@pytest.mark.parametrize("kept", [True, False], ids=["kept alive", "a connection a request"])
@pytest.mark.parametrize("after_s", [0.0, 0.001, 0.005, 0.05])
def test_f8_a_server_that_closes_after_its_answers_costs_no_request(tmp_path: Path, after_s: float, kept: bool) -> None:
    """Its close coincides with no request: connections are reused only if one has been seen to stay open."""
    server = Closing(after_s)
    with RawUpstream(server) as upstream:
        settings = settings_for(tmp_path, upstream.url, watch_s=WATCH_S)
        with RunningRelay(settings) as relay:
            client = relay.connect()
            for number in range(REQUESTS):
                if not kept and number:
                    client.close()
                    client = relay.connect()
                client.sendall(POST)
                assert receive(client, len(OK)) == OK, number
            client.close()
        assert server.requests == REQUESTS


def test_f8_a_close_that_crosses_the_next_request_costs_no_request(tmp_path: Path) -> None:
    """The server closes when it sees the next request on the connection, and does not read it."""

    def crossing(one: socket.socket) -> None:
        receive_request(one)
        one.sendall(OK)
        with one:
            one.recv(1, socket.MSG_PEEK)

    with (
        RawUpstream(crossing) as upstream,
        RunningRelay(settings_for(tmp_path, upstream.url, watch_s=PATIENCE_S)) as relay,
        relay.connect() as client,
    ):
        for _ in range(10):
            client.sendall(POST)
            assert receive(client, len(OK)) == OK
        assert upstream.connections == 10


def test_connections_are_reused_if_one_stayed_open(tmp_path: Path) -> None:
    with RawUpstream(answering(*[OK] * 100)) as upstream:
        with RunningRelay(settings_for(tmp_path, upstream.url, watch_s=WATCH_S)) as relay, relay.connect() as client:
            for _ in range(3):
                client.sendall(POST)
                assert receive(client, len(OK)) == OK
            assert upstream.connections == 3
            time.sleep(2 * WATCH_S)
            for _ in range(10):
                client.sendall(POST)
                assert receive(client, len(OK)) == OK
        assert upstream.connections == 4


def test_a_server_that_sends_bytes_on_an_idle_connection_is_not_trusted(tmp_path: Path) -> None:
    def talkative(one: socket.socket) -> None:
        receive_request(one)
        one.sendall(OK)
        time.sleep(WATCH_S / 2)
        one.sendall(b"x")
        receive_until_reset(one)

    with (
        exchange_rig(tmp_path, talkative, answering(OK, OK), answering(OK), watch_s=WATCH_S) as (relay, upstream, _),
        relay.connect() as client,
    ):
        client.sendall(POST)
        assert receive(client, len(OK)) == OK
        time.sleep(2 * WATCH_S)
        for _ in range(2):
            client.sendall(POST)
            assert receive(client, len(OK)) == OK
        assert upstream.connections == 3


def closing(closed: threading.Event) -> Handler:
    """An upstream that answers one request, and closes its connection a moment later."""

    def once(one: socket.socket) -> None:
        receive_request(one)
        one.sendall(OK)
        time.sleep(0.05)
        one.close()
        closed.set()

    return once


def test_connections_of_a_server_that_starts_to_close_early_are_no_longer_reused(tmp_path: Path) -> None:
    closed = threading.Event()
    with exchange_rig(tmp_path, closing(closed), answering(OK, OK)) as (relay, upstream, _), relay.connect() as client:
        client.sendall(POST)
        assert receive(client, len(OK)) == OK
        assert closed.wait(PATIENCE_S)
        for _ in range(2):
            client.sendall(POST)
            assert receive(client, len(OK)) == OK
        assert upstream.connections == 3


def test_a_kept_connection_that_was_closed_is_noticed(tmp_path: Path) -> None:
    closed = threading.Event()
    with exchange_rig(tmp_path, closing(closed)) as (relay, upstream, _), relay.connect() as client:
        for number in range(1, 4):
            closed.clear()
            client.sendall(POST)
            assert receive(client, len(OK)) == OK
            assert closed.wait(10)
            assert upstream.connections == number


def test_a_close_that_the_loop_has_not_seen_is_read_from_the_kernel(tmp_path: Path) -> None:
    """The close and the next request have both arrived when the loop wakes up."""

    def once(one: socket.socket) -> None:
        receive_request(one)
        one.sendall(OK)
        assert go.wait(10)
        one.close()

    go = threading.Event()
    with exchange_rig(tmp_path, once, answering(OK)) as (relay, upstream, _), relay.connect() as client:
        client.sendall(POST)
        assert receive(client, len(OK)) == OK
        (served,) = relay.relay.clients
        connector = relay.relay.connector(relay.relay.routes.all[0])

        def asleep() -> object:
            go.set()
            time.sleep(0.3)
            return served.pool.take(connector)

        assert relay.call(asleep) is None
        client.sendall(POST)
        assert receive(client, len(OK)) == OK
        assert upstream.connections == 2


@pytest.mark.parametrize("method", [b"GET", b"POST"])
def test_a_kept_connection_that_breaks_when_a_request_is_written(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, method: bytes
) -> None:
    """A request without side effects is sent again on a new connection; others may have been processed."""
    with exchange_rig(tmp_path, answering(OK, OK, OK)) as (relay, upstream, _), relay.connect() as client:
        client.sendall(ask(method))
        assert receive(client, len(OK)) == OK

        def breaks(wire: Wire, data: bytes) -> None:
            monkeypatch.setattr(Wire, "write", write)
            (one,) = relay.relay.clients
            assert one.exchange is not None and one.exchange.upstream is not None
            assert wire is one.exchange.upstream.wire
            one.exchange.upstream.transport.abort()

        write = Wire.write
        monkeypatch.setattr(Wire, "write", breaks)
        client.sendall(ask(method))
        if method == b"GET":
            assert receive(client, len(OK)) == OK
        else:
            assert receive_head(client).startswith(b"HTTP/1.1 502 ")
        assert upstream.connections == (2 if method == b"GET" else 1)


@pytest.mark.parametrize("end", ["fin", "reset"])
@pytest.mark.parametrize(("method", "again"), [(b"GET", True), (b"HEAD", True), (b"OPTIONS", True), (b"DELETE", False)])
def test_only_requests_without_side_effects_are_sent_again(
    tmp_path: Path, method: bytes, again: bool, end: str
) -> None:
    """A reused connection that ends while the request is on its way."""
    head = OK[:-2] if method == b"HEAD" else OK

    def dying(one: socket.socket) -> None:
        receive_head(one)
        one.sendall(head)
        receive_head(one)
        if end == "reset":
            reset(one)
        else:
            one.close()

    with exchange_rig(tmp_path, dying, answering(head)) as (relay, upstream, _), relay.connect() as client:
        client.sendall(ask(method))
        assert receive(client, len(head)) == head
        client.sendall(ask(method))
        if again:
            assert receive(client, len(head)) == head
        else:
            assert receive_all(client).startswith(b"HTTP/1.1 502 ")
        assert upstream.connections == 1 + again


def test_a_new_connection_that_ends_is_not_retried(tmp_path: Path) -> None:
    with exchange_rig(tmp_path, answering(b"", end="fin")) as (relay, upstream, _), relay.connect() as client:
        client.sendall(ask(b"GET"))
        assert receive_all(client).startswith(b"HTTP/1.1 502 ")
        assert upstream.connections == 1


def test_idle_connections_are_closed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("streamgauge.taps.proxy.upstream.KEPT_S", 0.3)
    ended = threading.Event()

    def handler(one: socket.socket) -> None:
        receive_request(one)
        one.sendall(OK)
        if one.recv(1) == b"":
            ended.set()

    with exchange_rig(tmp_path, handler) as (relay, _, _), relay.connect() as client:
        client.sendall(POST)
        assert receive(client, len(OK)) == OK
        assert ended.wait(10)


def test_sent_reports_whether_a_connection_was_made(tmp_path: Path) -> None:
    with exchange_rig(tmp_path, answering(OK, OK)) as (relay, _, recorder), relay.connect() as client:
        for _ in range(2):
            client.sendall(POST)
            assert receive(client, len(OK)) == OK
        first, second = (one for one in recorder.ended(2) if isinstance(one, RequestSent))
        assert first.connected_ns is not None and first.at_ns is not None and first.connected_ns <= first.at_ns
        assert second.connected_ns is None
        assert (first.body_bytes, first.whole) == (2, True)


@pytest.mark.parametrize(
    ("url", "why", "fault"),
    [
        ("http://127.0.0.1:1", b"it refused the connection", TransportFault.REFUSED),
        ("http://no-such-name.invalid", b"its host name was not found", TransportFault.DNS),
        ("https://127.0.0.1:{port}", b"the TLS handshake failed", TransportFault.TLS),
        ("http://255.255.255.255", b"the connection failed", TransportFault.UNREACHABLE),
    ],
)
def test_f11_no_connection_is_a_502_with_the_reason(
    tmp_path: Path, url: str, why: bytes, fault: TransportFault
) -> None:
    def no_tls(one: socket.socket) -> None:
        one.recv(100)
        one.sendall(b"HTTP/1.1 400 Bad Request\r\n\r\n")

    with (
        RawUpstream(no_tls) as upstream,
        RawRecorder(tmp_path / "recorder.sock") as recorder,
        RunningRelay(settings_for(tmp_path, url.format(port=upstream.port))) as relay,
        relay.connect() as client,
    ):
        client.sendall(POST)
        received = receive_all(client)
        assert (
            received.startswith(b"HTTP/1.1 502 ") and b'"code":"upstream_unreachable"' in received and why in received
        )
        ended = only(recorder.ended(), ExchangeEnding)
        assert (ended.ending, ended.fault) == (Ending.RESET, fault)


def test_a_handshake_that_stalls_is_a_504(tmp_path: Path) -> None:
    def mute(one: socket.socket) -> None:
        receive_all(one)

    with (
        RawUpstream(mute) as upstream,
        RawRecorder(tmp_path / "recorder.sock") as recorder,
        RunningRelay(settings_for(tmp_path, f"https://127.0.0.1:{upstream.port}", connect_timeout=0.3)) as relay,
        relay.connect() as client,
    ):
        client.sendall(POST)
        received = receive_all(client)
        assert received.startswith(b"HTTP/1.1 504 ") and b'"code":"upstream_timeout"' in received
        ended = only(recorder.ended(), ExchangeEnding)
        assert (ended.ending, ended.fault) == (Ending.TIMEOUT, TransportFault.CONNECT_TIMEOUT)


def test_an_unknown_authority_is_not_trusted(tmp_path: Path) -> None:
    certificate, key = make_certificate(tmp_path, "IP:127.0.0.1")
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(certificate, key)

    def handler(one: socket.socket) -> None:
        with pytest.raises(ssl.SSLError):
            context.wrap_socket(one, server_side=True).recv(1)

    with (
        RawUpstream(handler) as upstream,
        RunningRelay(settings_for(tmp_path, f"https://127.0.0.1:{upstream.port}")) as relay,
        relay.connect() as client,
    ):
        client.sendall(POST)
        received = receive_all(client)
        assert received.startswith(b"HTTP/1.1 502 ") and b"certificate is not trusted" in received


def addresses(*hosts: str, port: int) -> list[tuple[object, ...]]:
    return [(socket.AF_INET, socket.SOCK_STREAM, socket.IPPROTO_TCP, "", (host, port)) for host in hosts]


class Resolving(uvloop.Loop):
    """A loop whose resolver has one more name, with several addresses."""

    known: ClassVar[list[tuple[object, ...]]] = []

    async def getaddrinfo(self, host: object, port: object, **more: object) -> object:  # type: ignore[override]
        if host == "several.example":
            return self.known
        return await super().getaddrinfo(host, port, **more)  # type: ignore[arg-type]


def unanswered(port: int) -> tuple[socket.socket, list[socket.socket]]:
    """An address that completes no handshake, since its backlog is full."""
    listening = socket.socket()
    listening.bind(("127.0.0.2", port))
    listening.listen(0)
    fillers = [socket.socket() for _ in range(4)]
    for filler in fillers:
        filler.setblocking(False)
        filler.connect_ex(("127.0.0.2", port))
    return listening, fillers


def test_an_address_that_does_not_answer_is_not_waited_for(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with RawUpstream(answering(OK)) as upstream:
        listening, fillers = unanswered(upstream.port)
        found = addresses("127.0.0.2", "127.0.0.1", port=upstream.port)
        monkeypatch.setattr(Resolving, "known", found)
        monkeypatch.setattr(uvloop, "new_event_loop", Resolving)
        settings = settings_for(tmp_path, f"http://several.example:{upstream.port}", connect_timeout=1000.0)
        with RunningRelay(settings) as relay, relay.connect() as client:
            client.sendall(POST)
            assert receive(client, len(OK)) == OK
        for one in (listening, *fillers):
            one.close()


@pytest.mark.parametrize(("last", "status"), [("127.0.0.1", b"200"), ("127.0.0.4", b"502")])
def test_addresses_that_refuse_are_skipped(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, last: str, status: bytes
) -> None:
    with RawUpstream(answering(OK)) as upstream:
        monkeypatch.setattr(Resolving, "known", addresses("127.0.0.2", "127.0.0.3", last, port=upstream.port))
        monkeypatch.setattr(uvloop, "new_event_loop", Resolving)
        settings = settings_for(tmp_path, f"http://several.example:{upstream.port}")
        with RunningRelay(settings) as relay, relay.connect() as client:
            client.sendall(POST)
            assert receive_head(client).startswith(b"HTTP/1.1 " + status)


def test_addresses_that_all_stay_silent_are_a_504(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    port = free_port()
    listening, fillers = unanswered(port)
    monkeypatch.setattr(Resolving, "known", addresses("127.0.0.2", "127.0.0.2", port=port))
    monkeypatch.setattr(uvloop, "new_event_loop", Resolving)
    settings = settings_for(tmp_path, f"http://several.example:{port}", connect_timeout=0.6)
    with RunningRelay(settings) as relay, relay.connect() as client:
        client.sendall(POST)
        assert receive_all(client).startswith(b"HTTP/1.1 504 ")
    for one in (listening, *fillers):
        one.close()


@pytest.mark.parametrize("hosts", [1, 2])
def test_small_writes_are_not_delayed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, hosts: int) -> None:
    """TCP_NODELAY, however the connection was made."""
    with RawUpstream(answering(OK)) as upstream:
        monkeypatch.setattr(Resolving, "known", addresses(*["127.0.0.1"] * hosts, port=upstream.port))
        monkeypatch.setattr(uvloop, "new_event_loop", Resolving)
        with (
            RunningRelay(settings_for(tmp_path, f"http://several.example:{upstream.port}")) as relay,
            relay.connect() as client,
        ):
            client.sendall(POST)
            assert receive(client, len(OK)) == OK

            def delays() -> list[int]:
                (served,) = relay.relay.clients
                own = served.pool.take(relay.relay.connector(relay.relay.routes.all[0]))
                assert own is not None
                ends = [own.transport, served.transport]
                sockets = [end.get_extra_info("socket") for end in ends]
                found = [one.getsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY) for one in sockets]
                served.pool.put_back(own)
                return found

            assert relay.call(delays) == [1, 1]


def test_a_connection_whose_response_came_before_the_request_was_complete_is_not_reused(tmp_path: Path) -> None:
    """The upstream may not have read the body, and would read the next request on that connection as the rest of it."""
    head, body = POST[:-2], POST[-2:]
    answered = threading.Event()

    def early(one: socket.socket) -> None:
        receive_head(one)
        one.sendall(OK[:-1])
        answered.set()
        assert receive(one, 2) == body
        one.sendall(OK[-1:])
        receive_all(one)

    with exchange_rig(tmp_path, early, answering(OK)) as (relay, upstream, _), relay.connect() as client:
        client.sendall(head)
        assert answered.wait(10)
        assert receive(client, len(OK) - 1) == OK[:-1]
        client.sendall(body)
        assert receive(client, 1) == OK[-1:]
        client.sendall(POST)
        assert receive(client, len(OK)) == OK
        assert upstream.connections == 2


@both_loops
def test_an_upstream_that_ends_its_side_and_reads_no_more_does_not_keep_a_descriptor(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, uv: bool
) -> None:
    """Its response is complete, and a part of the request waits in the relay for its socket."""
    lost = threading.Event()
    real = Upstream.connection_lost

    def noted(upstream: Upstream, fault: Exception | None) -> None:
        lost.set()
        real(upstream, fault)

    monkeypatch.setattr(Upstream, "connection_lost", noted)
    blocked, over = threading.Event(), threading.Event()
    pause = Upstream.pause_writing

    def paused(upstream: Upstream) -> None:
        pause(upstream)
        blocked.set()

    monkeypatch.setattr(Upstream, "pause_writing", paused)

    def handler(one: socket.socket) -> None:
        receive_head(one)
        assert blocked.wait(PATIENCE_S)
        one.sendall(b"HTTP/1.1 200 OK\r\n\r\nhi")
        one.shutdown(socket.SHUT_WR)
        assert over.wait(2 * PATIENCE_S)

    with exchange_rig(tmp_path, handler, uv=uv) as (relay, _, _), relay.connect() as client:
        size = 2**30
        client.sendall(POST.replace(b": 2\r\n\r\n{}", b": %d\r\n\r\n" % size))
        while not blocked.is_set():
            client.sendall(bytes(65536))
        assert lost.wait(PATIENCE_S)
        over.set()
