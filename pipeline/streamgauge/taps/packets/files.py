"""Capture files -> packets -> messages. Formats: pcap (https://www.ietf.org/archive/id/draft-ietf-opsawg-pcap-05.html) and
pcapng (draft-ietf-opsawg-pcapng), in either byte order, with stamps of any resolution. A file is read sequentially, so a
pipe works, too.
"""

import struct
from collections import deque
from collections.abc import Iterator, Mapping
from typing import NamedTuple, Protocol

from streamgauge.recorder.client import DirectClient
from streamgauge.recorder.protocol import Message
from streamgauge.taps.packets.connections import CaptureScope, Connections
from streamgauge.taps.packets.decode import decode
from streamgauge.taps.packets.exchange import Reporting
from streamgauge.taps.proxy.capture_gate import NO_NAMED_HEADERS, NamedHeaders

# Limit of a packet or block of a file (bytes): four of the largest packets that any kernel makes (BIG TCP).
MAX_BLOCK_BYTES = 4 * 512 * 1024
# Limit of interfaces in one section of a pcapng file.
MAX_INTERFACES = 4_096
_SECOND_NS = 1_000_000_000
_MAX_STAMP_NS = 2**63 - 1  # the largest time that segments hold

# The first four bytes of a file -> byte order, and nanoseconds for each unit of the stamps' fraction.
_PCAP = {
    b"\xa1\xb2\xc3\xd4": (">", 1_000),
    b"\xd4\xc3\xb2\xa1": ("<", 1_000),
    b"\xa1\xb2\x3c\x4d": (">", 1),
    b"\x4d\x3c\xb2\xa1": ("<", 1),
}
_SECTION = b"\x0a\x0d\x0d\x0a"
_ORDERS = {b"\x1a\x2b\x3c\x4d": ">", b"\x4d\x3c\x2b\x1a": "<"}
_INTERFACE, _OLD_PACKET, _SIMPLE_PACKET, _PACKET = 1, 2, 3, 6
_END_OF_OPTIONS, _RESOLUTION, _OFFSET = 0, 9, 14
_DEFAULT_RESOLUTION = 6


class PcapFault(ValueError):
    """The file is not a capture, or is damaged; the text says where."""


class Packet(NamedTuple):
    """One packet of a file. `at_ns`: UTC; 0 if the file has no stamps."""

    at_ns: int
    link_type: int
    data: bytes


class Source(Protocol):
    """A source of bytes."""

    def read(self, size: int, /) -> bytes:
        """At most `size` bytes; empty only at the end."""


class _Interface(NamedTuple):
    """`units`: of its stamps in a second; `offset_ns`: added to them; `most`: bytes kept of each packet, 0 for all."""

    link_type: int
    units: int
    offset_ns: int
    most: int


def is_capture(first: bytes) -> bool:
    """Whether a file that begins with these bytes is a pcap or a pcapng."""
    return first[:4] in _PCAP or (first[:4] == _SECTION and (len(first) < 12 or first[8:12] in _ORDERS))


def messages_of(
    source: Source,
    ports: Mapping[int, str | None] | None = None,
    tap: str = "replay",
    named: NamedHeaders = NO_NAMED_HEADERS,
) -> Iterator[Message]:
    """The messages of the exchanges in a file; those open at its end are cut. Stamps are those of the packets.

    Stream ids are derived from the packets, so reading a file again gives the same ids. `ports`: servers' ports, each with
    its upstream's name; None: every HTTP/1 server. `named`: the request headers that settings name. Raises
    PcapFault at damage, after the messages of everything before it.
    """
    messages: deque[Message] = deque()
    reporting = Reporting(DirectClient(messages.append), tap, named, derives_ids=True)
    try:
        for _ in follow(source, Connections(CaptureScope(ports), reporting)):
            while messages:
                yield messages.popleft()
    except PcapFault:
        yield from messages
        raise
    yield from messages


def follow(source: Source, connections: Connections) -> Iterator[None]:
    """Passes the packets of a file to `connections`, one each step, and cuts what is open at its end. Raises PcapFault at
    damage, after everything before it.
    """
    ticked_ns = last_ns = 0
    try:
        for packet in packets_of(source):
            last_ns = packet.at_ns
            if abs(last_ns - ticked_ns) >= _SECOND_NS:
                connections.tick(last_ns)
                ticked_ns = last_ns
            if (segment := decode(packet.link_type, packet.data, last_ns)) is not None:
                connections.take(segment)
            yield
    finally:
        connections.cut(last_ns)


def packets_of(source: Source) -> Iterator[Packet]:
    """A file's packets in order. A packet that the end of the file cuts off is left out. Raises PcapFault."""
    reader = _Reader(source)
    first = reader.take(4)
    if first in _PCAP:
        yield from _pcap(reader, *_PCAP[first])
    elif first == _SECTION:
        yield from _pcapng(reader)
    else:
        raise PcapFault("it is neither a pcap nor a pcapng file")


