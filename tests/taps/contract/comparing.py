"""A record in a form that can be compared: flat, without what is specific to one exchange, times reduced to whether they
are set.
"""

from collections.abc import Iterator
from typing import Any

# Specific to one exchange, or to where reads were cut: it differs from run to run.
OWN = (
    "stream_id", "tap", "tap_instance", "tap_version", "started_at",
    "counts.reads", "counts.segments",  # where reads were cut
    "timing.upstream_connect_s",  # whether a connection was free for reuse
    "timing.burst", "timing.wire_max_gap_s",  # how many reads there were
)  # fmt: skip


def flat(value: Any, at: str = "") -> Iterator[tuple[str, Any]]:
    """Each leaf with its path; a list has its length, too."""
    if isinstance(value, dict):
        for name, item in value.items():
            yield from flat(item, f"{at}.{name}" if at else name)
    elif isinstance(value, list) and not at.endswith(".buckets"):
        yield f"{at}.length", len(value)
        for number, item in enumerate(value):
            yield from flat(item, f"{at}.{number}")
    else:
        is_time = at.endswith("_s") and at.partition(".")[0] in ("timing", "choices")
        yield at, value is not None if is_time or at.endswith(".buckets") else value


def comparable(record: dict[str, Any]) -> dict[str, Any]:
    return {path: value for path, value in flat(record) if path not in OWN}


def differing(one: dict[str, Any], other: dict[str, Any]) -> set[str]:
    """The paths at which two records differ."""
    mine, its = comparable(one), comparable(other)
    return {path for path in mine.keys() | its.keys() if mine.get(path, ...) != its.get(path, ...)}
