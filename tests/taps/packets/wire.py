"""Packets as on a wire, capture files of them, and a TCP conversation that makes them. Written from the specifications,
independent of the reader: RFC 791, 8200, 9293, and those that taps/packets/files.py names.
"""

import io
import socket
import struct
from collections.abc import Iterable, Sequence

from streamgauge.core.assembly.assembler import Assembler
from streamgauge.core.capture.segments import Bundle
from streamgauge.core.record import Record
from streamgauge.recorder.client import DirectClient
from streamgauge.recorder.protocol import ExchangeEnding, Message, RequestStarted
from streamgauge.recorder.recorder import Recorder
from streamgauge.taps.packets.connections import CaptureScope, Connections
from streamgauge.taps.packets.decode import ACK, FIN, PSH, RST, SYN, Segment, decode_ip
from streamgauge.taps.packets.exchange import Reporting
from streamgauge.taps.packets.files import messages_of
from tests.taps import talk

CLIENT, SERVER = ("10.0.0.1", 40_000), ("10.0.0.2", 8000)
# Time of the first packet (UTC, ns), and the distance between two.
BEGAN = 1_700_000_000_000_000_000
STEP = 1_000_000

Place = tuple[str, int]


def tcp(source: Place, target: Place, sequence: int, acknowledged: int, flags: int, payload: bytes) -> bytes:
    """A TCP segment, with the options that common hosts send."""
    options = b"\x01\x01\x08\x0a" + bytes(8)
    offset = (20 + len(options)) // 4 << 4
    ports = struct.pack(">HH", source[1], target[1])
    return (
        ports
        + struct.pack(">IIBBHHH", sequence % 2**32, acknowledged % 2**32, offset, flags, 502, 0, 0)
        + options
        + payload
    )


def ipv4(source: Place, target: Place, content: bytes, *, fragment: int = 0, total: int | None = None) -> bytes:
    addresses = socket.inet_aton(source[0]) + socket.inet_aton(target[0])
    size = 20 + len(content) if total is None else total
    return struct.pack(">BBHHHBBH", 0x45, 0, size, 7, fragment, 64, 6, 0) + addresses + content


def ipv6(source: str, target: str, content: bytes, *headers: tuple[int, bytes], total: int | None = None) -> bytes:
    """`headers`: kind and bytes of each extension header, without their first byte (the next one's kind)."""
    kinds = [kind for kind, _ in headers] + [6]
    chain = b"".join(bytes([after]) + header for after, (_, header) in zip(kinds[1:], headers, strict=True))
    size = len(chain) + len(content) if total is None else total
    addresses = socket.inet_pton(socket.AF_INET6, source) + socket.inet_pton(socket.AF_INET6, target)
    return struct.pack(">IHBB", 0x6000_0000, size, kinds[0], 64) + addresses + chain + content


class Line:
    """A connection's packets, as both hosts send them; `sent` holds each with its stamp. Sequence numbers wrap around."""

    def __init__(
        self, client: Place = CLIENT, server: Place = SERVER, *, first: tuple[int, int] = (2**32 - 20, 77)
    ) -> None:
        self.sent: list[tuple[int, bytes]] = []
        self.now = BEGAN
        self._places = (client, server)
        self.next_bytes = [first[0], first[1]]

    def open(self) -> "Line":
        self.send(0, SYN, b"")
        self.next_bytes[0] += 1
        self.send(1, SYN | ACK, b"")
        self.next_bytes[1] += 1
        return self.send(0, ACK, b"")

    def ask(self, *payloads: bytes) -> "Line":
        return self._sends(0, payloads)

    def answer(self, *payloads: bytes) -> "Line":
        return self._sends(1, payloads)

    def acknowledge(self, side: int = 0) -> "Line":
        """An empty segment that acknowledges everything."""
        return self.send(side, ACK, b"")

    def finish(self, side: int = 1) -> "Line":
        self.send(side, FIN | ACK, b"")
        self.next_bytes[side] += 1
        return self

    def reset(self, side: int = 1) -> "Line":
        return self.send(side, RST | ACK, b"")

    def wait(self, nanoseconds: int) -> "Line":
        self.now += nanoseconds
        return self

    def lose(self, packets: int = 1) -> "Line":
        """Removes the last packets: the capture did not see them."""
        del self.sent[-packets:]
        return self

    def _sends(self, side: int, payloads: Sequence[bytes]) -> "Line":
        for payload in payloads:
            self.send(side, PSH | ACK, payload)
            self.next_bytes[side] += len(payload)
        return self

    def send(self, side: int, flags: int, payload: bytes) -> "Line":
        source, target = self._places[side], self._places[1 - side]
        acknowledged = self.next_bytes[1 - side] if flags & ACK else 0
        self.sent.append(
            (self.now, ipv4(source, target, tcp(source, target, self.next_bytes[side], acknowledged, flags, payload)))
        )
        self.now += STEP
        return self


