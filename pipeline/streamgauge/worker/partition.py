"""One partition of the segments topic: apply its messages in order, and make what came of them durable.

A checkpoint, and no step of it begins before the one before is confirmed:

    1. records and dead letters     they went out as they came about
    2. the buckets that changed
    3. the producers entry
    4. the messages: the offset behind the last one is committed
    5. metrics

So a crash anywhere replays only what is skipped, or gives the same record once more.
"""

import asyncio
import contextlib
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from streamgauge.broker.producer import Message
from streamgauge.bundles import UnreadableBundle, decode_bundle, encode_bundle
from streamgauge.core.assembler import PRODUCERS, TICK_INSTANCE, Assembler
from streamgauge.core.record import Record, encode_record
from streamgauge.core.segments import Bundle
from streamgauge.deadletter import Stage, letter
from streamgauge.metrics import table
from streamgauge.topics import Topics
from streamgauge.worker.faults import BugError, WorkerError
from streamgauge.worker.outbox import Outbox
from streamgauge.worker.place import Place, Reading
from streamgauge.worker.settings import WorkerMetrics
from streamgauge.worker.store import key_of

# Messages that wait to be applied (bytes): above the first no more are fetched, until it is below the second.
_FULL_BYTES = 4 * 1024 * 1024
_LOW_BYTES = 1024 * 1024
# A checkpoint's bytes stay below this part of what was read, unless MAX_TIMES the shortest time has passed.
_STATE_SHARE = 0.1
_MAX_TIMES = 10
# Messages that are applied and not acknowledged: what a crash replays, and what memory holds of their records.
_MAX_HELD = 5_000
# Every entry is written again within 30 s (`store.py`): looked after at two thirds of that (seconds).
_REWRITE_S = 20.0
# At most so many dead letters a second and partition: a flood of poison must not drown the good partitions.
_DEAD_LETTERS_PER_S = 200
# How long sends in flight are waited for when a partition is taken away (seconds): well within a rebalance.
_SETTLE_S = 5.0
# How often lag is looked at (seconds).
_REPORT_S = 1.0


@dataclass(frozen=True)
class Surroundings:
    """What all partitions of a worker share."""

    topics: Topics
    reading: Reading
    metrics: WorkerMetrics
    acknowledge: Callable[[int, int], None]  # partition, the offset behind the last one that is done
    fail: Callable[[WorkerError], None]
    checkpoint_s: float
    tick_s: float


