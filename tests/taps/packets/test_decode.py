"""Packets -> TCP segments: every link type, tags, extension headers, offloads; nothing raises."""

import socket
import struct

import pytest
from hypothesis import given
from hypothesis import strategies as st

from streamgauge.taps.packets.decode import ACK, PSH, LinkType, decode, decode_ip, port_of
from tests.taps.packets.wire import ipv4, ipv6, tcp

SOURCE, TARGET = ("192.0.2.1", 40_000), ("192.0.2.2", 8000)
FOUR = ipv4(SOURCE, TARGET, tcp(SOURCE, TARGET, 5, 9, PSH | ACK, b"hello"))
SIX_ADDRESSES = ("2001:db8::1", "2001:db8::2")
CONTENT = tcp(SOURCE, TARGET, 5, 9, PSH | ACK, b"hello")
SIX = ipv6(*SIX_ADDRESSES, CONTENT)
MACS = bytes(12)
TAG = b"\x81\x00\x00\x05"

FRAMES = [
    (LinkType.RAW, FOUR),
    (LinkType.RAW, SIX),
    (LinkType.IPV4, FOUR),
    (LinkType.IPV6, SIX),
    (LinkType.ETHERNET, MACS + b"\x08\x00" + FOUR),
    (LinkType.ETHERNET, MACS + b"\x86\xdd" + SIX),
    (LinkType.ETHERNET, MACS + b"\x08\x00" + FOUR + bytes(9)),  # padded to the least size of a frame
    (LinkType.ETHERNET, MACS + TAG + b"\x08\x00" + FOUR),
    (LinkType.ETHERNET, MACS + b"\x88\xa8\x00\x01" + TAG + b"\x86\xdd" + SIX),
    (LinkType.LINUX_SLL, bytes(14) + b"\x08\x00" + FOUR),
    (LinkType.LINUX_SLL, bytes(14) + TAG + b"\x86\xdd" + SIX),
    (LinkType.LINUX_SLL2, b"\x08\x00" + bytes(18) + FOUR),
    (LinkType.LINUX_SLL2, b"\x86\xdd" + bytes(18) + SIX),
    (LinkType.NULL, b"\x02\0\0\0" + FOUR),
    (LinkType.NULL, b"\x1e\0\0\0" + SIX),
    (LinkType.LOOP, b"\0\0\0\x02" + FOUR),
]


@pytest.mark.parametrize(("link_type", "frame"), FRAMES)
def test_the_segment_of_each_kind_of_packet(link_type: int, frame: bytes) -> None:
    packet = decode(link_type, frame, 123)
    assert packet is not None
    assert (packet.at_ns, packet.sequence, packet.acknowledged, packet.flags, packet.payload) == (
        123,
        5,
        9,
        PSH | ACK,
        b"hello",
    )
    assert (port_of(packet.source), port_of(packet.target)) == (40_000, 8000)
    assert packet.source[:-2] in (socket.inet_aton(SOURCE[0]), socket.inet_pton(socket.AF_INET6, SIX_ADDRESSES[0]))
    assert packet.target[:-2] in (socket.inet_aton(TARGET[0]), socket.inet_pton(socket.AF_INET6, SIX_ADDRESSES[1]))


@pytest.mark.parametrize(
    "headers",
    [
        [(0, b"\0" + bytes(6))],
        [(60, b"\x01" + bytes(14)), (43, b"\0" + bytes(6))],
        [(51, b"\x04" + bytes(22))],
        [(44, b"\0" + bytes(6))],  # an atomic fragment: the whole packet
        [(135, b"\0" + bytes(6))] * 7,
    ],
)
def test_extension_headers_are_skipped(headers: list[tuple[int, bytes]]) -> None:
    packet = decode_ip(ipv6(*SIX_ADDRESSES, CONTENT, *headers), 0)
    assert packet is not None
    assert packet.payload == b"hello"


def test_packets_too_large_for_their_size_field_have_the_captured_size() -> None:
    for packet in (ipv4(SOURCE, TARGET, CONTENT, total=0), ipv6(*SIX_ADDRESSES, CONTENT, total=0)):
        decoded = decode_ip(packet, 0)
        assert decoded is not None
        assert decoded.payload == b"hello"


def test_a_packet_that_was_cut_gives_its_captured_part() -> None:
    packet = decode_ip(FOUR[:-2], 0)
    assert packet is not None
    assert packet.payload == b"hel"


def test_only_the_first_of_fragments_is_read() -> None:
    first = decode_ip(ipv4(SOURCE, TARGET, CONTENT, fragment=0x2000), 0)
    assert first is not None
    assert first.payload == b"hello"
    assert decode_ip(ipv4(SOURCE, TARGET, CONTENT, fragment=0x2001), 0) is None
    assert decode_ip(ipv6(*SIX_ADDRESSES, CONTENT, (44, b"\0\0\x08" + bytes(4))), 0) is None


@pytest.mark.parametrize(
    "packet",
    [
        b"",
        FOUR[:19],
        FOUR[:39],
        SIX[:39],
        SIX[:59],
        bytes([0x44]) + FOUR[1:],  # a header of 16 bytes
        b"\x55" + FOUR[1:],  # no version of IP
        FOUR[:9] + b"\x11" + FOUR[10:],  # UDP
        ipv6(*SIX_ADDRESSES, CONTENT)[:6] + b"\x11" + SIX[7:],
        ipv6(*SIX_ADDRESSES, CONTENT, *[(0, b"\0" + bytes(6))] * 9),
        FOUR[:32] + b"\x40" + FOUR[33:],  # a TCP header of 16 bytes
        FOUR[:32] + b"\xf0" + FOUR[33:],  # and one that is longer than its packet
    ],
)
def test_an_incomplete_tcp_header_is_no_segment(packet: bytes) -> None:
    assert decode_ip(packet, 0) is None


def test_other_link_types_and_protocols_are_not_read() -> None:
    assert decode(147, FOUR, 0) is None
    assert decode(LinkType.ETHERNET, MACS + b"\x08\x06" + bytes(40), 0) is None
    assert decode(LinkType.ETHERNET, MACS + TAG * 20, 0) is None
    assert decode(LinkType.LINUX_SLL2, b"\x08\x06" + bytes(60), 0) is None


@given(link_type=st.sampled_from([*LinkType, 147]), data=st.binary(max_size=120), flips=st.data())
def test_nothing_raises(link_type: int, data: bytes, flips: st.DataObject) -> None:
    decode(link_type, data, 0)
    kind, frame = flips.draw(st.sampled_from(FRAMES))
    cut = bytearray(frame[: flips.draw(st.integers(0, len(frame)))])
    for _ in range(flips.draw(st.integers(0, 4))):
        if cut:
            cut[flips.draw(st.integers(0, len(cut) - 1))] = flips.draw(st.integers(0, 255))
    decode(kind, bytes(cut), 0)


def test_a_segment_has_the_numbers_of_its_header() -> None:
    packet = decode_ip(ipv4(SOURCE, TARGET, struct.pack(">HHIIBBHHH", 1, 2, 2**32 - 1, 2**31, 0x50, 0, 0, 0, 0)), 0)
    assert packet is not None
    assert (packet.sequence, packet.acknowledged, packet.payload) == (2**32 - 1, 2**31, b"")
