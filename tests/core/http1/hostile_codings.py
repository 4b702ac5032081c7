"""Hand-made bodies that cost a decoder much memory or time: brotli headers full of tables, and answers that fill a
window.
"""

import zlib
from functools import lru_cache

import brotli
import zstandard

EMPTY_FRAME = zstandard.ZstdCompressor(write_content_size=False, write_checksum=False).compress(b"")


class _Bits:
    """Bits in brotli's order: the first bit is the lowest of its byte."""

    def __init__(self) -> None:
        self._pieces: list[str] = []

    def put(self, value: int, size: int) -> None:
        self._pieces.append(f"{value:0{size}b}"[::-1])

    def one_symbol(self, symbol: int, size: int) -> None:
        """A simple prefix code of one symbol (RFC 7932, 3.4)."""
        self.put(1, 2)
        self.put(0, 2)
        self.put(symbol, size)

    def number_256(self) -> None:
        """256 block types or trees (RFC 7932, 9.2)."""
        self.put(1, 1)
        self.put(7, 3)
        self.put(127, 7)

    def text(self) -> str:
        return "".join(self._pieces)


def _whole(bits: str) -> bytes:
    return int(bits[::-1], 2).to_bytes((len(bits) + 7) // 8, "little")


def brotli_tables(command: int = 504, blocks: int = 1) -> bytes:
    """The beginning of a brotli stream: meta-blocks whose headers have 3 * 256 prefix codes, in 1.3 KB each.

    Command 504 waits for 24 more bits, so that the decoder stops where all tables are built; command 8 writes one byte
    and ends its meta-block.
    """
    bits = _Bits()
    bits.put(0, 1)  # not the last meta-block
    bits.put(0, 2)
    bits.put(1000 if command == 504 else 0, 16)  # its length minus one
    bits.put(0, 1)  # compressed
    bits.put(0, 1)  # one block type of literals
    bits.number_256()  # as many of commands
    bits.one_symbol(0, 9)
    bits.one_symbol(0, 5)
    bits.put(0, 2)
    bits.put(0, 1)  # one of distances
    bits.put(3, 2)
    bits.put(15, 4)
    bits.put(0, 2)
    for _ in range(2):  # trees of literals and of distances, with their context maps
        bits.number_256()
        bits.put(0, 1)
        bits.one_symbol(0, 8)
        bits.put(0, 1)
    for symbol, size in ((97, 8), (command, 10), (0, 10)):
        for _ in range(256):
            bits.one_symbol(symbol, size)
    window_of_64_kib = "0"
    return _whole(window_of_64_kib + bits.text() * blocks)


@lru_cache
def dense(size: int) -> bytes:
    """Bytes without line ends that compress by a factor of about 200, which is less than that of a bomb."""
    blocks = size // 4096
    noise = b"".join(zlib.crc32(b"%d" % number).to_bytes(4) for number in range(4 * blocks)).translate(_NO_LINE_ENDS)
    return b"".join(noise[at : at + 16] + b"a" * 4080 for at in range(0, len(noise), 16))


_NO_LINE_ENDS = bytes.maketrans(b"\r\n", b"__")


@lru_cache
def window_filled(coding: str, size: int = 40 * 1024 * 1024) -> bytes:
    """Answers that fill the largest window of their coding, and do not end."""
    if coding == "br":
        return bytes(brotli.compress(dense(size), quality=5, lgwin=24)[:-100])
    if coding == "zstd":
        parameters = zstandard.ZstdCompressionParameters.from_level(3, window_log=23)
        coder = zstandard.ZstdCompressor(compression_params=parameters).compressobj()
        return coder.compress(dense(size)) + coder.flush(zstandard.COMPRESSOBJ_FLUSH_BLOCK)
    assert coding == "zstd, br"
    return bytes(brotli.compress(window_filled("zstd", size), quality=5, lgwin=24)[:-4])
