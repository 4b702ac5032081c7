"""What is used of Faust beyond its public face, each with its reason. Known to hold for faust-streaming 0.11 to 0.15.

Acknowledging is done by committing offsets of our own. Faust's `ack` can pass what nobody has processed: a message that
slips through a rebalance is skipped by its stream and acknowledged, and an offset one above the committed one counts as
its successor. So the topics are declared without acks, and a checkpoint commits the offset that it makes durable.
"""

import asyncio
import contextlib
from collections.abc import Iterable, Mapping
from typing import Any

import faust
from aiokafka import AIOKafkaConsumer  # type: ignore[import-untyped]
from aiokafka.errors import (  # type: ignore[import-untyped]
    CommitFailedError,
    ConsumerStoppedError,
    IllegalStateError,
    KafkaError,
)
from aiokafka.structs import OffsetAndMetadata, TopicPartition  # type: ignore[import-untyped]
from faust.types import TP

# How long a look at a few messages of a partition may take (seconds).
_LOOK_TIMEOUT_S = 30.0


class Consumer:
    """The app's Kafka consumer, for one topic."""

    def __init__(self, app: faust.App, bootstrap: str, topic: str) -> None:
        self._app = app
        self._bootstrap = bootstrap
        self._topic = topic

    @property
    def topic(self) -> str:
        return self._topic

    def _tp(self, partition: int) -> TP:
        return TP(self._topic, partition)

    @property
    def generation(self) -> int:
        """The group's generation as of the last assignment."""
        return int(self._app.consumer_generation_id)

    def assigned(self) -> set[int]:
        """The partitions that are ours."""
        return {tp.partition for tp in self._app.consumer.assignment() if tp.topic == self._topic}

    def hold_back(self, partition: int) -> None:
        """Fetch no more of a partition for now. What was fetched still comes: `pause_partitions` would lose it."""
        self._inner.on_buffer_full(self._tp(partition))

    def go_on(self, partition: int) -> None:
        """Fetch it again."""
        self._inner.on_buffer_drop(self._tp(partition))

    def end(self, partition: int) -> int | None:
        """The offset of the next message to be written, as last heard; None if not heard yet, or not ours."""
        try:
            return self._app.consumer.highwater(self._tp(partition))
        except (AssertionError, IllegalStateError, KeyError):
            return None

    async def committed(self) -> dict[int, int]:
        """The next offset to be read of each of our partitions, by the group's memory; 0 where it has none."""
        found: Mapping[TP, int | None] = await self._inner.seek_to_committed()
        return {tp.partition: max(offset or 0, 0) for tp, offset in found.items() if tp.topic == self._topic}

    async def begins(self, partitions: Iterable[int]) -> dict[int, int]:
        """Where each partition's log begins."""
        found = await self._app.consumer.earliest_offsets(*map(self._tp, partitions))
        return {tp.partition: offset or 0 for tp, offset in found.items()}

    async def ends(self, partitions: Iterable[int]) -> dict[int, int]:
        """Where each partition's log ends: the offset of the next message to be written."""
        found = await self._app.consumer.highwaters(*map(self._tp, partitions))
        return {tp.partition: offset or 0 for tp, offset in found.items()}

    async def seek(self, partition: int, offset: int) -> None:
        """Go on reading at this offset. Faust's own `seek` calls aiokafka from the wrong thread."""
        tp = self._tp(partition)
        thread = self._inner._thread
        if partition in self.assigned():
            await thread.call_thread(_seek, thread._ensure_consumer(), tp, offset)
            self._inner._read_offset[tp] = offset or None  # what is below it, Faust drops

    async def commit(self, offsets: Mapping[int, int]) -> bool:
        """Commit the next offset to be read of each partition. False if the group has moved on, or the broker is away.

        Offsets of partitions that are not ours any more are left out.
        """
        ours = self.assigned()
        wanted = {
            TopicPartition(self._topic, partition): OffsetAndMetadata(offset, "")
            for partition, offset in offsets.items()
            if partition in ours
        }
        if not wanted:
            return True
        thread = self._inner._thread  # aiokafka's consumer lives on a loop of its own
        try:
            await thread.call_thread(thread._ensure_consumer().commit, wanted)
        except (CommitFailedError, IllegalStateError, ConsumerStoppedError):
            return False
        except KafkaError:
            return False
        return True

    async def was_skipped(self, partition: int, start: int, end: int) -> bool:
        """Whether the log holds a message from `start` to below `end`. Offsets without one are legal."""
        place = TopicPartition(self._topic, partition)
        reader = AIOKafkaConsumer(bootstrap_servers=self._bootstrap, enable_auto_commit=False)
        await reader.start()
        try:
            reader.assign([place])
            reader.seek(place, start)
            first = await asyncio.wait_for(reader.getone(place), _LOOK_TIMEOUT_S)
            return bool(first.offset < end)
        finally:
            await reader.stop()

    @property
    def _inner(self) -> Any:
        return self._app.consumer


async def _seek(consumer: AIOKafkaConsumer, tp: TP, offset: int) -> None:
    with contextlib.suppress(IllegalStateError):  # taken away meanwhile
        consumer.seek(TopicPartition(tp.topic, tp.partition), offset)
