"""A relay's connection to its recorder: length-prefixed batches, as `protocol.encode_batch` writes them."""

import asyncio
import contextlib
import socket
from collections.abc import Callable
from typing import TYPE_CHECKING

import msgspec

if TYPE_CHECKING:
    from streamgauge.recorder.process import RecorderProcess

# A relay sends batches of about 256 KiB, or one read or piece of a request's body. A longer one is no batch (bytes).
MAX_BATCH_BYTES = 64 * 1024 * 1024

_LENGTH_BYTES = 4


class Batches(asyncio.Protocol):
    """A relay's connection: length-prefixed batches. Data that is no batch closes the connection.

    `source`: the number of the connection. `on_close`: called when the connection has ended.
    """

    def __init__(self, source: int, process: "RecorderProcess", on_close: Callable[["Batches"], None]) -> None:
        self.transport: asyncio.Transport | None = None
        self._source, self._process, self._on_close = source, process, on_close
        self._buffer = bytearray()

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Keep the transport, which `stop_reading` and a bad batch need."""
        assert isinstance(transport, asyncio.Transport)
        self.transport = transport

    def data_received(self, data: bytes) -> None:
        """Pass on the batches that `data` completes; buffer the beginning of the next one."""
        self._buffer += data
        start = 0
        while (end := self._end_of_batch(start)) is not None:
            body = bytes(memoryview(self._buffer)[start + _LENGTH_BYTES : end])
            start = end
            try:
                self._process.handle_batch(self._source, body)
            except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
                self._refuse()
                return
        del self._buffer[:start]

    def stop_reading(self) -> None:
        """Read what was sent so far, and nothing later: the relay's next send fails, so that it keeps the data."""
        if self.transport is not None:
            with contextlib.suppress(OSError):  # the relay has already closed the connection
                self.transport.get_extra_info("socket").shutdown(socket.SHUT_RD)

    def connection_lost(self, exc: Exception | None) -> None:
        """Report the end of the connection. An unfinished batch is discarded: the relay sends it again."""
        self._process.disconnected(self._source)
        self._on_close(self)

    def _end_of_batch(self, start: int) -> int | None:
        """The offset at which the batch at `start` ends; None if it is incomplete, or longer than MAX_BATCH_BYTES."""
        if len(self._buffer) < start + _LENGTH_BYTES:
            return None
        size = int.from_bytes(self._buffer[start : start + _LENGTH_BYTES])
        if size > MAX_BATCH_BYTES:
            self._refuse()
            return None
        end = start + _LENGTH_BYTES + size
        return end if len(self._buffer) >= end else None

    def _refuse(self) -> None:
        self._process.count_bad_batch()
        self._buffer.clear()
        if self.transport is not None:
            self.transport.abort()
