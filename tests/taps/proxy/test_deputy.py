"""Relays with a listening socket each: clients are spread over them, and none waits for one that is gone."""

import contextlib
import signal
import socket
import ssl
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import msgspec
import pytest
import trustme

from streamgauge.config import Address
from streamgauge.listening import SPREADS, Listening, listening
from tests.taps.proxy.rig import (
    PATIENCE_S,
    RawUpstream,
    RunningRelay,
    answering,
    receive,
    receive_until_reset,
    settings_for,
)

OK = b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok"
GET = b"GET /x HTTP/1.1\r\nHost: c\r\n\r\n"
ANY = Address(host="127.0.0.1", port=0)

linux = pytest.mark.skipif(not SPREADS, reason="the kernel does not spread connections here")


def start(folder: Path, upstream: RawUpstream, clients: Listening, relay: int) -> subprocess.Popen[bytes]:
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
    process.stdin.write(msgspec.json.encode(settings) + b"\n")
    process.stdin.flush()
    assert process.stdout.readline() == b"ready\n"
    return process


@contextlib.contextmanager
def two_relays(folder: Path) -> Iterator[tuple[list[subprocess.Popen[bytes]], tuple[str, int]]]:
    with RawUpstream(answering(*[OK] * 500)) as upstream, listening(ANY, "--listen", 2) as clients:
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
    """Of 200 that choose by lot, less than 50 for one relay is a chance of one in 10^12."""
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
def test_no_client_waits_for_a_relay_that_is_gone(tmp_path: Path, how: signal.Signals) -> None:
    with two_relays(tmp_path) as (relays, place):
        for _ in range(10):
            ask(place)
        relays[0].send_signal(how)
        time.sleep(0.05)
        for _ in range(20):  # about half of them are given to the one that is gone
            ask(place)


@pytest.mark.parametrize("secure", [False, True], ids=["plain", "TLS"])
def test_a_deputy_serves_as_the_relay_itself_does(tmp_path: Path, secure: bool) -> None:
    authority = trustme.CA()
    more: dict[str, object] = {}
    if secure:
        authority.issue_cert("127.0.0.1").private_key_and_cert_chain_pem.write_to_path(tmp_path / "own.pem")
        more["tls_certificate"] = str(tmp_path / "own.pem")
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


def test_a_client_that_left_meanwhile_is_nothing(tmp_path: Path) -> None:
    left = socket.create_server(("127.0.0.1", 0))
    place = left.getsockname()
    with RawUpstream(answering(OK)) as upstream, RunningRelay(settings_for(tmp_path, upstream.url), others=[left]):
        for _ in range(5):
            one = socket.create_connection(place, PATIENCE_S)
            one.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, b"\1\0\0\0\0\0\0\0")
            one.close()
        ask(place)
