"""How large a bucket's state may be: one entry of the state has to fit a message, whatever is forged or really open.

What segments add is counted at more than it can be, so that the state itself is looked at only now and then: when the count
passes its bound, which the log alone decides. Then the streams that take most are closed, until there is room again.
"""

from collections.abc import Iterable

import msgspec

from streamgauge.core.assembly.reorder_buffer import size_of
from streamgauge.core.assembly.state import StreamState
from streamgauge.core.capture.segments import Segment

# What the content of so many streams adds is not counted, which would take a few percent of a worker's time: it is 100 KB for
# each at most (128 tool calls with a name and open brackets of 256 characters each, 128 finish reasons, 128 items).
FEW_STREAMS = 16

# A message of the state's topic has at most 8 MiB (`topics.MAX_STATE_BYTES`). Beside this much lie those few streams
# (1.6 MB), and what one segment more may add (some 400 KB: all the words, choices and tool calls of a stream).
MAX_BUCKET_BYTES = 11 * 512 * 1024

# What is left of a bucket that was too large: at 1,562 streams 2.7 KiB for each, where a usual one takes 1. It lies below
# the bound so that a large state is not looked at again for every few segments.
KEPT_BUCKET_BYTES = MAX_BUCKET_BYTES * 3 // 4

# What a segment adds beside its content: its own fields where it waits, or those of a stream that it opens. And what of its
# content becomes state at most: a number or a label for some characters of JSON.
_SEGMENT_BYTES = 256
_SHARE = 2

_ENCODER = msgspec.msgpack.Encoder()


def max_growth_of(segment: Segment) -> int:
    """More bytes than a segment can add to the state."""
    return _SEGMENT_BYTES + _SHARE * size_of(segment)


def max_growth_of_in_order(segment: Segment, streams: int) -> int:
    """The same of a segment that does not wait, in a bucket of so many streams: of few of them without the content."""
    if streams > FEW_STREAMS or segment.request is not None or segment.head is not None or segment.loss is not None:
        return max_growth_of(segment)
    return _SEGMENT_BYTES if segment.opening is None else max_growth_of(segment)


def evict_largest(streams: Iterable[StreamState]) -> tuple[int, list[StreamState]]:
    """The bytes of a bucket's streams that stay, and those that have to go: the largest first, of several the oldest."""
    sizes = [(len(_ENCODER.encode(state)), state) for state in streams]
    total, gone = sum(size for size, _ in sizes), list[StreamState]()
    for size, state in sorted(sizes, key=lambda one: -one[0]):
        if total <= KEPT_BUCKET_BYTES:
            break
        total -= size
        gone.append(state)
    return total, gone
