"""The dead letter topic: messages that could not be processed, byte for byte, with the reason in headers; and their retry.

A dead letter has the key and value of the message. Sending one back (`retry`) is idempotent: a worker recognises a bundle
by its number, and the ledger a record by its stream id.

| header | meaning |
|---|---|
| topic, partition, offset | the message's position (partition and offset are -1 for a record that no broker accepted) |
| stage, error | the step that failed, and the class of the error |
| version, format | the version of the worker that wrote the dead letter, and its bundle format version |
| key_bytes, value_bytes | only in a truncated dead letter: the sizes of the message's key and value (bytes) |
"""

import asyncio
from collections.abc import AsyncIterator
from dataclasses import dataclass
from enum import StrEnum
from typing import Any

from aiokafka import AIOKafkaConsumer, TopicPartition  # type: ignore[import-untyped]
from aiokafka.errors import KafkaConnectionError, KafkaError  # type: ignore[import-untyped]

import streamgauge
from streamgauge.core.capture.segments import FORMAT_VERSION
from streamgauge.kafka.administrator import UNREACHABLE, unreachable
from streamgauge.kafka.log_throttle import throttle_logs
from streamgauge.kafka.producer import PATIENCE_S, REQUEST_TIMEOUT_MS, Message, Producer
from streamgauge.kafka.security import Brokers, brokers_at
from streamgauge.kafka.shims.header_names import tolerate_header_names
from streamgauge.kafka.topics import (
    MAX_DEADLETTER_BYTES,
    Topics,
    TopicsDeniedError,
    TopicsMissingError,
)

# The producer's batch size (bytes): messages are sent back one at a time, so larger batches gain nothing.
_BATCH_BYTES = 64 * 1024
# Space for the headers of a dead letter (bytes): a topic name of 249 characters and some numbers need a tenth of it.
_HEADERS_BYTES = 16 * 1024
# The largest key and value together (bytes). A larger message is truncated; only a topic with a higher limit than ours has
# one.
MAX_WHOLE_BYTES = MAX_DEADLETTER_BYTES - _HEADERS_BYTES
# How much of a truncated key and of a truncated value is kept (bytes): enough to recognise them.
TRUNCATED_BYTES = 4 * 1024
# How long one fetch of dead letters waits (milliseconds).
_FETCH_WAIT_MS = 1_000
# How long a message that is sent back may wait for the broker's confirmation (seconds).
CONFIRM_S = PATIENCE_S
# The most dead letters of one fetch: each may have 8 MiB.
_AT_ONCE = 16


class Stage(StrEnum):
    """The step at which a message could not be processed."""

    DECODE = "decode"  # the message is not a bundle
    ASSEMBLE = "assemble"  # the message is a bundle, but the assembler failed on it: a bug
    RECORD = "record"  # the broker rejected the record for the records topic
    LEDGER = "ledger"  # the message of the records topic is not a record that the ledger can read


@dataclass(frozen=True)
class DeadLetter:
    """One dead letter. `offset`: its own offset, in the dead letter topic. `at_ms`: its time (milliseconds since 1970).

    `source_*`: the position of the message. A field is None if the headers lack it. `whole`: the sizes of the message's key
    and value (bytes) if the dead letter is truncated, else None.
    """

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
    whole: tuple[int, int] | None = None


class NotRetriableError(ValueError):
    """The dead letter cannot be sent back: its source is not one of our topics, or it is truncated."""


def dead_letter_of(topics: Topics, source: Any, value: bytes | None, stage: Stage, error_class: str) -> Message:
    """Return the message for the dead letter topic. `source` has the topic, partition, offset and key of the message."""
    facts = {
        "topic": source.topic,
        "partition": source.partition,
        "offset": source.offset,
        "stage": stage.value,
        "error": error_class,
        "version": streamgauge.__version__,
        "format": FORMAT_VERSION,
    }
    headers = tuple((name, str(value).encode()) for name, value in facts.items())
    # A message may have neither key nor value, but aiokafka requires one of them.
    whole = Message(topics.deadletter, b"" if value is None and source.key is None else value, source.key, 0, headers)
    return whole if len(value or b"") + len(source.key or b"") <= MAX_WHOLE_BYTES else truncated(whole)


def truncated(whole: Message) -> Message:
    """Truncate a dead letter to the first TRUNCATED_BYTES of key and of value, and add their sizes to its headers."""
    key, value = whole.key or b"", whole.value or b""
    sizes = (("key_bytes", b"%d" % len(key)), ("value_bytes", b"%d" % len(value)))
    return whole._replace(
        key=key[:TRUNCATED_BYTES] or None, value=value[:TRUNCATED_BYTES], headers=whole.headers + sizes
    )


def is_truncated(message: Message) -> bool:
    """Whether a dead letter is already truncated, so that nothing smaller can be sent."""
    return any(name == "value_bytes" for name, _ in message.headers)


