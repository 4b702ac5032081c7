"""Read messages with a consumer outside every group, so that no group's committed offsets change.

`read_partition` reads one partition up to its present end; `ends_of` the first and the last message of each partition.
"""

import asyncio
from collections.abc import Iterator, Mapping
from typing import Any, NamedTuple

from aiokafka import AIOKafkaConsumer  # type: ignore[import-untyped]
from aiokafka.errors import KafkaError  # type: ignore[import-untyped]
from aiokafka.structs import TopicPartition  # type: ignore[import-untyped]

from streamgauge.kafka.producer import PATIENCE_S, REQUEST_TIMEOUT_MS
from streamgauge.kafka.security import Brokers, brokers_at
from streamgauge.kafka.shims.header_names import tolerate_header_names

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
    def __init__(self, brokers: Brokers, tp: TopicPartition) -> None:
        self._brokers, self._topic_partition, self._end = brokers, tp, 0
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
            fetched = await self._consumer.getmany(
                self._topic_partition, timeout_ms=_FETCH_WAIT_MS, max_records=_AT_ONCE
            )
            if messages := [
                _read(message) for message in fetched.get(self._topic_partition, ()) if message.offset < self._end
            ]:
                return messages
            if asyncio.get_running_loop().time() > deadline:
                raise LogUnreadableError(
                    f"the broker at {self._brokers} sends no more messages of {self._topic_partition.topic}"
                )
        return []


def _read(message: Any) -> Read:
    return Read(message.offset, message.timestamp, message.value)


# The first and the last message by partition; partitions without messages are left out.
Ends = Mapping[int, tuple[Read, Read]]

# For the ends: how often a fetch is repeated, and how much it takes of a partition (bytes): a larger message comes whole and
# alone.
_END_FETCHES = 12
_END_FETCH_BYTES = 16 * 1024


async def ends_of(brokers: Brokers, topic: str, partitions: int) -> Ends:
    """The ends of each partition. Of a compacted topic the last message may be missing, and counts as none.

    Raises LogUnreadableError.
    """
    try:
        return await _ends(brokers, topic, partitions)
    except KafkaError as error:
        raise LogUnreadableError(f"the broker at {brokers} does not answer ({type(error).__name__})") from error


async def _ends(brokers: Brokers, topic: str, partitions: int) -> Ends:
    tolerate_header_names()
    consumer: Any = AIOKafkaConsumer(
        **brokers.options(),
        enable_auto_commit=False,
        request_timeout_ms=REQUEST_TIMEOUT_MS,
        max_partition_fetch_bytes=_END_FETCH_BYTES,
    )
    await consumer.start()
    try:
        tps = [TopicPartition(topic, number) for number in range(partitions)]
        consumer.assign(tps)
        begins, ends = await asyncio.gather(consumer.beginning_offsets(tps), consumer.end_offsets(tps))
        filled = [tp for tp in tps if begins[tp] < ends[tp]]
        first = await _messages_at(consumer, {tp: begins[tp] for tp in filled})
        last = await _messages_at(consumer, {tp: ends[tp] - 1 for tp in filled})
        return {tp.partition: (first[tp], last[tp]) for tp in filled if tp in first and tp in last}
    finally:
        await consumer.stop()


async def _messages_at(consumer: Any, offsets: Mapping[Any, int]) -> dict[Any, Read]:
    """By partition, the message at its offset, or the next one; partitions that send none are left out."""
    for tp, offset in offsets.items():
        consumer.seek(tp, offset)
    read: dict[Any, Read] = {}
    for _ in range(_END_FETCHES):
        if not (waiting := [tp for tp in offsets if tp not in read]):
            break
        for tp, messages in (await consumer.getmany(*waiting, timeout_ms=_FETCH_WAIT_MS)).items():
            for message in messages[:1]:
                read[tp] = Read(message.offset, message.timestamp, message.value)
    return read
