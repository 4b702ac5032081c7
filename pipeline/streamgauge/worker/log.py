"""Kafka's own word on a log: where it begins and ends, what the group has committed, whether there is a message.

Asked with clients of our own. Faust's consumer answers such questions only between two fetches, each of which may take a
second, and a takeover asks several.
"""

import asyncio
from collections.abc import Iterable, Sequence
from typing import Any

from aiokafka import AIOKafkaConsumer  # type: ignore[import-untyped]
from aiokafka.admin import AIOKafkaAdminClient  # type: ignore[import-untyped]
from aiokafka.errors import for_code  # type: ignore[import-untyped]
from aiokafka.protocol.commit import OffsetFetchRequest  # type: ignore[import-untyped]
from aiokafka.structs import TopicPartition  # type: ignore[import-untyped]

from streamgauge.kafka.administrator import GroupSeen, seen_group
from streamgauge.kafka.producer import REQUEST_TIMEOUT_MS
from streamgauge.kafka.security import Brokers
from streamgauge.kafka.topic_ids import Identity, identities

# How long a look at one message of a partition may take (seconds).
_LOOK_TIMEOUT_S = 30.0


class Log:
    """Ask after `start`. Every question raises KafkaError where the broker does not answer."""

    def __init__(self, brokers: Brokers, group: str) -> None:
        self._brokers = brokers
        self._group = group
        self._asking: Any = None
        self._admin: Any = None

    async def start(self) -> None:
        """Connect. Raises KafkaError."""
        self._asking = AIOKafkaConsumer(
            **self._brokers.options(), enable_auto_commit=False, request_timeout_ms=REQUEST_TIMEOUT_MS
        )
        self._admin = AIOKafkaAdminClient(**self._brokers.options(), request_timeout_ms=REQUEST_TIMEOUT_MS)
        await self._asking.start()
        await self._admin.start()

    async def stop(self) -> None:
        """Disconnect, if it ever connected."""
        if self._asking is not None:
            await self._asking.stop()
            await self._admin.close()

    async def committed(self, topic: str) -> dict[int, int]:
        """The next offset to be read of each partition, by the group's memory; nothing where it has none."""
        return {number: offset for number, (offset, _) in (await self._offsets(topic)).items()}

    async def notes(self, topic: str) -> dict[int, str]:
        """What was noted beside each offset that the group has committed; nothing where it has none."""
        return {number: note for number, (_, note) in (await self._offsets(topic)).items()}

    async def _offsets(self, topic: str) -> dict[int, tuple[int, str]]:
        """Asked without aiokafka's `list_consumer_group_offsets`, which takes a coordinator that has not loaded its group
        yet, or that is none any more, for one that knows of no offset.
        """
        request = OffsetFetchRequest(self._group, None)
        answer = await self._admin._send_request(request, await self._admin.find_coordinator(self._group))
        found = {}
        _raise(answer.error_code, self._group)
        for name, partitions in answer.topics:
            for number, offset, note, code in partitions:
                _raise(code, self._group)
                if name == topic and offset >= 0:
                    found[number] = (offset, note)
        return found

    async def group(self) -> GroupSeen | None:
        """Which partitions the members of the group have; None where the coordinator does not say it now."""
        return await seen_group(self._admin, self._group)

    async def identities(self, topics: Sequence[str]) -> dict[str, Identity]:
        """Which topics these are now, by the broker's ids; without those that are not there."""
        return await identities(self._admin, topics)

    async def begins(self, topic: str, partitions: Iterable[int]) -> dict[int, int]:
        """Where each partition's log begins."""
        found = await self._asking.beginning_offsets([TopicPartition(topic, number) for number in partitions])
        return {place.partition: offset for place, offset in found.items()}

    async def ends(self, topic: str, partitions: Iterable[int]) -> dict[int, int]:
        """Where each partition's log ends: the offset of the next message to be written."""
        found = await self._asking.end_offsets([TopicPartition(topic, number) for number in partitions])
        return {place.partition: offset for place, offset in found.items()}

    async def holds(self, topic: str, partition: int, start: int, end: int) -> bool:
        """Whether the log holds a message from `start` to below `end`. Offsets without one are legal."""
        place = TopicPartition(topic, partition)
        reader = AIOKafkaConsumer(
            **self._brokers.options(), enable_auto_commit=False, request_timeout_ms=REQUEST_TIMEOUT_MS
        )
        await reader.start()
        try:
            reader.assign([place])
            reader.seek(place, start)
            async with asyncio.timeout(_LOOK_TIMEOUT_S):
                first = await reader.getone(place)
            return bool(first.offset < end)
        finally:
            await reader.stop()


def _raise(code: int, group: str) -> None:
    if code:
        raise for_code(code)(f"offsets of group {group}")
