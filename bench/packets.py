"""The packet tap's speed, as a share of the speed of a bare loop over the same capture file (the floor).

The floor reads the packets of the file, splits their headers (IP, TCP, payload) in as few steps as Python needs, and
discards them. The tap makes messages to the recorder of the same file: link layers, connections, order, losses, HTTP
framing, matching of responses to requests. Both run alternately in one process; a figure is the median of the rounds'
ratios. A second figure includes the recorder (masked): the cost of a packet up to its segment.

    python -m bench.packets [--streams N] [--deltas N] [--rounds N] [--document FILE]
"""

import argparse
import io
import statistics
import struct
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path

from bench.document import replace_section, table
from bench.wires import wire
from streamgauge.core.capture.segments import Segment
from streamgauge.recorder.protocol import ResponseRead
from streamgauge.recorder.recorder import Recorder
from streamgauge.recorder.request import CaptureSettings
from streamgauge.taps.packets.files import messages_of

DIALECT = "openai-chat"
PORT = 8000
BEGAN_NS, STEP_NS = 1_700_000_000_000_000_000, 1_000_000
SYN, ACK, PUSH = 0x02, 0x10, 0x18
HEAD = b"HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\ntransfer-encoding: chunked\r\n\r\n"
BODY = b'{"model":"m","stream":true}'
REQUEST = b"POST /v1/chat/completions HTTP/1.1\r\nHost: h\r\nContent-Length: %d\r\n\r\n%b" % (len(BODY), BODY)


@dataclass(frozen=True)
class Shape:
    """How packets arrive. `connections`: concurrent ones; `swapped`: every second packet before the first one of its pair."""

    title: str
    connections: int
    swapped: bool = False


SHAPES = (
    Shape("8 connections", 8),
    Shape("500 connections", 500),
    Shape("8, each second packet early", 8, swapped=True),
)


@dataclass(frozen=True)
class Sizes:
    """How much is measured. `packets`: deltas of all streams together; `deltas`: of each stream."""

    packets: int = 60_000
    deltas: int = 100
    rounds: int = 7


def packet(client: int, sequence: int, acknowledged: int, flags: int, payload: bytes, *, back: bool) -> bytes:
    """An IPv4 packet between a client, given by its number, and the server. `back`: from the server."""
    ends = [(b"\x0a\x01" + client.to_bytes(2, "big"), 40_000), (b"\x0a\x00\x00\x02", PORT)]
    (source, from_port), (target, to_port) = reversed(ends) if back else ends
    ip = struct.pack(">BBHHHBBH", 0x45, 0, 40 + len(payload), 0, 0, 64, 6, 0) + source + target
    return ip + struct.pack(">HHIIBBHHH", from_port, to_port, sequence, acknowledged, 0x50, flags, 502, 0, 0) + payload


def exchange(client: int, events: Sequence[bytes], *, swapped: bool) -> list[bytes]:
    """The packets of one connection: a request, a response with one event a packet, one acknowledgement for two packets."""
    packets = [
        packet(client, 99, 0, SYN, b"", back=False),
        packet(client, 499, 100, SYN | ACK, b"", back=True),
        packet(client, 100, 500, PUSH, REQUEST, back=False),
    ]
    requested, responded = 100 + len(REQUEST), 500  # the next sequence numbers
    unacknowledged: list[bytes] = []
    for number, payload in enumerate(
        (HEAD, *(b"%x\r\n%b\r\n" % (len(event), event) for event in events), b"0\r\n\r\n")
    ):
        unacknowledged.append(packet(client, responded, requested, PUSH, payload, back=True))
        responded += len(payload)
        if number % 2:
            packets += reversed(unacknowledged) if swapped else unacknowledged
            packets.append(packet(client, requested, responded, ACK, b"", back=False))
            unacknowledged = []
    return packets + unacknowledged


