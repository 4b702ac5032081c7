"""Writes to a connection's socket at once.

uvloop writes only after the current callback has returned: work after a write to the transport would delay the bytes.
"""

import asyncio
import os


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
