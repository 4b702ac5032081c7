"""Listening sockets, which the parent makes and its relays inherit: one for each relay if the kernel spreads connections
over them, else one for all (docs/decisions/0002-processes-of-a-tap.md).
"""

import errno
import ipaddress
import socket
import sys
import time
from dataclasses import dataclass, replace
from typing import Self

from streamgauge.errors import Unavailable

# After a kill the old processes need a moment to release the port (seconds).
BIND_RETRY_S = 2.0

# Connections that the kernel queues while we are busy; the kernel reduces the number to its own limit.
BACKLOG = 1_024

_RETRY_S = 0.05

# With SO_REUSEPORT Linux spreads new connections over all sockets of an address; on other systems one socket gets all.
SPREADS = sys.platform == "linux"


@dataclass(frozen=True)
class Address:
    """A host and port to listen on; port 0 takes any free one."""

    host: str
    port: int

    def __str__(self) -> str:
        return f"[{self.host}]:{self.port}" if ":" in self.host else f"{self.host}:{self.port}"


def reachable_host(host: str) -> str:
    """The host by which a client on this host reaches a listener: for all addresses that of the loopback."""
    return {"0.0.0.0": "127.0.0.1", "::": "::1", "[::]": "[::1]"}.get(host, host)  # noqa: S104 - it is replaced


def is_loopback(host: str) -> bool:
    """Whether only this host reaches the address. A name is not resolved: it may have another address tomorrow."""
    try:
        return ipaddress.ip_address(host.partition("%")[0]).is_loopback
    except ValueError:
        return host.lower().removesuffix(".") == "localhost"


class Listeners:
    """One address, and the sockets that listen on it: as many as relays, or a single one."""

    def __init__(self, sockets: list[socket.socket]) -> None:
        self._sockets = sockets
        self.address = bound_address(sockets[0])
        self.fds = [listener.fileno() for listener in sockets]

    def fd_of(self, relay: int) -> int:
        """The descriptor of the socket for the relay of this number."""
        return self.fds[relay % len(self.fds)]

    def close(self) -> None:
        """Close this process's copies. The kernel accepts connections until each process has closed its copies."""
        for listener in self._sockets:
            listener.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


def open_listeners(address: Address, option: str, relays: int = 1) -> Listeners:
    """The listening sockets for `relays` processes. `option` is the option to name if another address may help.

    Raises Unavailable.
    """
    first = listening_socket(address, option)
    if relays == 1 or not SPREADS:
        return Listeners([first])
    bound = replace(address, port=first.getsockname()[1])
    first.close()  # it showed that the port is free: sockets that share a port do not show that
    sockets: list[socket.socket] = []
    try:
        for _ in range(relays):
            sockets.append(_bind(bound, shared=True))
    except OSError as error:
        for listener in sockets:
            listener.close()
        raise not_available(str(bound), option, error) from None
    return Listeners(sockets)


def reserved_port(address: Address, option: str) -> socket.socket:
    """A socket that holds an address, and does not listen: processes that share the port (SO_REUSEPORT) may listen there.

    `option` is the option to name if another address may help. Raises Unavailable.
    """
    with listening_socket(address, option) as first:  # it shows that the port is free: sockets that share it do not
        bound = replace(address, port=first.getsockname()[1])
    try:
        return _bind(bound, shared=True, listens=False)
    except OSError as error:
        raise not_available(str(bound), option, error) from None


def listening_socket(address: Address, option: str) -> socket.socket:
    """A listening socket that children may inherit. `option` is the option to name if another address may help.

    Raises Unavailable.
    """
    deadline = time.monotonic() + BIND_RETRY_S
    while True:
        try:
            return _bind(address)
        except OSError as error:
            if error.errno != errno.EADDRINUSE or time.monotonic() > deadline:
                raise not_available(str(address), option, error) from None
            time.sleep(_RETRY_S)


def sockets_of(address: Address, option: str) -> list[socket.socket]:
    """A listening socket for each address of the host's name, such as the two of localhost, as asyncio's servers listen.

    With port 0 all have the port of the first one. `option` is the option to name if another address may help. Raises
    Unavailable.
    """
    try:
        resolved = socket.getaddrinfo(address.host, address.port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE)
    except OSError as error:
        raise not_available(str(address), option, error) from None
    sockets: list[socket.socket] = []
    try:
        for host in dict.fromkeys(str(entry[4][0]) for entry in resolved):
            port = sockets[0].getsockname()[1] if sockets else address.port
            sockets.append(listening_socket(Address(host, port), option))
    except Unavailable:
        for opened in sockets:
            opened.close()
        raise
    return sockets


def not_available(address: str, option: str, error: OSError) -> Unavailable:
    """The error, with a sentence, for an address on which this process cannot listen."""
    if error.errno == errno.EADDRINUSE:
        return Unavailable(
            f"the address {address} is in use: choose another with {option}, or stop the process that uses it"
        )
    reason = error.strerror or str(error)
    return Unavailable(f"the address {address} cannot be used ({reason}): choose another with {option}")


def bound_address(bound: socket.socket) -> str:
    """The address of a bound socket, as HOST:PORT."""
    host, port = bound.getsockname()[:2]
    return f"[{host}]:{port}" if ":" in host else f"{host}:{port}"


def _bind(address: Address, *, shared: bool = False, listens: bool = True) -> socket.socket:
    family, _, _, _, socket_address = socket.getaddrinfo(address.host, address.port, type=socket.SOCK_STREAM)[0]
    listener = socket.socket(family, socket.SOCK_STREAM)
    try:
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        if shared:
            listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEPORT, 1)
        listener.bind(socket_address)
        if listens:
            listener.listen(BACKLOG)
    except OSError:
        listener.close()
        raise
    return listener
