"""What clients may make a relay hold: connections, bytes of requests, time. Each limit has a name, a unit and a reason."""

import ipaddress
from collections import Counter

import msgspec

# The default of `--max-connections`. Each connection may need a second descriptor for its upstream; with what a connection
# may hold (see below) this many take about 1 GiB at the very worst, and 40 MiB when they are idle.
MAX_CONNECTIONS = 8_192
# Of these one address may have three quarters, so that no single client shuts out all others.
_ADDRESS_SHARE = (3, 4)
# Descriptors that are no client's and no upstream's: listening sockets, the recorder, counters, libraries' files.
RESERVED_DESCRIPTORS = 96
# The part of the other descriptors that idle upstream connections may take.
_IDLE_SHARE = 8
# Bytes of requests that one relay holds for all its clients: heads that are not complete, and pipelined requests.
MAX_CLIENT_BYTES = 64 * 1024 * 1024
# Bytes of requests that one client may send before the answer to an earlier one is over. As much as one read of the socket
# brings; a client that waits for its answers holds none.
MAX_PIPELINED_BYTES = 256 * 1024
# Header fields of a request. Browsers send some 20; the parsed form of a field of four bytes takes 30 times as much.
MAX_FIELDS = 512
# Memory that a parsed field or a held piece takes besides its content (bytes): objects and references.
OBJECT_BYTES = 128


class Limits(msgspec.Struct, frozen=True):
    """Times in seconds; sizes of a request's head and body in bytes (None: no limit)."""

    header_timeout_s: float
    keep_alive_s: float
    upstream_idle_timeout_s: float
    max_request_head: int
    max_request_body: int | None


class ByteBudget:
    """Bytes that all clients of a relay together may make it hold."""

    def __init__(self, most: int) -> None:
        self.left = most

    def charge(self, more: int) -> bool:
        """Take `more` bytes, or give them back if negative. False, and nothing is taken, if fewer are left."""
        if more > self.left:
            return False
        self.left -= more
        return True


class Connections:
    """How many clients are connected: in all, and from each address. An IPv6 address counts by its /64 network."""

    def __init__(self, most: int, most_per_address: int | None = None) -> None:
        self.most = most
        share, of = _ADDRESS_SHARE
        self.most_per_address = most_per_address or max(1, most * share // of)
        self.count = 0
        self._by_address: Counter[str] = Counter()

    @property
    def full(self) -> bool:
        """No further connection may be accepted."""
        return self.count >= self.most

    def address_is_full(self, address: str) -> bool:
        """This address has as many connections as one may have."""
        return self._by_address[address] >= self.most_per_address

    def add(self, address: str) -> None:
        """A connection from `address`, as `address_of` gives it, was accepted."""
        self.count += 1
        self._by_address[address] += 1

    def remove(self, address: str) -> None:
        """It has ended."""
        self.count -= 1
        self._by_address[address] -= 1
        if not self._by_address[address]:
            del self._by_address[address]


def address_of(peer: object) -> str:
    """The address that a connection counts for, from what `accept` gives: an IPv4 host, or an IPv6 /64 network."""
    host = str(peer[0]) if isinstance(peer, tuple) and peer else ""
    try:
        address = ipaddress.ip_address(host.partition("%")[0])
    except ValueError:
        return host
    if isinstance(address, ipaddress.IPv4Address):
        return host
    return str(address.ipv4_mapped or ipaddress.IPv6Network((address, 64), strict=False))


class Capacity(msgspec.Struct, frozen=True):
    """How the descriptors of a process are divided: clients, and idle connections to each upstream."""

    clients: int
    idle_per_upstream: int


def capacity_of(descriptors: int, wanted: int, upstreams: int, most_idle: int) -> Capacity:
    """How many clients fit into this many descriptors, `wanted` at most, so that each can have an upstream connection."""
    free = max(descriptors - RESERVED_DESCRIPTORS, 0)
    idle = max(1, min(most_idle, free // _IDLE_SHARE // upstreams))
    return Capacity(max(1, min(wanted, (free - idle * upstreams) // 2)), idle)
