"""Bodies of requests that come slowly: they hold a place for a bounded time, and honest slow clients are served."""

import contextlib
import socket
import threading
import time
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace

import pytest

from streamgauge.core.capture.segments import Ending
from streamgauge.recorder.protocol import ExchangeEnding
from streamgauge.spool.read_counters import Incident, Refusal, read_clients, read_refusals
from streamgauge.taps.proxy import client as client_module
from streamgauge.taps.proxy import exchange as exchange_module
from streamgauge.taps.proxy.client import TICK_S
from streamgauge.taps.proxy.exchange import Exchange
from streamgauge.taps.proxy.limits import BODY_RATE, HANDSHAKE_S
from streamgauge.taps.proxy.relay import SEARCH_S
from tests.running import wait_for
from tests.taps.proxy.pki import connect, make_pki
from tests.taps.proxy.rig import (
    PATIENCE_S,
    RawUpstream,
    RunningRelay,
    answering,
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

OK = b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok"
UNTIL_CLOSED = b"HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\n\r\n"
STEP_S = 0.05
DAY_S = 86_400
DAY_NS = DAY_S * 10**9


def begun(size: int) -> bytes:
    return b"POST /v1/messages HTTP/1.1\r\nHost: c\r\nContent-Length: %d\r\n\r\n" % size


def swallow(one: socket.socket) -> None:
    receive_until_reset(one)


@pytest.mark.parametrize("chunked", [False, True])
def test_a_body_below_the_least_rate_is_refused_although_it_never_stops(tmp_path: Path, chunked: bool) -> None:
    head = b"POST /v1/messages HTTP/1.1\r\nHost: c\r\nTransfer-Encoding: chunked\r\n\r\n" if chunked else begun(10_000)
    with exchange_rig(tmp_path, swallow, body_grace_s=0.5) as (relay, upstream, recorder):
        with relay.connect() as client:
            began = time.monotonic()
            client.sendall(head)
            stop = threading.Event()

            def drip() -> None:
                with contextlib.suppress(OSError):
                    while not stop.wait(STEP_S):
                        client.sendall(b"1\r\nx\r\n" if chunked else b"x")

            dripping = threading.Thread(target=drip)
            dripping.start()
            received = receive_all(client)
            took = time.monotonic() - began
            stop.set()
            dripping.join()
        assert received.startswith(b"HTTP/1.1 408 ") and b"body_timeout" in received
        assert 0.4 < took < PATIENCE_S / 2
        assert only(recorder.ended(), ExchangeEnding).ending is Ending.CLIENT
        assert upstream.connections == 1
        wait_for(lambda: read_clients(tmp_path / "counters")[0] == 0, "the end of the connection")
        assert read_refusals(tmp_path / "counters")[Refusal.BODY_TIMEOUT] == 1


def test_a_client_above_the_least_rate_may_take_longer_than_the_grace(tmp_path: Path) -> None:
    part = b"x" * int(BODY_RATE * PATIENCE_S)
    with exchange_rig(tmp_path, answering(OK), body_grace_s=0.5) as (relay, _, _), relay.connect() as client:
        client.sendall(begun(2 * len(part)) + part)
        time.sleep(0.5 + 2 * TICK_S)
        client.sendall(part)
        assert receive(client, len(OK)) == OK


def exchange_of(relay: RunningRelay) -> Exchange | None:
    """That of the only client, if it has begun. Call it in the relay's thread."""
    return next((client.exchange for client in relay.relay.clients), None)


@pytest.fixture
def a_day_later(monkeypatch: pytest.MonkeyPatch) -> Callable[[], None]:
    """Sets the clock of clients and exchanges forward by a day: longer than the bytes that fill all buffers take at the least
    rate.
    """
    days = 0

    def later() -> None:
        nonlocal days
        days += 1

    clock = SimpleNamespace(monotonic_ns=lambda: time.monotonic_ns() + days * DAY_NS)
    for module in (client_module, exchange_module):
        monkeypatch.setattr(module, "time", clock)
    return later


def test_the_time_in_which_the_upstream_reads_nothing_does_not_count(
    tmp_path: Path, a_day_later: Callable[[], None]
) -> None:
    size = 30_000_000
    go = threading.Event()

    def handler(one: socket.socket) -> None:
        assert go.wait(PATIENCE_S)
        assert len(receive_request(one)) > size
        one.sendall(OK)

    with (
        exchange_rig(tmp_path, handler, upstream_idle_timeout=2.0 * DAY_S) as (relay, _, _),
        relay.connect() as client,
    ):

        def waits() -> bool:
            exchange = exchange_of(relay)
            if exchange is None or not exchange.body_must_wait:
                return False
            a_day_later()
            return True

        sending = threading.Thread(target=client.sendall, args=(begun(size) + bytes(size - 1),))
        sending.start()
        wait_for(lambda: relay.call(waits), "a body that must wait")
        go.set()
        sending.join()
        time.sleep(2 * TICK_S)
        client.sendall(b"x")
        assert receive(client, len(OK)) == OK


def test_a_response_that_has_begun_is_not_ended_for_a_slow_body(
    tmp_path: Path, a_day_later: Callable[[], None]
) -> None:
    answer = b"HTTP/1.1 200 OK\r\nContent-Length: 8\r\n\r\n"
    go = threading.Event()

    def handler(one: socket.socket) -> None:
        receive_head(one)
        one.sendall(answer)
        assert go.wait(PATIENCE_S)
        one.sendall(b"x" * 8)
        receive_all(one)

    with (
        exchange_rig(tmp_path, handler, upstream_idle_timeout=2.0 * DAY_S) as (relay, _, _),
        relay.connect() as client,
    ):
        client.sendall(begun(9) + b"x")
        assert receive(client, len(answer)) == answer
        relay.call(a_day_later)
        time.sleep(2 * TICK_S)
        go.set()
        assert receive_all(client) == b"x" * 8


def from_address(relay: RunningRelay, address: str) -> socket.socket:
    one = socket.create_connection(("127.0.0.1", relay.port), PATIENCE_S, (address, 0))
    one.settimeout(PATIENCE_S)
    return one


def exchanges(relay: RunningRelay) -> int:
    """How many requests have begun. Call it in the relay's thread."""
    return sum(client.exchange is not None for client in relay.relay.clients)


def test_slow_bodies_of_two_addresses_do_not_shut_out_a_third(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(client_module, "SHED_SLOW_S", 0.5)

    def handler(one: socket.socket) -> None:
        while receive_request(one):
            one.sendall(OK)

    with (
        exchange_rig(tmp_path, handler, max_connections=8) as (relay, _, _),
        contextlib.ExitStack() as stack,
    ):
        slow = [
            stack.enter_context(from_address(relay, address))
            for address, count in (("127.0.0.1", 5), ("127.0.0.2", 2))
            for _ in range(count)
        ]
        for one in slow:
            one.sendall(begun(1_000) + b"{")
        fast = stack.enter_context(from_address(relay, "127.0.0.2"))
        fast.sendall(begun(40_000) + b"x" * 20_000)  # it is fast enough for 20 s
        wait_for(lambda: relay.call(lambda: exchanges(relay)) == 8, "all places to be taken")
        assert read_clients(tmp_path / "counters") == (8, 8)
        time.sleep(0.6)  # else only those that are too slow by then make room
        with from_address(relay, "127.0.0.3") as honest:
            honest.sendall(begun(2) + b"{}")
            assert receive(honest, len(OK)) == OK
        assert relay.incidents(Incident.CLIENT_SHED) == 7
        for one in slow:
            assert receive_until_reset(one)[0].startswith(b"HTTP/1.1 408 ")
        fast.sendall(b"x" * 20_000)
        assert receive(fast, len(OK)) == OK
    assert read_clients(tmp_path / "counters") == (0, 8)


def test_a_slow_body_that_made_room_does_not_keep_its_connection_by_an_unread_response(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It counts no longer, so that its descriptor would be one above the limit."""
    # The relay reads to the end of the response, however much of it waits for the client.
    monkeypatch.setattr(client_module, "WRITE_BUFFER_BYTES", 2**30)
    monkeypatch.setattr(client_module, "SHED_SLOW_S", 0.2)
    monkeypatch.setattr(client_module, "LINGER_S", 0.5)
    lost: list[client_module.Client] = []
    real = client_module.Client.connection_lost

    def noted(client: client_module.Client, fault: Exception | None) -> None:
        lost.append(client)
        real(client, fault)

    monkeypatch.setattr(client_module.Client, "connection_lost", noted)

    def handler(one: socket.socket) -> None:
        if b"large" not in receive_request(one):
            one.sendall(OK)
            return
        one.sendall(UNTIL_CLOSED.replace(b"\r\n\r\n", b"\r\nTransfer-Encoding: chunked\r\n\r\n"))
        while not waiting_for_clients(rig[0]):
            one.sendall(b"2000\r\n" + bytes(0x2000) + b"\r\n")
        one.sendall(b"0\r\n\r\n")
        receive_all(one)

    with exchange_rig(tmp_path, handler, max_connections=1) as rig:
        relay, _, recorder = rig
        with relay.connect(receive_buffer=4096) as unread:
            unread.sendall(begun(2).replace(b"/messages", b"/large/messages") + b"{}")
            recorder.ended()
            unread.sendall(begun(1_000) + b"{")
            wait_for(lambda: relay.call(lambda: exchanges(relay)) == 1, "the slow body")
            with from_address(relay, "127.0.0.3") as honest:
                honest.sendall(begun(2) + b"{}")
                assert receive(honest, len(OK)) == OK
            wait_for(lambda: len(lost) == 2, "the end of both connections")
        assert relay.incidents(Incident.CLIENT_SHED) == 1


def test_a_flood_of_connections_above_an_addresss_limit_does_not_cost_a_look_at_all_clients_each(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    looks = 0
    original = client_module.Client.may_be_shed_ns

    def counted(client: client_module.Client) -> int | None:
        nonlocal looks
        looks += 1
        return original(client)

    monkeypatch.setattr(client_module.Client, "may_be_shed_ns", counted)
    with (
        exchange_rig(tmp_path, swallow, max_connections=20, max_connections_per_address=10) as (relay, _, _),
        contextlib.ExitStack() as stack,
    ):
        for _ in range(10):
            stack.enter_context(relay.connect()).sendall(begun(40_000) + b"x" * 30_000)
        wait_for(lambda: read_clients(tmp_path / "counters")[0] == 10, "all places to be taken")
        began = time.monotonic()
        for _ in range(100):
            with relay.connect() as refused:
                assert receive_until_reset(refused)[0] == b""
        assert looks <= 10 * (1 + (time.monotonic() - began) / SEARCH_S)
        assert relay.incidents(Incident.CLIENT_REFUSED) == 100


def test_handshakes_that_do_not_end_do_not_keep_their_places(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("streamgauge.taps.proxy.relay.HANDSHAKE_S", 0.5)
    with contextlib.ExitStack() as stack:
        upstream = stack.enter_context(RawUpstream(answering(OK)))
        settings = settings_for(
            tmp_path,
            upstream.url,
            max_connections=4,
            max_connections_per_address=4,
            header_timeout_s=3_600,
            tls_certificate=make_pki(tmp_path).server,
        )
        with RunningRelay(settings) as relay:
            for _ in range(4):
                stack.enter_context(relay.connect())
            wait_for(lambda: read_clients(tmp_path / "counters")[0] == 4, "all places to be taken")
            wait_for(lambda: read_clients(tmp_path / "counters")[0] == 0, "the end of the handshakes")


def test_handshakes_that_do_not_end_do_not_shut_out_others(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("streamgauge.taps.proxy.relay.SHED_HANDSHAKE_S", 0.5)
    pki = make_pki(tmp_path)
    with contextlib.ExitStack() as stack:
        upstream = stack.enter_context(RawUpstream(answering(OK)))
        settings = settings_for(tmp_path, upstream.url, max_connections=4, tls_certificate=pki.server)
        relay = stack.enter_context(RunningRelay(settings))
        for address in ("127.0.0.1", "127.0.0.2", "127.0.0.1", "127.0.0.2"):
            stack.enter_context(from_address(relay, address))
        wait_for(lambda: read_clients(tmp_path / "counters")[0] == 4, "all places to be taken")
        began = time.monotonic()
        with connect(relay, pki, plain=from_address(relay, "127.0.0.3")) as honest:
            honest.sendall(begun(2) + b"{}")
            assert receive(honest, len(OK)) == OK
        assert time.monotonic() - began < HANDSHAKE_S / 2
        assert relay.incidents(Incident.CLIENT_SHED) >= 1


def test_responses_that_are_left_unread_do_not_shut_out_others(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Clients of two addresses ask for large responses and read nothing."""
    monkeypatch.setattr(client_module, "SHED_UNREAD_S", 0.5)
    size = 16_000_000

    def handler(one: socket.socket) -> None:
        while request := receive_request(one):
            if b"large" not in request:
                one.sendall(OK)
                continue
            one.sendall(UNTIL_CLOSED + b"x" * size)
            one.close()
            return

    with exchange_rig(tmp_path, handler, max_connections=4) as (relay, _, recorder), contextlib.ExitStack() as stack:
        unread = [
            stack.enter_context(from_address(relay, address))
            for address in ("127.0.0.1", "127.0.0.2", "127.0.0.1", "127.0.0.2")
        ]
        for one in unread:
            # Several segments of the loopback interface: with less, Linux sends a few KB at each timer of a closed window.
            one.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 256 * 1024)
            one.sendall(begun(2).replace(b"/messages", b"/large/messages") + b"{}")
        wait_for(lambda: read_clients(tmp_path / "counters") == (4, 4), "all places to be taken")
        with from_address(relay, "127.0.0.3") as honest:
            honest.sendall(begun(2) + b"{}")
            assert receive(honest, len(OK)) == OK
        shed = relay.incidents(Incident.CLIENT_SHED)
        assert shed >= 1
        endings = [one.ending for one in recorder.ended(1 + shed) if isinstance(one, ExchangeEnding)]
        assert endings.count(Ending.CLIENT) == shed
        assert endings.count(Ending.COMPLETE) == 1
        received = [receive_until_reset(one) for one in unread]
        assert [was_reset for _, was_reset in received].count(True) == shed, "a clean end would complete the response"
        assert all((len(data) < size) == was_reset for data, was_reset in received)


def test_the_unread_rest_of_a_response_does_not_shut_out_others(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The upstream has ended, and the relay holds less of the response than lets it pause."""
    monkeypatch.setattr(client_module, "SHED_UNREAD_S", 0.5)

    def handler(one: socket.socket) -> None:
        if b"large" not in receive_request(one):
            one.sendall(OK)
            return
        one.sendall(UNTIL_CLOSED)
        while not waiting_for_clients(rig[0]):
            one.sendall(b"x" * 16_000)
            time.sleep(0.005)
        one.close()

    with exchange_rig(tmp_path, handler, max_connections=1) as rig:
        with rig[0].connect() as unread:
            unread.sendall(begun(2).replace(b"/messages", b"/large/messages") + b"{}")
            assert only(rig[2].ended(), ExchangeEnding).ending is Ending.COMPLETE
            with from_address(rig[0], "127.0.0.3") as honest:
                honest.sendall(begun(2) + b"{}")
                assert receive(honest, len(OK)) == OK
        assert rig[0].incidents(Incident.CLIENT_SHED) == 1


def test_clients_that_were_refused_and_stay_do_not_shut_out_others(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(client_module, "_LINGER_NS", 60 * 10**9)
    with exchange_rig(tmp_path, answering(OK), max_connections=4) as (relay, _, _), contextlib.ExitStack() as stack:
        for address in ("127.0.0.1", "127.0.0.2", "127.0.0.1", "127.0.0.2"):
            refused = stack.enter_context(from_address(relay, address))
            refused.sendall(b"GET /x HTTP/1.2\r\n\r\n")
            assert receive_all(refused).startswith(b"HTTP/1.1 400 ")
        with from_address(relay, "127.0.0.3") as honest:
            honest.sendall(begun(2) + b"{}")
            assert receive(honest, len(OK)) == OK
