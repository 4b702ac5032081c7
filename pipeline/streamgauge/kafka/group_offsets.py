"""The offsets that a consumer group has committed, and the metadata beside each, by the word of its coordinator.

aiokafka's own `list_consumer_group_offsets` is not used: it takes a coordinator that has not loaded its group yet, or that
is no coordinator any more, for one that knows no offset.
"""

from typing import NamedTuple

from aiokafka.admin import AIOKafkaAdminClient  # type: ignore[import-untyped]
from aiokafka.errors import for_code  # type: ignore[import-untyped]
from aiokafka.protocol.commit import OffsetFetchRequest  # type: ignore[import-untyped]

from streamgauge.kafka.admin_requests import send


class CommittedOffset(NamedTuple):
    """What a group has committed for one partition."""

    offset: int
    metadata: str


async def committed_offsets(admin: AIOKafkaAdminClient, group: str, topic: str) -> dict[int, CommittedOffset]:
    """By partition, without the partitions for which nothing is committed. Raises KafkaError."""
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
