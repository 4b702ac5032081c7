"""Counts what waits for missing segments: the waiting bytes of each stream and each bucket.

The numbers depend on the streams' states alone, so a loaded state gives the same numbers as the dumped one.
"""

from collections.abc import Iterable, Mapping
from itertools import chain

import msgspec

from streamgauge.core.capture.segments import Segment

# The largest whole answer that may wait for a missing segment (bytes), since it is part of the persisted state. A
# larger one is discarded. The largest recorded answer has 300 KB.
MAX_WAITING_BODY = 512 * 1024

# What may wait for missing segments in one bucket (bytes). It is part of the persisted state, which must fit a message
# of 8 MiB together with the open streams of the bucket.
MAX_WAITING_BYTES = 1024 * 1024

_ENCODER = msgspec.msgpack.Encoder()


class ReorderBuffer:
    """The streams that wait for a missing segment, with the waiting bytes of each. False if there is none."""

    def __init__(self, buckets: int) -> None:
        self._sizes: list[dict[bytes, int]] = [{} for _ in range(buckets)]
        self._totals = [0] * buckets

    def __bool__(self) -> bool:
        return any(self._sizes)

    def streams(self) -> list[bytes]:
        """All streams that wait, sorted by id."""
        return sorted(chain.from_iterable(self._sizes))

    def total(self, key: int) -> int:
        """The bytes that wait in a bucket."""
        return self._totals[key]

    def largest(self, key: int) -> bytes:
        """The stream of a bucket with the most waiting bytes; of equal ones the first by id."""
        sizes = self._sizes[key]
        return min(sizes, key=lambda stream: (-sizes[stream], stream))

    def add(self, key: int, stream: bytes, segment: Segment) -> None:
        """Count a segment that begins to wait."""
        size, sizes = size_of(segment), self._sizes[key]
        sizes[stream] = sizes.get(stream, 0) + size
        self._totals[key] += size

    def remove(self, key: int, stream: bytes, segment: Segment) -> None:
        """Subtract a segment that no longer waits. Its stream counts as waiting until `drop`."""
        size = size_of(segment)
        self._sizes[key][stream] -= size
        self._totals[key] -= size

    def drop(self, key: int, stream: bytes) -> None:
        """Remove a stream and all its waiting bytes, if it waits."""
        self._totals[key] -= self._sizes[key].pop(stream, 0)

    def replace(self, key: int, waiting: Mapping[bytes, Iterable[Segment]]) -> None:
        """Replace what waits in a bucket by these segments of each stream."""
        sizes = {stream: sum(map(size_of, segments)) for stream, segments in waiting.items()}
        self._sizes[key], self._totals[key] = sizes, sum(sizes.values())


def without_large_body(segment: Segment) -> Segment:
    """A segment that may wait: without a body above MAX_WAITING_BODY, in place of which it has `body_capped`."""
    end = segment.end
    if end is None or end.body is None or len(end.body) <= MAX_WAITING_BODY:
        return segment
    return msgspec.structs.replace(segment, end=msgspec.structs.replace(end, body=None, body_capped=True))


def size_of(segment: Segment) -> int:
    """The bytes that a segment takes in the state while it waits."""
    return len(_ENCODER.encode(segment))
