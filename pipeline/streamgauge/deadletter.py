"""The dead letter topic: what could not be read, byte for byte, with the story of it in headers; and how to bring it back.

A letter's key and value are the message's own. Bringing one back (`retry`) is idempotent: a bundle is known by its
number, a record by its stream id.
"""

from collections.abc import AsyncIterator, Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import Any

from aiokafka import AIOKafkaConsumer, TopicPartition  # type: ignore[import-untyped]
from aiokafka.errors import KafkaConnectionError, KafkaError  # type: ignore[import-untyped]

import streamgauge
from streamgauge.broker.producer import REQUEST_TIMEOUT_MS, Message, Producer
from streamgauge.broker.watch import damp
from streamgauge.core.segments import FORMAT_VERSION
from streamgauge.topics import MAX_DEADLETTER_BYTES, BrokerUnreachableError, Topics, TopicsDeniedError

# One message at a time is brought back; batches would gain nothing (bytes).
_BATCH_BYTES = 64 * 1024


class Stage(StrEnum):
    """Where a message could not be dealt with."""

    DECODE = "decode"  # it is no bundle
    ASSEMBLE = "assemble"  # it is one, and the assembler failed over it: a bug
    RECORD = "record"  # a record that the records topic refuses
    LEDGER = "ledger"  # it is no record


@dataclass(frozen=True)
class DeadLetter:
    """One dead letter. `offset`: its own; `source_*`: where the message was; None where its headers do not tell."""

    offset: int
    at_ms: int
    stage: str | None
    error_class: str | None
    source_topic: str | None
    source_partition: int | None
    source_offset: int | None
    version: str | None
    format_version: str | None
    key: bytes | None
    value: bytes | None


class NotRetriableError(ValueError):
    """A letter that came from no topic of ours."""


def letter(topics: Topics, source: Any, value: bytes | None, stage: Stage, error_class: str) -> Message:
    """The message for the dead letter topic. `source` has the topic, partition, offset and key of the message."""
    story = {
        "topic": source.topic,
        "partition": source.partition,
        "offset": source.offset,
        "stage": stage.value,
        "error": error_class,
        "version": streamgauge.__version__,
        "format": FORMAT_VERSION,
    }
    headers = tuple((name, str(told).encode()) for name, told in story.items())
    # A message with neither key nor value is possible, and aiokafka wants one of them.
    return Message(topics.deadletter, b"" if value is None and source.key is None else value, source.key, 0, headers)


async def read(bootstrap: str, topics: Topics, start: int = 0) -> AsyncIterator[DeadLetter]:
    """The letters that are there, oldest first, from offset `start` on. Raises TopicsError."""
    damp()
    place = TopicPartition(topics.deadletter, 0)
    consumer = AIOKafkaConsumer(
        bootstrap_servers=bootstrap, enable_auto_commit=False, request_timeout_ms=REQUEST_TIMEOUT_MS
    )
    try:
        await consumer.start()
        consumer.assign([place])
        end = (await consumer.end_offsets([place]))[place]
        begin = (await consumer.beginning_offsets([place]))[place]
        consumer.seek(place, max(begin, start))
        while await consumer.position(place) < end:
            for message in (await consumer.getmany(timeout_ms=1000)).get(place, ()):
                if message.offset < end:
                    yield _letter_of(message)
    except KafkaConnectionError as error:
        raise BrokerUnreachableError(f"no Kafka broker answers at {bootstrap}") from error
    except KafkaError as error:
        raise TopicsDeniedError(f"topic {topics.deadletter} cannot be read: {type(error).__name__}") from error
    finally:
        await consumer.stop()


async def retry(bootstrap: str, topics: Topics, letters: Sequence[DeadLetter]) -> int:
    """Send messages back to where they came from; gives how many. Raises NotRetriableError before any is sent."""
    messages = [_message_of(topics, one) for one in letters]
    producer = Producer(bootstrap, max_message_bytes=MAX_DEADLETTER_BYTES, batch_bytes=_BATCH_BYTES)
    if not await producer.start():
        raise BrokerUnreachableError(f"no Kafka broker answers at {bootstrap}")
    try:
        for message in messages:
            await (await producer.send(message))
    except KafkaError as error:
        raise TopicsDeniedError(f"a message was refused: {type(error).__name__}") from error
    finally:
        await producer.stop(REQUEST_TIMEOUT_MS / 1000)
    return len(messages)


def _message_of(topics: Topics, one: DeadLetter) -> Message:
    # A letter is only bytes that somebody wrote: it must not be able to name any topic of the cluster.
    if one.source_topic not in (topics.segments, topics.records):
        raise NotRetriableError(f"dead letter {one.offset} did not come from a topic of {topics.prefix}")
    partition = one.source_partition if one.source_topic == topics.segments else None
    return Message(one.source_topic, one.value, one.key, partition)


def _letter_of(message: Any) -> DeadLetter:
    told = {name: value.decode("utf-8", "replace") for name, value in message.headers if value is not None}
    return DeadLetter(
        message.offset,
        message.timestamp,
        told.get("stage"),
        told.get("error"),
        told.get("topic"),
        _number(told.get("partition")),
        _number(told.get("offset")),
        told.get("version"),
        told.get("format"),
        message.key,
        message.value,
    )


def _number(text: str | None) -> int | None:
    return int(text) if text is not None and text.isascii() and text.isdigit() and len(text) < 20 else None
