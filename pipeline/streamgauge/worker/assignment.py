"""The partitions of the segments topic that are assigned to this worker: their recovery, revocation and draining."""

import asyncio
from collections import Counter
from collections.abc import Callable, Mapping
from typing import Any, NamedTuple

from streamgauge.core.assembly.assembler import PRODUCERS, Assembler
from streamgauge.core.assembly.state_codec import offset_of
from streamgauge.kafka.dead_letters import Stage
from streamgauge.kafka.producer import Message, Producer
from streamgauge.live.view import LiveView
from streamgauge.metrics import table
from streamgauge.metrics.prometheus import Metrics
from streamgauge.runtime.faults import described
from streamgauge.worker.confirmed_sender import ConfirmedSender
from streamgauge.worker.dead_letters import DeadLetters
from streamgauge.worker.faults import NEW_LOG_REMEDY, BugError, LogRecreatedError, NewerStateFoundError, WorkerError
from streamgauge.worker.faust.consumer import FaustConsumer
from streamgauge.worker.faust.store import StateTable
from streamgauge.worker.log import Log
from streamgauge.worker.offset_commits import OffsetCommits
from streamgauge.worker.partition import Partition, PartitionContext
from streamgauge.worker.partition_offsets import ReadContext, load_start_offsets
from streamgauge.worker.settings import WorkerSettings
from streamgauge.worker.topic_identity import TopicIdentityCheck
from streamgauge.worker.watchdog.rules import PartitionProgress, TopicPartition

# How often silent streams are counted (seconds): a tap's clock arrives every 5 s at least.
_SILENCE_EVERY_S = 5.0


