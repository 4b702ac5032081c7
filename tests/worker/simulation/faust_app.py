"""A replacement of Faust in a simulated worker: it joins, recovers the table, fetches, and passes messages to agents.

With the ways of Faust that the worker guards against: messages that are lost between fetcher and agent, that come twice,
and a start at what was committed last. The table's store is the real one.
"""

import asyncio
import contextlib
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

from streamgauge.worker.faust.app import create_app
from streamgauge.worker.faust.store import NewestStore
from streamgauge.worker.settings import WorkerSettings
from tests.worker.simulation.broker import Broker, Entry
from tests.worker.simulation.group import Group, Membership, Signal
from tests.worker.simulation.world import Process

# The least and the most time between two fetches, where something came and where nothing did; messages of one.
_FETCH_S, _IDLE_S = (0.02, 0.4), (0.3, 0.9)
_FETCHED = 6
_HEARTBEAT_S = 3.0


@dataclass(slots=True)
class Fetched:
    """A message as Faust gives it to an agent."""

    topic: str
    partition: int
    offset: int
    timestamp: float
    key: bytes | None
    value: bytes | None
    generation_id: int
    headers: tuple[tuple[str, bytes], ...] = ()


@dataclass(slots=True)
class Event:
    message: Fetched


@cache
def _real_app() -> Any:
    return create_app(WorkerSettings("127.0.0.1:1", Path("unused")), lambda message: None, None)


class Table:
    """The state table: its store is real, its recovery is simulated."""

    def __init__(self) -> None:
        app = _real_app()
        self.newest = NewestStore("memory://", app, app.tables["state"], table_name="state")
        self.read_to: dict[int, int] = {}
        self.recovered: list[Callable[[], Awaitable[None]]] = []

    def on_recover(self, callback: Callable[[], Awaitable[None]]) -> None:
        self.recovered.append(callback)

    def on_recovery_restart(self, callback: Callable[[], Awaitable[None]]) -> None:
        """A simulated recovery never starts again by itself."""


