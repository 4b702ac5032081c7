"""Read facts about a log from the broker: where it begins and ends, what the group has committed, whether it has a message.

It uses clients of its own. Faust's consumer answers such requests only between two fetches, each of which may take a
second, and a takeover of partitions makes several requests.
"""

import asyncio
from collections.abc import Iterable, Sequence
from typing import Any

from aiokafka import AIOKafkaConsumer  # type: ignore[import-untyped]
from aiokafka.admin import AIOKafkaAdminClient  # type: ignore[import-untyped]
from aiokafka.structs import TopicPartition  # type: ignore[import-untyped]

from streamgauge.kafka.administrator import GroupDescription, Identity, describe_group, identities
from streamgauge.kafka.producer import REQUEST_TIMEOUT_MS
from streamgauge.kafka.security import Brokers
from streamgauge.kafka.shims.admin_requests import committed_offsets

# How long reading one message of a partition may take (seconds).
_READ_TIMEOUT_S = 30.0


class Log:
    """Call its methods after `start`. Each request raises KafkaError if the broker does not answer."""

    def __init__(self, brokers: Brokers, group: str) -> None:
        self._brokers = brokers
        self._group = group
        self._consumer: Any = None
        self._admin: Any = None

    async def start(self) -> None:
        """Connect. Raises KafkaError."""
        self._consumer = AIOKafkaConsumer(
            **self._brokers.options(), enable_auto_commit=False, request_timeout_ms=REQUEST_TIMEOUT_MS
        )
        self._admin = AIOKafkaAdminClient(**self._brokers.options(), request_timeout_ms=REQUEST_TIMEOUT_MS)
        await self._consumer.start()
        await self._admin.start()

    async def stop(self) -> None:
        """Disconnect, if `start` was called."""
        if self._consumer is not None:
            try:
                await self._consumer.stop()
            finally:
                await self._admin.close()

    async def committed(self, topic: str) -> dict[int, int]:
        """The offset that the group has committed, by partition; without partitions that have none."""
        offsets = await committed_offsets(self._admin, self._group, topic)
        return {number: committed.offset for number, committed in offsets.items()}

    async def committed_metadata(self, topic: str) -> dict[int, str]:
        """The metadata of the offset that the group has committed, by partition; without partitions that have none."""
        offsets = await committed_offsets(self._admin, self._group, topic)
        return {number: committed.metadata for number, committed in offsets.items()}

    async def group(self) -> GroupDescription | None:
        """The group and its members' partitions; None if the coordinator does not return them now."""
        return await describe_group(self._admin, self._group)

    async def identities(self, topics: Sequence[str]) -> dict[str, Identity]:
        """The present ids and partition counts by topic name, without topics that do not exist."""
        return await identities(self._admin, topics)

    async def begins(self, topic: str, partitions: Iterable[int]) -> dict[int, int]:
        """The first offset of each partition's log."""
        offsets = await self._consumer.beginning_offsets([TopicPartition(topic, number) for number in partitions])
        return {tp.partition: offset for tp, offset in offsets.items()}

    async def ends(self, topic: str, partitions: Iterable[int]) -> dict[int, int]:
        """The end of each partition's log: the offset of the next message to be written."""
        offsets = await self._consumer.end_offsets([TopicPartition(topic, number) for number in partitions])
        return {tp.partition: offset for tp, offset in offsets.items()}

    async def has_message(self, topic: str, partition: int, start: int, end: int) -> bool:
        """Whether the log has a message with start <= offset < end. Offsets without a message are legal.

        Raises TimeoutError if no message arrives within _READ_TIMEOUT_S.
        """
        tp = TopicPartition(topic, partition)
        reader = AIOKafkaConsumer(
            **self._brokers.options(), enable_auto_commit=False, request_timeout_ms=REQUEST_TIMEOUT_MS
        )
        try:
            await reader.start()
            reader.assign([tp])
            reader.seek(tp, start)
            async with asyncio.timeout(_READ_TIMEOUT_S):
                first = await reader.getone(tp)
            return bool(first.offset < end)
        finally:
            await reader.stop()
