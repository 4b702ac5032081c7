"""Listening sockets: bound, shared, and a sentence where they cannot be had."""

import socket
import threading

import pytest

from streamgauge import listening
from streamgauge.config import Address
from streamgauge.errors import Unavailable
from streamgauge.listening import bound_address, listening_socket

ANY = Address(host="127.0.0.1", port=0)


def test_any_free_port_is_told() -> None:
    with listening_socket(ANY, "--listen") as bound:
        host, _, port = bound_address(bound).rpartition(":")
        assert host == "127.0.0.1"
        socket.create_connection((host, int(port)), 5).close()


@pytest.mark.skipif(not socket.has_ipv6, reason="no IPv6 here")
def test_an_ipv6_address_is_told_in_brackets() -> None:
    with listening_socket(Address(host="::1", port=0), "--listen") as bound:
        assert bound_address(bound) == f"[::1]:{bound.getsockname()[1]}"


def test_an_address_that_is_taken_is_waited_for_a_moment() -> None:
    with socket.create_server(("127.0.0.1", 0)) as other:
        taken = Address(host="127.0.0.1", port=other.getsockname()[1])
        letting_go = threading.Timer(0.3, other.close)
        letting_go.start()
        with listening_socket(taken, "--listen") as bound:
            assert bound.getsockname()[1] == taken.port
        letting_go.join()


def test_and_then_it_is_one_sentence(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(listening, "BIND_RETRY_S", 0.1)
    with socket.create_server(("127.0.0.1", 0)) as other:
        taken = Address(host="127.0.0.1", port=other.getsockname()[1])
        with pytest.raises(Unavailable, match=rf"^the address {taken} is taken: choose another with --listen, or stop"):
            listening_socket(taken, "--listen")


@pytest.mark.parametrize("host", ["192.0.2.1", "no-such-host.invalid"])
def test_an_address_that_is_not_ours_is_one_sentence(host: str) -> None:
    with pytest.raises(
        Unavailable, match=rf"^the address {host}:0 cannot be used \(.+\): choose another with --admin$"
    ):
        listening_socket(Address(host=host, port=0), "--admin")
