"""One partition of the segments topic: apply its messages in order, and make the results durable.

The steps of a checkpoint; each one begins when the previous one is confirmed:

    1. records and dead letters     sent before, when they arose
    2. the buckets that changed
    3. the producers entry
    4. the acknowledgement: OffsetCommits gets the offset after the last message
    5. metrics

So after a crash at any point, the worker reads only messages that it skips, or that produce the same record again.
"""

import asyncio
import contextlib
import logging
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from streamgauge.core.assembly.assembler import PRODUCERS, TICK_INSTANCE, Assembler
from streamgauge.core.capture.bundles import (
    OTHER_VERSION,
    UnreadableBundle,
    decode_bundle,
    encode_bundle,
    is_bundle,
    is_of_this_format,
)
from streamgauge.core.capture.segments import Bundle
from streamgauge.core.record import Record, encode_record
from streamgauge.kafka.dead_letters import Stage
from streamgauge.kafka.producer import Message
from streamgauge.kafka.shims.cancelling import end_in_background, end_task
from streamgauge.kafka.topics import Topics
from streamgauge.live.view import LiveView
from streamgauge.metrics import table
from streamgauge.metrics.prometheus import Metrics
from streamgauge.runtime.faults import described, report_fault
from streamgauge.worker.activity_clock import Activity, ActivityClock
from streamgauge.worker.confirmed_sender import ConfirmedSender
from streamgauge.worker.dead_letters import DeadLetters, ForeignRun
from streamgauge.worker.faults import BugError, WorkerError
from streamgauge.worker.faust.store import key_of
from streamgauge.worker.message_queue import MessageQueue
from streamgauge.worker.partition_offsets import OffsetTracker, ReadContext

_LOG = logging.getLogger("streamgauge.worker")

# Queued messages (bytes): above the first limit, fetching pauses until the queue is below the second.
FULL_BYTES = 4 * 1024 * 1024
LOW_BYTES = 1024 * 1024
# The next checkpoint waits while the last one's state is larger than this share of the bytes read since, but not longer
# than _MAX_TIMES the shortest checkpoint interval.
_STATE_SHARE = 0.1
_MAX_TIMES = 10
# The most messages applied and not acknowledged: it limits what a crash replays, and the records in memory.
_MAX_UNACKNOWLEDGED = 5_000
# An entry older than this is written again (seconds): two thirds of the 30 s that `kafka/topic_settings.py` relies on.
_REWRITE_S = 20.0
# While a dead letter waits for its topic, how often the partition checkpoints and checks whether to stop (seconds).
_WAITING_S = 1.0
# How long a partition applies messages before other tasks run, and how long it waits for more after the first message
# (seconds): its streams then stay in the processor's caches, and heartbeats and responses are not delayed.
_SLICE_S = 0.01
# How many messages of other programs are put aside together, and their bytes: so many wait for the broker once.
_MAX_RUN, _MAX_RUN_BYTES = 500, 1024 * 1024
_GATHER_S = 0.005
# How long a revoked partition waits for its sends in flight (seconds): well within a rebalance.
_SENDS_S = 5.0


@dataclass(frozen=True)
class PartitionContext:
    """The objects and settings that all partitions of a worker share. Intervals are seconds."""

    topics: Topics
    reading: ReadContext
    dead_letters: DeadLetters
    metrics: Metrics
    acknowledge: Callable[[int, int], None]  # called with the partition and the offset after its last finished message
    fail: Callable[[WorkerError], None]
    checkpoint_s: float
    tick_s: float
    watch: LiveView | None = None


