"""Track the read position of one partition: accept every message once and in order, and detect every missed message.

Faust may lose messages between its consumer and an agent: after a rebalance it clears queues that the fetcher is already
filling, and it seeks back only in partitions with a committed offset. So each offset that arrives is compared with the
offset that is due. If it differs, or if no message arrives, this module finds out why:

    offset below the due one                               read before: skipped
    the due offset                                         accepted
    offset above it, and the log begins above it           expired before it was read: counted
    offset above it, and the log has messages in between   lost in Faust: seek back to the due offset
    offset above it, and the log has none in between       legal: a transaction's markers
    no message, and the log begins above the due offset    expired before it was read: counted
    no message, although the log continues                 lost in Faust: seek back to the due offset
"""

import asyncio
import contextlib
from collections.abc import Callable
from typing import NamedTuple

from aiokafka.errors import KafkaError  # type: ignore[import-untyped]

from streamgauge.worker.faults import NEW_LOG_REMEDY, LogRecreatedError
from streamgauge.worker.faust.consumer import FaustConsumer
from streamgauge.worker.log import Log

# How long no message may arrive although the log continues (seconds): one fetch takes a second at most.
PATIENCE_S = 2.0
# Interval of attempts while the broker does not answer (seconds).
_RETRY_S = 1.0


class ReadContext(NamedTuple):
    """The access to a topic: Faust's consumer for messages, and `Log` for requests of our own."""

    consumer: FaustConsumer
    log: Log


async def load_start_offsets(reading: ReadContext) -> dict[int, tuple[int, int, int]]:
    """For each assigned partition: its committed offset (0 if none), its log's first offset, and its log's end.

    Retries until the broker answers. Empty if no partitions are assigned, or if the next rebalance begins before that.
    """
    consumer, log = reading
    epoch = consumer.assignment_epoch
    while epoch is not None and epoch == consumer.assignment_epoch:
        numbers = consumer.assigned()
        try:
            committed = await log.committed(consumer.topic)
            begins = await log.begins(consumer.topic, numbers)
            ends = await log.ends(consumer.topic, numbers)
        except KafkaError:
            await asyncio.sleep(_RETRY_S)
            continue
        # After a suspension, this worker may not know yet that another worker has its partitions and commits their offsets.
        # The state recovered here would then not match the committed offsets.
        if await consumer.is_current() and epoch == consumer.assignment_epoch:
            return {number: (committed.get(number, 0), begins[number], ends[number]) for number in sorted(numbers)}
        await asyncio.sleep(_RETRY_S)
    return {}


class OffsetTracker:
    """The read position of one partition. `next_offset`: the offset that is due.

    `report_gap` is called with the number of messages that expired before they were read.
    """

    def __init__(
        self, reading: ReadContext, partition: int, next_offset: int, report_gap: Callable[[int], None]
    ) -> None:
        self._consumer, self._log = reading
        self._topic = self._consumer.topic
        self._partition = partition
        self.next_offset = next_offset
        self._report_gap = report_gap
        self._quiet_since = asyncio.get_running_loop().time()
        # The last message that was fetched before the seek back; None if none, or after the due one.
        self._before_seek: int | None = None

    async def accept(self, offset: int) -> bool:
        """Whether to process the message at `offset` now. If so, the next offset becomes due."""
        if offset > self.next_offset:
            if self._before_seek is not None and offset > self._before_seek and not self._is_quiet():
                self._before_seek = offset  # fetched before the seek as well: it comes again after it
                return False
            try:
                await self._resolve_jump(offset)
            except (KafkaError, TimeoutError):
                return False  # the broker is unreachable; `check_for_missed_messages` seeks back later
        if offset != self.next_offset:
            return False
        self.next_offset, self._before_seek = offset + 1, None
        self._quiet_since = asyncio.get_running_loop().time()
        return True

    async def _resolve_jump(self, offset: int) -> None:
        """Handle an offset above the due one: make it the due one, or seek back."""
        await self._skip_expired(offset)
        if offset > self.next_offset and await self._log.has_message(
            self._topic, self._partition, self.next_offset, offset
        ):
            await self._seek_back()
            self._before_seek = offset
        else:
            self.next_offset = offset

    async def _skip_expired(self, offset: int | None = None) -> None:
        """Report messages that expired before they were read, and advance the due offset past them.

        Messages at `offset` and above do not count, because the message at `offset` has arrived.
        """
        begins = (await self._log.begins(self._topic, [self._partition]))[self._partition]
        begins = begins if offset is None else min(begins, offset)
        if begins > self.next_offset:
            self._report_gap(begins - self.next_offset)
            self.next_offset = begins

    async def check_for_missed_messages(self) -> None:
        """Seek back if messages are missing. Call this while the queue is empty. Raises LogRecreatedError."""
        if not self._is_quiet():
            return
        end = self._consumer.end(self._partition)
        if end is not None and end < self.next_offset:
            with contextlib.suppress(KafkaError):
                await self._check_end()
        elif end is not None and end > self.next_offset:
            with contextlib.suppress(KafkaError):
                await self._skip_expired()
            await self._seek_back()
        self._quiet_since = asyncio.get_running_loop().time()

    def _is_quiet(self) -> bool:
        """Whether the due message has not arrived for PATIENCE_S."""
        return asyncio.get_running_loop().time() - self._quiet_since >= PATIENCE_S

    async def _seek_back(self) -> None:
        await self._consumer.seek(self._partition, self.next_offset)
        self._before_seek = None
        self._quiet_since = asyncio.get_running_loop().time()

    async def _check_end(self) -> None:
        """Raise LogRecreatedError if the log ends below the due offset. The fetcher's end may be outdated: ask the broker."""
        end = (await self._log.ends(self._topic, [self._partition]))[self._partition]
        if end < self.next_offset:
            raise LogRecreatedError(
                f"topic {self._topic} was recreated while the worker ran: partition {self._partition} ends at offset "
                f"{end}, but was read up to offset {self.next_offset}. {NEW_LOG_REMEDY}"
            )
