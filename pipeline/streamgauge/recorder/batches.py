"""A relay's connection to its recorder: batches with their length before them, as `messages.encode_batch` writes them."""

import asyncio
import contextlib
import socket
from collections.abc import Callable
from typing import Protocol

import msgspec

# A batch is some 64 KiB, or one read or piece of a request's body; more is not from a relay of ours (bytes).
MAX_BATCH_BYTES = 64 * 1024 * 1024

_LENGTH_BYTES = 4


class Taker(Protocol):
    """What takes the batches of all connections; a connection is told by its number, `source`."""

    def comes(self) -> None: ...
    def batch(self, source: int, body: bytes) -> None:
        """A batch, without its length. Raises msgspec.DecodeError if it is none."""

    def bad_batch(self) -> None: ...
    def gone(self, source: int) -> None: ...


class Batches(asyncio.Protocol):
    """One relay's connection: length-prefixed batches. What is no batch ends it."""

    def __init__(self, source: int, taker: Taker, left: Callable[["Batches"], None]) -> None:
        self.transport: asyncio.Transport | None = None
        self._source, self._taker, self._left = source, taker, left
        self._buffer = bytearray()

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        assert isinstance(transport, asyncio.Transport)
        self.transport = transport

    def data_received(self, data: bytes) -> None:
        self._taker.comes()
        self._buffer += data
        start = 0
        while (end := self._end_of_batch(start)) is not None:
            body = bytes(memoryview(self._buffer)[start + _LENGTH_BYTES : end])
            start = end
            try:
                self._taker.batch(self._source, body)
            except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
                self._refuse()
                return
        del self._buffer[:start]

    def hang_up(self) -> None:
        """Read what has been sent, and no more: the other side finds out at its next send, and keeps what it has."""
        if self.transport is not None:
            with contextlib.suppress(OSError):  # it has hung up itself
                self.transport.get_extra_info("socket").shutdown(socket.SHUT_RD)

    def connection_lost(self, exc: Exception | None) -> None:
        self._taker.gone(self._source)
        self._left(self)

    def _end_of_batch(self, start: int) -> int | None:
        """Where the batch at `start` ends; None if it is not whole, or too long to be one."""
        if len(self._buffer) < start + _LENGTH_BYTES:
            return None
        size = int.from_bytes(self._buffer[start : start + _LENGTH_BYTES])
        if size > MAX_BATCH_BYTES:
            self._refuse()
            return None
        end = start + _LENGTH_BYTES + size
        return end if len(self._buffer) >= end else None

    def _refuse(self) -> None:
        self._taker.bad_batch()
        self._buffer.clear()
        if self.transport is not None:
            self.transport.abort()