class Partition:
    """`next_offset`: where reading goes on. `known`: the entries of the state that are in the changelog.

    Start it with `start`; give it messages with `put`, in offset order.
    """

    def __init__(
        self,
        number: int,
        assembler: Assembler,
        outbox: Outbox,
        around: Surroundings,
        *,
        next_offset: int,
        known: list[int],
    ) -> None:
        self._number = number
        self._assembler = assembler
        self._outbox = outbox
        self._around = around
        self._place = Place(around.reading, number, next_offset, self.lost)
        self._acknowledged = next_offset
        self._queue: deque[Any] = deque()
        self._queued_bytes = 0
        self._held_back = False
        self._held = 0
        self._records: list[Record] = []
        self._read_bytes = 0
        self._state_bytes = 0
        self._finishing = False
        self._wake = asyncio.Event()
        now = asyncio.get_running_loop().time()
        self._written_at = dict.fromkeys(known, now)
        self._checkpoint_at = self._message_at = now
        self._reported_at = 0.0
        self._task: asyncio.Task[None] | None = None

    def start(self) -> None:
        self._task = asyncio.create_task(self._run())

    def put(self, message: Any) -> None:
        """Take a message of Faust's. Never waits. What comes after `finish` is left to whoever reads on."""
        if self._finishing:
            return
        self._queue.append(message)
        self._queued_bytes += len(message.value or b"")
        self._wake.set()
        if self._queued_bytes > _FULL_BYTES and not self._held_back:
            self._held_back = True
            self._around.reading.consumer.hold_back(self._number)

    async def finish(self) -> None:
        """Apply what waits, checkpoint, and end."""
        self._finishing = True
        self._wake.set()
        if self._task is not None:
            await asyncio.wait({self._task})

    async def drop(self) -> None:
        """The partition is not ours any more: wait for what is in flight, forget everything."""
        if self._task is not None:
            self._task.cancel()
            await asyncio.wait({self._task})
        await self._outbox.settle(_SETTLE_S)

    # --- the loop ---------------------------------------------------------------------------------------------------

    async def _run(self) -> None:
        try:
            await self._work()
        except WorkerError as error:
            self._around.fail(error)
        except Exception as error:  # noqa: BLE001 - a bug here must end the worker with its reason, not leave a zombie
            self._around.fail(BugError(f"partition {self._number}: {error!r}"))

    async def _work(self) -> None:
        while not (self._finishing and not self._queue):
            if self._queue:
                await self._take(self._dequeue())
                await asyncio.sleep(0)
            else:
                await self._wait(self._around.checkpoint_s / 4)
                await self._place.nudge()
            if self._is_due():
                await self._checkpoint()
            await self._let_time_pass()
            self._report()
        await self._checkpoint()

    def _dequeue(self) -> Any:
        message = self._queue.popleft()
        self._queued_bytes -= len(message.value or b"")
        if self._held_back and self._queued_bytes < _LOW_BYTES:
            self._held_back = False
            self._around.reading.consumer.go_on(self._number)
        return message

    async def _wait(self, seconds: float) -> None:
        self._wake.clear()
        with contextlib.suppress(TimeoutError):
            await asyncio.wait_for(self._wake.wait(), seconds)

    # --- applying ---------------------------------------------------------------------------------------------------

    async def _take(self, message: Any) -> None:
        if not await self._place.admits(message.offset):
            return
        for record in await self._apply(message):
            await self._outbox.send(
                Message(self._around.topics.records, encode_record(record), record.stream_id.encode())
            )
            self._records.append(record)
        self._held += 1
        self._read_bytes += len(message.value or b"")
        self._message_at = asyncio.get_running_loop().time()
        message.value = None  # held for its offset only

    async def _apply(self, message: Any) -> list[Record]:
        try:
            bundle = decode_bundle(message.value)
        except UnreadableBundle as error:
            await self._bury(message, Stage.DECODE, error.error_class)
            return []
        try:
            records = self._assembler.apply(message.offset, round(message.timestamp * 1000), bundle)
        except Exception as error:  # noqa: BLE001 - a bundle that a bug of ours fails over must not stop its partition
            await self._bury(message, Stage.ASSEMBLE, type(error).__name__)
            return []
        return records

    async def _bury(self, message: Any, stage: Stage, error_class: str) -> None:
        await self._outbox.send(letter(self._around.topics, message, message.value, stage, error_class))
        self._around.metrics.add(table.DEAD_LETTERS.name, stage=stage.value, error_class=error_class)
        await asyncio.sleep(1 / _DEAD_LETTERS_PER_S)

    def lost(self, messages: int) -> None:
        """The log's beginning was deleted before it was read: say how much, and let open streams say it too."""
        self._around.metrics.add(table.LOG_GAP_MESSAGES.name, messages)
        self._assembler.mark_gap()

    # --- checkpoints ------------------------------------------------------------------------------------------------

    def _is_due(self) -> bool:
        since = asyncio.get_running_loop().time() - self._checkpoint_at
        if since < self._around.checkpoint_s:
            return self._held >= _MAX_HELD
        if not self._held:
            return bool(self._stale()) or bool(self._assembler.changed())
        cheap = self._state_bytes <= _STATE_SHARE * self._read_bytes
        return cheap or since >= _MAX_TIMES * self._around.checkpoint_s

    def _stale(self) -> set[int]:
        before = asyncio.get_running_loop().time() - _REWRITE_S
        return {entry for entry, at in self._written_at.items() if at < before}

    async def _checkpoint(self) -> None:
        done, records = self._place.next_offset, self._records
        await self._outbox.confirmed()
        entries = self._stale() | set(self._assembler.changed())
        self._state_bytes = await self._write(sorted(entries - {PRODUCERS}))
        if PRODUCERS in entries:
            self._state_bytes += await self._write([PRODUCERS])
        if done > self._acknowledged:
            self._around.acknowledge(self._number, done)
        self._acknowledged, self._records = done, []
        self._held = self._read_bytes = 0
        self._checkpoint_at = asyncio.get_running_loop().time()
        for record in records:
            self._around.metrics.observe(record)
        self._around.metrics.add_counts(self._assembler.counts)
        self._assembler.counts.clear()

    async def _write(self, entries: list[int]) -> int:
        """Write entries of the state; gives their bytes when all are confirmed."""
        size = 0
        for entry in entries:
            value = self._assembler.dump(entry)
            size += len(value)
            await self._outbox.send(
                Message(self._around.topics.state, value, key_of(self._number, entry), self._number)
            )
        await self._outbox.confirmed()
        now = asyncio.get_running_loop().time()
        self._written_at.update(dict.fromkeys(entries, now))
        return size

    # --- time and numbers -------------------------------------------------------------------------------------------

    async def _let_time_pass(self) -> None:
        """Where streams are open and no message comes, one of ours brings the log's time."""
        now = asyncio.get_running_loop().time()
        if now - self._message_at < self._around.tick_s or not self._assembler.open_streams:
            return
        self._message_at = now
        tick = encode_bundle(Bundle(instance=TICK_INSTANCE, slot=0, number=0, tap_ns=0))
        await self._outbox.send(Message(self._around.topics.segments, tick, partition=self._number))

    @property
    def open_streams(self) -> int:
        return self._assembler.open_streams

    def _report(self) -> None:
        now = asyncio.get_running_loop().time()
        if now - self._reported_at >= _REPORT_S:
            self._reported_at = now
            end = self._around.reading.consumer.end(self._number)
            if end is not None:
                lag = max(0, end - self._acknowledged)
                self._around.metrics.set(table.WORKER_LAG.name, lag, partition=self._number)