def capture(shape: Shape, sizes: Sizes) -> tuple[bytes, int, int]:
    """A pcap file of raw IP, and its numbers of packets and streams. Connections take turns, packet by packet."""
    one = wire(DIALECT, sizes.deltas)
    streams = max(shape.connections, sizes.packets // sizes.deltas)
    file = [struct.pack("<IHHiIII", 0xA1B23C4D, 2, 4, 0, 0, 262_144, 101)]
    at_ns = BEGAN_NS
    for first in range(0, streams, shape.connections):
        numbers = range(first, min(first + shape.connections, streams))
        for run in zip(*(exchange(number, one.events, swapped=shape.swapped) for number in numbers), strict=True):
            for data in run:
                file.append(struct.pack("<IIII", at_ns // 10**9, at_ns % 10**9, len(data), len(data)) + data)
                at_ns += STEP_NS // shape.connections
    return b"".join(file), len(file) - 1, streams


def floor(file: bytes) -> int:
    """Reads packets and splits their headers. Returns the bytes of all payloads."""
    source = io.BytesIO(file)
    source.read(24)
    record, ip, tcp = struct.Struct("<IIII"), struct.Struct(">BxHxxxxxB2x4s4s"), struct.Struct(">HHIIBB")
    payloads = 0
    while len(raw := source.read(16)) == 16:
        seconds, nanoseconds, size, _ = record.unpack(raw)
        data = source.read(size)
        at_ns = seconds * 1_000_000_000 + nanoseconds
        first, total, protocol, origin, target = ip.unpack_from(data)
        if protocol == 6:
            start = (first & 15) * 4
            from_port, to_port, sequence, acknowledged, offset, flags = tcp.unpack_from(data, start)
            fields = (at_ns, (origin, from_port), (target, to_port), sequence, acknowledged, flags)
            payloads += len(data[start + (offset >> 4) * 4 : total]) if fields else 0
    return payloads


def follow(file: bytes) -> int:
    """Makes messages of packets. Returns the bytes of all responses."""
    return sum(len(message.data) for message in messages_of(io.BytesIO(file)) if type(message) is ResponseRead)


def count_whole(segments: Iterable[Segment]) -> int:
    """How many streams end in these segments without a loss."""
    return sum(segment.end is not None and segment.loss is None for segment in segments)


def record(file: bytes) -> int:
    """Makes segments of packets. Returns the number of streams that were recorded completely."""
    recorder, whole = Recorder(CaptureSettings("masked", "0", bytes(32))), 0
    for number, message in enumerate(messages_of(io.BytesIO(file))):
        recorder.handle(message)
        if number % 1_000 == 0:
            whole += count_whole(recorder.segments())
    return whole + count_whole(recorder.segments())


def seconds_of(run: Callable[[bytes], int], file: bytes, expected: int | None = None) -> float:
    """The CPU seconds of a call. Raises SystemExit if its result is not the expected one."""
    began = time.process_time()
    result = run(file)
    seconds = time.process_time() - began
    if expected is not None and result != expected:
        raise SystemExit(f"{run.__name__} returned {result}, expected {expected}")
    return seconds


def rows(sizes: Sizes) -> Iterator[list[str]]:
    """Yields the table's rows as they are measured."""
    yield ["packets come", "packets", "to messages", "to segments, masked"]
    for shape in SHAPES:
        file, packets, streams = capture(shape, sizes)
        response_bytes = floor(file) - streams * len(REQUEST)
        followed, recorded = list[float](), list[float]()
        for _ in range(sizes.rounds):
            bare = seconds_of(floor, file)
            followed.append(bare / seconds_of(follow, file, response_bytes))
            recorded.append(bare / seconds_of(record, file, streams))
        ratios = (statistics.median(figures) for figures in (followed, recorded))
        yield [shape.title, f"{packets:,}", *(f"{ratio:.2f}" for ratio in ratios)]


def main(arguments: Sequence[str] | None = None) -> None:
    parser = argparse.ArgumentParser(prog="bench.packets", description=(__doc__ or "").splitlines()[0])
    for name, value in asdict(Sizes()).items():
        parser.add_argument(f"--{name}", type=int, default=value)
    parser.add_argument("--document", type=Path, help="write the table into this file, between its markers")
    given = parser.parse_args(arguments)
    lines = []
    for row in rows(Sizes(given.packets, given.deltas, given.rounds)):
        lines.append(row)
        print("  ".join(f"{cell:<28}" for cell in row), flush=True)
    if given.document is not None:
        replace_section(given.document, "packets", table(lines))


if __name__ == "__main__":
    main()
