"""Reading and writing topics in tests, with a plain consumer that belongs to no group."""

import asyncio
from collections.abc import Callable, Mapping
from typing import Any

from aiokafka import AIOKafkaConsumer, AIOKafkaProducer, TopicPartition

# Within this time a topic that there is has its partitions in the broker's answer (seconds).
_NAMED_S = 30.0


async def read_all(bootstrap: str, topic: str, since: Mapping[int, int] = {}) -> list[Any]:
    """Every message of a topic up to its present end, partition by partition in offset order.

    `since`: partition -> offset to begin at; the beginning where none is given.
    """
    consumer = AIOKafkaConsumer(bootstrap_servers=bootstrap, auto_offset_reset="earliest", enable_auto_commit=False)
    await consumer.start()
    try:
        partitions = [TopicPartition(topic, number) for number in sorted(await _partitions(consumer, topic))]
        consumer.assign(partitions)
        await consumer.seek_to_beginning(*partitions)
        for number, offset in since.items():
            consumer.seek(TopicPartition(topic, number), offset)
        ends = await consumer.end_offsets(partitions)
        found: dict[TopicPartition, list[Any]] = {partition: [] for partition in partitions}
        while any([await consumer.position(partition) < ends[partition] for partition in partitions]):
            for partition, messages in (await consumer.getmany(timeout_ms=500)).items():
                found[partition].extend(messages)
    finally:
        await consumer.stop()
    return [message for partition in partitions for message in found[partition]]


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
    """Reads the topic again and again until `enough`; the last reading if that does not come in time."""
    deadline = asyncio.get_running_loop().time() + timeout_s
    while True:
        messages = await read_all(bootstrap, topic)
        if enough(messages) or asyncio.get_running_loop().time() > deadline:
            return messages
        await asyncio.sleep(0.3)


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
