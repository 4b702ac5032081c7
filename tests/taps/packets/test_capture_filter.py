"""The filter, run by the kernel: a socket pair runs it like a packet socket, except for the metadata of packets."""

import ctypes
import socket
import struct

import pytest

from streamgauge.taps.packets.capture_filter import MAX_PORTS, filter_program
from tests.taps.packets.wire import ipv4, ipv6, tcp

SIX = ("2001:db8::1", "2001:db8::2")
# The part of the program after the tests of a packet's metadata: for IPv4, and for IPv6.
FIRST_BYTE = struct.pack("=HBBI", 0x30, 0, 0, 0)


def passes(program: bytes, packet: bytes) -> bool:
    """Whether the kernel accepts the packet."""
    sender, receiver = socket.socketpair(socket.AF_UNIX, socket.SOCK_DGRAM)
    held = ctypes.create_string_buffer(program, len(program))
    with sender, receiver:
        receiver.setsockopt(socket.SOL_SOCKET, 26, struct.pack("HL", len(program) // 8, ctypes.addressof(held)))
        receiver.setblocking(False)
        sender.send(packet)
        try:
            return receiver.recv(65536) == packet
        except BlockingIOError:
            return False


def without_facts(program: bytes) -> bytes:
    """The program without metadata: the version in the packet replaces the protocol that the kernel knows."""
    instructions = [program[at : at + 8] for at in range(0, len(program), 8)]
    following = instructions[7:]
    six = next(at for at, one in enumerate(following) if one == struct.pack("=HBBI", 0x30, 0, 0, 6))
    shift = struct.pack("=HBBI", 0x54, 0, 0, 0xF0)  # and
    if_six = struct.pack("=HBBI", 0x15, six, 0, 0x60)
    return b"".join((FIRST_BYTE, shift, if_six, *following))


def four(source: int, target: int, *, fragment: int = 0) -> bytes:
    ends = ("10.0.0.1", source), ("10.0.0.2", target)
    return ipv4(*ends, tcp(*ends, 1, 2, 16, b"x"), fragment=fragment)


def six(source: int, target: int, *headers: tuple[int, bytes]) -> bytes:
    return ipv6(*SIX, tcp(("", source), ("", target), 1, 2, 16, b"x"), *headers)


@pytest.mark.skipif(not hasattr(socket, "AF_PACKET"), reason="Linux alone has these filters")
@pytest.mark.parametrize("ports", [[8000], [8000, 8001], [*range(7969, 8001)]])
def test_only_tcp_of_the_ports_passes(ports: list[int]) -> None:
    assert len(ports) <= MAX_PORTS
    program = without_facts(filter_program(ports))
    for packet in (four, six):
        assert passes(program, packet(5, 8000))
        assert passes(program, packet(8000, 5))
        assert passes(program, packet(ports[0], ports[-1]))
        assert not passes(program, packet(5, 6))
        assert not passes(program, packet(80, 8002))
    udp = bytearray(four(5, 8000))
    udp[9] = 17
    assert not passes(program, bytes(udp))
    assert passes(program, four(5, 8000, fragment=0x2000))
    assert not passes(program, four(5, 8000, fragment=0x2001))
    assert passes(program, six(5, 6, (0, b"\0" + bytes(6)))), "this is checked after the filter"
    assert not passes(program, six(5, 6)[:6] + b"\x11" + six(5, 8000)[7:])
    options = four(5, 8000)
    assert passes(program, bytes([0x46]) + options[1:20] + bytes(4) + options[20:])


@pytest.mark.parametrize("ports", [[], [*range(1, MAX_PORTS + 2)]])
def test_it_takes_several_ports_up_to_a_limit(ports: list[int]) -> None:
    with pytest.raises(ValueError, match="1 to 32 ports"):
        filter_program(ports)
