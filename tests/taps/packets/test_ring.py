"""The kernel's capture on loopback: real packets of real connections, each once, with its time of arrival."""

import contextlib
import select
import socket
import threading
import time
from collections.abc import Iterator

import pytest

from streamgauge.recorder.budget import Budget
from streamgauge.taps.packets.decode import Segment, decode_ip, port_of
from streamgauge.taps.packets.reassembly import Direction, Piece
from streamgauge.taps.packets.ring import BLOCK_BYTES, BLOCKS, Ring, capture_socket
from tests.taps.packets.privileged import captures_packets

pytestmark = captures_packets

PATIENCE_S = 20.0


@contextlib.contextmanager
def capture(port: int, interface: str = "lo") -> Iterator[Ring]:
    ring = Ring(capture_socket(), interface, [port])
    try:
        yield ring
    finally:
        ring.close()


class Talk:
    """A connection over loopback, and its listening server."""

    def __init__(self, family: socket.AddressFamily = socket.AF_INET) -> None:
        host = "127.0.0.1" if family == socket.AF_INET else "::1"
        self.listening = socket.create_server((host, 0), family=family)
        self.port: int = self.listening.getsockname()[1]

    def send(self, data: bytes) -> None:
        """A connection that sends these bytes to the server."""
        with socket.create_connection(self.listening.getsockname()[:2]) as client:
            server, _ = self.listening.accept()
            with server:
                reading = threading.Thread(target=read_all, args=(server, len(data)))
                reading.start()
                client.sendall(data)
                reading.join(PATIENCE_S)

    def __enter__(self) -> "Talk":
        return self

    def __exit__(self, *_: object) -> None:
        self.listening.close()


def read_all(one: socket.socket, size: int) -> None:
    while size:
        size -= len(one.recv(1024 * 1024))


def segments(ring: Ring, enough: int) -> list[Segment]:
    """At least this many segments, and whatever arrived with them."""
    found: list[Segment] = []
    until = time.monotonic() + PATIENCE_S
    while len(found) < enough and time.monotonic() < until:
        select.select([ring.socket], [], [], 0.1)
        while ring.ready:
            decoded = [decode_ip(captured.data, captured.at_ns) for captured in ring.take()]
            assert None not in decoded, "the filter passes only TCP of the port"
            found += [one for one in decoded if one is not None]
    return found


@pytest.mark.parametrize("family", [socket.AF_INET, socket.AF_INET6])
def test_each_packet_is_seen_once_with_its_time_of_arrival(family: socket.AddressFamily) -> None:
    with Talk(family) as talk, Talk(family) as other, capture(talk.port) as ring:
        before = time.time_ns()
        other.send(b"not this")
        talk.send(b"hello")
        after = time.time_ns()
        found = segments(ring, 7)
    assert {talk.port} <= {port_of(one.source) for one in found} | {port_of(one.target) for one in found}
    assert not {other.port} & {port_of(end) for one in found for end in (one.source, one.target)}
    assert [one.payload for one in found if one.payload] == [b"hello"]
    stamps = [one.at_ns for one in found]
    assert before <= stamps[0] <= stamps[-1] <= after + 10**9
    assert stamps == sorted(stamps)
    assert [one.flags & 0x02 for one in found].count(2) == 2, "SYN, and SYN with ACK"


def test_a_large_transfer_is_seen_whole_and_in_order() -> None:
    data = bytes(range(256)) * 40_000
    with Talk() as talk, capture(talk.port) as ring:
        sending = threading.Thread(target=talk.send, args=(data,))
        sending.start()
        direction: Direction | None = None
        pieces: list[Piece] = []
        until = time.monotonic() + PATIENCE_S
        while sum(len(piece) for piece in pieces if isinstance(piece, bytes)) < len(data) and time.monotonic() < until:
            for segment in segments(ring, 1):
                if port_of(segment.target) == talk.port and segment.payload:
                    direction = direction or Direction(segment.sequence, Budget(10**9))
                    pieces += direction.add(segment.sequence, segment.payload, segment.at_ns)
        sending.join(PATIENCE_S)
        assert b"".join(piece for piece in pieces if isinstance(piece, bytes)) == data
        assert ring.count() == 0
        assert ring.received > len(data) // 65536


def test_a_capture_of_all_interfaces_sees_each_packet_once() -> None:
    with Talk() as talk, capture(talk.port, "any") as ring:
        talk.send(b"hello")
        assert [segment.payload for segment in segments(ring, 7) if segment.payload] == [b"hello"]


def test_packets_without_room_are_dropped_and_counted() -> None:
    with Talk() as talk, capture(talk.port) as ring:
        talk.send(bytes(BLOCK_BYTES * BLOCKS + 16 * 1024 * 1024))
        dropped = ring.count()
        assert dropped > 0
        assert ring.dropped == dropped
        found = segments(ring, ring.received - dropped)
        assert len(found) >= ring.received - dropped
        assert ring.count() == 0, "counted once"
        talk.send(b"again")
        assert b"again" in [segment.payload for segment in segments(ring, 5)]


def test_a_socket_may_be_used_by_one_process_after_another() -> None:
    with Talk() as talk, capture_socket() as parent:
        for number in range(2):
            ring = Ring(socket.socket(fileno=parent.dup().detach()), "lo", [talk.port])
            talk.send(b"%d" % number)
            assert [segment.payload for segment in segments(ring, 7) if segment.payload] == [b"%d" % number]
            ring.close()


def test_an_interface_that_does_not_exist() -> None:
    with pytest.raises(OSError, match="no interface"), capture(1, "nothing0"):
        raise AssertionError
