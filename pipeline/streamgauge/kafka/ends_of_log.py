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

# How long one fetch waits for messages (milliseconds), and how often it is repeated for one message.
_FETCH_WAIT_MS = 500
_FETCHES = 6


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
        **brokers.options(), enable_auto_commit=False, request_timeout_ms=REQUEST_TIMEOUT_MS
    )
    await consumer.start()
    try:
        places = [TopicPartition(topic, number) for number in range(partitions)]
        consumer.assign(places)
        begins, ends = await asyncio.gather(consumer.beginning_offsets(places), consumer.end_offsets(places))
        found = {}
        for place in places:
            if begins[place] < ends[place]:
                first = await _message_at(consumer, place, begins[place])
                last = await _message_at(consumer, place, ends[place] - 1)
                if first is not None and last is not None:
                    found[place.partition] = (first, last)
        return found
    finally:
        await consumer.stop()


async def _message_at(consumer: Any, place: TopicPartition, offset: int) -> Read | None:
    """The message at an offset, or the next one; None if none comes."""
    consumer.seek(place, offset)
    for _ in range(_FETCHES):
        for message in (await consumer.getmany(place, timeout_ms=_FETCH_WAIT_MS, max_records=1)).get(place, ()):
            return Read(message.offset, message.timestamp, message.value)
    return None
