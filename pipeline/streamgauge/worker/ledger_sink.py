"""Store the records topic in the ledger: in batches, in a separate thread, acknowledged in order."""

import asyncio
import contextlib
import logging
from concurrent.futures import ThreadPoolExecutor
from typing import Any

from streamgauge.core.record import SCHEMA_VERSION, version_of
from streamgauge.errors import StreamgaugeError
from streamgauge.kafka.dead_letters import Stage
from streamgauge.metrics import table
from streamgauge.metrics.prometheus import Metrics
from streamgauge.runtime.faults import described, report_fault
from streamgauge.worker.dead_letters import DeadLetters
from streamgauge.worker.faults import BugError, WorkerError
from streamgauge.worker.faust.consumer import FaustConsumer
from streamgauge.worker.faust.store import StateTable
from streamgauge.worker.log import Log
from streamgauge.worker.message_queue import MessageQueue
from streamgauge.worker.offset_commits import OffsetCommits
from streamgauge.worker.partition_offsets import OffsetTracker, ReadContext, load_start_offsets
from streamgauge.worker.settings import RecordStore, Stored, WorkerSettings

_LOG = logging.getLogger("streamgauge.worker")

# The most records of one transaction: enough to share its cost, few enough for other writers to get their turn.
_BATCH = 500
# How long the first record of a batch waits for others (seconds): a small part of the 2 s from terminal to ledger.
_GATHER_S = 0.05
# After how long without a record the sink checks for missed messages (seconds).
_CHECK_S = 1.0
# Queued records: above the first number, fetching pauses until fewer than the second are queued.
FULL, LOW = 5_000, 1_000
# The same limits in bytes: a record has some KiB, but a forged one may be as large as its topic allows.
FULL_BYTES, LOW_BYTES = 64 * 1024 * 1024, 16 * 1024 * 1024
# How soon a failed insert is tried again (seconds).
_RETRY_S = 1.0


