"""What the worker's benchmark does with Kafka itself: it writes logs, reads along the records, asks what is committed."""

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

# What takes longer than this does not come any more (seconds).
PATIENCE_S = 120.0
# How often one looks (seconds).
_LOOK_S = 0.02
# How many messages are on their way at once: enough that the broker is never waited for, few enough for its memory.
_AT_ONCE = 500


class AmissError(Exception):
    """What came is not what had to come."""


class _Integrity(msgspec.Struct):
    complete: bool


class _Said(msgspec.Struct):
    """What is looked at of a record."""

    stream_id: str
    outcome: str
    integrity: _Integrity
    provider_request_id: str | None = None


class Arrived:
    """One record as it came: which stream, whether it is all there, when by the topic (ms) and here (monotonic seconds)."""

    __slots__ = ("at_s", "request_id", "stream", "topic_ms", "whole")

    def __init__(self, record: bytes, at_s: float, topic_ms: int = 0) -> None:
        said = _RECORD.decode(record)
        self.stream, self.request_id = said.stream_id, said.provider_request_id
        self.whole = said.outcome == "completed" and said.integrity.complete
        self.topic_ms, self.at_s = topic_ms, at_s


_RECORD = msgspec.json.Decoder(_Said)


class Records:
    """Reads the records topic of one prefix from its present end on.

    The same record once more, byte for byte, is legal behind a crash (decision 4). Here nobody dies with a record on its
    way, so who writes one again has lost its place in the group, and has worked twice.
    """

    def __init__(self, consumer: Any) -> None:
        self._consumer = consumer
        self._known: set[str] = set()

    async def next(self) -> list[Arrived]:
        """Records that have come since; waits a moment. Raises AmissError if a stream has two."""
        found = await self._consumer.getmany(timeout_ms=200)
        now = time.monotonic()
        arrived = [
            Arrived(message.value, now, int(message.timestamp)) for messages in found.values() for message in messages
        ]
        for record in arrived:
            if record.stream in self._known:
                raise AmissError(f"stream {record.stream} has two records")
            self._known.add(record.stream)
        return arrived

    async def no_more(self) -> None:
        """Reads what is in the topic by now. Raises AmissError if there is a record that was not to come."""
        ends = await self._consumer.end_offsets(self._consumer.assignment())
        deadline = time.monotonic() + PATIENCE_S
        while [place for place, end in ends.items() if await self._consumer.position(place) < end]:
            if more := await self.next():
                raise AmissError(f"{len(more)} records more than there are streams")
            if time.monotonic() > deadline:
                raise AmissError("the records topic cannot be read to its end")

    async def until(self, ids: frozenset[str]) -> list[Arrived]:
        """The records of these streams. Raises AmissError unless each comes, each whole, and no other."""
        arrived: list[Arrived] = []
        deadline = time.monotonic() + PATIENCE_S
        while len(arrived) < len(ids) and time.monotonic() < deadline:
            arrived += await self.next()
        if sorted(one.stream for one in arrived) != sorted(ids):
            known = sum(one.stream in ids for one in arrived)
            raise AmissError(f"{known} records of {len(ids)} streams, {len(arrived) - known} of others")
        if broken := [one for one in arrived if not one.whole]:
            raise AmissError(f"{len(broken)} of {len(ids)} records are not whole")
        return arrived


class Kafka:
    """A context; `bootstrap` is a broker that is there."""

    def __init__(self, bootstrap: str) -> None:
        self.bootstrap = bootstrap
        self._stack = AsyncExitStack()
        throttle_logs()  # topics that were just made have no leader for a moment, and aiokafka says so again and again

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
        """Topics that nobody else uses; gives their prefix."""
        prefix = f"bench-{uuid.uuid4().hex[:12]}"
        await topics.create(self.bootstrap, PARTITIONS, prefix)
        return prefix

    async def write(self, prefix: str, log: Log) -> int:
        """Write a log; gives the log time of its first message (ms). Returns when all of it is there."""
        name, sent = Topics(prefix).segments, list[asyncio.Future[Any]]()
        for place, message in enumerate(log.messages):
            sent.append(await self._producer.send(name, message.value, partition=message.partition))
            if place % _AT_ONCE == _AT_ONCE - 1:
                await sent[place - _AT_ONCE // 2]
        return min(int(done.timestamp) for done in await asyncio.gather(*sent))

    async def records(self, prefix: str) -> Records:
        """A reader of the records topic."""
        consumer = AIOKafkaConsumer(bootstrap_servers=self.bootstrap, enable_auto_commit=False)
        await consumer.start()
        self._stack.push_async_callback(consumer.stop)
        places = _places(Topics(prefix).records)
        consumer.assign(places)
        await consumer.seek_to_end(*places)
        for place in places:
            await consumer.position(place)
        return Records(consumer)

    async def until_committed(self, prefix: str, topic: str, patience_s: float = PATIENCE_S) -> None:
        """Until the prefix's group has committed all of this topic. Raises AmissError."""
        places, ends = _places(topic), await self._ends(topic)

        async def all_done() -> bool:
            done = await self._admin.list_consumer_group_offsets(prefix, partitions=places)
            return all(done[place].offset == ends[place] or not ends[place] for place in places)

        await until(all_done, patience_s, f"{topic} is not committed to its end")

    async def messages(self, topic: str) -> int:
        """How many messages were ever written to a topic."""
        return sum((await self._ends(topic)).values())

    async def _ends(self, topic: str) -> dict[TopicPartition, int]:
        consumer = AIOKafkaConsumer(bootstrap_servers=self.bootstrap)
        await consumer.start()
        try:
            return dict(await consumer.end_offsets(_places(topic)))
        finally:
            await consumer.stop()


async def until(true: Callable[[], Any], patience_s: float, otherwise: str, look_s: float = _LOOK_S) -> None:
    """Looks again and again. Raises AmissError."""
    deadline = time.monotonic() + patience_s
    while not await true():
        if time.monotonic() > deadline:
            raise AmissError(otherwise)
        await asyncio.sleep(look_s)


def _places(topic: str) -> Sequence[TopicPartition]:
    return [TopicPartition(topic, number) for number in range(PARTITIONS)]
