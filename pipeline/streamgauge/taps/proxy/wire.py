"""What is written to a connection goes to its socket at once.

uvloop writes what it is given only when whoever was called has returned: what is done behind a write would still hold it up.
"""

import asyncio
import os


class Wire:
    """The way out of one connection. Beside it the transport may be written to as well: order is kept."""

    __slots__ = ("_fd", "_transport")

    def __init__(self, transport: asyncio.Transport) -> None:
        self._transport = transport
        plain = transport.can_write_eof()  # TLS has bytes of its own to write
        self._fd = int(transport.get_extra_info("socket").fileno()) if plain else None

    def write(self, data: bytes) -> None:
        """What the socket does not take now, or breaks on, is the transport's. Nothing, where the connection is ending."""
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
        """The descriptor of a plain socket to which nothing is still to be written; else None."""
        transport = self._transport
        if self._fd is None or transport.is_closing() or transport.get_write_buffer_size():
            return None
        return self._fd
