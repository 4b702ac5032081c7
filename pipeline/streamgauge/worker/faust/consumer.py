"""What the worker uses of Faust's consumer, beyond its public interface, each with its reason.

tests/worker/faust/test_assumptions.py has a test for each assumption about what is not public.

Acknowledging is done by committing offsets of our own. Faust's `ack` can pass what nobody has processed: a message that
slips through a rebalance is skipped by its stream and acknowledged, and an offset one above the committed one counts as
its successor. So the topics are declared without acks, and a checkpoint commits the offset that it makes durable.
"""

import asyncio
import contextlib
from collections.abc import Awaitable, Callable, Mapping
from typing import Any

import faust
from aiokafka import AIOKafkaConsumer  # type: ignore[import-untyped]
from aiokafka.errors import IllegalStateError, KafkaError  # type: ignore[import-untyped]
from aiokafka.structs import OffsetAndMetadata, TopicPartition  # type: ignore[import-untyped]
from faust.exceptions import ConsumerNotStarted
from faust.types import TP, AppT


class FaustConsumer:
    """The app's Kafka consumer, for one topic."""

    def __init__(self, app: faust.App, topic: str) -> None:
        self._app = app
        self.topic = topic
        self.commit_metadata = ""  # noted beside each offset that is committed
        self._is_given, self._given_times = False, 0
        self._taken_generation: int | None = None
        app.on_partitions_revoked.connect(self._taken)
        app.on_partitions_assigned.connect(self._given)

    async def _taken(self, _app: Any, /, *_partitions: Any, **_: Any) -> None:
        self._is_given, self._taken_generation = False, self.generation

    async def _given(self, _app: Any, /, *_partitions: Any, **_: Any) -> None:
        self._is_given, self._given_times = True, self._given_times + 1

    def on_revoked(self, callback: Callable[[], Awaitable[None]]) -> None:
        """Call `callback` when a rebalance begins. Kafka's classic protocol takes all partitions away, also those that the
        member is given again.
        """

        async def revoked(_app: Any, /, *_partitions: Any, **_: Any) -> None:
            await callback()

        self._app.on_partitions_revoked.connect(revoked)

    def _tp(self, partition: int) -> TP:
        return TP(self.topic, partition)

    @property
    def rebalancing(self) -> bool:
        """Whether a rebalance is under way, by Faust's word."""
        return bool(self._app.rebalancing)

    @property
    def generation(self) -> int:
        """The group's generation as of the last assignment."""
        return int(self._app.consumer_generation_id)

    @property
    def rebalance(self) -> int:
        """How many rebalances have begun."""
        return int(self._app.rebalancing_count)

    @property
    def assignment_epoch(self) -> tuple[int, int, int] | None:
        """Which gift of partitions holds: another one is another value. None from a rebalance's beginning to the next gift.

        A recovery may end in between: Faust breaks it off only when partitions are given again.
        """
        if not self._is_given and self.generation == self._taken_generation:
            return None
        return self.generation, self._given_times, self.rebalance

    def assigned(self) -> set[int]:
        """The partitions that are ours; none until Faust's thread runs, which waits for the broker."""
        try:
            given = self._app.consumer.assignment()
        except ConsumerNotStarted:
            return set()
        return {tp.partition for tp in given if tp.topic == self.topic}

    def pause(self, partition: int) -> None:
        """Fetch no more of a partition for now. What was fetched still comes: `pause_partitions` would lose it."""
        self._inner.on_buffer_full(self._tp(partition))

    def resume(self, partition: int) -> None:
        """Fetch it again."""
        self._inner.on_buffer_drop(self._tp(partition))

    def end(self, partition: int) -> int | None:
        """The offset of the next message to be written, as last heard; None if not heard yet, or not ours."""
        try:
            return self._app.consumer.highwater(self._tp(partition))
        except (AssertionError, IllegalStateError, KeyError):
            return None

    async def seek(self, partition: int, offset: int) -> None:
        """Go on reading at this offset. Faust's own `seek` calls aiokafka from the wrong thread."""
        tp = self._tp(partition)
        thread = self._inner._thread
        if partition in self.assigned():
            async with self._inner.turn:
                await thread.call_thread(_seek, thread._ensure_consumer(), tp, offset)
                self._inner._read_offset[tp] = offset or None  # what is below it, Faust drops

    async def commit(self, offsets: Mapping[int, int]) -> bool:
        """Commit the next offset to be read of each partition. False if the group has moved on, or the broker is away.

        Offsets of partitions that are not ours any more are left out.
        """
        ours = self.assigned()
        wanted = {
            TopicPartition(self.topic, partition): OffsetAndMetadata(offset, self.commit_metadata)
            for partition, offset in offsets.items()
            if partition in ours
        }
        if not wanted:
            return True
        thread = self._inner._thread  # aiokafka's consumer lives on a loop of its own
        try:
            await thread.call_thread(thread._ensure_consumer().commit, wanted)
        except KafkaError:  # the group has moved on, or the broker is away
            return False
        return True

    def leave_for_good(self) -> None:
        """Say goodbye to the group when the consumer stops, so that others take over at once.

        aiokafka says it for dynamic members only. The broker knows a static one by its member id as well
        (`leave-group` in Kafka's GroupMetadataManager), and a successor with our instance id has another member id.
        """
        with contextlib.suppress(AttributeError):  # it never joined
            self._coordinator._group_instance_id = None

    @property
    def is_member(self) -> bool:
        """Whether aiokafka still cares for the membership."""
        with contextlib.suppress(AttributeError):
            return self.gave_up is None and not self._coordinator._coordination_task.done()
        return False

    @property
    def gave_up(self) -> BaseException | None:
        """Why aiokafka does not care for the membership any more.

        It tells whoever waits for messages at that moment, and then waits until its error is fetched. Faust waits for
        messages, but not while it has some to hand on, and it never fetches the error: then nobody has heard.
        """
        with contextlib.suppress(AttributeError):  # it never joined
            task = self._coordinator._coordination_task
            ended = task.exception() if task.done() and not task.cancelled() else None
            unheard: BaseException | None = self._coordinator._pending_exception or ended
            return unheard
        return None

    async def is_current(self) -> bool:
        """Whether the group still knows us in the generation that gave us our partitions. It is asked now."""
        thread = self._inner._thread
        coordinator = thread._ensure_consumer()._coordinator
        try:
            known = await thread.call_thread(coordinator._do_heartbeat)
        except KafkaError:
            return False
        return bool(known) and coordinator.generation == self.generation

    @property
    def loop(self) -> asyncio.AbstractEventLoop | None:
        """The loop that aiokafka's consumer turns on, in a thread of its own; None until Faust has made that."""
        thread = self._inner._thread
        return thread.thread_loop if thread is not None else None

    @property
    def recovered_offsets(self) -> int:
        """Grows while the changelog is read."""
        recovery: Any = self._app.tables.recovery  # type: ignore[attr-defined]
        return sum(offset or 0 for offset in recovery.active_offsets.values())

    @property
    def _coordinator(self) -> Any:
        return self._inner._thread._consumer._coordinator

    @property
    def _inner(self) -> Any:
        return self._app.consumer


def recovery_is_whole(app: AppT) -> bool:
    """Whether the changelog was read to its end when Faust says that the table is recovered.

    Faust says it as well when a rebalance, or the worker's end, breaks off the reading: `Recovery._restart_recovery` swallows
    what should tell (RebalanceAgain, ServiceStopped) while it waits for the end of the changelog.

    A rebalance first gives the app its new generation and partitions, and then the recovery its new changelogs. A recovery
    that ends in between has read the changelogs of the earlier assignment: the state of new partitions is missing.
    """
    recovery: Any = app.tables.recovery  # type: ignore[attr-defined]
    is_broken_off = recovery.signal_recovery_start.is_set() or recovery.should_stop
    is_of_this_assignment = recovery._generation_id == app.consumer_generation_id
    return is_of_this_assignment and not is_broken_off and not recovery.need_recovery()


async def _seek(consumer: AIOKafkaConsumer, tp: TP, offset: int) -> None:
    with contextlib.suppress(IllegalStateError):  # taken away meanwhile
        consumer.seek(TopicPartition(tp.topic, tp.partition), offset)
