"""One captured packet -> its TCP segment. Pure; never raises, whatever the bytes are.

It reads Ethernet, Linux "cooked" v1 and v2, BSD loopback and raw IP (link types: https://www.tcpdump.org/linktypes.html),
VLAN tags, IPv4, and IPv6 with its extension headers. Checksums are not checked: the sender's own host captures a packet
before its network card fills them in. A first fragment is read as far as it goes. A later fragment is not read: its bytes
are a hole in the stream.
"""

import struct
from enum import IntEnum
from ipaddress import ip_address

import msgspec

FIN, SYN, RST, PSH, ACK = 0x01, 0x02, 0x04, 0x08, 0x10


class LinkType(IntEnum):
    """The header with which a packet begins; numbers of the registry named above."""

    NULL = 0  # BSD loopback: the address family, in the byte order of the host
    ETHERNET = 1
    RAW_OPENBSD = 12
    RAW_BSD = 14
    RAW = 101
    LOOP = 108  # the same as NULL, in network byte order
    LINUX_SLL = 113
    IPV4 = 228
    IPV6 = 229
    LINUX_SLL2 = 276


class Segment(msgspec.Struct, frozen=True, gc=False):
    """One TCP segment. `source`, `target`: address and port, in the packet's bytes; `at_ns`: when it was captured."""

    at_ns: int
    source: bytes
    target: bytes
    sequence: int
    acknowledged: int
    flags: int
    payload: bytes


_IPV4, _IPV6 = 0x0800, 0x86DD
_VLAN = frozenset((0x8100, 0x88A8, 0x9100))
# Limit of tags, or of extension headers, in one packet: twice what is in use.
_MAX_HEADERS = 8
_TCP_PROTOCOL = 6
_FRAGMENT_HEADER, _AUTHENTICATION_HEADER = 44, 51
# Hop-by-hop, routing, destination options, mobility, HIP, shim6: a length in units of 8 bytes (RFC 8200, 4.2).
_OPTIONS_HEADERS = frozenset((0, 43, 60, 135, 139, 140))

# Of an IPv4 header: version and length, total length, fragment, protocol. Of a TCP header: numbers, offset, flags.
_IP = struct.Struct(">BxHxxHxB")
_TCP = struct.Struct(">IIBB")
_TCP_BYTES = 20
_U16 = struct.Struct(">H")


def decode(link_type: int, data: bytes, at_ns: int) -> Segment | None:
    """The TCP segment in a packet; None if there is none or it cannot be read."""
    start = _network_layer(link_type, data)
    return None if start is None else decode_ip(data, at_ns, start)


def decode_ip(data: bytes, at_ns: int, start: int = 0) -> Segment | None:
    """The same for a packet whose IP header begins at `start`."""
    if len(data) <= start:
        return None
    version = data[start] >> 4
    if version == 4:
        return _ipv4(data, at_ns, start)
    return _ipv6(data, at_ns, start) if version == 6 else None


def _network_layer(link_type: int, data: bytes) -> int | None:
    """The offset of the IP header; None if the packet is not IP."""
    match link_type:
        case LinkType.ETHERNET:
            return _after_tags(data, 12)
        case LinkType.LINUX_SLL:
            return _after_tags(data, 14)
        case LinkType.LINUX_SLL2:
            return 20 if data[:2] in (b"\x08\x00", b"\x86\xdd") else None
        case LinkType.NULL | LinkType.LOOP:
            return 4
        case LinkType.RAW | LinkType.RAW_BSD | LinkType.RAW_OPENBSD | LinkType.IPV4 | LinkType.IPV6:
            return 0
        case _:
            return None


def _after_tags(data: bytes, at: int) -> int | None:
    """The offset after the Ethernet type at `at`, and after VLAN tags before it; None if it is not IP."""
    for _ in range(_MAX_HEADERS):
        if len(data) < at + 2:
            return None
        kind = _U16.unpack_from(data, at)[0]
        if kind in (_IPV4, _IPV6):
            return at + 2
        if kind not in _VLAN:
            return None
        at += 4
    return None


def _ipv4(data: bytes, at_ns: int, start: int) -> Segment | None:
    held = len(data)
    if held < start + 20:
        return None
    first, total, fragment, protocol = _IP.unpack_from(data, start)
    header = (first & 0x0F) * 4
    if protocol != _TCP_PROTOCOL or fragment & 0x1FFF or header < 20:  # not TCP, or a later fragment
        return None
    end = start + total if 0 < total < held - start else held  # 0: larger than the field, by segmentation offload
    return _tcp(data, at_ns, start + 12, 4, start + header, end)


def _ipv6(data: bytes, at_ns: int, start: int) -> Segment | None:
    if len(data) < start + 40:
        return None
    length = _U16.unpack_from(data, start + 4)[0]
    end = min(start + 40 + length, len(data)) if length else len(data)  # 0: a jumbogram, or offload
    kind, at = data[start + 6], start + 40
    for _ in range(_MAX_HEADERS):
        if kind == _TCP_PROTOCOL:
            return _tcp(data, at_ns, start + 8, 16, at, end)
        if len(data) < at + 8:
            return None
        if kind == _FRAGMENT_HEADER:
            if _U16.unpack_from(data, at + 2)[0] & 0xFFF8:
                return None  # a later fragment
            size = 8
        elif kind == _AUTHENTICATION_HEADER:
            size = (data[at + 1] + 2) * 4
        elif kind in _OPTIONS_HEADERS:
            size = (data[at + 1] + 1) * 8
        else:
            return None
        kind, at = data[at], at + size
    return None


def _tcp(data: bytes, at_ns: int, addresses: int, width: int, at: int, end: int) -> Segment | None:
    """`addresses`: offset of the two addresses of `width` bytes; `at`: of the TCP header; `end`: of the IP packet's end."""
    if end < at + _TCP_BYTES:
        return None
    sequence, acknowledged, offset, flags = _TCP.unpack_from(data, at + 4)
    payload = at + (offset >> 4) * 4
    if payload < at + _TCP_BYTES or payload > end:
        return None
    middle = addresses + width
    return Segment(
        at_ns,
        data[addresses:middle] + data[at : at + 2],
        data[middle : middle + width] + data[at + 2 : at + 4],
        sequence,
        acknowledged,
        flags,
        data[payload:end],
    )


def port_of(endpoint: bytes) -> int:
    """The port of a segment's source or target."""
    return int.from_bytes(endpoint[-2:], "big")


def address_of(endpoint: bytes) -> str:
    """A segment's source or target as text: 10.0.0.7:8000, or [2001:db8::7]:8000."""
    host = ip_address(endpoint[:-2])
    return f"[{host}]:{port_of(endpoint)}" if host.version == 6 else f"{host}:{port_of(endpoint)}"
