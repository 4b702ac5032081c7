"""Relays with a listening socket each: clients are spread over them, and none waits for a relay that has ended."""

import contextlib
import signal
import socket
import ssl
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
import trustme
from hypothesis import given
from hypothesis import strategies as st

from streamgauge.runtime.child import encode_settings
from streamgauge.runtime.listeners import SPREADS, Address, Listeners, open_listeners
from streamgauge.spool.read_counters import Incident
from streamgauge.taps.proxy.limits import RESERVED_DESCRIPTORS, SHED_IDLE_S, address_of, capacity_of
from tests.running import wait_for
from tests.taps.proxy.rig import (
    PATIENCE_S,
    Handler,
    RawUpstream,
    RunningRelay,
    answering,
    make_certificate,
    receive,
    receive_head,
    receive_until_reset,
    settings_for,
)

pytestmark = pytest.mark.slow

OK = b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok"
GET = b"GET /x HTTP/1.1\r\nHost: c\r\n\r\n"
ANY = Address(host="127.0.0.1", port=0)

linux = pytest.mark.skipif(not SPREADS, reason="the kernel does not spread connections here")


def start(folder: Path, upstream: RawUpstream, clients: Listeners, relay: int) -> subprocess.Popen[bytes]:
    """As the supervisor starts them."""
    own = clients.fd_of(relay)
    others = [fd for fd in clients.fds if fd != own]
    settings = settings_for(folder, upstream.url, listen_fd=own, other_fds=others, role=f"relay-{relay}")
    process = subprocess.Popen(
        [sys.executable, "-m", "streamgauge.taps.proxy"],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        pass_fds=clients.fds,
    )
    assert process.stdin is not None and process.stdout is not None
    process.stdin.write(encode_settings(settings) + b"\n")
    process.stdin.flush()
    assert process.stdout.readline() == b"ready\n"
    return process


@contextlib.contextmanager
def two_relays(folder: Path) -> Iterator[tuple[list[subprocess.Popen[bytes]], tuple[str, int]]]:
    with RawUpstream(answering(*[OK] * 500)) as upstream, open_listeners(ANY, "--listen", 2) as clients:
        relays = [start(folder, upstream, clients, relay) for relay in range(2)]
        host, _, port = clients.address.rpartition(":")
        try:
            yield relays, (host, int(port))
        finally:
            for process in relays:
                process.kill()
                process.communicate()


def ask(place: tuple[str, int]) -> None:
    with socket.create_connection(place, PATIENCE_S) as client:
        client.sendall(GET)
        assert receive(client, len(OK)) == OK


def sockets_of(process: subprocess.Popen[bytes]) -> int:
    found = 0
    for fd in Path(f"/proc/{process.pid}/fd").iterdir():
        with contextlib.suppress(OSError):
            found += str(fd.readlink()).startswith("socket:")
    return found


@linux
def test_clients_that_come_at_once_are_spread(tmp_path: Path) -> None:
    """If 200 connections choose at random, fewer than 50 for one relay has a probability of 10^-12."""
    with two_relays(tmp_path) as (relays, place):
        before = [sockets_of(process) for process in relays]
        clients = [socket.create_connection(place, PATIENCE_S) for _ in range(200)]
        deadline = time.monotonic() + PATIENCE_S
        while sum(counts := [sockets_of(one) - was for one, was in zip(relays, before, strict=True)]) < 200:
            assert time.monotonic() < deadline, counts
            time.sleep(0.02)
        assert min(counts) > 50, counts
        for client in clients:
            client.close()


@linux
@pytest.mark.parametrize("how", [signal.SIGKILL, signal.SIGSTOP], ids=["dead", "hanging"])
def test_no_client_waits_for_a_relay_that_has_ended(tmp_path: Path, how: signal.Signals) -> None:
    with two_relays(tmp_path) as (relays, place):
        for _ in range(10):
            ask(place)
        relays[0].send_signal(how)
        time.sleep(0.05)
        for _ in range(20):  # about half of them are given to the relay that has ended
            ask(place)


