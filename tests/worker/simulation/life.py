"""One process of a simulated worker: the real assignment, partitions, senders and ledger sink with a simulated Faust."""

import asyncio
import contextlib
from collections import Counter, defaultdict
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Protocol, cast

import msgspec

from streamgauge.core.record import Record
from streamgauge.metrics import table
from streamgauge.worker.assignment import Assignment
from streamgauge.worker.dead_letters import DeadLetters
from streamgauge.worker.faults import WorkerError
from streamgauge.worker.ledger_sink import LedgerSink
from streamgauge.worker.settings import RecordStore, Stored, WorkerSettings
from tests.worker.simulation.broker import Broker, SimulatedLog, SimulatedProducer
from tests.worker.simulation.faust_app import SimulatedConsumer, SimulatedFaust
from tests.worker.simulation.group import Fenced, Group
from tests.worker.simulation.world import Process, World


class Observed:
    """The metrics of one life. `sums`: what is counted in parts, such as seconds, by name and label."""

    def __init__(self) -> None:
        self.sums: defaultdict[str, float] = defaultdict(float)
        self.streams: Counter[str] = Counter()
        self.counts: Counter[str] = Counter()

    def observe(self, record: Record) -> None:
        self.streams[record.stream_id] += 1

    def add(self, name: str, value: float = 1, **labels: object) -> None:
        self.counts[name] += int(value)
        for label in labels.values():
            self.counts[f"{name}:{label}"] += int(value)
            self.sums[f"{name}:{label}"] += value

    def set(self, name: str, value: float, **_labels: object) -> None:
        self.counts[name] = int(value)

    def set_all(self, name: str, values: Mapping[str | None, float]) -> None:
        self.counts[name] = int(sum(values.values()))

    def unset(self, name: str, **_labels: object) -> None:
        self.counts.pop(name, None)

    def add_counts(self, counts: Mapping[str, int]) -> None:
        self.counts.update(counts)


class _Id(msgspec.Struct):
    stream_id: str


_ID = msgspec.json.Decoder(_Id)


class AnyShelf(RecordStore, Protocol):
    """Where records rest. `records`: by stream id; `refusing`: the part of inserts that fail."""

    refusing: float

    @property
    def records(self) -> dict[str, bytes]: ...


class Shelf:
    """Where records rest: the first one of a stream stays, as the contract of ledgers says."""

    def __init__(self, world: World, refusing: float = 0.0) -> None:
        self._world = world
        self.refusing = refusing
        self.records: dict[str, bytes] = {}

    def insert(self, records: Sequence[bytes]) -> Stored:
        if self._world.chance.random() < self.refusing:
            raise OSError("the disk is full")
        new = same = different = 0
        for record in records:
            kept = self.records.setdefault(_ID.decode(record).stream_id, record)
            new, same, different = new + (kept is record), same + (kept == record), different + (kept != record)
        return Stored(new, same - new, different, ())


class Life:
    """One worker process. `fault`: why it ended by itself. `ended`: it is gone, whatever the reason."""

    def __init__(
        self,
        broker: Broker,
        group: Group,
        shelf: RecordStore,
        settings: WorkerSettings,
        identity: str,
        losing: float,
    ) -> None:
        self.process = Process(broker.world)
        self.metrics = Observed()
        self.fault: WorkerError | None = None
        self.fenced = False
        self.stopping = False
        self.identity = identity
        producer = cast(Any, SimulatedProducer(broker, self.process))
        log = cast(Any, SimulatedLog(broker, group.committed))
        metrics = cast(Any, self.metrics)
        self.assignment = Assignment(settings, producer, metrics, self._fail)
        self._storing = LedgerSink(settings, shelf, metrics, self._fail)
        agents = {settings.topics.segments: self.assignment.receive, settings.topics.records: self._storing.receive}
        self.app: Any = SimulatedFaust(self.process, broker, group, identity, losing, agents)
        self._table = cast(Any, self.app.table)
        self._topics = settings.topics
        self._log = log
        burying = cast(Any, SimulatedProducer(broker, self.process))
        self._dead_letters = DeadLetters(burying, settings.topics, metrics)
        self._group = group
        self._drain_s = settings.drain_timeout
        self.process.start(self._run())

    @property
    def ended(self) -> bool:
        return not self.process.alive

    @property
    def works(self) -> bool:
        """It has its partitions, and takes messages."""
        return not self.ended and not self.process.frozen and self.assignment.ready

    @property
    def open_streams(self) -> int:
        """What this worker says is open."""
        self.assignment.report()
        return self.metrics.counts[table.OPEN_STREAMS.name]

    def kill(self) -> None:
        self.process.kill()
        self._storing.close()

    def freeze(self) -> None:
        self.process.frozen = True

    def wake(self) -> None:
        self.process.frozen = False

    def at_send(self, topic: str, count: int, what: Callable[[], object]) -> None:
        """Let something happen to it at the next send but `count` to a topic, before that has left the process."""
        left = [count]

        def look(sent_to: str) -> None:
            left[0] -= sent_to == topic
            if left[0] < 0:
                self.process.has_sent = lambda topic: None
                what()

        self.process.has_sent = look

    def stop(self) -> None:
        """SIGTERM: drain and end."""
        if not self.ended and not self.stopping:
            self.stopping = True
            self.process.start(self._stop())

    def _fail(self, fault: WorkerError) -> None:
        if self.fault is None:
            self.fault = fault
            self.process.world.after(0.1, self.kill)

    async def _run(self) -> None:
        segments, records = (
            cast(Any, SimulatedConsumer(self.app, topic)) for topic in (self._topics.segments, self._topics.records)
        )
        acknowledgers = [
            self.assignment.connect(segments, self._table, self._log, self._dead_letters),
            self._storing.connect(records, self._table, self._log, self._dead_letters),
        ]
        jobs = [self.app.run(), self._storing.run(), *(acknowledger.run() for acknowledger in acknowledgers)]
        try:
            await asyncio.gather(*jobs)
        except Fenced:
            self.fenced = True
            self.process.world.after(0, self.kill)

    async def _stop(self) -> None:
        work = asyncio.gather(self.assignment.drain(), self._storing.drain())
        with contextlib.suppress(TimeoutError):
            await asyncio.wait_for(work, self._drain_s)
        await self.assignment.discard()
        self._group.leave(self.app.member)
        self.process.world.after(0, self.kill)
