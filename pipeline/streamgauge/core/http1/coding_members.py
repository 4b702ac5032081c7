"""The members of a content coding: one gzip member, zlib stream, brotli stream or zstd frame, each by its library.

A member yields its bytes in pieces of bounded size, and estimates how much memory its library uses for it. A library keeps a
window of its latest output; only the part of the window that output has filled takes memory, so a short response costs
little, whatever window its server chose.
"""

import zlib
from collections.abc import Callable, Iterator
from typing import Protocol

import brotli  # type: ignore[import-untyped]
import zstandard

# The most output of one step (bytes), so that a bomb is detected before it has grown.
_SLICE_BYTES = 64 * 1024

# zlib: its state and its window, which is at most 32 KiB in deflate (bytes; 40 KiB measured).
_ZLIB_BYTES = 48 * 1024

# brotli: its state without window and prefix codes (bytes; 13 KiB measured).
_BROTLI_BYTES = 16 * 1024
# brotli builds the tables of a meta-block's prefix codes while it reads the header, before any output. The densest
# header makes about this many bytes of tables from a byte of input (a code of one symbol: 12 bits, 1 KiB).
_BROTLI_TABLES_PER_BYTE = 700
# All tables of a meta-block: 256 trees for each of literals, commands and distances, of the largest size (bytes).
_BROTLI_TABLES_BYTES = 2_800 * 1024
# brotli gets this many bytes of input at a time, to measure how much of the input gives no output.
_BROTLI_STEP_BYTES = 128

# zstd: its context, by the library's own figure (bytes); and a block, of which it holds two, for input and output.
_ZSTD_BYTES = 96 * 1024
_ZSTD_BLOCK_BYTES = 128 * 1024
# zstd's output per call cannot be limited: at most 8 blocks of 128 KiB fit into this many bytes of input.
_ZSTD_STEP_BYTES = 32
# zstd's largest window: what a decoder for the web must support (RFC 9659; bytes).
_ZSTD_WINDOW_BYTES = 8 * 1024 * 1024
# The longest header of a frame, with its magic number (RFC 8878, 3.1.1.1; bytes).
_ZSTD_HEADER_BYTES = 18


class Member(Protocol):
    """One gzip member, zlib stream, brotli stream or zstd frame. Raises what its library raises: LIBRARY_ERRORS."""

    @property
    def reusable(self) -> bool:
        """Whether the next member can reuse the memory of this one."""

    def decode(self, data: bytes) -> Iterator[bytes]:
        """Yields what `data` decodes to, in pieces of bounded size."""

    @property
    def ended(self) -> bool:
        """Whether the data so far holds the member's end."""

    @property
    def unused(self) -> bytes:
        """The bytes after the member's end in the latest data."""

    @property
    def held(self) -> int:
        """About how many bytes of memory the library has for it now."""


class _Zlib:
    reusable = False
    held = _ZLIB_BYTES

    def __init__(self, window_bits: int) -> None:
        self._zlib = zlib.decompressobj(window_bits)

    @property
    def ended(self) -> bool:
        return self._zlib.eof

    @property
    def unused(self) -> bytes:
        return self._zlib.unused_data

    def decode(self, data: bytes) -> Iterator[bytes]:
        out = b"-"
        while (data or out) and not self._zlib.eof:
            out = self._zlib.decompress(data, _SLICE_BYTES)
            data = self._zlib.unconsumed_tail
            if out:
                yield out


class _Deflate:
    """deflate inside a zlib wrapper, as the standard requires, or without it, as some servers send: two bytes show which."""

    reusable = False
    held = _ZLIB_BYTES

    def __init__(self) -> None:
        self._first = b""
        self._zlib: _Zlib | None = None

    @property
    def ended(self) -> bool:
        return self._zlib is not None and self._zlib.ended

    @property
    def unused(self) -> bytes:
        return self._zlib.unused if self._zlib else b""

    def decode(self, data: bytes) -> Iterator[bytes]:
        if self._zlib is None:
            self._first = data = self._first + data
            if len(data) < 2:
                return
            wrapped = data[0] & 0x0F == 8 and int.from_bytes(data[:2]) % 31 == 0
            self._zlib = _Zlib(zlib.MAX_WBITS if wrapped else -zlib.MAX_WBITS)
        yield from self._zlib.decode(data)


