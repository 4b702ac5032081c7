"""pcap and pcapng: every byte order, resolution and kind of block; errors in a file are located; memory is bounded."""

import io
import struct
import tracemalloc
import uuid
from collections.abc import Iterator
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from streamgauge.core.capture.segments import Ending
from streamgauge.recorder.protocol import ExchangeEnding, RequestStarted
from streamgauge.taps.packets.files import MAX_BLOCK_BYTES, Packet, PcapFault, is_capture, messages_of, packets_of
from tests.taps.packets.test_conversation import CHUNKS, WHOLE, arrived, asking, only
from tests.taps.packets.wire import BEGAN, Line, block, followed, interface, pcap, pcapng, read, records, section

PACKETS = [(BEGAN + 123_456_789, b"abc"), (BEGAN + 999_999_000, b""), (BEGAN + 1_000_001_000, b"defg")]
MICRO = [(at // 1000 * 1000, data) for at, data in PACKETS]
# Each format with the same packets, and the resolution of its stamps.
FILES = [
    *[(pcap(PACKETS, order=order), PACKETS) for order in "<>"],
    *[(pcap(PACKETS, order=order, nanoseconds=False), MICRO) for order in "<>"],
    *[(pcapng(PACKETS, order=order), PACKETS) for order in "<>"],
    *[(pcapng(PACKETS, order=order, units=10**6), MICRO) for order in "<>"],
]


def packets(file: bytes) -> list[Packet]:
    return list(packets_of(io.BytesIO(file)))


@pytest.mark.parametrize(("file", "expected"), FILES)
def test_packets_with_their_stamps(file: bytes, expected: list[tuple[int, bytes]]) -> None:
    assert is_capture(file[:12])
    assert packets(file) == [(at, 101, data) for at, data in expected]


def test_link_types_next_to_other_bits() -> None:
    file = pcap(PACKETS, link_type=0x2000_0001)  # with the length of a frame's check sequence
    assert {packet.link_type for packet in packets(file)} == {1}


def test_stamps_of_powers_of_two_offsets_and_no_option() -> None:
    file = section()
    file += (
        interface(1)
        + interface(113, (9, b"\x80"))
        + interface(276, (9, b"\x8a"), (14, struct.pack("<q", 1000)), (0, b""))
    )
    for number, stamp in ((0, 2_000_003), (1, 5), (2, 1024 + 512)):
        file += block(6, struct.pack("<IIIII", number, 0, stamp, 1, 1) + b"x")
    assert packets(file) == [(2_000_003_000, 1, b"x"), (5 * 10**9, 113, b"x"), (1_001_500_000_000, 276, b"x")]


def test_old_and_simple_blocks_unknown_ones_and_further_sections() -> None:
    file = section() + block(99, b"what is this") + interface(101)
    file += block(2, struct.pack("<HHIIII", 0, 7, 0, 1_000_000, 2, 2) + b"ab")
    file += block(3, struct.pack("<I", 3) + b"cde")
    file += section(">") + interface(1, order=">")
    file += block(6, struct.pack(">IIIII", 0, 0, 4, 1, 1) + b"f", ">")
    assert packets(file) == [(10**9, 101, b"ab"), (0, 101, b"cde"), (4000, 1, b"f")]


@pytest.mark.parametrize(("file", "_"), FILES)
def test_a_file_that_ends_anywhere_after_its_header_is_valid(file: bytes, _: object) -> None:
    whole = packets(file)
    for end in range(100 if file[:1] == b"\x0a" else 24, len(file)):
        read = packets(file[:end])
        assert read == whole[: len(read)]
        assert len(read) >= len(whole) - 3


BROKEN = [
    (b"", "neither"),
    (b"data: {}\n\n", "neither"),
    (pcap([])[:20], "inside its header, at byte 20"),
    (pcap([]) + struct.pack("<IIII", 1, 1, MAX_BLOCK_BYTES + 1, 1), "a packet of 2097153 bytes, at byte 40"),
    (section()[:6], "byte order"),
    (section()[:8] + b"abcd" + bytes(16), "byte order"),
    (b"\x0a\x0d\x0d\x0a" + struct.pack("<II", 30, 0x1A2B3C4D), "header of 30 bytes"),
    (section() + struct.pack("<II", 5, 8), "block of 8 bytes"),
    (section() + struct.pack("<II", 5, MAX_BLOCK_BYTES + 4), "block of"),
    (section() + block(5, b"abcd")[:-1] + b"\1", "lengths differ"),
    (section() + block(6, bytes(20)), "interface 0, which has no interface block"),
    (section() + interface() + block(6, bytes(16)), "too short"),
    (section() + block(1, b"abcd"), "too short"),
    (section() + interface() + block(6, struct.pack("<IIIII", 0, 0x7FFF_FFFF, 0, 1, 1) + b"x"), "an impossible time"),
    (section() + interface() * 4_097, "too many interfaces"),
]


@pytest.mark.parametrize(("file", "says"), BROKEN)
def test_an_error_says_what_is_wrong_and_where(file: bytes, says: str) -> None:
    with pytest.raises(PcapFault, match=says):
        packets(file)


@given(
    data=st.binary(max_size=200), start=st.sampled_from([pcap([]), section(), section() + interface(), pcapng(PACKETS)])
)
def test_any_bytes_give_packets_or_a_fault(data: bytes, start: bytes) -> None:
    for file in (data, start + data):
        try:
            for packet in packets_of(io.BytesIO(file)):
                assert isinstance(packet.data, bytes)
            list(messages_of(io.BytesIO(file)))
        except PcapFault as fault:
            assert str(fault)


@pytest.mark.parametrize("first", [b"", b"\xa1\xb2", b"data", b"\x0a\x0d\x0d\x0a....abcd", b"\xd4\xc3\xb2\xa0"])
def test_a_file_with_another_beginning_is_not_a_capture(first: bytes) -> None:
    assert not is_capture(first)


@pytest.mark.parametrize("write", [pcap, pcapng])
def test_the_exchanges_of_a_file(write: object) -> None:
    line = Line().open().ask(asking()).answer(*WHOLE).acknowledge().finish(0).finish(1)
    messages = read(write(line.sent))  # type: ignore[operator]
    assert arrived(only(messages)) == b"".join(WHOLE)
    opened = messages[0]
    assert isinstance(opened, RequestStarted)
    assert (opened.tap, opened.upstream, opened.at_ns, opened.wall_ns) == (
        "packets",
        "10.0.0.2:8000",
        BEGAN + 3_000_000,
        BEGAN + 3_000_000,
    )
    assert read(write(line.sent), {9: None}) == []  # type: ignore[operator]
    (record,) = records(messages)
    assert (record.started_at, record.timing.first_token_s) == ("2023-11-14T22:13:20.003000Z", 0.003)


def test_streams_that_are_open_at_the_end_of_a_file_are_cut_and_a_fault_follows_them() -> None:
    line = Line().open().ask(asking()).answer(*WHOLE[:3])
    messages: list[object] = []
    with pytest.raises(PcapFault):
        for message in messages_of(io.BytesIO(pcap(line.sent) + b"\xff" * 16)):
            messages.append(message)
    assert isinstance(messages[-1], ExchangeEnding)
    assert (messages[-1].ending, messages[-1].at_ns) == (Ending.CUT, line.sent[-1][0])


def test_reading_can_be_stopped_anywhere() -> None:
    messages = messages_of(io.BytesIO(pcap(Line().open().ask(asking()).answer(*WHOLE).sent)))
    assert isinstance(next(messages), RequestStarted)
    messages.close()  # type: ignore[attr-defined]


class Endless:
    """A file of this many packets, generated while it is read."""

    def __init__(self, packets: int) -> None:
        self._pieces = self._made(packets)
        self._held = b""

    def _made(self, packets: int) -> Iterator[bytes]:
        line = Line().open().ask(asking())
        yield pcap(line.sent)
        for _ in range(packets // 10):
            line.sent.clear()
            line.answer(*[CHUNKS[0] * 50] * 10)
            yield pcap(line.sent)[24:]

    def read(self, size: int) -> bytes:
        while len(self._held) < size and (more := next(self._pieces, None)):
            self._held += more
        data, self._held = self._held[:size], self._held[size:]
        return data


def test_a_large_file_takes_no_more_memory_than_a_small_one() -> None:
    def peak(packets: int) -> int:
        tracemalloc.start()
        for _ in messages_of(Endless(packets)):
            pass
        taken = tracemalloc.get_traced_memory()[1]
        tracemalloc.stop()
        return taken

    peak(10)
    assert peak(1_000) < 2 * peak(100) + 1_000_000


# Stream ids.


def ids(file: bytes, ports: dict[int, str | None] | None = None) -> list[bytes | None]:
    return [message.stream_id for message in read(file, ports) if isinstance(message, RequestStarted)]


def two_requests(**where: Any) -> Line:
    """Two exchanges on one connection whose stamps are in the same nanosecond."""
    line = Line(**where).open()
    for _ in range(2):
        line.ask(asking()).answer(*WHOLE).acknowledge()
    line.sent = [(BEGAN, data) for _, data in line.sent]
    return line


def test_a_file_that_is_read_twice_gives_the_same_stream_ids() -> None:
    file = pcap(two_requests().sent)
    first = ids(file)
    assert len(set(first)) == 2
    assert None not in first
    assert ids(file) == first
    assert ids(pcapng(two_requests().sent)) == first, "the same packets in another file format"
    assert ids(file, {8000: "vllm"}) == first, "an upstream's name is given by the command, not by the file"


def test_other_exchanges_have_other_stream_ids() -> None:
    """One property differs each time: client, port, server, connection on the same ports, time."""
    later = [(at_ns + 1, data) for at_ns, data in two_requests().sent]
    again = Line(first=(5, 6)).open().ask(asking()).answer(*WHOLE).acknowledge()
    again.sent = [(BEGAN, data) for _, data in again.sent]
    files = [
        two_requests().sent,
        two_requests(client=("10.0.0.3", 40_000)).sent,
        two_requests(client=("10.0.0.1", 40_001)).sent,
        two_requests(server=("10.0.0.4", 8000)).sent,
        again.sent,
        later,
    ]
    made = [one for sent in files for one in ids(pcap(sent))]
    assert len(set(made)) == len(made) == 11


def test_records_have_these_ids_and_a_second_reading_gives_the_same() -> None:
    file = pcap(two_requests().sent)
    first, second = records(read(file)), records(read(file))
    assert [one.stream_id for one in first] == [one.stream_id for one in second]
    assert [uuid.UUID(one.stream_id).bytes for one in first] == ids(file)
    assert {uuid.UUID(one.stream_id).int >> 80 for one in first} == {BEGAN // 10**6}


def test_a_live_capture_leaves_ids_to_the_recorder() -> None:
    messages = followed(Line().open().ask(asking()).answer(*WHOLE).acknowledge())
    assert [message.stream_id for message in messages if isinstance(message, RequestStarted)] == [None]
