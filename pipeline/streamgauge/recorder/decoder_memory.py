"""What the decoders of all streams may hold together: windows, tables, and compressed input that is kept.

An upstream that leaves its answers open holds their decoders for as long as it likes, and chooses how large they are. So
large decoders together get a part of the memory only, and when nothing is left for a small one, the largest of all decoders
gives way. A stream whose decoder gets no memory, or gives way, has the decode error "too_large"; other streams go on.
"""

from streamgauge.core.http1.body import BodyDecoder

# Bytes that all decoders hold, by their own account (`coding_members.Member.held`). After 100 KB of events with a flush after
# each, a decoder accounts for 80 KiB with gzip, 240 KiB with zstd and 350 KiB with br: 3,000, 1,000 or 700 of them fit.
MAX_DECODER_BYTES = 256 * 1024 * 1024
# Up to this size (bytes) a decoder is small: gzip always is, br and zstd are for answers of up to 1 MB.
SMALL_DECODER_BYTES = 2 * 1024 * 1024
# The part of the memory that large ones may have together: three decoders of the largest window, or 20 of 3 MiB.
_LARGE_PART = 1 / 4


class DecoderMemory:
    """Decoders ask it before they hold more, and tell it when they hold less: see `body.Memory`."""

    def __init__(self, most: int = MAX_DECODER_BYTES) -> None:
        self._left = most
        self._left_large = int(most * _LARGE_PART)
        self._held: dict[BodyDecoder, int] = {}

    @property
    def left(self) -> int:
        """Bytes that no decoder holds."""
        return self._left

    def hold(self, holder: BodyDecoder, size: int) -> bool:
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
        """Whether a decoder that holds more than `size` gave way: then there is room for so many bytes."""
        largest = max(self._held, key=self._held.__getitem__, default=None)
        if largest is None or self._held[largest] <= size:
            return False
        largest.give_way()
        self.hold(largest, 0)
        return True


def _if_large(size: int) -> int:
    return size if size > SMALL_DECODER_BYTES else 0
