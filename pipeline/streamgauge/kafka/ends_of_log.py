"""Read the first and the last message of each partition of a topic, with a consumer outside every group."""

import asyncio
from collections.abc import Mapping
from typing import Any

from aiokafka import AIOKafkaConsumer  # type: ignore[import-untyped]
from aiokafka.errors import KafkaError  # type: ignore[import-untyped]
from aiokafka.structs import TopicPartition  # type: ignore[import-untyped]

from streamgauge.kafka.aiokafka_header_patch import tolerate_header_names
from streamgauge.kafka.log_reader import LogUnreadableError, Read
from streamgauge.kafka.producer import REQUEST_TIMEOUT_MS
from streamgauge.kafka.security import Brokers

# The first and the last message by partition; partitions without messages are left out.
Ends = Mapping[int, tuple[Read, Read]]

# How long one fetch waits for messages (milliseconds), how often it is repeated, and how much it takes of a partition
# (bytes): a larger message comes whole and alone.
_FETCH_WAIT_MS = 500
_FETCHES = 12
_FETCH_BYTES = 16 * 1024


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
        max_partition_fetch_bytes=_FETCH_BYTES,
    )
    await consumer.start()
    try:
        places = [TopicPartition(topic, number) for number in range(partitions)]
        consumer.assign(places)
        begins, ends = await asyncio.gather(consumer.beginning_offsets(places), consumer.end_offsets(places))
        filled = [place for place in places if begins[place] < ends[place]]
        first = await _messages_at(consumer, {place: begins[place] for place in filled})
        last = await _messages_at(consumer, {place: ends[place] - 1 for place in filled})
        return {place.partition: (first[place], last[place]) for place in filled if place in first and place in last}
    finally:
        await consumer.stop()


async def _messages_at(consumer: Any, offsets: Mapping[Any, int]) -> dict[Any, Read]:
    """By partition, the message at its offset, or the next one; partitions that send none are left out."""
    for place, offset in offsets.items():
        consumer.seek(place, offset)
    found: dict[Any, Read] = {}
    for _ in range(_FETCHES):
        if not (waiting := [place for place in offsets if place not in found]):
            break
        for place, messages in (await consumer.getmany(*waiting, timeout_ms=_FETCH_WAIT_MS)).items():
            for message in messages[:1]:
                found[place] = Read(message.offset, message.timestamp, message.value)
    return found