class SimulatedFaust:
    """One worker's Faust. `losing`: the part of fetches after which something is lost, or comes again."""

    def __init__(
        self, process: Process, broker: Broker, group: Group, identity: str, losing: float, agents: Mapping[str, Any]
    ) -> None:
        self._process = process
        self._broker = broker
        self._group = group
        self._identity = identity
        self._losing = losing
        self._agents = agents
        self._chance = process.world.chance
        self.table = Table()
        self.on_partitions_revoked = Signal()
        self.consumer_generation_id = -1
        self.rebalancing_count = 0
        self.rebalancing = True
        self.given = 0
        self.member: Membership | None = None
        self.numbers: list[int] = []
        self.position: dict[tuple[str, int], int] = {}
        self.heard_end: dict[tuple[str, int], int] = {}
        self.held: set[tuple[str, int]] = set()

    async def run(self) -> None:
        """Until it is fenced."""
        working: asyncio.Future[None] | None = None
        with contextlib.suppress(asyncio.CancelledError):
            while True:
                self.member = await self._group.join(self._identity, self._process)
                self.consumer_generation_id = self.member.generation
                self.numbers = self.member.numbers
                self.position = {
                    (topic, number): self._group.committed.get((topic, number), self._broker.logs[topic][number].begin)
                    for topic in self._agents
                    for number in self.numbers
                }
                self.heard_end, self.held = {}, set()
                if working is not None:
                    working.cancel()  # not earlier: a recovery may end after the revocation that should have interrupted it
                self.rebalancing = False
                self.given += 1
                working = asyncio.ensure_future(self._work(self.consumer_generation_id))
                while self._group.heartbeat(self.member):  # noqa: ASYNC110 - it beats until it is answered otherwise
                    await asyncio.sleep(_HEARTBEAT_S)
                self.rebalancing = True
                self.rebalancing_count += 1
                for revoked in self.on_partitions_revoked.connected:
                    await revoked()
                self.numbers = []

    async def _work(self, generation: int) -> None:
        await self._recover()
        fetching = asyncio.ensure_future(self._fetch_for_ever(generation))
        try:
            for recovered in self.table.recovered:
                await recovered()
            await fetching
        finally:
            fetching.cancel()

    async def _recover(self) -> None:
        """Read the changelog of what is ours, up to where it ended when this began."""
        topic, numbers = self._broker.topics.state, self.numbers
        ends = {number: self._broker.logs[topic][number].end for number in numbers}
        self.table.read_to = {number: at for number, at in self.table.read_to.items() if number in numbers}
        for number in numbers:
            await asyncio.sleep(self._chance.random() * 0.1)
            log, begin = self._broker.logs[topic][number], self.table.read_to.get(number, 0)
            batch = [one for one in log.read(begin, len(log.entries)) if one.offset < ends[number]]
            events: Any = [Event(self._fetched(topic, number, entry)) for entry in batch]
            self.table.newest.apply_changelog_batch(events, bytes, bytes)
            self.table.read_to[number] = ends[number]
        await self.table.newest.on_recovery_completed({(topic, number) for number in numbers}, set())  # type: ignore[misc]

    async def _fetch_for_ever(self, generation: int) -> None:
        fetched = True
        while True:
            await asyncio.sleep(self._chance.uniform(*(_FETCH_S if fetched else _IDLE_S)))
            fetched = False
            if not self._broker.up:
                continue
            for topic, receive in self._agents.items():
                for number in self.numbers:
                    if (topic, number) not in self.held and generation == self.consumer_generation_id:
                        fetched |= self._fetch(topic, number, receive)

    def _fetch(self, topic: str, number: int, receive: Callable[[Any], None]) -> bool:
        log, place = self._broker.logs[topic][number], (topic, number)
        self.heard_end[place] = log.end
        self.position[place] = max(self.position[place], log.begin)
        found = log.read(self.position[place], self._chance.randint(1, _FETCHED))
        if found and self._losing and self._chance.random() < self._losing:
            found = self._disturbed(found)
        for entry in found:
            receive(self._fetched(topic, number, entry))
        if found:
            self.position[place] = found[-1].offset + 1
            self._broker.fetched_to[place] = max(self._broker.fetched_to.get(place, 0), self.position[place])
        return bool(found)

    def _disturbed(self, found: list[Entry]) -> list[Entry]:
        """Lose the first ones, or some in the middle, or give some twice."""
        cut = self._chance.randint(1, len(found))
        return self._chance.choice(
            (found[cut:] or found[-1:], found[: cut - 1] + found[cut:] or found, found + found[:cut])
        )

    def _fetched(self, topic: str, number: int, entry: Entry) -> Fetched:
        generation = self.consumer_generation_id
        return Fetched(topic, number, entry.offset, entry.at_ms / 1000, entry.key, entry.value, generation)


class SimulatedConsumer:
    """What `worker.faust.consumer.FaustConsumer` is to a worker."""

    def __init__(self, app: SimulatedFaust, topic: str) -> None:
        self._app = app
        self.topic = topic
        self.commit_metadata = ""
        self.is_member = True
        self.recovered_offsets = 0

    @property
    def generation(self) -> int:
        return self._app.consumer_generation_id

    @property
    def rebalance(self) -> int:
        return self._app.rebalancing_count

    @property
    def rebalancing(self) -> bool:
        return self._app.rebalancing

    def on_revoked(self, callback: Callable[[], Awaitable[None]]) -> None:
        self._app.on_partitions_revoked.connect(callback)

    @property
    def assignment_epoch(self) -> tuple[int, int] | None:
        return None if self._app.rebalancing else (self._app.given, self._app.rebalancing_count)

    def assigned(self) -> set[int]:
        return set(self._app.numbers)

    async def is_current(self) -> bool:
        """A group that rebalances still answers that it knows its member."""
        await asyncio.sleep(0)
        member, group = self._app.member, self._app._group
        if member is None or group.members.get(member.identity) is not member:
            return False
        return group.heartbeat(member) or group.rebalancing

    def pause(self, partition: int) -> None:
        self._app.held.add((self.topic, partition))

    def resume(self, partition: int) -> None:
        self._app.held.discard((self.topic, partition))

    def end(self, partition: int) -> int | None:
        return self._app.heard_end.get((self.topic, partition))

    async def seek(self, partition: int, offset: int) -> None:
        await asyncio.sleep(0)
        if partition in self.assigned():
            self._app.position[self.topic, partition] = offset

    async def commit(self, offsets: Mapping[int, int]) -> dict[int, int] | None:
        wanted = {partition: offset for partition, offset in offsets.items() if partition in self.assigned()}
        if not wanted or self._app.member is None:
            return {}
        return wanted if self._app._group.commit(self._app.member, self.topic, wanted) else None