class _Reader:
    """Reads bytes of a file. `at`: how many were read so far."""

    def __init__(self, source: Source) -> None:
        self.at = 0
        self._source = source

    def take(self, size: int) -> bytes:
        """`size` bytes; fewer at the end of the file."""
        data = self._source.read(size)
        while len(data) < size and (more := self._source.read(size - len(data))):
            data += more
        self.at += len(data)
        return data

    def fault(self, damage: str) -> PcapFault:
        """The error for damage at the present position."""
        return PcapFault(f"{damage}, at byte {self.at}")


def _pcap(reader: _Reader, order: str, unit_ns: int) -> Iterator[Packet]:
    head = reader.take(20)
    if len(head) < 20:
        raise reader.fault("it ends inside its header")
    link_type = struct.unpack_from(order + "I", head, 16)[0] & 0x0FFF_FFFF
    record = struct.Struct(order + "IIII")
    while len(raw := reader.take(16)) == 16:
        seconds, fraction, captured, _ = record.unpack(raw)
        if captured > MAX_BLOCK_BYTES:
            raise reader.fault(f"a packet of {captured} bytes")
        data = reader.take(captured)
        if len(data) < captured:
            return
        yield Packet(seconds * _SECOND_NS + fraction * unit_ns, link_type, data)


def _pcapng(reader: _Reader) -> Iterator[Packet]:
    order, interfaces = "", list[_Interface]()
    raw, kind = _SECTION, 0
    while len(raw) == 4:
        if raw == _SECTION:
            order, interfaces = _section(reader), []
        else:
            kind = struct.unpack(order + "I", raw)[0]
            body = _block(reader, order)
            if body is None:
                return
            if kind == _INTERFACE:
                if len(interfaces) >= MAX_INTERFACES:
                    raise reader.fault("too many interfaces")
                interfaces.append(_interface(reader, order, body))
            elif kind in (_PACKET, _OLD_PACKET, _SIMPLE_PACKET):
                yield _packet(reader, order, kind, body, interfaces)
        raw = reader.take(4)


def _section(reader: _Reader) -> str:
    """Reads a section's header. Returns the byte order of the section."""
    head = reader.take(8)
    order = _ORDERS.get(head[4:8], "")
    if not order:
        raise reader.fault("a section without a byte order")
    length = struct.unpack_from(order + "I", head)[0]
    if not 28 <= length <= MAX_BLOCK_BYTES or length % 4:
        raise reader.fault(f"a section header of {length} bytes")
    reader.take(length - 12)
    return order


def _block(reader: _Reader, order: str) -> bytes | None:
    """A block's body; None if the file ends within it."""
    head = reader.take(4)
    if len(head) < 4:
        return None
    length = struct.unpack(order + "I", head)[0]
    if not 12 <= length <= MAX_BLOCK_BYTES or length % 4:
        raise reader.fault(f"a block of {length} bytes")
    rest = reader.take(length - 8)
    if len(rest) < length - 8:
        return None
    if rest[-4:] != head:
        raise reader.fault("a block whose two lengths differ")
    return rest[:-4]


def _interface(reader: _Reader, order: str, body: bytes) -> _Interface:
    if len(body) < 8:
        raise reader.fault("an interface block that is too short")
    link_type, _, most = struct.unpack_from(order + "HHI", body)
    units, offset_ns, at = 10**_DEFAULT_RESOLUTION, 0, 8
    while at + 4 <= len(body):
        code, size = struct.unpack_from(order + "HH", body, at)
        value = body[at + 4 : at + 4 + size]
        if code == _END_OF_OPTIONS:
            break
        if code == _RESOLUTION and size == 1 and value:
            power = value[0] & 0x7F
            units = 2**power if value[0] & 0x80 else 10**power
        elif code == _OFFSET and len(value) == 8:
            offset_ns = struct.unpack(order + "q", value)[0] * _SECOND_NS
        at += 4 + size + -size % 4
    return _Interface(link_type, units, offset_ns, most)


def _packet(reader: _Reader, order: str, kind: int, body: bytes, interfaces: list[_Interface]) -> Packet:
    head = struct.Struct(order + {_PACKET: "IIIII", _OLD_PACKET: "HHIIII", _SIMPLE_PACKET: "I"}[kind])
    if len(body) < head.size:
        raise reader.fault("a packet block that is too short")
    fields = head.unpack_from(body)
    number = 0 if kind == _SIMPLE_PACKET else fields[0]
    if number >= len(interfaces):
        raise reader.fault(f"a packet of interface {number}, which has no interface block")
    interface = interfaces[number]
    if kind == _SIMPLE_PACKET:  # it has no stamp
        size = min(fields[0], interface.most or fields[0])
        return Packet(0, interface.link_type, body[head.size : head.size + size])
    high, low, size = fields[-4:-1]
    at_ns = ((high << 32 | low) * _SECOND_NS) // interface.units + interface.offset_ns
    if at_ns > _MAX_STAMP_NS:
        raise reader.fault("a packet with an impossible time")
    return Packet(at_ns, interface.link_type, body[head.size : head.size + size])