class Assignment:
    """The worker's present assignment. Connect it to Faust with `connect`.

    `fail` is called with the WorkerError that has to end the worker.
    """

    def __init__(
        self,
        settings: WorkerSettings,
        producer: Producer,
        metrics: Metrics,
        fail: Any,
        watch: LiveView | None = None,
    ) -> None:
        self._settings = settings
        self._producer = producer
        self._metrics = metrics
        self._fail = fail
        self._watch = watch
        self._partitions: dict[int, Partition] = {}
        self._gauges = PartitionGauges(metrics)
        self._recovered = self._draining = False
        self._silence_at = float("-inf")  # when silent streams were last counted

    def connect(
        self,
        consumer: FaustConsumer,
        state: StateTable,
        log: Log,
        dead_letters: DeadLetters,
        identity_check: Callable[[FaustConsumer], TopicIdentityCheck] | None = None,
    ) -> OffsetCommits:
        """Register for the consumer's rebalances. Returns the OffsetCommits, whose `run` the caller has to start.

        `identity_check`: creates the check that the partitions are those that the state belongs to; None for no check.
        """
        self.consumer, self._state, self._dead_letters = consumer, state, dead_letters
        self._reading = ReadContext(self.consumer, log)
        self._commits = OffsetCommits(self.consumer, self._metrics)
        self._identity_check = identity_check(self.consumer) if identity_check else None
        consumer.on_revoked(self.discard)
        state.on_recover(self.on_recovered)
        state.on_recovery_restart(self.discard)
        return self._commits

    @property
    def partitions(self) -> int:
        """The number of partitions assigned and recovered."""
        return len(self._partitions)

    @property
    def assemblers(self) -> dict[int, Assembler]:
        """The assemblers of the assigned and recovered partitions, by partition."""
        return {number: partition.assembler for number, partition in self._partitions.items()}

    @property
    def ready(self) -> bool:
        """Whether the partitions are assigned, their state is recovered, and messages are accepted."""
        return self.unready is None

    @property
    def unready(self) -> str | None:
        """The reason why no messages are accepted, as a part of a sentence; None if they are."""
        if self._draining:
            return "it is stopping"
        if not self._recovered:
            return "it has no assignment yet, or has not recovered the state of its partitions"
        if not self.consumer.is_member:
            return "it is not a member of its consumer group"
        return "its consumer group is rebalancing" if self.consumer.rebalancing else None

    # --- for the progress probe -------------------------------------------------------------------------------------

    @property
    def topic(self) -> str:
        """The segments topic."""
        return self.consumer.topic

    @property
    def is_assigned(self) -> bool:
        """Whether the state is recovered, and the group has no rebalance in progress."""
        return self._recovered and not self.consumer.rebalancing and self.consumer.is_member

    def recovery_progress(self) -> tuple[int, ...]:
        """The number of the rebalance, and the offsets of the state recovered in it; 0 when it is complete."""
        return self.consumer.rebalance, 0 if self._recovered else self.consumer.recovered_offsets

    def unread(self) -> int:
        """The number of messages not read yet, by the ends that the consumer last received."""
        return sum(partition.unread for partition in self._partitions.values())

    def tries(self) -> dict[int, int]:
        """The number of retries of each assigned partition."""
        return {number: partition.tries for number, partition in self._partitions.items()}

    # --- partitions come and go -------------------------------------------------------------------------------------

    def receive(self, message: Any) -> None:
        """Accept a message of the segments topic. Drops messages of revoked partitions: their new owner reads them."""
        partition = self._partitions.get(message.partition)
        if partition is not None and message.generation_id == self.consumer.generation:
            partition.put(message)

    async def discard(self) -> None:
        """Discard the recovered partitions: they are revoked, or their recovery starts again."""
        self._recovered = False
        await self._drop_partitions()

    async def _drop_partitions(self) -> None:
        revoked, self._partitions = self._partitions, {}
        self._commits.forget()
        self._gauges.forget()
        await asyncio.gather(*(partition.drop() for partition in revoked.values()))

    async def on_recovered(self) -> None:
        """Called when Faust has read the changelog of our partitions. Must not raise: Faust would swallow the error."""
        try:
            await self._load()
        except WorkerError as error:
            self._fail(error)
        except Exception as error:  # noqa: BLE001 - Faust would swallow it, and the worker run without its state
            self._fail(BugError(f"internal error in the recovery: {described(error)}", error))

    async def _load(self) -> None:
        await self._drop_partitions()
        epoch = self.consumer.assignment_epoch
        starts = await load_start_offsets(self._reading)
        if epoch is None or epoch != self.consumer.assignment_epoch:
            return  # the next rebalance has begun
        partitions = {number: self._recover(number, *start) for number, start in starts.items()}
        if not await self._match_state(starts, partitions) or epoch != self.consumer.assignment_epoch:
            return
        self._partitions = partitions
        for number, (committed, _, end) in starts.items():
            self._gauges.assigned(number, committed, end)
        for partition in partitions.values():
            partition.start()
        self._recovered = True

    async def _match_state(
        self, starts: Mapping[int, tuple[int, int, int]], partitions: Mapping[int, Partition]
    ) -> bool:
        """Whether to start the partitions; False if the next rebalance has begun.

        Raises WorkerError if the state does not belong to these logs.
        """
        if self._identity_check is None:
            return True
        entries = {number: self._state.newest.entries(number).values() for number in starts}
        applied = {number: max(map(offset_of, values), default=None) for number, values in entries.items()}
        resume = {
            number: partitions[number].next_offset
            for number, (committed, *_) in starts.items()
            if self._settings.segments_id and not committed and applied[number] is not None
        }
        return await self._identity_check.check(starts, applied, resume)

    def _recover(self, number: int, committed: int, begins: int, ends: int) -> Partition:
        assembler = Assembler(self._settings)
        store = self._state.newest
        if number in store.newer:
            raise NewerStateFoundError(f"{self._settings.topics.state}/{number}: {store.newer[number]}")
        entries = store.entries(number)
        for entry, value in entries.items():
            assembler.load(entry, value)
        applied = max((assembler.applied_offset(entry) for entry in entries), default=-1)
        if applied >= ends or committed > ends:
            topic = f"{self._settings.topics.segments}/{number}"
            raise LogRecreatedError(
                f"{topic} ends at offset {ends}, but {max(applied + 1, committed)} messages of it are applied already: "
                f"the topic was recreated. {NEW_LOG_REMEDY}"
            )
        sender = ConfirmedSender(self._producer, self._store_refused)
        first_unprocessed = max(committed, 1 + assembler.applied_offset(PRODUCERS))
        # If the group's offsets have expired, only the state holds the offset at which reading continues.
        start = first_unprocessed if self._settings.segments_id and not committed else committed
        return Partition(
            number,
            assembler,
            sender,
            self._partition_context(),
            acknowledged=committed,
            next_offset=max(start, begins),
            lost=max(0, begins - first_unprocessed),
            known=list(entries),
        )

    async def _store_refused(self, message: Message) -> bool:
        """Write a record that the records topic refuses to the dead letter topic. False for any other message."""
        if message.topic != self._settings.topics.records:
            return False
        await self._dead_letters.write([_Refused(message.topic, message.key, message.value)], Stage.RECORD, "refused")
        return True

    def _partition_context(self) -> PartitionContext:
        return PartitionContext(
            self._settings.topics,
            self._reading,
            self._dead_letters,
            self._metrics,
            self._commits.done,
            self._fail,
            self._settings.checkpoint_s,
            self._settings.tick_s,
            self._watch,
        )

    async def drain(self) -> None:
        """Apply the messages received so far, make the results durable, and commit the offsets."""
        self._draining = True
        await asyncio.gather(*(partition.finish() for partition in self._partitions.values()))
        await self._commits.flush()
        self._partitions = {}
        self._gauges.forget()

    def probed(self, progress: Mapping[TopicPartition, PartitionProgress]) -> None:
        """Take the progress of the partitions as the broker reports it, for their gauges."""
        self._gauges.probed({tp.partition: reached for tp, reached in progress.items() if tp.topic == self.topic})

    def report(self) -> None:
        """Set the metrics of open streams, of partitions and their progress, and of the partitions' time."""
        partitions = self._partitions.values()
        for number, partition in self._partitions.items():
            partition.add_seconds()
            self._gauges.update(number, self._commits.committed.get(number), self.consumer.end(number))
        self._metrics.set(table.OPEN_STREAMS.name, sum(partition.assembler.open_streams for partition in partitions))
        self._metrics.set(table.WORKER_PARTITIONS.name, len(partitions) if self.ready else 0)

    def report_silence(self, now: float) -> None:
        """Set the metric of silent streams, unless it was set a moment ago. `now`: monotonic seconds."""
        if now - self._silence_at < _SILENCE_EVERY_S:
            return
        self._silence_at = now
        silent: Counter[str | None] = Counter()
        for partition in self._partitions.values():
            silent.update(partition.assembler.silent_streams())
        self._metrics.set_all(table.SILENT_STREAMS.name, silent)


