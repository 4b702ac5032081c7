"""A simulated Kafka: logs with offsets, a compacted state topic, and a producer whose sends fail in every way.

A send is in its process's buffer first (lost with it), then on the wire (applied whatever becomes of its process), then in
the log, and then its confirmation is on the way back. It may be applied and not confirmed, or not applied at all.
"""

import asyncio
import zlib
from bisect import bisect_left
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from typing import Any

from aiokafka.errors import (
    KafkaConnectionError,
    KafkaTimeoutError,
    RequestTimedOutError,
)

from streamgauge.kafka.producer import Message
from streamgauge.kafka.topics import Topics
from tests.worker.simulation.world import Process, World

# The log's clock when a simulation begins (ms): any, and far from zero.
EPOCH_MS = 1_700_000_000_000
# How long a message is in a producer's buffer, on the wire, and its confirmation on the way back, at most (seconds).
_BUFFER_S, _WIRE_S, _BACK_S = 0.02, 0.04, 0.04
# How long a producer waits for an answer that does not come (seconds).
_TIMEOUT_S = 1.0


@dataclass(slots=True)
class Entry:
    """One message of a log."""

    offset: int
    at_ms: int
    key: bytes | None
    value: bytes | None


@dataclass
class PartitionLog:
    """One partition of one topic. `end`: the offset of the next message. Offsets without a message are legal."""

    begin: int = 0
    end: int = 0
    entries: list[Entry] = field(default_factory=list)

    def append(self, at_ms: int, key: bytes | None, value: bytes | None) -> Entry:
        entry = Entry(self.end, at_ms, key, value)
        self.entries.append(entry)
        self.end += 1
        return entry

    def read(self, offset: int, count: int) -> list[Entry]:
        """The messages from this offset on."""
        start = bisect_left(self.entries, offset, key=lambda entry: entry.offset)
        return self.entries[start : start + count]

    def delete_before(self, offset: int) -> None:
        self.begin = max(self.begin, min(offset, self.end))
        self.entries = self.read(self.begin, len(self.entries))

    def compact(self, before_ms: int) -> None:
        """Of what is older than that, keep the last of each key that is: what Kafka's cleaner may do at any moment."""
        last = {entry.key: entry.offset for entry in self.entries if entry.at_ms < before_ms}
        self.entries = [one for one in self.entries if one.at_ms >= before_ms or last[one.key] == one.offset]


class Broker:
    """All topics of one prefix. `up`: it answers. `trouble`: the part of sends that go wrong.

    `fetched_to`: how far anybody has read.
    """

    def __init__(self, world: World, topics: Topics, partitions: int) -> None:
        self.world = world
        self.topics = topics
        self.partitions = partitions
        self.up = True
        self.trouble = 0.0
        self.fetched_to: dict[tuple[str, int], int] = {}
        self.on_append: Callable[[str, int, Entry], None] = lambda topic, partition, entry: None
        self.compaction_lag_ms = next(
            int(topic.config["min.compaction.lag.ms"])
            for topic in topics.wanted(partitions)
            if "min.compaction.lag.ms" in topic.config
        )
        self.logs = {
            topic.name: [PartitionLog() for _ in range(topic.partitions)] for topic in topics.wanted(partitions)
        }

    @property
    def now_ms(self) -> int:
        return EPOCH_MS + round(self.world.now * 1000)

    def append(self, topic: str, partition: int, key: bytes | None, value: bytes | None) -> int:
        entry = self.logs[topic][partition].append(self.now_ms, key, value)
        self.on_append(topic, partition, entry)
        return entry.offset

    def take(self, message: Message) -> None:
        """Append what a producer sent."""
        logs = self.logs[message.topic]
        partition = message.partition
        if partition is None:
            partition = zlib.crc32(message.key or b"") % len(logs)
        self.append(message.topic, partition, message.key, message.value)

    def compact(self) -> None:
        for log in self.logs[self.topics.state]:
            log.compact(self.now_ms - self.compaction_lag_ms)


