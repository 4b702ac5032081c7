"""The worker's use of Faust's consumer beyond its public interface, with the reasons.

Written for faust-streaming 0.12 to 0.15 and aiokafka 0.13 to 0.14. No public report.

tests/worker/faust/test_assumptions.py has a test for each assumption about Faust's internals.

The worker commits offsets itself. Faust's `ack` can commit past messages that were not processed: Faust's stream skips and
acknowledges a message that arrives across a rebalance, and Faust takes an offset one above the committed one for its
successor. So the topics are declared without acks, and a checkpoint commits the offset that it makes durable.
"""

import asyncio
import contextlib
from collections.abc import Awaitable, Callable, Mapping
from typing import Any

import faust
from aiokafka import AIOKafkaConsumer  # type: ignore[import-untyped]
from aiokafka.errors import IllegalStateError, KafkaConnectionError, KafkaError  # type: ignore[import-untyped]
from aiokafka.structs import OffsetAndMetadata, TopicPartition  # type: ignore[import-untyped]
from faust.exceptions import ConsumerNotStarted
from faust.types import TP, AppT


class FaustConsumer:
    """The app's Kafka consumer, for one topic."""

    def __init__(self, app: faust.App, topic: str) -> None:
        self._app = app
        self.topic = topic
        self.commit_metadata = ""  # stored with each committed offset
        self._is_assigned, self._assignments = False, 0
        self._revoked_generation: int | None = None
        app.on_partitions_revoked.connect(self._on_revoked)
        app.on_partitions_assigned.connect(self._on_assigned)

    async def _on_revoked(self, _app: Any, /, *_partitions: Any, **_: Any) -> None:
        self._is_assigned, self._revoked_generation = False, self.generation

    async def _on_assigned(self, _app: Any, /, *_partitions: Any, **_: Any) -> None:
        self._is_assigned, self._assignments = True, self._assignments + 1

    def on_revoked(self, callback: Callable[[], Awaitable[None]]) -> None:
        """Call `callback` when a rebalance begins. Kafka's classic protocol revokes all partitions, even those that the
        member is assigned again.
        """

        async def revoked(_app: Any, /, *_partitions: Any, **_: Any) -> None:
            await callback()

        self._app.on_partitions_revoked.connect(revoked)

    def _tp(self, partition: int) -> TP:
        return TP(self.topic, partition)

    @property
    def rebalancing(self) -> bool:
        """Whether Faust reports that a rebalance is in progress."""
        return bool(self._app.rebalancing)

    @property
    def generation(self) -> int:
        """The group's generation as of the last assignment."""
        return int(self._app.consumer_generation_id)

    @property
    def rebalance(self) -> int:
        """The number of rebalances that have begun."""
        return int(self._app.rebalancing_count)

    @property
    def assignment_epoch(self) -> tuple[int, int, int] | None:
        """Identifies the current assignment; changes with every new one. None from a rebalance's start to the assignment.

        A recovery may end while it is None: Faust interrupts a recovery only at the next assignment.
        """
        if not self._is_assigned and self.generation == self._revoked_generation:
            return None
        return self.generation, self._assignments, self.rebalance

    def assigned(self) -> set[int]:
        """The assigned partitions; empty until Faust's consumer thread runs, which first waits for the broker."""
        try:
            assignment = self._app.consumer.assignment()
        except ConsumerNotStarted:
            return set()
        return {tp.partition for tp in assignment if tp.topic == self.topic}

    def pause(self, partition: int) -> None:
        """Stop fetching a partition. Messages already fetched are still delivered; `pause_partitions` would lose them."""
        self._faust_consumer.hold(self._tp(partition))

    def resume(self, partition: int) -> None:
        """Fetch the partition again."""
        self._faust_consumer.release(self._tp(partition))

    def end(self, partition: int) -> int | None:
        """The end of the partition's log as of the last fetch; None if not known yet, or if not assigned."""
        try:
            return self._app.consumer.highwater(self._tp(partition))
        except (AssertionError, IllegalStateError, KeyError):
            return None

    async def seek(self, partition: int, offset: int) -> None:
        """Continue reading at this offset. Faust's own `seek` calls aiokafka from the wrong thread."""
        tp = self._tp(partition)
        thread = self._faust_consumer._thread
        if partition in self.assigned():
            async with self._faust_consumer.position_lock:
                with contextlib.suppress(KafkaConnectionError):  # a stopped consumer reads no more
                    await self._call(_seek, thread._ensure_consumer(), tp, offset)
                self._faust_consumer._read_offset[tp] = offset or None  # Faust drops messages below it

    async def commit(self, offsets: Mapping[int, int]) -> dict[int, int] | None:
        """Commit the next offset to read, by partition. None if a rebalance came first, or the broker is unreachable.

        Returns the offsets that were committed: partitions that are not assigned any more are left out.
        """
        ours = self.assigned()
        wanted = {
            TopicPartition(self.topic, partition): OffsetAndMetadata(offset, self.commit_metadata)
            for partition, offset in offsets.items()
            if partition in ours
        }
        if not wanted:
            return {}
        try:
            await self._call(self._faust_consumer._thread._ensure_consumer().commit, wanted)
        except KafkaError:  # a rebalance came first, or the broker is unreachable
            return None
        return {tp.partition: committed.offset for tp, committed in wanted.items()}

    def leave_on_stop(self) -> None:
        """Leave the group when the consumer stops, so that other members take over at once.

        aiokafka sends LeaveGroup for dynamic members only. The broker accepts a static member's member id as well
        (`leave-group` in Kafka's GroupMetadataManager), and a successor with our instance id has another member id.
        """
        with contextlib.suppress(AttributeError):  # it never joined
            self._coordinator._group_instance_id = None

    @property
    def is_member(self) -> bool:
        """Whether aiokafka still maintains the membership: its coordination task runs without an error."""
        with contextlib.suppress(AttributeError):
            return self.membership_error is None and not self._coordinator._coordination_task.done()
        return False

    @property
    def membership_error(self) -> BaseException | None:
        """The error with which aiokafka stopped maintaining the membership; None if there is none.

        aiokafka raises its error in the fetches that wait at that moment, and then keeps it until the error is read. Faust
        does not fetch while it delivers messages, and never reads the kept error, so it may not notice the failure.
        """
        with contextlib.suppress(AttributeError):  # it never joined
            task = self._coordinator._coordination_task
            ended = task.exception() if task.done() and not task.cancelled() else None
            kept: BaseException | None = self._coordinator._pending_exception or ended
            return kept
        return None

    async def is_current(self) -> bool:
        """Send a heartbeat; whether the group still accepts this member in the generation of its assignment."""
        coordinator = self._faust_consumer._thread._ensure_consumer()._coordinator
        try:
            known = await self._call(coordinator._do_heartbeat)
        except KafkaError:
            return False
        return bool(known) and coordinator.generation == self.generation

    async def _call(self, work: Callable[..., Awaitable[Any]], *arguments: Any) -> Any:
        """Run `work` in the thread of aiokafka's consumer, which has an event loop of its own.

        Raises KafkaConnectionError if that thread has ended: a worker that stops may end it while a recovery completes.
        """
        try:
            return await self._faust_consumer._thread.call_thread(work, *arguments)
        except RuntimeError as error:
            if self.loop is None or self.loop.is_closed():
                raise KafkaConnectionError("the consumer has stopped") from error
            raise

    @property
    def loop(self) -> asyncio.AbstractEventLoop | None:
        """The event loop of aiokafka's consumer, in a thread of its own; None until Faust has created the thread."""
        thread = self._faust_consumer._thread
        return thread.thread_loop if thread is not None else None

    @property
    def recovered_offsets(self) -> int:
        """The sum of the recovery's offsets; it grows while the changelog is read."""
        recovery: Any = self._app.tables.recovery  # type: ignore[attr-defined]
        return sum(offset or 0 for offset in recovery.active_offsets.values())

    @property
    def _coordinator(self) -> Any:
        return self._faust_consumer._thread._consumer._coordinator

    @property
    def _faust_consumer(self) -> Any:
        return self._app.consumer


def recovery_is_whole(app: AppT) -> bool:
    """Whether the changelog was read to its end, when Faust reports that the table is recovered.

    Faust also reports that after a rebalance or the worker's stop interrupted the recovery: while it waits for the end of
    the changelog, `Recovery._restart_recovery` swallows RebalanceAgain and ServiceStopped.

    A rebalance sets first the app's new generation and partitions, and later the recovery's new changelogs. A recovery that
    ends in between has read the changelogs of the earlier assignment: the state of new partitions is missing.
    """
    recovery: Any = app.tables.recovery  # type: ignore[attr-defined]
    is_broken_off = recovery.signal_recovery_start.is_set() or recovery.should_stop
    is_of_this_assignment = recovery._generation_id == app.consumer_generation_id
    return is_of_this_assignment and not is_broken_off and not recovery.need_recovery()


async def _seek(consumer: AIOKafkaConsumer, tp: TP, offset: int) -> None:
    with contextlib.suppress(IllegalStateError):  # the partition was revoked in the meantime
        consumer.seek(TopicPartition(tp.topic, tp.partition), offset)
