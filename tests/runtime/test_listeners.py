"""Listening sockets: bound, shared, and one sentence for an address that cannot be used."""

import os
import socket
import threading

import pytest

from streamgauge.errors import Unavailable
from streamgauge.runtime import listeners as listening_module
from streamgauge.runtime.listeners import SPREADS, Address, bound_address, listening_socket, open_listeners

ANY = Address(host="127.0.0.1", port=0)


def test_chosen_free_port_is_shown() -> None:
    with listening_socket(ANY, "--listen") as bound:
        host, _, port = bound_address(bound).rpartition(":")
        assert host == "127.0.0.1"
        socket.create_connection((host, int(port)), 5).close()


@pytest.mark.skipif(not socket.has_ipv6, reason="no IPv6 here")
def test_ipv6_address_is_shown_in_brackets() -> None:
    with listening_socket(Address(host="::1", port=0), "--listen") as bound:
        assert bound_address(bound) == f"[::1]:{bound.getsockname()[1]}"


def test_address_in_use_is_retried_for_some_seconds() -> None:
    with socket.create_server(("127.0.0.1", 0)) as other:
        taken = Address(host="127.0.0.1", port=other.getsockname()[1])
        letting_go = threading.Timer(0.3, other.close)
        letting_go.start()
        with listening_socket(taken, "--listen") as bound:
            assert bound.getsockname()[1] == taken.port
        letting_go.join()


def test_address_that_stays_in_use_is_one_sentence(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(listening_module, "BIND_RETRY_S", 0.1)
    with socket.create_server(("127.0.0.1", 0)) as other:
        taken = Address(host="127.0.0.1", port=other.getsockname()[1])
        with pytest.raises(
            Unavailable, match=rf"^the address {taken} is in use: choose another with --listen, or stop"
        ):
            listening_socket(taken, "--listen")


@pytest.mark.parametrize("host", ["192.0.2.1", "no-such-host.invalid"])
def test_an_address_that_is_not_ours_is_one_sentence(host: str) -> None:
    with pytest.raises(
        Unavailable, match=rf"^the address {host}:0 cannot be used \(.+\): choose another with --admin$"
    ):
        listening_socket(Address(host=host, port=0), "--admin")


@pytest.mark.skipif(not SPREADS, reason="the kernel does not spread connections here: one socket is shared")
def test_each_relay_has_a_socket_of_its_own_on_one_address() -> None:
    with open_listeners(ANY, "--listen", 3) as clients:
        assert len({clients.fd_of(relay) for relay in range(3)}) == 3 == len(clients.fds)
        for fd in clients.fds:
            with socket.socket(fileno=os.dup(fd)) as one:
                assert bound_address(one) == clients.address


def test_single_relay_does_not_share_its_port(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(listening_module, "BIND_RETRY_S", 0.1)
    for relays in (1, 3):
        with open_listeners(ANY, "--listen", relays) as clients:
            port = int(clients.address.rpartition(":")[2])
            for others in (1, 3):  # also another tap that would share it
                with pytest.raises(Unavailable, match="is in use"):
                    open_listeners(Address(host="127.0.0.1", port=port), "--listen", others)
        with open_listeners(Address(host="127.0.0.1", port=port), "--listen", relays):
            pass


def test_where_the_kernel_does_not_spread_one_socket_is_shared(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(listening_module, "SPREADS", False)
    with open_listeners(ANY, "--listen", 3) as clients:
        assert [clients.fd_of(relay) for relay in range(3)] == clients.fds * 3
