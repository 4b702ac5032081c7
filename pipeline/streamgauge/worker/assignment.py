"""The partitions of the segments topic that this worker holds: given, recovered, taken away, drained."""

import asyncio
from typing import Any

import faust

from streamgauge.broker.producer import Message, Producer
from streamgauge.core.assembler import Assembler, Limits
from streamgauge.deadletter import Stage, letter
from streamgauge.metrics import table
from streamgauge.worker.acknowledging import Acknowledger
from streamgauge.worker.faults import BugError, LogMadeAnewError, WorkerError
from streamgauge.worker.log import Log
from streamgauge.worker.outbox import Outbox
from streamgauge.worker.partition import Partition, Surroundings
from streamgauge.worker.place import Reading, starts
from streamgauge.worker.seams import Consumer
from streamgauge.worker.settings import WorkerMetrics, WorkerSettings
from streamgauge.worker.store import StateTable


class Assignment:
    """Connect `on_revoked` and `on_recovered` to Faust. `fail` is told of what ends the worker."""

    def __init__(self, settings: WorkerSettings, producer: Producer, metrics: WorkerMetrics, fail: Any) -> None:
        self._settings = settings
        self._producer = producer
        self._metrics = metrics
        self._fail = fail
        self._partitions: dict[int, Partition] = {}
        self._recovered = False

    def connect(self, app: faust.App, state: StateTable, log: Log) -> Acknowledger:
        """Take part in the app's rebalances; gives what commits offsets, to be run beside."""
        self._app, self._state = app, state
        self._consumer = Consumer(app, self._settings.topics.segments)
        self._reading = Reading(self._consumer, log)
        self._acknowledger = Acknowledger(self._consumer)
        app.on_partitions_revoked.connect(self.on_revoked)
        state.on_recover(self.on_recovered)
        return self._acknowledger

    @property
    def ready(self) -> bool:
        """Whether the partitions are given and their state is recovered."""
        return self._recovered and not self._app.rebalancing

    def receive(self, message: Any) -> None:
        """A message of the segments topic. One of a partition that was taken away is dropped: its owner reads it."""
        partition = self._partitions.get(message.partition)
        if partition is not None and message.generation_id == self._consumer.generation:
            partition.put(message)

    async def on_revoked(self, _app: Any, /, *_revoked: Any, **_: Any) -> None:
        """A rebalance begins. Kafka's classic protocol takes all partitions away, also those that come back."""
        self._recovered = False
        gone, self._partitions = self._partitions, {}
        self._acknowledger.forget()
        await asyncio.gather(*(partition.drop() for partition in gone.values()))

    async def on_recovered(self) -> None:
        """Faust has read the changelog of what is ours. Faust swallows what is raised here, so nothing may be."""
        try:
            await self._load()
        except WorkerError as error:
            self._fail(error)
        except Exception as error:  # noqa: BLE001 - swallowed by Faust, a worker without its state would run on
            self._fail(BugError(f"recovery: {error!r}"))

    async def _load(self) -> None:
        rebalance = self._consumer.rebalance
        found = await starts(self._reading)
        if rebalance != self._consumer.rebalance:
            return  # the next one is under way
        for number, (committed, begins, ends) in found.items():
            partition = self._recover(number, committed, begins, ends)
            self._partitions[number] = partition
            partition.start()
        self._recovered = True

    def _recover(self, number: int, committed: int, begins: int, ends: int) -> Partition:
        assembler = Assembler(Limits(abandon_after_s=self._settings.abandon_after_s, stall_s=self._settings.stall_s))
        entries = self._state.data.entries(number)  # type: ignore[attr-defined]
        for entry, value in entries.items():
            assembler.load(entry, value)
        applied = max((assembler.applied_offset(entry) for entry in entries), default=-1)
        if applied >= ends or committed > ends:
            topic = f"{self._settings.topics.segments}/{number}"
            raise LogMadeAnewError(
                f"{topic} ends at offset {ends}, but {max(applied + 1, committed)} messages of it are applied already: "
                "it was made anew. Give the worker another prefix, or delete the state topic and the group's offsets"
            )
        outbox = Outbox(self._producer, self._instead)
        next_offset = max(committed, begins)
        partition = Partition(
            number, assembler, outbox, self._surroundings(), next_offset=next_offset, known=list(entries)
        )
        if begins > committed:
            partition.lost(begins - committed)
        return partition

    def _instead(self, message: Message) -> Message | None:
        """A record that the records topic refuses goes to the dead letters; nothing stands for anything else."""
        topics = self._settings.topics
        if message.topic != topics.records:
            return None
        self._metrics.add(table.DEAD_LETTERS.name, stage=Stage.RECORD.value, error_class="refused")
        source = _Source(topics.records, message.key)
        return letter(topics, source, message.value, Stage.RECORD, "refused")

    def _surroundings(self) -> Surroundings:
        return Surroundings(
            self._settings.topics,
            self._reading,
            self._metrics,
            self._acknowledger.done,
            self._fail,
            self._settings.checkpoint_s,
            self._settings.tick_s,
        )

    async def drain(self) -> None:
        """Apply what is there, make it durable, acknowledge it."""
        await asyncio.gather(*(partition.finish() for partition in self._partitions.values()))
        await self._acknowledger.flush()
        self._partitions = {}

    def report(self) -> None:
        """Say how much is open."""
        partitions = self._partitions.values()
        self._metrics.set(table.OPEN_STREAMS.name, sum(partition.open_streams for partition in partitions))
        self._metrics.set(table.WORKER_PARTITIONS.name, len(partitions) if self.ready else 0)


class _Source:
    """A record that never had a place in a log."""

    partition = offset = -1

    def __init__(self, topic: str, key: bytes | None) -> None:
        self.topic, self.key = topic, key
