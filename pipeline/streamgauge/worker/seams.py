"""What is used of Faust beyond its public face, each with its reason. Known to hold for faust-streaming 0.11 to 0.15.

Acknowledging is done by committing offsets of our own. Faust's `ack` can pass what nobody has processed: a message that
slips through a rebalance is skipped by its stream and acknowledged, and an offset one above the committed one counts as
its successor. So the topics are declared without acks, and a checkpoint commits the offset that it makes durable.
"""

import contextlib
from collections.abc import Mapping
from typing import Any

import faust
from aiokafka import AIOKafkaConsumer  # type: ignore[import-untyped]
from aiokafka.errors import IllegalStateError, KafkaError  # type: ignore[import-untyped]
from aiokafka.structs import OffsetAndMetadata, TopicPartition  # type: ignore[import-untyped]
from faust.types import TP


class Consumer:
    """The app's Kafka consumer, for one topic."""

    def __init__(self, app: faust.App, topic: str) -> None:
        self._app = app
        self.topic = topic

    def _tp(self, partition: int) -> TP:
        return TP(self.topic, partition)

    @property
    def generation(self) -> int:
        """The group's generation as of the last assignment."""
        return int(self._app.consumer_generation_id)

    @property
    def rebalance(self) -> int:
        """How many rebalances have begun."""
        return int(self._app.rebalancing_count)

    def assigned(self) -> set[int]:
        """The partitions that are ours."""
        return {tp.partition for tp in self._app.consumer.assignment() if tp.topic == self.topic}

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
            TopicPartition(self.topic, partition): OffsetAndMetadata(offset, "")
            for partition, offset in offsets.items()
            if partition in ours
        }
        if not wanted:
            return True
        thread = self._inner._thread  # aiokafka's consumer lives on a loop of its own
        try:
            await thread.call_thread(thread._ensure_consumer().commit, wanted)
        except KafkaError:  # the group has moved on, or the broker is away
            return False
        return True

    @property
    def _inner(self) -> Any:
        return self._app.consumer


async def _seek(consumer: AIOKafkaConsumer, tp: TP, offset: int) -> None:
    with contextlib.suppress(IllegalStateError):  # taken away meanwhile
        consumer.seek(TopicPartition(tp.topic, tp.partition), offset)