class _Brotli:
    reusable = False
    unused = b""  # the library reports bytes after the end as damage

    def __init__(self) -> None:
        self._brotli = brotli.Decompressor()
        self._window = 0  # bytes; 0 until the first byte was read
        self._given = 0
        self._silent = 0  # bytes of input since the last output, with the step that gave it; no header is longer
        self._longest_silent = 0

    @property
    def ended(self) -> bool:
        return bool(self._brotli.is_finished())

    @property
    def held(self) -> int:
        """About how many bytes. The window grows in powers of two."""
        window = min(self._window, 1 << self._given.bit_length())
        return _BROTLI_BYTES + window + min(self._longest_silent * _BROTLI_TABLES_PER_BYTE, _BROTLI_TABLES_BYTES)

    def decode(self, data: bytes) -> Iterator[bytes]:
        self._window = self._window or _brotli_window(data[0])
        for at in range(0, len(data), _BROTLI_STEP_BYTES):
            step = data[at : at + _BROTLI_STEP_BYTES]
            before = self._given
            out = self._brotli.process(step, output_buffer_limit=_SLICE_BYTES)
            self._silent += len(step)
            self._longest_silent = max(self._longest_silent, self._silent)
            while out or not self._brotli.can_accept_more_data():
                self._given += len(out)
                yield out
                out = self._brotli.process(b"", output_buffer_limit=_SLICE_BYTES)
            if self._given > before:
                self._silent = len(step)


def _brotli_window(first: int) -> int:
    """The window's size (bytes) from a stream's first byte (RFC 7932, 9.1); 0 if the library refuses that byte."""
    if not first & 1:
        bits = 16
    elif first >> 1 & 7:
        bits = 17 + (first >> 1 & 7)
    else:
        bits = {0: 17, 1: 0}.get(first >> 4 & 7, 8 + (first >> 4 & 7))
    return (1 << bits) - 16 if bits else 0


class _Zstd:
    """One frame. `before`: the previous frame, whose context it reuses.

    Making a context takes 15 us, and a frame may have only 8 bytes.
    """

    reusable = True

    def __init__(self, before: Member | None) -> None:
        self._context: zstandard.ZstdDecompressor
        self._held_before = 0
        if isinstance(before, _Zstd):
            self._context, self._held_before = before._context, before.held
        else:
            self._context = zstandard.ZstdDecompressor(max_window_size=_ZSTD_WINDOW_BYTES)
        self._zstd = self._context.decompressobj()
        self._header = b""  # the first bytes
        self._most = 0  # the largest size of its buffers (bytes); 0 until it is needed
        self._passed = 0  # bytes of input and output
        self._rest = b""
        # The library checks the content's size only if the first call holds the whole frame. A first step of one byte
        # prevents this, so that the split of the input changes nothing.
        self._first_step = 1

    @property
    def ended(self) -> bool:
        return self._zstd.eof

    @property
    def unused(self) -> bytes:
        return self._zstd.unused_data + self._rest

    @property
    def held(self) -> int:
        """About how many bytes. The context keeps the buffers of earlier frames."""
        buffers = self._passed
        if buffers > 2 * _ZSTD_BLOCK_BYTES:
            self._most = self._most or _zstd_window(self._header) + 2 * _ZSTD_BLOCK_BYTES
            buffers = min(buffers, self._most)
        return max(self._held_before, _ZSTD_BYTES + buffers)

    def decode(self, data: bytes) -> Iterator[bytes]:
        if len(self._header) < _ZSTD_HEADER_BYTES:
            self._header += data[: _ZSTD_HEADER_BYTES - len(self._header)]
        at, step = 0, self._first_step
        while at < len(data):
            out = self._zstd.decompress(data[at : at + step])
            self._passed += step + len(out)
            if out:
                yield out
            at, step, self._first_step = at + step, _ZSTD_STEP_BYTES, _ZSTD_STEP_BYTES
            if self._zstd.eof:
                self._rest = data[at:]
                return


def _zstd_window(header: bytes) -> int:
    """The window's size (bytes) from a frame's header; the largest size if the header is invalid."""
    try:
        return min(zstandard.get_frame_parameters(header).window_size, _ZSTD_WINDOW_BYTES)
    except zstandard.ZstdError:
        return _ZSTD_WINDOW_BYTES


# Makes a member of each coding. The argument is the previous member if that is `reusable` and no longer in use.
MEMBERS: dict[str, Callable[[Member | None], Member]] = {
    "gzip": lambda _: _Zlib(zlib.MAX_WBITS | 16),
    "x-gzip": lambda _: _Zlib(zlib.MAX_WBITS | 16),
    "deflate": lambda _: _Deflate(),
    "br": lambda _: _Brotli(),
    "zstd": _Zstd,
}
# Codings whose body may have several members, one after another (RFC 1952, 2.2; RFC 8878, 3.1).
SEVERAL = frozenset(("gzip", "x-gzip", "zstd"))
LIBRARY_ERRORS = (zlib.error, brotli.error, zstandard.ZstdError)