@pytest.mark.parametrize("secure", [False, True], ids=["plain", "TLS"])
def test_another_relay_serves_as_the_relay_itself_does(tmp_path: Path, secure: bool) -> None:
    authority = trustme.CA()
    more: dict[str, object] = {}
    if secure:
        authority.issue_cert("127.0.0.1").private_key_and_cert_chain_pem.write_to_path(tmp_path / "own.pem")
        more["tls_certificate"] = tmp_path / "own.pem"
    left = socket.create_server(("127.0.0.1", 0))
    with (
        RawUpstream(answering(OK, OK)) as upstream,
        RunningRelay(settings_for(tmp_path, upstream.url, **more), others=[left]) as relay,
        socket.create_connection(left.getsockname(), PATIENCE_S) as client,
    ):
        talking: socket.socket = client
        if secure:
            context = ssl.create_default_context()
            authority.configure_trust(context)
            talking = context.wrap_socket(client, server_hostname="127.0.0.1")
        with talking:
            for _ in range(2):
                talking.sendall(GET)
                assert receive(talking, len(OK)) == OK
            relay.drain(5.0)
            assert receive_until_reset(talking)[0] == b""
        assert left.fileno() == -1
        with pytest.raises(ConnectionRefusedError):
            socket.create_connection(("127.0.0.1", relay.port), PATIENCE_S)


def test_a_client_that_left_before_it_was_accepted_is_ignored(tmp_path: Path) -> None:
    left = socket.create_server(("127.0.0.1", 0))
    place = left.getsockname()
    with RawUpstream(answering(OK)) as upstream, RunningRelay(settings_for(tmp_path, upstream.url), others=[left]):
        for _ in range(5):
            one = socket.create_connection(place, PATIENCE_S)
            one.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, b"\1\0\0\0\0\0\0\0")
            one.close()
        ask(place)


def asked(client: socket.socket) -> bool:
    """Whether a request on this connection is answered."""
    try:
        client.sendall(GET)
        return receive(client, len(OK)) == OK
    except OSError:
        return False


def answering_after(go: threading.Event) -> Handler:
    """An upstream that answers each request, but none before `go`."""

    def slow(one: socket.socket) -> None:
        while receive_head(one):
            assert go.wait(PATIENCE_S)
            one.sendall(OK)

    return slow


def test_connections_beyond_the_limit_wait_and_are_served_when_one_ends(tmp_path: Path) -> None:
    """No connection with a running request is closed; an idle one makes room."""
    go = threading.Event()
    slow = answering_after(go)
    with (
        RawUpstream(slow) as upstream,
        RunningRelay(settings_for(tmp_path, upstream.url, max_connections=4, max_connections_per_address=4)) as relay,
        contextlib.ExitStack() as stack,
    ):
        clients = [stack.enter_context(relay.connect()) for _ in range(6)]
        for client in clients:
            client.sendall(GET)
        wait_for(lambda: upstream.connections == 4, "upstream connections")
        time.sleep(0.2)
        assert upstream.connections == 4 and relay.incidents(Incident.CLIENT_SHED) == 0
        go.set()
        for client in clients:
            assert receive(client, len(OK)) == OK
        assert relay.incidents(Incident.CLIENT_SHED) >= 1 and relay.incidents(Incident.CLIENT_REFUSED) == 0


def test_silent_connections_make_room_for_new_ones(tmp_path: Path) -> None:
    """Those that have been idle longest are closed; connections with a running request stay."""
    go = threading.Event()
    slow = answering_after(go)
    with (
        RawUpstream(slow, answering(*[OK] * 100)) as upstream,
        RunningRelay(settings_for(tmp_path, upstream.url, max_connections=50, max_connections_per_address=50)) as relay,
        contextlib.ExitStack() as stack,
    ):
        busy = stack.enter_context(relay.connect())
        busy.sendall(GET)
        wait_for(lambda: upstream.connections == 1, "upstream connections")
        silent = [stack.enter_context(relay.connect()) for _ in range(49)]
        half = stack.enter_context(relay.connect())
        half.sendall(GET[:10])
        assert asked(stack.enter_context(relay.connect()))
        shed = relay.incidents(Incident.CLIENT_SHED)
        assert 1 <= shed <= 49
        assert receive_until_reset(silent[0])[0] == b""
        go.set()
        assert receive(busy, len(OK)) == OK