class _Refused(NamedTuple):
    """A record that the broker never accepted, so that it has no offset."""

    topic: str
    key: bytes | None
    value: bytes | None
    partition: int = -1
    offset: int = -1


class PartitionGauges:
    """Gauges of each assigned partition: its lag and its committed offset. They leave the page with the partition.

    The main loop sets them, so they do not depend on the partition's own task, which may wait without end for a topic that
    refuses its checkpoint. The lag does not depend on the consumer alone: while the partition's queue is full, the consumer
    fetches nothing, and the end that it knows stands still. So the end that the progress probe reads from the broker counts,
    too.
    """

    def __init__(self, metrics: Metrics) -> None:
        self._metrics = metrics
        self._committed: dict[int, int] = {}
        self._probed: dict[int, PartitionProgress] = {}

    def assigned(self, partition: int, committed: int, end: int) -> None:
        """Begin with a partition: its committed offset and its log's end, as they were read at the assignment."""
        self._committed[partition] = committed
        self._probed[partition] = PartitionProgress(committed, end)

    def probed(self, progress: Mapping[int, PartitionProgress]) -> None:
        """Take the result of a progress probe, by partition. Offsets without a message count as committed there."""
        self._probed.update({number: reached for number, reached in progress.items() if number in self._probed})

    def update(self, partition: int, committed: int | None, end: int | None) -> None:
        """Set the gauges. `committed`: the last committed offset; `end`: the end that the consumer knows; None if unknown."""
        probed = self._probed[partition]
        if committed is not None:
            self._committed[partition] = committed
        lag = max(end or 0, probed.end) - max(self._committed[partition], probed.committed)
        self._metrics.set(table.WORKER_LAG.name, max(0, lag), partition=partition)
        self._metrics.set(table.COMMITTED_OFFSET.name, self._committed[partition], partition=partition)

    def forget(self) -> None:
        """Remove the gauges of all partitions: they are revoked, or the worker stops."""
        for partition in self._committed:
            self._metrics.unset(table.WORKER_LAG.name, partition=partition)
            self._metrics.unset(table.COMMITTED_OFFSET.name, partition=partition)
        self._committed.clear()
        self._probed.clear()
