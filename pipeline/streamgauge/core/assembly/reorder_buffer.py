"""What waits for missing segments: which streams, and how many bytes in each bucket, kept as it changes.

It is worked out of the streams' states alone, so a state that is loaded gives the same numbers as the one that was dumped.
"""

from collections.abc import Iterable, Mapping
from itertools import chain

import msgspec

from streamgauge.core.capture.segments import Segment

# A whole answer that waits for a missing segment lies in the persisted state: a larger one is given up (bytes). Of recorded
# answers the largest has 300 KB.
MAX_WAITING_BODY = 512 * 1024

# What may wait for missing segments in one bucket (bytes): it lies in the persisted state, which has to
# fit a message of 8 MiB beside all that is open there.
MAX_WAITING_BYTES = 1024 * 1024

_ENCODER = msgspec.msgpack.Encoder()


class ReorderBuffer:
    """The streams that wait for a missing segment, with the bytes that wait of each. False while there is none."""

    def __init__(self, buckets: int) -> None:
        self._sizes: list[dict[bytes, int]] = [{} for _ in range(buckets)]
        self._totals = [0] * buckets

    def __bool__(self) -> bool:
        return any(self._sizes)

    def streams(self) -> list[bytes]:
        """All of them, by id."""
        return sorted(chain.from_iterable(self._sizes))

    def total(self, key: int) -> int:
        """The bytes that wait in a bucket."""
        return self._totals[key]

    def largest(self, key: int) -> bytes:
        """The stream of a bucket of which most waits; of several the first by its id."""
        sizes = self._sizes[key]
        return min(sizes, key=lambda stream: (-sizes[stream], stream))

    def add(self, key: int, stream: bytes, segment: Segment) -> None:
        """A segment begins to wait."""
        size, sizes = size_of(segment), self._sizes[key]
        sizes[stream] = sizes.get(stream, 0) + size
        self._totals[key] += size

    def remove(self, key: int, stream: bytes, segment: Segment) -> None:
        """A segment no longer waits; its stream does until it is dropped."""
        size = size_of(segment)
        self._sizes[key][stream] -= size
        self._totals[key] -= size

    def drop(self, key: int, stream: bytes) -> None:
        """Nothing of a stream waits any more. It need not have waited."""
        self._totals[key] -= self._sizes[key].pop(stream, 0)

    def replace(self, key: int, waiting: Mapping[bytes, Iterable[Segment]]) -> None:
        """What waits in a bucket is this, whatever did before: segments by stream."""
        sizes = {stream: sum(map(size_of, segments)) for stream, segments in waiting.items()}
        self._sizes[key], self._totals[key] = sizes, sum(sizes.values())


def without_large_body(segment: Segment) -> Segment:
    """A segment as it may wait: without an answer that is too large, which its record will say."""
    end = segment.end
    if end is None or end.body is None or len(end.body) <= MAX_WAITING_BODY:
        return segment
    return msgspec.structs.replace(segment, end=msgspec.structs.replace(end, body=None, body_capped=True))


def size_of(segment: Segment) -> int:
    """The bytes that a segment takes while it waits."""
    return len(_ENCODER.encode(segment))
