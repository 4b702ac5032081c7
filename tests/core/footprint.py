"""Measures decoders in a process of their own: `python -m tests.core.footprint CASE` prints, for one decoder, the bytes that
the process grew by and the bytes that the decoder says it holds."""

import sys
import zlib
from pathlib import Path

import brotli
import zstandard

from streamgauge.core.http1.body import BodyDecoder
from streamgauge.core.http1.coding_members import MEMBERS
from tests.core.http1.hostile_codings import brotli_tables, window_filled

DECODERS = 24
EVENTS = [b'data: {"choices":[{"index":0,"delta":{"content":"token %d"}}]}\n\n' % number for number in range(1500)]


def flushed(coding: str) -> bytes:
    """100 KB of events, with a flush after each."""
    if coding == "br":
        broken = brotli.Compressor(quality=4)
        return b"".join(broken.process(event) + broken.flush() for event in EVENTS)
    if coding == "zstd":
        frame = zstandard.ZstdCompressor().compressobj()
        return b"".join(frame.compress(event) + frame.flush(zstandard.COMPRESSOBJ_FLUSH_BLOCK) for event in EVENTS)
    zipped = zlib.compressobj(wbits=31)
    return b"".join(zipped.compress(event) + zipped.flush(zlib.Z_SYNC_FLUSH) for event in EVENTS)


CASES = {
    "gzip": lambda: ("gzip", flushed("gzip")),
    "br": lambda: ("br", flushed("br")),
    "zstd": lambda: ("zstd", flushed("zstd")),
    "br, window of 16 MiB": lambda: ("br", window_filled("br")),
    "zstd, window of 8 MiB": lambda: ("zstd", window_filled("zstd")),
    "br, tables": lambda: ("br", brotli_tables()),
}


class Holding:
    """A `body.Memory` without a limit."""

    def __init__(self) -> None:
        self.sizes: dict[BodyDecoder, int] = {}

    def reserve(self, holder: BodyDecoder, size: int) -> bool:
        self.sizes[holder] = size
        return True


def _resident() -> int:
    return int(Path("/proc/self/statm").read_text().split()[1]) * 4096


def main(case: str) -> None:
    coding, wire = CASES[case]()
    assert coding in MEMBERS
    BodyDecoder(coding=coding).feed(wire[:1000])  # objects that are created only once
    memory = Holding()
    before = _resident()
    for _ in range(DECODERS):
        decoder = BodyDecoder(coding=coding, memory=memory)
        for at in range(0, len(wire), 1024):
            decoder.feed(wire[at : at + 1024])
        assert decoder.fault is None
    print((_resident() - before) // DECODERS, sum(memory.sizes.values()) // DECODERS)


if __name__ == "__main__":
    main(sys.argv[1])