async def read(bootstrap: Brokers | str, topics: Topics, start: int = 0) -> AsyncIterator[DeadLetter]:
    """Yield the present dead letters from offset `start` on, oldest first, with at most a few in memory.

    Raises TopicsError.
    """
    throttle_logs()
    tolerate_header_names()
    consumer = AIOKafkaConsumer(
        **brokers_at(bootstrap).options(), enable_auto_commit=False, request_timeout_ms=REQUEST_TIMEOUT_MS
    )
    try:
        await consumer.start()
        if topics.deadletter not in await consumer.topics():
            raise TopicsMissingError(
                f"topic {topics.deadletter} does not exist or is not visible: run `streamgauge topics create` first"
            )
        async for message in _messages(consumer, TopicPartition(topics.deadletter, 0), start):
            yield _from_message(message)
    except UNREACHABLE as error:
        raise await unreachable(brokers_at(bootstrap)) from error
    except KafkaError as error:
        raise TopicsDeniedError(f"topic {topics.deadletter} cannot be read: {type(error).__name__}") from error
    finally:
        await consumer.stop()


async def _messages(consumer: Any, topic_partition: TopicPartition, start: int) -> AsyncIterator[Any]:
    """Yield the messages of a partition from `start` to its present end. Raises KafkaError if the broker sends no more."""
    consumer.assign([topic_partition])
    end = (await consumer.end_offsets([topic_partition]))[topic_partition]
    begin = (await consumer.beginning_offsets([topic_partition]))[topic_partition]
    consumer.seek(topic_partition, max(begin, start))
    received_s = asyncio.get_running_loop().time()
    while await consumer.position(topic_partition) < end:
        for message in (await consumer.getmany(timeout_ms=_FETCH_WAIT_MS, max_records=_AT_ONCE)).get(
            topic_partition, ()
        ):
            if message.offset < end:
                yield message
            received_s = asyncio.get_running_loop().time()
        if asyncio.get_running_loop().time() > received_s + PATIENCE_S:
            raise KafkaConnectionError("no more messages arrive")


class Sender:
    """Sends messages one at a time, each durable before the next, so that the messages of a partition keep their order.

    Use it as a context. Raises TopicsError if the broker is unreachable or refuses.
    """

    def __init__(self, bootstrap: Brokers | str) -> None:
        self._bootstrap = bootstrap
        self._producer = Producer(bootstrap, max_message_bytes=MAX_DEADLETTER_BYTES, batch_bytes=_BATCH_BYTES)

    async def __aenter__(self) -> "Sender":
        if not await self._producer.start():
            raise await unreachable(brokers_at(self._bootstrap))
        return self

    async def __aexit__(self, *_: object) -> None:
        await self._producer.stop(REQUEST_TIMEOUT_MS / 1000)

    async def send(self, message: Message) -> None:
        """Send one message; returns when the broker has confirmed it. Raises TopicsError."""
        try:
            # aiokafka itself waits without limit for the confirmation of an idempotent message.
            async with asyncio.timeout(CONFIRM_S):
                await (await self._producer.send(message))
        except UNREACHABLE as error:
            raise await unreachable(brokers_at(self._bootstrap)) from error
        except KafkaError as error:
            raise TopicsDeniedError(
                f"the broker rejected a message for {message.topic}: {type(error).__name__}"
            ) from error


def message_of(topics: Topics, dead_letter: DeadLetter) -> Message:
    """Return the message of a dead letter, addressed to its source topic. Raises NotRetriableError."""
    # Any client with write access can forge a dead letter, so it must not choose an arbitrary topic of the cluster.
    if dead_letter.source_topic not in (topics.segments, topics.records):
        raise NotRetriableError(
            f"dead letter {dead_letter.offset} did not come from {topics.segments} or {topics.records}"
        )
    if dead_letter.whole is not None:
        raise NotRetriableError(
            f"dead letter {dead_letter.offset} is truncated: it holds only the beginning of its message"
        )
    partition = dead_letter.source_partition if dead_letter.source_topic == topics.segments else None
    return Message(dead_letter.source_topic, dead_letter.value, dead_letter.key, partition)


def _from_message(message: Any) -> DeadLetter:
    headers = {name: value.decode("utf-8", "replace") for name, value in message.headers if value is not None}
    key_bytes, value_bytes = _number(headers.get("key_bytes")), _number(headers.get("value_bytes"))
    return DeadLetter(
        message.offset,
        message.timestamp,
        headers.get("stage"),
        headers.get("error"),
        headers.get("topic"),
        _number(headers.get("partition")),
        _number(headers.get("offset")),
        headers.get("version"),
        headers.get("format"),
        message.key,
        message.value,
        None if key_bytes is None or value_bytes is None else (key_bytes, value_bytes),
    )


def _number(text: str | None) -> int | None:
    return int(text) if text is not None and text.isascii() and text.isdigit() and len(text) < 20 else None
