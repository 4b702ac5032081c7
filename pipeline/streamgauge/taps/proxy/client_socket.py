"""What a client's socket tells the relay, and the loop does not."""

import asyncio
import fcntl
import select
import socket
import struct
import termios

_HARD_CLOSE = struct.pack("ii", 1, 0)  # SO_LINGER of no time: close() sends RST


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
