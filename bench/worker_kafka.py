"""Kafka in the worker's benchmark: it writes logs, reads records, and reads which offsets are committed."""

import asyncio
import time
import uuid
from collections.abc import Callable, Sequence
from contextlib import AsyncExitStack
from typing import Any, Self

import msgspec
from aiokafka import AIOKafkaConsumer, AIOKafkaProducer, TopicPartition
from aiokafka.admin import AIOKafkaAdminClient

from bench.worker_logs import PARTITIONS, Log
from streamgauge.kafka import topics
from streamgauge.kafka.log_throttle import throttle_logs
from streamgauge.kafka.topics import MAX_MESSAGE_BYTES, Topics

# How long anything may take before it counts as missing (seconds).
PATIENCE_S = 120.0
# How often a condition is checked (seconds).
_CHECK_S = 0.02
# How many messages are in flight: enough that the sender never waits for the broker, and few enough for its memory.
_AT_ONCE = 500


class UnexpectedError(Exception):
    """What arrived is not what was expected."""


class _Integrity(msgspec.Struct):
    complete: bool


class _RecordPart(msgspec.Struct):
    """The part of a record that is checked."""

    stream_id: str
    outcome: str
    integrity: _Integrity
    provider_request_id: str | None = None


class Arrived:
    """A record that arrived. `whole`: complete; `topic_ms`: its time in the topic; `at_s`: monotonic time of arrival."""

    __slots__ = ("at_s", "request_id", "stream", "topic_ms", "whole")

    def __init__(self, record: bytes, at_s: float, topic_ms: int = 0) -> None:
        part = _RECORD.decode(record)
        self.stream, self.request_id = part.stream_id, part.provider_request_id
        self.whole = part.outcome == "completed" and part.integrity.complete
        self.topic_ms, self.at_s = topic_ms, at_s


_RECORD = msgspec.json.Decoder(_RecordPart)


class Records:
    """Reads the records topic of one prefix, from its current end on.

    After a crash the same record may come twice (decision 4). Here no worker crashes with a record in flight: a second
    record shows that a worker has lost its partitions and done its work twice.
    """

    def __init__(self, consumer: Any) -> None:
        self._consumer = consumer
        self._known: set[str] = set()

    async def next(self) -> list[Arrived]:
        """Waits briefly, and returns the records that arrived since. Raises UnexpectedError if a stream has two."""
        batches = await self._consumer.getmany(timeout_ms=200)
        now = time.monotonic()
        arrived = [
            Arrived(message.value, now, int(message.timestamp)) for messages in batches.values() for message in messages
        ]
        for record in arrived:
            if record.stream in self._known:
                raise UnexpectedError(f"stream {record.stream} has two records")
            self._known.add(record.stream)
        return arrived

    async def no_more(self) -> None:
        """Reads the topic to its current end. Raises UnexpectedError if there is another record."""
        ends = await self._consumer.end_offsets(self._consumer.assignment())
        deadline = time.monotonic() + PATIENCE_S
        while [partition for partition, end in ends.items() if await self._consumer.position(partition) < end]:
            if more := await self.next():
                raise UnexpectedError(f"{len(more)} records more than streams")
            if time.monotonic() > deadline:
                raise UnexpectedError("the records topic cannot be read to its end")

    async def until(self, ids: frozenset[str]) -> list[Arrived]:
        """Waits for the records of these streams. Raises UnexpectedError unless all come, all are complete, and no others."""
        arrived: list[Arrived] = []
        deadline = time.monotonic() + PATIENCE_S
        while len(arrived) < len(ids) and time.monotonic() < deadline:
            arrived += await self.next()
        if sorted(record.stream for record in arrived) != sorted(ids):
            known = sum(record.stream in ids for record in arrived)
            raise UnexpectedError(f"{known} records of {len(ids)} streams, {len(arrived) - known} of others")
        if incomplete := [record for record in arrived if not record.whole]:
            raise UnexpectedError(f"{len(incomplete)} of {len(ids)} records are not complete")
        return arrived


class Kafka:
    """A context with clients of a running broker. `partitions`: of the topics that it makes."""

    def __init__(self, bootstrap: str, partitions: int = PARTITIONS) -> None:
        self.bootstrap = bootstrap
        self._count = partitions
        self._stack = AsyncExitStack()
        throttle_logs()  # new topics have no leader at first, and aiokafka logs that repeatedly

    async def __aenter__(self) -> Self:
        self._producer = AIOKafkaProducer(
            bootstrap_servers=self.bootstrap, max_batch_size=256 * 1024, max_request_size=MAX_MESSAGE_BYTES
        )
        self._admin = AIOKafkaAdminClient(bootstrap_servers=self.bootstrap)
        await self._producer.start()
        self._stack.push_async_callback(self._producer.stop)
        await self._admin.start()
        self._stack.push_async_callback(self._admin.close)
        return self

    async def __aexit__(self, *_: object) -> None:
        await self._stack.aclose()

    async def make_topics(self) -> str:
        """Creates new topics. Returns their prefix."""
        prefix = f"bench-{uuid.uuid4().hex[:12]}"
        await topics.create(self.bootstrap, self._count, prefix)
        return prefix

    async def write(self, prefix: str, log: Log) -> int:
        """Writes a log completely. Returns the log time of its first message (ms)."""
        name, sent = Topics(prefix).segments, list[asyncio.Future[Any]]()
        for place, message in enumerate(log.messages):
            sent.append(await self._producer.send(name, message.value, partition=message.partition))
            if place % _AT_ONCE == _AT_ONCE - 1:
                await sent[place - _AT_ONCE // 2]
        return min(int(written.timestamp) for written in await asyncio.gather(*sent))

    async def records(self, prefix: str) -> Records:
        """A reader of the records topic."""
        consumer = AIOKafkaConsumer(bootstrap_servers=self.bootstrap, enable_auto_commit=False)
        await consumer.start()
        self._stack.push_async_callback(consumer.stop)
        partitions = self._partitions(Topics(prefix).records)
        consumer.assign(partitions)
        await consumer.seek_to_end(*partitions)
        for partition in partitions:
            await consumer.position(partition)
        return Records(consumer)

    async def until_committed(self, prefix: str, topic: str, patience_s: float = PATIENCE_S) -> None:
        """Waits until the prefix's group has committed all of this topic. Raises UnexpectedError."""
        partitions, ends = self._partitions(topic), await self._ends(topic)

        async def all_committed() -> bool:
            offsets = await self._admin.list_consumer_group_offsets(prefix, partitions=partitions)
            return all(offsets[partition].offset == end or not end for partition, end in ends.items())

        await until(all_committed, patience_s, f"{topic} is not committed to its end")

    async def messages(self, topic: str) -> int:
        """How many messages have been written to a topic."""
        return sum((await self._ends(topic)).values())

    async def _ends(self, topic: str) -> dict[TopicPartition, int]:
        consumer = AIOKafkaConsumer(bootstrap_servers=self.bootstrap)
        await consumer.start()
        try:
            return dict(await consumer.end_offsets(self._partitions(topic)))
        finally:
            await consumer.stop()

    def _partitions(self, topic: str) -> Sequence[TopicPartition]:
        return [TopicPartition(topic, number) for number in range(self._count)]


async def until(condition: Callable[[], Any], patience_s: float, fault: str, check_s: float = _CHECK_S) -> None:
    """Waits until `condition()` is true. Raises UnexpectedError with the text `fault`."""
    deadline = time.monotonic() + patience_s
    while not await condition():
        if time.monotonic() > deadline:
            raise UnexpectedError(fault)
        await asyncio.sleep(check_s)
