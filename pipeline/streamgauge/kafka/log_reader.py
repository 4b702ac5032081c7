"""Read one partition up to its present end, with a consumer outside every group: no group's committed offsets change."""

import asyncio
from collections.abc import Iterator
from typing import Any, NamedTuple

from aiokafka import AIOKafkaConsumer  # type: ignore[import-untyped]
from aiokafka.errors import KafkaError  # type: ignore[import-untyped]
from aiokafka.structs import TopicPartition  # type: ignore[import-untyped]

from streamgauge.kafka.aiokafka_header_patch import tolerate_header_names
from streamgauge.kafka.producer import PATIENCE_S, REQUEST_TIMEOUT_MS
from streamgauge.kafka.security import Brokers, brokers_at

# How long one fetch waits for messages (milliseconds).
_FETCH_WAIT_MS = 500
# The most messages of one fetch: about 10 MiB of bundles at their most common size.
_AT_ONCE = 256


class LogUnreadableError(Exception):
    """The broker does not answer, or refuses to send messages. The text is a sentence."""


class Read(NamedTuple):
    """One message. `log_ms`: the time at which the broker appended it (milliseconds since 1970)."""

    offset: int
    log_ms: int
    value: bytes | None


def read_partition(at: Brokers | str, topic: str, partition: int) -> Iterator[Read]:
    """Yield all messages of a partition, from its beginning to the end that it had at the call.

    Raises LogUnreadableError.
    """
    brokers = brokers_at(at)
    with asyncio.Runner() as loop:
        reader = _Partition(brokers, TopicPartition(topic, partition))
        try:
            loop.run(reader.start())
            while messages := loop.run(reader.next()):
                yield from messages
        except KafkaError as error:
            raise LogUnreadableError(f"the broker at {brokers} does not answer ({type(error).__name__})") from error
        finally:
            loop.run(reader.stop())


class _Partition:
    def __init__(self, brokers: Brokers, topic_partition: TopicPartition) -> None:
        self._brokers, self._topic_partition, self._end = brokers, topic_partition, 0
        self._consumer: Any = None

    async def start(self) -> None:
        tolerate_header_names()
        self._consumer = AIOKafkaConsumer(
            **self._brokers.options(),
            enable_auto_commit=False,
            auto_offset_reset="earliest",
            request_timeout_ms=REQUEST_TIMEOUT_MS,
        )
        await self._consumer.start()
        self._consumer.assign([self._topic_partition])
        await self._consumer.seek_to_beginning(self._topic_partition)
        self._end = (await self._consumer.end_offsets([self._topic_partition]))[self._topic_partition]

    async def stop(self) -> None:
        if self._consumer is not None:
            await self._consumer.stop()

    async def next(self) -> list[Read]:
        """Return the next messages below the end; an empty list when the end is reached. Raises LogUnreadableError."""
        deadline = asyncio.get_running_loop().time() + PATIENCE_S
        while await self._consumer.position(self._topic_partition) < self._end:
            found = await self._consumer.getmany(self._topic_partition, timeout_ms=_FETCH_WAIT_MS, max_records=_AT_ONCE)
            if messages := [_read(one) for one in found.get(self._topic_partition, ()) if one.offset < self._end]:
                return messages
            if asyncio.get_running_loop().time() > deadline:
                raise LogUnreadableError(
                    f"the broker at {self._brokers} sends no more messages of {self._topic_partition.topic}"
                )
        return []


def _read(message: Any) -> Read:
    return Read(message.offset, message.timestamp, message.value)