def pcap(
    packets: Iterable[tuple[int, bytes]], *, order: str = "<", nanoseconds: bool = True, link_type: int = 101
) -> bytes:
    """A pcap file; of raw IP packets by default."""
    magic, unit = (0xA1B23C4D, 1) if nanoseconds else (0xA1B2C3D4, 1000)
    file = struct.pack(order + "IHHiIII", magic, 2, 4, 0, 0, 262_144, link_type)
    for at_ns, data in packets:
        stamp = at_ns // 10**9, at_ns % 10**9 // unit
        file += struct.pack(order + "IIII", *stamp, len(data), len(data)) + data
    return file


def block(kind: int, body: bytes, order: str = "<") -> bytes:
    """A block of a pcapng file."""
    body += bytes(-len(body) % 4)
    size = struct.pack(order + "I", 12 + len(body))
    return struct.pack(order + "I", kind) + size + body + size


def section(order: str = "<") -> bytes:
    return block(0x0A0D0D0A, struct.pack(order + "IHHq", 0x1A2B3C4D, 1, 0, -1), order)


def interface(link_type: int = 101, *options: tuple[int, bytes], order: str = "<") -> bytes:
    body = struct.pack(order + "HHI", link_type, 0, 0)
    for code, value in options:
        body += struct.pack(order + "HH", code, len(value)) + value + bytes(-len(value) % 4)
    return block(1, body, order)


def pcapng(
    packets: Iterable[tuple[int, bytes]], *, order: str = "<", units: int = 10**9, link_type: int = 101
) -> bytes:
    """A pcapng file of one interface; its stamps count this many units per second (as a power of ten)."""
    file = section(order) + interface(link_type, (9, bytes([len(str(units)) - 1])), (0, b""), order=order)
    for at_ns, data in packets:
        stamp = at_ns * units // 10**9
        head = struct.pack(order + "IIIII", 0, stamp >> 32, stamp & 0xFFFFFFFF, len(data), len(data))
        file += block(6, head + data, order)
    return file


def read(file: bytes, ports: dict[int, str | None] | None = None) -> list[Message]:
    """The messages that report a file's exchanges."""
    return list(messages_of(io.BytesIO(file), ports, "packets"))


def followed(*lines: Line, idle_ns: int = 900 * 10**9) -> list[Message]:
    """The messages that report connections, with packets in the order of their stamps; open streams are cut at the end."""
    reported: list[Message] = []
    connections = Connections(
        CaptureScope({SERVER[1]: "up"}, idle_ns), Reporting(DirectClient(reported.append), "packets")
    )
    packets = sorted((packet for line in lines for packet in line.sent), key=lambda packet: packet[0])
    for at_ns, data in packets:
        connections.tick(at_ns)
        connections.take(segment(data, at_ns))
    end = max(line.now for line in lines)
    connections.tick(end)
    connections.cut(end)
    assert connections.faults == len(connections) == 0
    return reported


def segment(data: bytes, at_ns: int = 0) -> Segment:
    found = decode_ip(data, at_ns)
    assert found is not None
    return found


def by_stream(messages: Iterable[Message]) -> list[list[Message]]:
    """Each stream's messages; asserts that they are in a valid order."""
    streams: dict[int, list[Message]] = {}
    for message in messages:
        streams.setdefault(message.stream, []).append(message)
    for reported in streams.values():
        assert isinstance(reported[0], RequestStarted)
        assert isinstance(reported[-1], ExchangeEnding)
        assert not any(isinstance(message, RequestStarted) for message in reported[1:])
        assert not any(isinstance(message, ExchangeEnding) for message in reported[:-1])
    return list(streams.values())


def records(messages: Iterable[Message], capture: str = "full") -> list[Record]:
    """The records of all streams, by the real recorder and assembler, in the order in which the streams began."""
    recorder, assembler, made = Recorder(talk.settings(capture)), Assembler(), {}
    for number, message in enumerate(messages):
        recorder.handle(message)
        for record in assembler.apply(number, 0, Bundle(b"i" * 16, 0, number, 0, recorder.segments())):
            made[record.stream_id] = record
    assert recorder.open_streams == 0
    return list(made.values())