def test_an_address_at_its_limit_is_refused_and_others_are_served(tmp_path: Path) -> None:
    go = threading.Event()
    slow = answering_after(go)
    with (
        RawUpstream(*[slow] * 6, answering(*[OK] * 100)) as upstream,
        RunningRelay(settings_for(tmp_path, upstream.url, max_connections=8)) as relay,
        contextlib.ExitStack() as stack,
    ):
        greedy = [stack.enter_context(relay.connect()) for _ in range(6)]
        for client in greedy:
            client.sendall(GET)
        wait_for(lambda: upstream.connections == 6, "upstream connections")
        refused = stack.enter_context(relay.connect())
        assert receive_until_reset(refused)[0] == b""
        assert relay.incidents(Incident.CLIENT_REFUSED) == 1
        other = stack.enter_context(socket.create_connection(("127.0.0.1", relay.port), PATIENCE_S, ("127.0.0.2", 0)))
        assert asked(other)
        go.set()
        assert all(receive(client, len(OK)) == OK for client in greedy)
        wait_for(lambda: asked(stack.enter_context(relay.connect())), "room for a connection")


def test_a_tls_handshake_that_does_not_complete_counts_as_a_connection(tmp_path: Path) -> None:
    certificate, key = make_certificate(tmp_path, "IP:127.0.0.1")
    with RawUpstream(answering(*[OK] * 100)) as upstream:
        settings = settings_for(
            tmp_path,
            upstream.url,
            max_connections=4,
            header_timeout_s=1.0,
            tls_certificate=certificate,
            tls_key=key,
        )
        with RunningRelay(settings) as relay, contextlib.ExitStack() as stack:
            silent = [stack.enter_context(relay.connect()) for _ in range(3)]
            refused = stack.enter_context(relay.connect())
            assert receive_until_reset(refused)[0] == b""
            for client in silent:
                assert receive_until_reset(client)[0] == b""  # the handshake's deadline
            context = ssl.create_default_context(cafile=str(certificate))

            def served() -> bool:
                with (
                    contextlib.suppress(OSError),
                    relay.connect() as plain,
                    context.wrap_socket(plain, server_hostname="127.0.0.1") as client,
                ):
                    return asked(client)
                return False

            wait_for(served, "room for a connection")


def test_descriptors_limit_connections_and_keep_some_for_upstreams(tmp_path: Path) -> None:
    """With a limit of 200 descriptors and 400 silent clients of one address, requests of another address are answered at
    once, those of the same address when its silent connections have been idle for long enough. A log line reports it.
    """
    with RawUpstream(answering(*[OK] * 100)) as upstream, open_listeners(ANY, "--listen") as clients:
        settings = settings_for(tmp_path, upstream.url, listen_fd=clients.fd_of(0), role="relay-0")
        process = subprocess.Popen(
            ["prlimit", "--nofile=200:200", sys.executable, "-m", "streamgauge.taps.proxy"],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            pass_fds=clients.fds,
        )
        assert process.stdin is not None and process.stdout is not None and process.stderr is not None
        process.stdin.write(encode_settings(settings) + b"\n")
        process.stdin.flush()
        assert process.stdout.readline() == b"ready\n"
        assert b"the limit of 200 file descriptors allows only" in process.stderr.readline()
        host, _, port = clients.address.rpartition(":")
        with contextlib.ExitStack() as stack:
            stack.callback(process.communicate)
            stack.callback(process.kill)
            place = (host, int(port))
            for _ in range(400):
                stack.enter_context(socket.create_connection(place, PATIENCE_S))
            for _ in range(20):
                with socket.create_connection(place, PATIENCE_S, ("127.0.0.2", 0)) as other:
                    assert asked(other)
            time.sleep(SHED_IDLE_S)
            ask(place)


def test_which_clients_share_an_address() -> None:
    assert address_of(("192.0.2.7", 1)) == address_of(("::ffff:192.0.2.7", 1, 0, 0)) == "192.0.2.7"
    assert address_of(("2001:db8::1", 1, 0, 0)) == address_of(("2001:db8::ffff:1", 1, 0, 0)) == "2001:db8::/64"
    assert address_of(("fe80::1%eth0", 1, 0, 2)) == "fe80::/64"
    assert address_of("") == ""


@given(st.integers(0, 2_000_000), st.integers(1, 1_000_000), st.integers(1, 100))
def test_capacity_leaves_a_descriptor_for_each_upstream_connection(nofile: int, wanted: int, upstreams: int) -> None:
    capacity = capacity_of(nofile, wanted, upstreams)
    assert 1 <= capacity <= wanted
    if capacity > 1:
        assert 3 * capacity + upstreams + RESERVED_DESCRIPTORS <= nofile
