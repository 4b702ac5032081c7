"""Reading and writing topics in tests, with a plain consumer that belongs to no group."""

import asyncio
import contextlib
from collections.abc import AsyncIterator, Callable, Mapping
from typing import Any

from aiokafka import AIOKafkaConsumer, AIOKafkaProducer, TopicPartition

# Within this time a topic that there is has its partitions in the broker's answer (seconds).
_NAMED_S = 30.0


async def read_all(bootstrap: str, topic: str, since: Mapping[int, int] = {}) -> list[Any]:
    """Every message of a topic up to its present end, partition by partition in offset order.

    `since`: partition -> offset to begin at; the beginning where none is given.
    """
    async with _reader(bootstrap, topic) as (consumer, partitions):
        for number, offset in since.items():
            consumer.seek(TopicPartition(topic, number), offset)
        found: dict[TopicPartition, list[Any]] = {partition: [] for partition in partitions}
        await _to_the_end(consumer, found)
    return [message for messages in found.values() for message in messages]


@contextlib.asynccontextmanager
async def _reader(bootstrap: str, topic: str) -> AsyncIterator[tuple[Any, list[TopicPartition]]]:
    """A consumer at the beginning of all partitions of a topic."""
    consumer = AIOKafkaConsumer(bootstrap_servers=bootstrap, auto_offset_reset="earliest", enable_auto_commit=False)
    await consumer.start()
    try:
        partitions = [TopicPartition(topic, number) for number in sorted(await _partitions(consumer, topic))]
        consumer.assign(partitions)
        await consumer.seek_to_beginning(*partitions)
        yield consumer, partitions
    finally:
        await consumer.stop()


async def _to_the_end(consumer: Any, found: dict[TopicPartition, list[Any]]) -> None:
    """Adds what is there, up to the present end."""
    ends = await consumer.end_offsets(list(found))
    while any([await consumer.position(partition) < ends[partition] for partition in found]):
        for partition, messages in (await consumer.getmany(timeout_ms=500)).items():
            found[partition].extend(messages)


async def _partitions(consumer: Any, topic: str) -> set[int]:
    """A broker that got no processor for its session's time names no brokers and no topics, until its next heartbeat."""
    consumer._client.add_topic(topic)
    async with asyncio.timeout(_NAMED_S):
        while not (found := consumer.partitions_for_topic(topic)):
            await consumer._client.force_metadata_update()
            await asyncio.sleep(0.02)
    return set(found)


async def read_until(
    bootstrap: str, topic: str, enough: Callable[[list[Any]], bool], timeout_s: float = 120.0
) -> list[Any]:
    """Reads the topic until `enough`; what there is by then if that does not come in time."""
    deadline = asyncio.get_running_loop().time() + timeout_s
    async with _reader(bootstrap, topic) as (consumer, partitions):
        found: dict[TopicPartition, list[Any]] = {partition: [] for partition in partitions}
        looked_at = -1
        while True:
            await _to_the_end(consumer, found)
            count = sum(map(len, found.values()))
            messages = [message for messages in found.values() for message in messages]
            if (count != looked_at and enough(messages)) or asyncio.get_running_loop().time() > deadline:
                return messages
            looked_at = count
            await asyncio.sleep(0.2)


async def write_all(bootstrap: str, topic: str, messages: list[tuple[int, bytes]]) -> None:
    """Writes (partition, value) in this order."""
    producer = AIOKafkaProducer(
        bootstrap_servers=bootstrap, acks="all", enable_idempotence=True, max_request_size=2**24
    )
    await producer.start()
    try:
        futures = [await producer.send(topic, value, partition=partition) for partition, value in messages]
        await asyncio.gather(*futures)
    finally:
        await producer.stop()
