"""Bounds the memory that the decoders of all streams use together: windows, tables, and compressed input that is kept.

An upstream that leaves its responses open occupies their decoders for an unlimited time, and determines how large they are.
So large decoders together may use only a part of the memory, and when nothing is left for a small one, the largest of all
decoders is discarded. A stream whose decoder gets no memory, or is discarded, has the decode error "too_large"; other
streams continue.
"""

from streamgauge.core.http1.body import BodyDecoder

# The bytes that all decoders may hold, by their own estimates (`coding_members.Member.held`). After 100 KB of events
# with a flush after each, a decoder estimates 80 KiB with gzip, 240 KiB with zstd and 350 KiB with br: 3,000, 1,000 or
# 700 of them fit.
MAX_DECODER_BYTES = 256 * 1024 * 1024
# Up to this size (bytes) a decoder is small: gzip always is, br and zstd are for responses of up to 1 MB.
SMALL_DECODER_BYTES = 2 * 1024 * 1024
# The part of the memory that large decoders may use together: three decoders of the largest window, or 20 of 3 MiB.
_LARGE_PART = 1 / 4


class DecoderMemory:
    """Implements `body.Memory`: decoders call `reserve` whenever the size that they need changes."""

    def __init__(self, most: int = MAX_DECODER_BYTES) -> None:
        self._left = most
        self._left_large = int(most * _LARGE_PART)
        self._held: dict[BodyDecoder, int] = {}

    @property
    def left(self) -> int:
        """Bytes that no decoder holds."""
        return self._left

    def reserve(self, holder: BodyDecoder, size: int) -> bool:
        """Whether `holder` may hold `size` bytes in all; see `body.Memory`."""
        before = self._held.get(holder, 0)
        more, more_large = size - before, _if_large(size) - _if_large(before)
        if more > 0:
            if more_large > self._left_large:
                return False
            if more > self._left and not self._make_room(size):
                return False
        self._left -= more
        self._left_large -= more_large
        if size:
            self._held[holder] = size
        else:
            self._held.pop(holder, None)
        return True

    def _make_room(self, size: int) -> bool:
        """Discard the largest decoder, if it holds more than `size`: then `size` bytes are free. Whether it was discarded."""
        largest = max(self._held, key=self._held.__getitem__, default=None)
        if largest is None or self._held[largest] <= size:
            return False
        largest.evict()
        self.reserve(largest, 0)
        return True


def _if_large(size: int) -> int:
    return size if size > SMALL_DECODER_BYTES else 0