class SimulatedProducer:
    """What `broker.producer.Producer` is to a worker: in order, idempotent, replaced when it has failed."""

    def __init__(self, broker: Broker, process: Process) -> None:
        self._broker = broker
        self._process = process
        self._world = broker.world
        self.generation = 0
        self._used_up = -1  # the latest generation that has failed: nothing of it is taken any more
        self._sent_at = self._applied_at = 0.0
        self._in_flight: dict[asyncio.Future[Any], None] = {}

    async def send(self, message: Message) -> "asyncio.Future[Any]":
        if not self._broker.up:
            await asyncio.sleep(_TIMEOUT_S)
            if not self._broker.up:
                raise KafkaTimeoutError
        future: asyncio.Future[Any] = self._process.loop.create_future()
        self._in_flight[future] = None
        self._sent_at = max(self._sent_at, self._world.now + self._world.chance.random() * _BUFFER_S)
        self._process.loop.call_at(self._sent_at, self._to_wire, self.generation, message, future)
        self._process.has_sent(message.topic)
        return future

    async def answers(self) -> bool:
        await asyncio.sleep(self._world.chance.random() * _BACK_S)
        return self._broker.up

    async def renew(self, failed: int) -> bool:
        if self.generation != failed:
            return True
        self.generation += 1
        self._used_up = max(self._used_up, failed)
        for future in list(self._in_flight):
            self._settle(future, KafkaConnectionError("the producer was discarded"))
        await asyncio.sleep(self._world.chance.random())
        return self._broker.up

    def _to_wire(self, generation: int, message: Message, future: "asyncio.Future[Any]") -> None:
        if generation <= self._used_up:
            return self._settle(future, KafkaConnectionError("the producer was discarded"))
        chance = self._world.chance
        if chance.random() < self._broker.trouble:
            self._used_up = generation
            if chance.random() < 0.5:
                self._process.later(_TIMEOUT_S, self._settle, future, RequestTimedOutError())
                return None
            future = self._never_confirmed(future)
        delay = chance.random() * _WIRE_S
        self._applied_at = max(self._applied_at, self._world.now + delay)
        return self._world.after(self._applied_at - self._world.now, lambda: self._arrive(message, future))

    def _never_confirmed(self, future: "asyncio.Future[Any]") -> "asyncio.Future[Any]":
        self._process.later(_TIMEOUT_S, self._settle, future, RequestTimedOutError())
        return self._process.loop.create_future()

    def _arrive(self, message: Message, future: "asyncio.Future[Any]") -> None:
        back = self._world.chance.random() * _BACK_S
        if not self._broker.up:
            return self._process.later(_TIMEOUT_S, self._settle, future, RequestTimedOutError())
        self._broker.take(message)
        return self._process.later(back, self._settle, future, None)

    def _settle(self, future: "asyncio.Future[Any]", error: Exception | None) -> None:
        self._in_flight.pop(future, None)
        if not future.done():
            future.set_exception(error) if error else future.set_result(None)


class SimulatedLog:
    """What `worker.log.Log` is to a worker: Kafka's own word. `committed` is the group's memory."""

    def __init__(self, broker: Broker, committed: dict[tuple[str, int], int]) -> None:
        self._broker = broker
        self._committed = committed

    async def _ask(self) -> None:
        await asyncio.sleep(self._broker.world.chance.random() * _BACK_S)
        if not self._broker.up:
            raise KafkaConnectionError

    async def committed(self, topic: str) -> dict[int, int]:
        await self._ask()
        return {partition: offset for (name, partition), offset in self._committed.items() if name == topic}

    async def begins(self, topic: str, partitions: Iterable[int]) -> dict[int, int]:
        await self._ask()
        return {number: self._broker.logs[topic][number].begin for number in partitions}

    async def ends(self, topic: str, partitions: Iterable[int]) -> dict[int, int]:
        await self._ask()
        return {number: self._broker.logs[topic][number].end for number in partitions}

    async def has_message(self, topic: str, partition: int, start: int, end: int) -> bool:
        await self._ask()
        return any(entry.offset < end for entry in self._broker.logs[topic][partition].read(start, 1))
