"""Ports of this machine on which nothing listens, for programs of tests and benchmarks."""

import random
import socket
from collections.abc import Iterator

HOST = "127.0.0.1"
# Below Linux's ephemeral ports (32768 and up): the system gives none of these to a client, or to another test's listener
# on port 0. So a port stays free, or a connection to it stays refused, until its own program listens.
_PORTS = range(20_000, 32_000)


def free_ports() -> Iterator[int]:
    """Different ones, in no order."""
    return (port for port in random.sample(_PORTS, len(_PORTS)) if _is_free(port))


def free_port() -> int:
    """One of them."""
    return next(free_ports())


def _is_free(port: int) -> bool:
    with socket.socket() as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind((HOST, port))
        except OSError:
            return False
        return True
