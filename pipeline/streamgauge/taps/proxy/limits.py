"""Limits on the resources of a relay that its clients may use: connections, bytes of requests, time."""

import ipaddress
from collections import Counter

# Idle upstream connections that one client's connection keeps, each to a different upstream: a client may alternate
# between two providers on one connection. Each costs a descriptor.
KEPT_MOST = 2
# One address may have three quarters of the clients' connections, so that no single client shuts out all others.
_ADDRESS_SHARE = (3, 4)
# Descriptors besides those of clients and upstreams: listening sockets, the recorder, counters, files of libraries.
RESERVED_DESCRIPTORS = 96
# Bytes of requests that one relay holds for all its clients: heads that are not complete, and pipelined requests.
MAX_CLIENT_BYTES = 64 * 1024 * 1024
# Bytes of requests that one client may send before the response to an earlier one is over: the size of one read of the
# socket. A client that waits for each response holds none.
MAX_PIPELINED_BYTES = 256 * 1024
# Header fields of a request. Browsers send some 20. The parsed form of a field of four bytes takes 30 times as much
# memory.
MAX_FIELDS = 512
# Memory that a parsed field or a buffered piece takes besides its content (bytes): objects and references.
OBJECT_BYTES = 128


# A request's body must arrive within this time, and the time that its bytes take at this rate (seconds, bytes a second). The
# time in which the relay does not read the body counts for neither. A modem of the nineties sends five times as much.
BODY_GRACE_S = 60.0
BODY_RATE = 1_000
# While no further connection is possible: how long a client has its place at least (seconds). One that waits for nothing: the
# first request of a client that has just connected may be on its way. One that is sending a body: instead of BODY_GRACE_S.
SHED_IDLE_S = 1.0
SHED_SLOW_S = 10.0
# While no further connection is possible: how long a client may leave the write buffer of its response unread before it may
# lose its place (seconds). It is then behind by 64 KiB and what its socket holds: some thousand events.
SHED_UNREAD_S = 60.0
# How long a client may take for the handshake of TLS (seconds), and how long at least while no connection is left.
HANDSHAKE_S = 15.0
SHED_HANDSHAKE_S = 3.0


class ByteBudget:
    """The bytes of requests that a relay may buffer for all its clients together."""

    def __init__(self, most: int) -> None:
        self.left = most

    def charge(self, more: int) -> bool:
        """Takes `more` bytes from the budget; a negative number returns them. Returns False, and takes none, if too few are
        left.
        """
        if more > self.left:
            return False
        self.left -= more
        return True


class Connections:
    """Counts the connected clients: in all, and from each address. IPv6 addresses count by their /64 network."""

    def __init__(self, most: int, most_per_address: int | None = None) -> None:
        self.most = most
        share, of = _ADDRESS_SHARE
        self.most_per_address = most_per_address or max(1, most * share // of)
        self.count = 0
        self._by_address: Counter[str] = Counter()

    @property
    def full(self) -> bool:
        """Whether no further connection may be accepted."""
        return self.count >= self.most

    def address_is_full(self, address: str) -> bool:
        """Whether no further connection may be accepted from this address."""
        return self._by_address[address] >= self.most_per_address

    def add(self, address: str) -> None:
        """Counts an accepted connection from `address`, as `address_of` returns it."""
        self.count += 1
        self._by_address[address] += 1

    def remove(self, address: str) -> None:
        """Counts the end of a connection from `address`."""
        self.count -= 1
        self._by_address[address] -= 1
        if not self._by_address[address]:
            del self._by_address[address]


def address_of(peer: object) -> str:
    """The address that a connection counts for, from the peer that `accept` returns: an IPv4 host, or an IPv6 /64 network."""
    host = str(peer[0]) if isinstance(peer, tuple) and peer else ""
    try:
        address = ipaddress.ip_address(host.partition("%")[0])
    except ValueError:
        return host
    if isinstance(address, ipaddress.IPv4Address):
        return host
    return str(address.ipv4_mapped or ipaddress.IPv6Network((address, 64), strict=False))


def capacity_of(descriptors: int, wanted: int, upstreams: int) -> int:
    """How many clients fit into this many descriptors, but at most `wanted`.

    Each client takes one descriptor, and KEPT_MOST for its upstream connections. Each upstream may have one more connection,
    which is being watched (`upstream.Connector`).
    """
    return max(1, min(wanted, (descriptors - RESERVED_DESCRIPTORS - upstreams) // (1 + KEPT_MOST)))