class Partition:
    """One assigned partition. `acknowledged`: the committed offset. `next_offset`: where reading continues. `lost`: the
    number of messages below it that expired before they were read. `known`: the state entries in the changelog.

    Start it with `start`; give it messages with `put`, in offset order. `queue`: those that wait.
    """

    def __init__(
        self,
        number: int,
        assembler: Assembler,
        sender: ConfirmedSender,
        context: PartitionContext,
        *,
        acknowledged: int,
        next_offset: int,
        lost: int,
        known: list[int],
    ) -> None:
        self._number = number
        self._assembler = assembler
        self._sender = sender
        self._context = context
        self._offsets = OffsetTracker(context.reading, number, next_offset, self.report_gap)
        self._acknowledged = acknowledged
        self._lost = lost
        self.queue = MessageQueue()
        self._paused = False
        self._unacknowledged = 0
        self._records: list[Record] = []
        self._read_bytes = 0
        self._state_bytes = 0
        self._finishing = False
        self._dead_letter_tries = 0
        self._foreign = ForeignRun(context.dead_letters.limit, context.dead_letters.alone_s)
        self._stopped = False
        self._readable_offset = -1  # the highest offset of a message that looks like a bundle of this version
        self._wake = asyncio.Event()
        self._clock = ActivityClock()
        now = asyncio.get_running_loop().time()
        # The age of a recovered entry is unknown, so it counts as due: otherwise a series of owners that crash soon would
        # never write it again.
        self._written_at = dict.fromkeys(known, float("-inf"))
        self._checkpoint_at = self._message_at = now
        self._task: asyncio.Task[None] | None = None

    def start(self) -> None:
        """Report the lost messages, and start the task. Messages that were put before wait for it."""
        if self._lost:
            self.report_gap(self._lost)
        self._clock.take_seconds()  # discard the time before the task
        self._task = asyncio.create_task(self._run())

    def put(self, message: Any) -> None:
        """Queue a message. Never waits. Drops messages after `finish`: the next owner reads them.

        While the partition has stopped and the queue is full, it drops foreign messages instead of pausing, so that it finds
        a readable bundle after any number of them. `OffsetTracker` later seeks back to what was dropped.
        """
        if self._finishing:
            return
        if is_of_this_format(message.value):
            self._readable_offset = max(message.offset, self._readable_offset)
        searches = self._stopped and not self._readable_follows()
        if searches and self.queue.size_bytes > FULL_BYTES:
            return
        self.queue.put(message)
        self._wake.set()
        if self.queue.size_bytes > FULL_BYTES and not self._paused and not searches:
            self._paused = True
            self._context.reading.consumer.pause(self._number)

    async def finish(self) -> None:
        """Apply the queued messages, checkpoint, and end."""
        self._finishing = True
        self._wake.set()
        if self._task is not None:
            await asyncio.wait({self._task})

    async def drop(self) -> None:
        """End without a checkpoint, because the partition was revoked; wait for the sends in flight."""
        if self._task is not None:
            await end_task(self._task)
        await self._sender.wait_and_forget(_SENDS_S)

    # --- the loop ---------------------------------------------------------------------------------------------------

    async def _run(self) -> None:
        try:
            await self._work()
        except _Interrupted:
            pass
        except WorkerError as error:
            self._context.fail(error)
        except Exception as error:  # noqa: BLE001 - a bug here must end the worker with its reason, not leave a zombie
            self._context.fail(BugError(f"internal error in partition {self._number}: {described(error)}", error))
        finally:
            self.add_seconds()

    async def _work(self) -> None:
        while not (self._finishing and not self.queue):
            if self.queue:
                await self._process_queue()
            else:
                await self._wait(self._context.checkpoint_s / 4)
                await self._offsets.check_for_missed_messages()
            if self._is_due():
                await self._checkpoint()
            await self._tick_if_due()
        await self._checkpoint()

    async def _process_queue(self) -> None:
        """Apply queued messages for about _SLICE_S, and then let other tasks run."""
        self._clock.enter(Activity.APPLYING)
        ends = asyncio.get_running_loop().time() + _SLICE_S
        while self.queue and self._unacknowledged < _MAX_UNACKNOWLEDGED:
            await self._process_message(self._dequeue())
            if asyncio.get_running_loop().time() > ends:
                break
        self._clock.enter(Activity.WAITING)
        await asyncio.sleep(0)

    def _dequeue(self) -> Any:
        message = self.queue.take()
        if self.queue.size_bytes < LOW_BYTES:
            self._resume()
        return message

    def _resume(self) -> None:
        """Fetch again, if fetching is paused."""
        if self._paused:
            self._paused = False
            self._context.reading.consumer.resume(self._number)

    async def _wait(self, seconds: float) -> None:
        self._wake.clear()
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(seconds):
                await self._wake.wait()
            await asyncio.sleep(_GATHER_S)

    # --- applying ---------------------------------------------------------------------------------------------------

    async def _process_message(self, message: Any) -> None:
        if not await self._is_next(message):
            return
        if not is_bundle(message.value):
            await self._process_others([message])
            return
        if records := await self._apply(message):
            self._clock.enter(Activity.SENDING)
            await self._send(records)
            self._clock.enter(Activity.APPLYING)
        self._has_processed(message)

    async def _process_others(self, run: list[Any]) -> None:
        """Put messages of other programs aside: `run`, and those that follow in the queue, together."""
        size = len(run[0].value or b"")
        while self.queue and not is_bundle(self.queue.first.value) and len(run) < _MAX_RUN and size < _MAX_RUN_BYTES:
            message = self._dequeue()
            size += len(message.value or b"")
            if await self._is_next(message):
                run.append(message)
        await self._dead_letter(run, Stage.DECODE, "frame", asyncio.get_running_loop().time())
        for message in run:
            self._has_processed(message)

    async def _is_next(self, message: Any) -> bool:
        """Whether a message is to be processed now. False if it was before, or if some before it are missing."""
        if message.offset > self._offsets.next_offset:
            self._clock.enter(Activity.WAITING)  # `accept` asks the broker about the offsets in between
        return await self._offsets.accept(message.offset)

    def _has_processed(self, message: Any) -> None:
        self._unacknowledged += 1
        self._read_bytes += len(message.value or b"")
        self._message_at = asyncio.get_running_loop().time()
        message.value = None  # free the memory: other references to the message need only its offset

    async def _send(self, records: list[Record]) -> None:
        for record in records:
            await self._sender.send(
                Message(self._context.topics.records, encode_record(record), record.stream_id.encode())
            )
            self._records.append(record)

    async def _apply(self, message: Any) -> list[Record]:
        began = asyncio.get_running_loop().time()
        self._clock.enter(Activity.DECODING)
        try:
            bundle = decode_bundle(message.value)
        except UnreadableBundle as error:
            await self._dead_letter([message], Stage.DECODE, error.error_class, began)
            return []
        self._clock.enter(Activity.APPLYING)
        try:
            records = self._assembler.apply(message.offset, round(message.timestamp * 1000), bundle)
            if self._context.watch is not None:
                self._context.watch.applied(bundle, self._assembler, records)
        except Exception as error:  # noqa: BLE001 - a bug of ours that fails on one bundle must not stop the partition
            report_fault("the assembler", error)
            await self._dead_letter([message], Stage.ASSEMBLE, type(error).__name__, began)
            return self._assembler.take_finished()
        if bundle.instance != TICK_INSTANCE:  # a tick is a worker's own, and shows nothing of taps
            self._foreign.readable()
        return records

    async def _dead_letter(self, run: list[Any], stage: Stage, error_class: str, began: float) -> None:
        """Write the dead letters of consecutive messages; returns when they are durable.

        First stops if the partition has too many foreign messages. Meanwhile, checkpoints the messages before an unreadable
        one, and writes old entries again: otherwise a zombie's older entry could be the last in the log.
        """
        spent_s = asyncio.get_running_loop().time() - began
        self._clock.enter(Activity.SENDING)
        dead_letters = self._context.dead_letters
        writing = asyncio.ensure_future(self._put_aside(run, stage, error_class, spent_s))
        try:
            while not (await asyncio.wait({writing}, timeout=_WAITING_S))[0]:
                self._dead_letter_tries = dead_letters.tries
                # After an ASSEMBLE error the bundle may be half applied: no such state may be durable before the dead letter.
                if stage is Stage.DECODE:
                    await self._checkpoint(run[0].offset)
                if self._finishing:
                    raise _Interrupted
            writing.result()
        finally:
            self._clock.enter(Activity.APPLYING)
            end_in_background(writing)  # it may hold the lock of all dead letters

    async def _put_aside(self, run: list[Any], stage: Stage, error_class: str, spent_s: float) -> None:
        dead_letters = self._context.dead_letters
        is_foreign = error_class == OTHER_VERSION
        if is_foreign and self._foreign.foreign(run[0].timestamp) and not self._readable_follows():
            self._stopped = True
            self._resume()
            try:
                await dead_letters.stop(run[0], stage, error_class, self._readable_follows)
            finally:
                self._stopped = False
            self._foreign.readable()
        await dead_letters.write(run, stage, error_class, spent_s)

    def _readable_follows(self) -> bool:
        """Whether a message that looks like a bundle of this version was fetched, and is still to be processed."""
        return self._readable_offset >= self._offsets.next_offset

    def report_gap(self, messages: int) -> None:
        """Report a log gap: log and count the messages that expired before they were read, and mark open streams."""
        topic = f"{self._context.topics.segments}/{self._number}"
        _LOG.error(
            "%d messages of %s were deleted before they were read: open streams are marked incomplete", messages, topic
        )
        self._context.metrics.add(table.LOG_GAP_MESSAGES.name, messages)
        self._assembler.mark_gap()

    # --- checkpoints ------------------------------------------------------------------------------------------------

    def _is_due(self) -> bool:
        since = asyncio.get_running_loop().time() - self._checkpoint_at
        if self._unacknowledged >= _MAX_UNACKNOWLEDGED:
            return True
        if since < self._context.checkpoint_s:
            return False
        if not self._unacknowledged:
            expired = self.next_offset > self._acknowledged  # acknowledged, so that they are not reported again
            return expired or bool(self._stale()) or bool(self._assembler.changed())
        cheap = self._state_bytes <= _STATE_SHARE * self._read_bytes
        return cheap or since >= _MAX_TIMES * self._context.checkpoint_s

    def _stale(self) -> set[int]:
        before = asyncio.get_running_loop().time() - _REWRITE_S
        return {entry for entry, at in self._written_at.items() if at < before}

    async def _checkpoint(self, before: int | None = None) -> None:
        """Checkpoint. `before`: the offset of the message in process, which is not finished; None if there is none."""
        with self._clock.during(Activity.COMMITTING):
            await self._make_durable(before)

    async def _make_durable(self, before: int | None) -> None:
        done, records = self._offsets.next_offset if before is None else before, self._records
        ignored, self._assembler.ignored = self._assembler.ignored, Counter()
        await self._sender.confirmed()
        changed = set(self._assembler.changed())
        entries = self._stale() | changed
        if done > self._acknowledged and PRODUCERS not in self._written_at:
            # Acknowledged messages need state, even if all were unreadable (`topic_identity.py`).
            entries.add(PRODUCERS)
        sizes = await self._write(sorted(entries - {PRODUCERS}))
        if PRODUCERS in entries:
            sizes |= await self._write([PRODUCERS])
        # Entries that were only written again do not count: after a takeover they would delay the next checkpoint.
        self._state_bytes = sum(size for entry, size in sizes.items() if entry in changed)
        if done > self._acknowledged:
            self._context.acknowledge(self._number, done)
        self._acknowledged, self._records = done, []
        self._unacknowledged = self._read_bytes = 0
        self._checkpoint_at = asyncio.get_running_loop().time()
        for record in records:
            cost = self._context.metrics.observe(record)
            if self._context.watch is not None:
                self._context.watch.finished(record, cost)
        self._context.metrics.add_counts(self._assembler.counts)
        self._assembler.counts.clear()
        for (upstream, reason), streams in ignored.items():
            self._context.metrics.add(table.NOT_CAPTURED.name, streams, upstream=upstream, reason=reason)

    async def _write(self, entries: list[int]) -> dict[int, int]:
        """Write entries of the state; returns the size of each (bytes) when all are confirmed."""
        sizes: dict[int, int] = {}
        for entry in entries:
            value = self._assembler.dump(entry)
            sizes[entry] = len(value)
            await self._sender.send(
                Message(self._context.topics.state, value, key_of(self._number, entry), self._number)
            )
        await self._sender.confirmed()
        now = asyncio.get_running_loop().time()
        self._written_at.update(dict.fromkeys(entries, now))
        return sizes

    # --- time and numbers -------------------------------------------------------------------------------------------

    async def _tick_if_due(self) -> None:
        """Send a tick if streams are open and no message came for `tick_s`, so that the log's time advances."""
        now = asyncio.get_running_loop().time()
        if now - self._message_at < self._context.tick_s or not self._assembler.open_streams:
            return
        self._message_at = now
        tick = encode_bundle(Bundle(instance=TICK_INSTANCE, slot=0, number=0, tap_ns=0))
        with self._clock.during(Activity.SENDING):
            await self._sender.send(Message(self._context.topics.segments, tick, partition=self._number))

    @property
    def next_offset(self) -> int:
        """The offset of the next message to apply."""
        return self._offsets.next_offset

    @property
    def tries(self) -> int:
        """The number of retries so far, of sends and of dead letters."""
        return self._sender.tries + self._dead_letter_tries

    @property
    def unread(self) -> int:
        """The number of messages not read yet, by the end that the consumer last received."""
        end = self._context.reading.consumer.end(self._number)
        return max(0, end - self._offsets.next_offset) if end is not None else 0

    @property
    def assembler(self) -> Assembler:
        """The partition's open streams, for reading between two messages."""
        return self._assembler

    def add_seconds(self) -> None:
        """Add the task's seconds since the last call to the metrics, by activity; nothing once the task has ended."""
        if self._task is None or self._task.done():
            return
        for activity, seconds in self._clock.take_seconds().items():
            self._context.metrics.add(table.WORKER_SECONDS.name, seconds, activity=activity.value)


class _Interrupted(Exception):
    """The worker stops while a dead letter waits: the next owner reads its message again."""
