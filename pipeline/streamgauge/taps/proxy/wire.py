"""Writes to a connection's socket at once, and asks the socket what the loop does not tell.

uvloop writes only after the current callback has returned: work after a write to the transport would delay the bytes.
"""

import asyncio
import fcntl
import os
import select
import socket
import struct
import termios

_HARD_CLOSE = struct.pack("ii", 1, 0)  # SO_LINGER of no time: close() sends RST


class Wire:
    """Writes to one connection. Writes to the transport itself are allowed as well: the order of bytes is kept."""

    __slots__ = ("_fd", "_transport")

    def __init__(self, transport: asyncio.Transport) -> None:
        self._transport = transport
        plain = transport.can_write_eof()  # TLS has bytes of its own to write
        self._fd = int(transport.get_extra_info("socket").fileno()) if plain else None

    def write(self, data: bytes) -> None:
        """Writes to the socket. The transport buffers the bytes that the socket does not accept. Writes nothing while the
        connection is closing.
        """
        if (fd := self.idle_socket) is not None:
            try:
                sent = os.write(fd, data)
            except OSError:
                sent = 0
            if sent == len(data):
                return
            data = data[sent:]
        if not self._transport.is_closing():
            self._transport.write(data)

    @property
    def idle_socket(self) -> int | None:
        """The descriptor of a plain socket (no TLS) whose transport has no unsent bytes; else None."""
        transport = self._transport
        if self._fd is None or transport.is_closing() or transport.get_write_buffer_size():
            return None
        return self._fd


def has_closed_its_side(transport: asyncio.Transport) -> bool:
    """Whether the client has ended its side, by the kernel: while reading is paused, the loop does not report it."""
    poll = select.poll()
    poll.register(transport.get_extra_info("socket").fileno(), select.POLLRDHUP)
    return bool(poll.poll(0))


def unacknowledged_bytes(transport: asyncio.Transport) -> int:
    """Bytes that were written, and that the client's host has not acknowledged."""
    fd = transport.get_extra_info("socket").fileno()
    (queued,) = struct.unpack("i", fcntl.ioctl(fd, termios.TIOCOUTQ, bytes(4)))
    return int(queued) + transport.get_write_buffer_size()


def reset_at_close(transport: asyncio.Transport) -> None:
    """Lets the connection end with RST when it is closed."""
    transport.get_extra_info("socket").setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, _HARD_CLOSE)
