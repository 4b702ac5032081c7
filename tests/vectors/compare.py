"""How records that must be equal are compared, and the random ways to send a stream that must not change them."""

import bisect
from typing import Any

from hypothesis import HealthCheck, settings
from hypothesis import strategies as st

from tests.vectors.load import Vector, blocks, differences, ends, is_dispatched

MS = 1_000_000
# Random ways to split each vector, in a test; each costs some 3 ms for a body of 2 KB (count of examples).
RANDOM_SPLITS = 8
# Places at which a random split cuts: more would only come close to byte by byte, which is tested anyway (count).
MOST_CUTS = 12
# What may differ if the body's bytes do.
SIZES = ("counts.bytes", "counts.client_bytes")


def alike(record: dict[str, Any], *leave_out: str) -> dict[str, Any]:
    """A record without its random id, without counts of reads, and without the given names."""
    out = {**record, "counts": {**record["counts"]}}
    for path in ("stream_id", "counts.reads", "counts.segments", *leave_out):
        parent, _, name = path.rpartition(".")
        (out[parent] if parent else out)[name] = None
    return out


def same(got: dict[str, Any], expected: dict[str, Any], where: object = "") -> None:
    assert got == expected, (where, list(differences(expected, got)))


def anywhere(data: bytes) -> st.SearchStrategy[list[int]]:
    """Places to cut these bytes at, in order."""
    return st.lists(st.integers(0, len(data)), max_size=MOST_CUTS).map(sorted)


def pace(count: int) -> st.SearchStrategy[list[int]]:
    """Pauses before each of this many reads (ms); 0 is one."""
    return st.lists(st.integers(0, 6_000), min_size=count, max_size=count)


randomly = settings(
    max_examples=RANDOM_SPLITS,
    deadline=None,  # a shared machine is slow at times
    derandomize=True,  # the same splits each time, so that failures can be reproduced
    database=None,
    suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large],
)


def without_times(record: dict[str, Any]) -> dict[str, Any]:
    """A record without what depends on arrival stamps: its timing, and the first token of each choice."""
    out = alike(record, "timing")
    return out | {"choices": [{**choice, "first_token_s": None} for choice in out["choices"]]}


def times_of(vector: Vector, head: bytes, places: list[int], stamps: list[int]) -> dict[str, float | None]:
    """The times of its events if the response was cut at these places and the pieces arrived at these times (ns)."""
    token_times = [stamps[bisect.bisect_right(places, len(head) + end)] for end in ends(vector.body)]
    events = [stamp for stamp, block in zip(token_times, blocks(vector.body), strict=True) if is_dispatched(block)]
    tokens = [events[place] for place in vector.token_events_at]
    found = {"first_event_s": events[:1], "first_token_s": tokens[:1], "last_token_s": tokens[-1:]}
    return {name: times[0] / 1e9 if times else None for name, times in found.items()}