class LedgerSink:
    """Stores records in a RecordStore. Give it messages with `receive`, and run `run` as a task.

    `fail` is called with the WorkerError that has to end the worker.
    """

    def __init__(self, settings: WorkerSettings, store: RecordStore, metrics: Metrics, fail: Any) -> None:
        self._settings = settings
        self._store = store
        self._metrics = metrics
        for result in table.RESULTS:  # so that the first batch after a start shows as growth
            metrics.add(table.LEDGER_ROWS.name, 0, result=result)
        self._fail = fail
        self._queue = MessageQueue()
        self._trackers: dict[int, OffsetTracker] = {}
        self._paused: set[int] = set()
        self._wake = asyncio.Event()
        self._thread = ThreadPoolExecutor(1, "records")
        self._failing = self._inserting = self._is_assigned = self._writing_dead_letter = False
        self._tries = 0
        self._finishing = False
        self._idle = asyncio.Event()
        self._idle.set()

    def connect(self, consumer: FaustConsumer, state: StateTable, log: Log, dead_letters: DeadLetters) -> OffsetCommits:
        """Register for the consumer's rebalances. Returns the OffsetCommits, whose `run` the caller has to start."""
        self._consumer = self.consumer = consumer
        self._reading = ReadContext(self._consumer, log)
        self._commits = OffsetCommits(self._consumer, self._metrics)
        self._dead_letters = dead_letters
        consumer.on_revoked(self.discard)
        state.on_recover(self.on_recovered)
        state.on_recovery_restart(self.discard)
        return self._commits

    async def discard(self) -> None:
        """Discard the records not stored yet: the partitions are revoked, or their recovery starts again.

        The next owner of a partition reads them again; the ledger recognises records that it has already.
        """
        self._queue.clear()
        self._trackers.clear()
        self._is_assigned = False
        self._paused.clear()
        self._commits.forget()

    async def on_recovered(self) -> None:
        """Called when the partitions are assigned. Must not raise: Faust would swallow the error."""
        try:
            await self._load_offsets()
        except Exception as error:  # noqa: BLE001 - Faust would swallow it, and no record be stored
            self._fail(BugError(f"internal error in the records topic's assignment: {described(error)}", error))

    async def _load_offsets(self) -> None:
        epoch = self._consumer.assignment_epoch
        starts = await load_start_offsets(self._reading)
        if epoch is None or epoch != self._consumer.assignment_epoch:
            return  # the next rebalance has begun
        for number, (committed, begins, _) in starts.items():
            # Without a committed offset, the records may be in the ledger: the group's offsets expire after a week, too.
            if 0 < committed < begins:
                self._report_gap(begins - committed)
                self._commits.done(number, begins)  # otherwise the next assignment would report them again
            self._trackers[number] = OffsetTracker(self._reading, number, max(committed, begins), self._report_gap)
        self._is_assigned = True

    # --- what the progress probe reads ------------------------------------------------------------------------------

    @property
    def topic(self) -> str:
        """The records topic."""
        return self._consumer.topic

    @property
    def is_assigned(self) -> bool:
        """Whether the assigned partitions are ready; False from a revocation until the next assignment."""
        return self._is_assigned

    def recovery_progress(self) -> tuple[int, ...]:
        """Empty: the sink has no state to recover."""
        return ()

    def tries(self) -> dict[int, int]:
        """The number of retries of each assigned partition; the same for all, because they share one store."""
        return dict.fromkeys(
            self._trackers, self._tries + (self._dead_letters.tries if self._writing_dead_letter else 0)
        )

    # --- records come -----------------------------------------------------------------------------------------------

    def _report_gap(self, records: int) -> None:
        _LOG.error("%d records were deleted from %s before they were stored", records, self._consumer.topic)
        self._metrics.add(table.LOG_GAP_MESSAGES.name, records)

    def receive(self, message: Any) -> None:
        """Accept a message of the records topic. Never waits."""
        is_ours = message.partition in self._trackers and message.generation_id == self._consumer.generation
        if self._finishing or not is_ours:
            return  # the partition's next owner reads it
        self._queue.put(message)
        self._idle.clear()
        self._wake.set()
        if len(self._queue) > FULL or self._queue.size_bytes > FULL_BYTES:
            self._paused.add(message.partition)
            self._consumer.pause(message.partition)

    async def run(self) -> None:
        """Store batches until cancelled, or until an error ends the worker."""
        try:
            while True:
                batch = await self._gather()
                if batch:
                    await self._store_batch(batch)
        except WorkerError as error:
            self._fail(error)
        except Exception as error:  # noqa: BLE001 - a bug here must end the worker with its reason, not leave a zombie
            self._fail(BugError(f"internal error while storing records: {described(error)}", error))

    async def drain(self) -> None:
        """Store the queued records, accept no more, and commit the offsets."""
        self._finishing = True
        await self._idle.wait()
        await self._commits.flush()

    def close(self) -> bool:
        """Shut the thread down without waiting for it. Returns whether an insert still runs in it."""
        self._thread.shutdown(wait=False, cancel_futures=True)
        return self._inserting

    async def _gather(self) -> list[Any]:
        """Return the next batch, in the order of each partition's log, without messages that are not due; may be empty."""
        if not self._queue:
            self._idle.set()
            self._wake.clear()
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(_CHECK_S):
                    await self._wake.wait()
        if not self._queue:
            for tracker in list(self._trackers.values()):
                await tracker.check_for_missed_messages()
            return []
        if len(self._queue) < _BATCH:
            await asyncio.sleep(_GATHER_S)
        batch: list[Any] = []
        while self._queue and len(batch) < _BATCH:
            message = self._queue.take()
            offsets = self._trackers.get(message.partition)
            if offsets is not None and await offsets.accept(message.offset):
                batch.append(message)
        if self._paused and len(self._queue) < LOW and self._queue.size_bytes < LOW_BYTES:
            for partition in self._paused:
                self._consumer.resume(partition)
            self._paused.clear()
        return batch

    async def _store_batch(self, batch: list[Any]) -> None:
        stored = await self._insert([message.value or b"" for message in batch])
        for index in stored.unreadable:
            await self._dead_letter(batch[index])
        for message in batch:
            if message.generation_id == self._consumer.generation:
                self._commits.done(message.partition, message.offset + 1)
        for result in table.RESULTS:
            self._metrics.add(table.LEDGER_ROWS.name, getattr(stored, result), result=result)

    async def _insert(self, records: list[bytes]) -> Stored:
        """Insert records, with retries until it succeeds; until then later records stay in Kafka."""
        while True:
            try:
                stored = await asyncio.get_running_loop().run_in_executor(self._thread, self._insert_now, records)
            except Exception as error:  # noqa: BLE001 - whatever is wrong with the ledger, the records are safe in Kafka
                if not isinstance(error, StreamgaugeError):
                    report_fault("the ledger", error)
                if not self._failing:
                    _LOG.error("records cannot be stored, trying again: %s", described(error))
                self._failing = True
                self._tries += 1
                await asyncio.sleep(_RETRY_S)
                continue
            if self._failing:
                _LOG.warning("records can be stored again")
            self._failing = False
            return stored

    def _insert_now(self, records: list[bytes]) -> Stored:
        """Insert records; runs in the sink's thread."""
        self._inserting = True
        try:
            return self._store.insert(records)
        finally:
            self._inserting = False

    async def _dead_letter(self, message: Any) -> None:
        version = version_of(message.value or b"")
        error_class = "unreadable" if version in (None, SCHEMA_VERSION) else "version"
        self._writing_dead_letter = True
        try:
            await self._dead_letters.write([message], Stage.LEDGER, error_class)
        finally:
            self._writing_dead_letter = False
