"""Bounds the state of a bucket: one entry of the state must fit a message, even with forged or very many open streams.

Each segment adds an upper bound of its growth to the bucket's estimated size, except for what FEW_STREAMS leaves out. The
state itself is measured only when the estimate passes MAX_BUCKET_BYTES; when that happens depends on the log alone. Then the
largest streams are closed until there is room.
"""

from collections.abc import Iterable

import msgspec

from streamgauge.core.assembly.reorder_buffer import size_of
from streamgauge.core.assembly.state import StreamState
from streamgauge.core.capture.segments import Segment

# Up to this many streams in a bucket, the estimate leaves out the content of segments, since counting it takes a few
# percent of a worker's time. The content of a stream adds at most 100 KB of state (128 tool calls with a name and open
# brackets of 256 characters each, 128 finish reasons, 128 items).
FEW_STREAMS = 16

# The largest estimate of a bucket (bytes). A message of the state topic has at most 8 MiB (`topics.MAX_STATE_BYTES`).
# The message also holds the uncounted content of FEW_STREAMS streams (1.6 MB), and what one more segment may add (some
# 400 KB: all the words, choices and tool calls of a stream).
MAX_BUCKET_BYTES = 11 * 512 * 1024

# A bucket that was too large is reduced to this (bytes): 2.7 KiB for each of 1,562 streams, where a usual one takes 1
# KiB. It is below the bound, so that a large state is not measured again after a few segments.
KEPT_BUCKET_BYTES = MAX_BUCKET_BYTES * 3 // 4

# What a segment adds besides its content (bytes): its own fields if it waits, or the fields of a stream that it opens.
_SEGMENT_BYTES = 256
# Bytes of state per byte of content at most: a few characters of JSON become a number or a label.
_SHARE = 2

_ENCODER = msgspec.msgpack.Encoder()


def max_growth_of(segment: Segment) -> int:
    """An upper bound of the bytes that a segment adds to the state."""
    return _SEGMENT_BYTES + _SHARE * size_of(segment)


def max_growth_of_in_order(segment: Segment, streams: int) -> int:
    """As `max_growth_of`, for a segment that does not wait; without its content in a bucket of up to FEW_STREAMS streams."""
    if streams > FEW_STREAMS or segment.request is not None or segment.head is not None or segment.loss is not None:
        return max_growth_of(segment)
    return _SEGMENT_BYTES if segment.opening is None else max_growth_of(segment)


def evict_largest(streams: Iterable[StreamState]) -> tuple[int, list[StreamState]]:
    """The bytes of the streams that stay, and the streams to close: the largest first, of equal ones the oldest."""
    sizes = [(len(_ENCODER.encode(state)), state) for state in streams]
    total, evicted = sum(size for size, _ in sizes), list[StreamState]()
    for size, state in sorted(sizes, key=lambda sized: -sized[0]):
        if total <= KEPT_BUCKET_BYTES:
            break
        total -= size
        evicted.append(state)
    return total, evicted
