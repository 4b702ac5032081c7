"""Ports of this machine on which nothing listens, for programs of tests and benchmarks.

A port that was given belongs to this process until it ends: no other process of a run gets it, so that a connection to a port
on which nothing listens stays refused. A lock on one byte of a common file says so; the system ends it with the process.
"""

import fcntl
import os
import random
import socket
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from tempfile import gettempdir

HOST = "127.0.0.1"
# Below Linux's ephemeral ports (32768 and up): the system gives none of these to a client, or to another test's listener
# on port 0. So a port stays free, or a connection to it stays refused, until its own program listens.
_PORTS = range(20_000, 32_000)


# The ports that this process was given: its own locks do not exclude it.
_given: set[int] = set()


def free_ports() -> Iterator[int]:
    """Different ones, in no order."""
    return (port for port in random.sample(_PORTS, len(_PORTS)) if _is_reserved(port) and _is_free(port))


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


@cache
def _locks() -> int:
    """The file whose bytes are locked. It stays open: to close it would end all locks of this process."""
    return os.open(
        Path(gettempdir(), f"streamgauge-test-ports-{os.getuid()}"), os.O_CREAT | os.O_RDWR | os.O_CLOEXEC, 0o600
    )


def _is_reserved(port: int) -> bool:
    """Reserves a port; False if this process has it already, or another one."""
    if port in _given:
        return False
    try:
        fcntl.lockf(_locks(), fcntl.LOCK_EX | fcntl.LOCK_NB, 1, port)
    except OSError:
        return False
    _given.add(port)
    return True
