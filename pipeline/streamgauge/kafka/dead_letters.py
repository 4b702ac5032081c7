"""The dead letter topic: what could not be read, byte for byte, with the story of it in headers; and how to bring it back.

A letter's key and value are the message's own. Bringing one back (`retry`) is idempotent: a bundle is known by its
number, a record by its stream id.

| header | what it says |
|---|---|
| topic, partition, offset | where the message was (-1 for a record that never had a place in a log) |
| stage, error | where it could not be dealt with, and the class of what was wrong |
| version, format | of the worker that refused it: of the program, and of the bundles that it reads |
| key_bytes, value_bytes | only of a letter that is cut: what the message's own sizes are |
"""

import asyncio
from collections.abc import AsyncIterator
from dataclasses import dataclass
from enum import StrEnum
from typing import Any

from aiokafka import AIOKafkaConsumer, TopicPartition  # type: ignore[import-untyped]
from aiokafka.errors import KafkaConnectionError, KafkaError, KafkaTimeoutError  # type: ignore[import-untyped]

import streamgauge
from streamgauge.core.capture.segments import FORMAT_VERSION
from streamgauge.kafka.administrator import unreachable
from streamgauge.kafka.aiokafka_header_patch import forgive_header_names
from streamgauge.kafka.log_throttle import throttle_logs
from streamgauge.kafka.producer import REQUEST_TIMEOUT_MS, Message, Producer
from streamgauge.kafka.security import Brokers, brokers_at
from streamgauge.kafka.topics import (
    MAX_DEADLETTER_BYTES,
    Topics,
    TopicsDeniedError,
    TopicsMissingError,
)

# One message at a time is brought back; batches would gain nothing (bytes).
_BATCH_BYTES = 64 * 1024
# The headers of a letter: two names of topics at 249 characters and some numbers need a tenth of it (bytes).
_HEADERS_BYTES = 16 * 1024
# Key and value of a letter. A message that is larger, which only a topic with a higher limit than ours lets in, is cut.
MAX_WHOLE_BYTES = MAX_DEADLETTER_BYTES - _HEADERS_BYTES
# What is kept of a key and of a value that are cut: enough to see what they are (bytes).
CUT_BYTES = 4 * 1024
# How long nothing may come although the topic has more (seconds): three requests that fail.
_PATIENCE_S = 3 * REQUEST_TIMEOUT_MS / 1000
# How long one look for letters waits, and how many it takes: a letter may have 8 MiB.
_LOOK_MS = 1_000
# How long one that is sent back may wait for its broker's word (seconds).
CONFIRM_S = 3 * REQUEST_TIMEOUT_MS / 1000
_AT_ONCE = 16


class Stage(StrEnum):
    """Where a message could not be dealt with."""

    DECODE = "decode"  # it is no bundle
    ASSEMBLE = "assemble"  # it is one, and the assembler failed over it: a bug
    RECORD = "record"  # a record that the records topic refuses
    LEDGER = "ledger"  # it is no record


@dataclass(frozen=True)
class DeadLetter:
    """One dead letter. `offset`: its own; `source_*`: where the message was; None where its headers do not tell.

    `whole`: the message's own sizes of key and value (bytes) where the letter is cut, None where it holds all of it.
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
    """A letter that cannot be sent back: it came from no topic of ours, or it is cut."""


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
    whole = Message(topics.deadletter, b"" if value is None and source.key is None else value, source.key, 0, headers)
    return whole if len(value or b"") + len(source.key or b"") <= MAX_WHOLE_BYTES else shortened(whole)


def shortened(whole: Message) -> Message:
    """A letter with the beginnings of key and value alone, and their sizes in its headers."""
    key, value = whole.key or b"", whole.value or b""
    sizes = (("key_bytes", b"%d" % len(key)), ("value_bytes", b"%d" % len(value)))
    return whole._replace(key=key[:CUT_BYTES] or None, value=value[:CUT_BYTES], headers=whole.headers + sizes)


def is_shortened(one: Message) -> bool:
    """Whether a letter is cut already: there is nothing smaller to send."""
    return any(name == "value_bytes" for name, _ in one.headers)


async def read(bootstrap: Brokers | str, topics: Topics, start: int = 0) -> AsyncIterator[DeadLetter]:
    """The letters that are there, oldest first, from offset `start` on, a few in memory at a time. Raises TopicsError."""
    throttle_logs()
    forgive_header_names()
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
            yield _letter_of(message)
    except KafkaConnectionError as error:
        raise await unreachable(brokers_at(bootstrap)) from error
    except KafkaError as error:
        raise TopicsDeniedError(f"topic {topics.deadletter} cannot be read: {type(error).__name__}") from error
    finally:
        await consumer.stop()


async def _messages(consumer: Any, place: TopicPartition, start: int) -> AsyncIterator[Any]:
    """The messages of a partition from `start` to its present end. Raises KafkaError if no more of them come."""
    consumer.assign([place])
    end = (await consumer.end_offsets([place]))[place]
    begin = (await consumer.beginning_offsets([place]))[place]
    consumer.seek(place, max(begin, start))
    heard = asyncio.get_running_loop().time()
    while await consumer.position(place) < end:
        for message in (await consumer.getmany(timeout_ms=_LOOK_MS, max_records=_AT_ONCE)).get(place, ()):
            if message.offset < end:
                yield message
            heard = asyncio.get_running_loop().time()
        if asyncio.get_running_loop().time() > heard + _PATIENCE_S:
            raise KafkaConnectionError("no more messages arrive")


class Sender:
    """Sends messages one at a time, each durable before the next: those of a partition keep their order.

    Use it as a context. Raises TopicsError where the broker is away or refuses.
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
        """Returns when the broker has it."""
        try:
            # aiokafka lets an idempotent message wait for its broker for ever.
            async with asyncio.timeout(CONFIRM_S):
                await (await self._producer.send(message))
        except (TimeoutError, KafkaTimeoutError, KafkaConnectionError) as error:
            raise await unreachable(brokers_at(self._bootstrap)) from error
        except KafkaError as error:
            raise TopicsDeniedError(
                f"the broker rejected a message for {message.topic}: {type(error).__name__}"
            ) from error


def message_of(topics: Topics, one: DeadLetter) -> Message:
    """The message that a letter holds, for where it came from. Raises NotRetriableError."""
    # A letter is only bytes that somebody wrote: it must not be able to name any topic of the cluster.
    if one.source_topic not in (topics.segments, topics.records):
        raise NotRetriableError(f"dead letter {one.offset} did not come from {topics.segments} or {topics.records}")
    if one.whole is not None:
        raise NotRetriableError(f"dead letter {one.offset} is truncated: it holds only the beginning of its message")
    partition = one.source_partition if one.source_topic == topics.segments else None
    return Message(one.source_topic, one.value, one.key, partition)


def _letter_of(message: Any) -> DeadLetter:
    told = {name: value.decode("utf-8", "replace") for name, value in message.headers if value is not None}
    key_bytes, value_bytes = _number(told.get("key_bytes")), _number(told.get("value_bytes"))
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
        None if key_bytes is None or value_bytes is None else (key_bytes, value_bytes),
    )


def _number(text: str | None) -> int | None:
    return int(text) if text is not None and text.isascii() and text.isdigit() and len(text) < 20 else None
