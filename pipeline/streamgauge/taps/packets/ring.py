"""The kernel's capture on Linux: a packet socket whose packets are in a ring of shared memory (TPACKET_V3).

The kernel fills one block after another. It passes a block to the reader when the block is full, or when its first packet
has waited BLOCK_WAIT_MS. Packets are stamped on arrival in nanoseconds, so this wait and a busy machine do not affect
durations. The kernel drops and counts packets for which no block is free.
https://www.kernel.org/doc/html/latest/networking/packet_mmap.html
"""

import ctypes
import mmap
import os
import socket
import struct
from collections.abc import Iterator, Sequence
from typing import NamedTuple

from streamgauge.taps.packets.capture_filter import filter_program

# Sizes in bytes, wait in ms. A block holds the largest packet that a kernel makes (IPv4: 64 KiB; IPv6 with BIG TCP:
# half a MiB, cut here). A block is passed on after the wait even if it holds one small packet. So the ring covers 6 s
# of a paused process under little traffic, and 64 MiB of any traffic.
BLOCK_BYTES = 512 * 1024
BLOCKS = 128
BLOCK_WAIT_MS = 50

# linux/if_packet.h, asm-generic/socket.h
_SOL_PACKET = 263
_RX_RING, _STATISTICS, _VERSION = 5, 6, 10
_TPACKET_V3 = 2
_ATTACH_FILTER = 26
_ALL_PROTOCOLS = 3
_FRAME_BYTES = 2048  # unused in version 3, but it must divide a block
_OURS = 1  # TP_STATUS_USER

_REQUEST = struct.Struct("=7I")
# A link-layer address: family, protocol, interface; the rest is not used.
_ADDRESS = struct.Struct("=HHi12x")
_COUNTS = struct.Struct("=3I")
# A block's header: version, offset of its private part; status, packets, offset of the first packet.
_BLOCK = struct.Struct("=5I")
_STATUS = struct.Struct("=I")
_STATUS_AT = 8
# A packet's header: offset of the next packet, seconds and nanoseconds of the stamp, bytes kept, original bytes,
# status, and offsets of the link's and the network's header.
_PACKET = struct.Struct("=6I2H")

# Used as an interface name: all interfaces.
ANY = "any"


class Captured(NamedTuple):
    """A packet from its network layer on. `at_ns`: UTC, stamped by the kernel."""

    at_ns: int
    data: bytes


def capture_socket() -> socket.socket:
    """A packet socket that captures nothing yet. Raises PermissionError without CAP_NET_RAW, OSError if packet sockets are
    unavailable.
    """
    family = getattr(socket, "AF_PACKET", None)
    if family is None:
        raise OSError("no packet sockets")
    return socket.socket(family, socket.SOCK_DGRAM, 0)


class Ring:
    """A live capture on one interface ("any": all of them). Takes ownership of the socket. Raises OSError."""

    def __init__(self, captures: socket.socket, interface: str, ports: Sequence[int]) -> None:
        self.socket = captures
        self.received = self.dropped = 0  # packets, as of the last `count`
        self._place = 0
        try:
            self._memory = _begun(captures, interface, ports)
        except BaseException:
            captures.close()
            raise

    def take(self) -> Iterator[Captured]:
        """Yields the packets of the next block, then returns the block to the kernel; yields nothing if no block is ready."""
        memory, at = self._memory, self._place * BLOCK_BYTES
        _, _, status, packets, first = _BLOCK.unpack_from(memory, at)
        if not status & _OURS:
            return
        at += first
        for _ in range(packets):
            following, seconds, nanoseconds, kept, _, _, _, network = _PACKET.unpack_from(memory, at)
            start = at + network
            yield Captured(seconds * 1_000_000_000 + nanoseconds, memory[start : start + kept])
            at += following
        _STATUS.pack_into(memory, self._place * BLOCK_BYTES + _STATUS_AT, 0)
        self._place = (self._place + 1) % BLOCKS

    @property
    def ready(self) -> bool:
        """Whether a block is ready to be read."""
        return bool(_STATUS.unpack_from(self._memory, self._place * BLOCK_BYTES + _STATUS_AT)[0] & _OURS)

    def count(self) -> int:
        """Reads the kernel's counts since the last call. Returns how many packets it dropped."""
        received, dropped, _ = _COUNTS.unpack(self.socket.getsockopt(_SOL_PACKET, _STATISTICS, _COUNTS.size))
        self.received += received
        self.dropped += dropped
        return int(dropped)

    def close(self) -> None:
        """Ends the capture."""
        self._memory.close()
        self.socket.close()


def _begun(captures: socket.socket, interface: str, ports: Sequence[int]) -> mmap.mmap:
    """Attaches the filter, then the ring, then the interface, so that only wanted packets are captured."""
    _attach(captures, filter_program(ports))
    captures.setsockopt(_SOL_PACKET, _RX_RING, bytes(_REQUEST.size))  # removes the ring of an earlier process
    captures.setsockopt(_SOL_PACKET, _VERSION, _TPACKET_V3)
    frames = BLOCK_BYTES // _FRAME_BYTES * BLOCKS
    ring = _REQUEST.pack(BLOCK_BYTES, BLOCKS, _FRAME_BYTES, frames, BLOCK_WAIT_MS, 0, 0)
    captures.setsockopt(_SOL_PACKET, _RX_RING, ring)
    memory = mmap.mmap(captures.fileno(), BLOCK_BYTES * BLOCKS)
    _bind(captures, interface)
    return memory


def _bind(captures: socket.socket, interface: str) -> None:
    """Binds with the C function: Python's `bind` cannot express "all interfaces"."""
    number = 0 if interface == ANY else socket.if_nametoindex(interface)
    system = ctypes.CDLL(None, use_errno=True)
    if system.bind(
        captures.fileno(), _ADDRESS.pack(captures.family, socket.htons(_ALL_PROTOCOLS), number), _ADDRESS.size
    ):
        raise OSError(ctypes.get_errno(), os.strerror(ctypes.get_errno()))


def _attach(captures: socket.socket, program: bytes) -> None:
    """Attaches a filter: the kernel takes the number of instructions and their address."""
    held = ctypes.create_string_buffer(program, len(program))
    captures.setsockopt(socket.SOL_SOCKET, _ATTACH_FILTER, struct.pack("HL", len(program) // 8, ctypes.addressof(held)))
