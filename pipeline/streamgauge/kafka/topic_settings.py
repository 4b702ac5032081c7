"""The content and the configuration of each topic, each setting with its reason.

docs/reference/topics.md is generated from it.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple

# Limits of a message in bytes, then times in milliseconds. `settings_of` has the reasons.
MAX_MESSAGE_BYTES = 8 * 1024 * 1024
MAX_DEADLETTER_BYTES = MAX_MESSAGE_BYTES + 64 * 1024
MAX_STATE_BYTES = 8 * 1024 * 1024

_DAY_MS = 24 * 3600 * 1000
SEGMENTS_RETENTION_MS = 3 * _DAY_MS
RECORDS_RETENTION_MS = 7 * _DAY_MS
DEADLETTER_RETENTION_MS = 14 * _DAY_MS
STATE_MIN_COMPACTION_LAG_MS = 300_000
STATE_SEGMENT_BYTES = 32 * 1024 * 1024
STATE_SEGMENT_MS = 300_000

TIMESTAMP_TYPE = "message.timestamp.type"


@dataclass(frozen=True)
class Content:
    """The content of a topic. `partitions` None: the partition count of the installation."""

    about: str
    key: str
    value: str
    partitions: int | None = None


# The topics by the last part of their names, in the order in which they are created and listed.
CONTENTS = {
    "segments": Content(
        "Captured data: the bundles of the taps, and the ticks of the workers (bundles without segments, which let the"
        " log's time pass where no tap writes). A tap writes a bundle to partition = slot % partitions.",
        key="none",
        value="a bundle (`core/capture/bundles.py`)",
    ),
    "records": Content(
        "One record for each finished stream. A worker may write a record again after a crash, with equal bytes: readers"
        " use the first of each key.",
        key="the stream id as text",
        value="the record as UTF-8 JSON",
    ),
    "state": Content(
        "The open streams of the workers. A worker that is assigned a partition reads its state. Of several entries of one"
        " key the one with the highest `applied_offset` counts, not the last one. Faust pairs each partition with the"
        " segments partition of the same number, so both topics have the same count.",
        key="the partition and the entry's number",
        value="an entry of the state (`core/assembly/state_codec.py`)",
    ),
    "deadletter": Content(
        "Messages that a worker could not decode or process, unchanged, with the reason and the source in headers.",
        key="the message's own key",
        value="the message's own value",
        partitions=1,
    ),
}


class Setting(NamedTuple):
    """A configuration key of a topic, its value, and why it has this value."""

    key: str
    value: str
    reason: str


def settings_of(topic: str) -> Sequence[Setting]:
    """The settings of a topic, by the last part of its name."""
    return _OF[topic]()


_TIMES = Setting(
    TIMESTAMP_TYPE,
    "LogAppendTime",
    "Streams expire by the log's time, so the clock of one tap does not affect the streams of another. The broker also"
    " rejects no producer because of its clock: Kafka 4 rejects message times more than an hour ahead of its own.",
)


def _deleted(retention_ms: int, why: str, largest: int, why_largest: str) -> list[Setting]:
    return [
        Setting("cleanup.policy", "delete", "A message is needed for a limited time."),
        Setting(
            "compression.type",
            "uncompressed",
            "The broker decompresses the batches of a producer, so that `max.message.bytes` limits their real size."
            " Otherwise 8 MiB could become 8 GiB in a reader's memory. Bundles are compressed before they are sent.",
        ),
        _TIMES,
        Setting("retention.ms", str(retention_ms), why),
        Setting("max.message.bytes", str(largest), why_largest),
    ]


def _segments() -> list[Setting]:
    return _deleted(
        SEGMENTS_RETENTION_MS,
        "Bundles are needed until a worker has read them: three days cover a weekend without workers.",
        MAX_MESSAGE_BYTES,
        "A bundle is closed at about 192 KiB, but a response that is no event stream may have 16 MiB before compression.",
    )


def _records() -> list[Setting]:
    return _deleted(
        RECORDS_RETENTION_MS,
        "The ledger stores records permanently; for seven days other consumers can read them here.",
        MAX_MESSAGE_BYTES,
        "The limit of the segments topic. A record is much smaller: usually a few KiB.",
    )


def _deadletter() -> list[Setting]:
    return _deleted(
        DEADLETTER_RETENTION_MS,
        "An operator has to inspect dead letters: two weeks cover a holiday.",
        MAX_DEADLETTER_BYTES,
        "A whole message of another topic, and 64 KiB for headers.",
    )


def _state() -> list[Setting]:
    return [
        _TIMES,
        Setting("cleanup.policy", "compact", "Only the newest entry of each key is needed."),
        Setting(
            "min.compaction.lag.ms",
            str(STATE_MIN_COMPACTION_LAG_MS),
            "A worker that lost its partition can still write an old entry. Its successor writes every entry again within"
            " 30 s. For five minutes compaction removes neither, so recovery reads both and keeps the newer one.",
        ),
        Setting(
            "segment.bytes", str(STATE_SEGMENT_BYTES), "A log segment holds several of the largest entries (8 MiB)."
        ),
        Setting(
            "segment.ms",
            str(STATE_SEGMENT_MS),
            "Compaction skips the active log segment. Each entry is written every 20 s, but 32 MiB take hours to fill, and a"
            " starting worker reads every entry, at about 0.2 ms each. So a log segment is closed after five minutes.",
        ),
        Setting(
            "max.message.bytes",
            str(MAX_STATE_BYTES),
            "An entry is at most a bucket of 1,000 open streams at their limit of 4 KiB, with room to spare.",
        ),
    ]


_OF = {"segments": _segments, "records": _records, "state": _state, "deadletter": _deadletter}
