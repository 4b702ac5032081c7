"""Read the offsets that a consumer group has committed, and the metadata of each, from the group's coordinator.

aiokafka's own `list_consumer_group_offsets` is not used: if the coordinator has not loaded the group yet, or is no longer
its coordinator, that method returns no offsets instead of an error.
"""

from typing import NamedTuple

from aiokafka.admin import AIOKafkaAdminClient  # type: ignore[import-untyped]
from aiokafka.errors import for_code  # type: ignore[import-untyped]
from aiokafka.protocol.commit import OffsetFetchRequest  # type: ignore[import-untyped]

from streamgauge.kafka.admin_requests import send


class CommittedOffset(NamedTuple):
    """The offset that a group has committed for one partition, and the commit's metadata."""

    offset: int
    metadata: str


async def committed_offsets(admin: AIOKafkaAdminClient, group: str, topic: str) -> dict[int, CommittedOffset]:
    """The committed offsets of a topic by partition; leaves out partitions without one. Raises KafkaError."""
    answer = await send(admin, OffsetFetchRequest(group, None), await admin.find_coordinator(group))
    found = {}
    _raise(answer.error_code, group)
    for name, partitions in answer.topics:
        for number, offset, metadata, code in partitions:
            _raise(code, group)
            if name == topic and offset >= 0:
                found[number] = CommittedOffset(offset, metadata)
    return found


def _raise(code: int, group: str) -> None:
    if code:
        raise for_code(code)(f"offsets of group {group}")
