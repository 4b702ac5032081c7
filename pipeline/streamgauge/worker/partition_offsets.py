"""Where reading of one partition stands: every message is taken once, in order, and none is passed over unseen.

Faust may lose messages between its consumer and an agent: after a rebalance it clears queues that the fetcher fills
already, and it goes back only where an offset was committed before. So what comes is compared with what is due, and
where it does not fit, or does not come, reading is set back to what is due.

    below what is due          came before: left out
    what is due                taken
    above, and the log begins above what is due      deleted before it was read: counted
    above, and the log has messages in between       lost on the way: back to what is due
    above, and it has none                           legal: a transaction's markers
    nothing, and the log begins above what is due    deleted before it was read: counted
    nothing, though the log goes on                  lost on the way: back to what is due
"""

import asyncio
import contextlib
from collections.abc import Callable
from typing import NamedTuple

from aiokafka.errors import KafkaError  # type: ignore[import-untyped]

from streamgauge.worker.faults import NEW_LOG_REMEDY, LogRecreatedError
from streamgauge.worker.faust.consumer import FaustConsumer
from streamgauge.worker.log import Log

# How long nothing may come while the log goes on (seconds): fetching takes a second at most.
_PATIENCE_S = 2.0
# How soon a broker that does not answer is asked again (seconds).
_RETRY_S = 1.0


class ReadContext(NamedTuple):
    """How a topic is read: through Faust's consumer, and beside it by our own questions."""

    consumer: FaustConsumer
    log: Log


async def load_start_offsets(reading: ReadContext) -> dict[int, tuple[int, int, int]]:
    """Of each partition that is ours: the offset committed (0 if none), where its log begins, and where it ends.

    Asks until the broker answers. Empty if there is none, or the next rebalance has begun meanwhile.
    """
    consumer, log = reading
    holding = consumer.assignment_epoch
    while holding is not None and holding == consumer.assignment_epoch:
        numbers = consumer.assigned()
        try:
            committed = await log.committed(consumer.topic)
            begins = await log.begins(consumer.topic, numbers)
            ends = await log.ends(consumer.topic, numbers)
        except KafkaError:
            await asyncio.sleep(_RETRY_S)
            continue
        # A worker that was stopped meanwhile may not know yet that another one has its partitions, and commits for them:
        # what was recovered here would then not fit what is committed.
        if await consumer.is_current() and holding == consumer.assignment_epoch:
            return {number: (committed.get(number, 0), begins[number], ends[number]) for number in sorted(numbers)}
        await asyncio.sleep(_RETRY_S)
    return {}


class OffsetTracker:
    """`next_offset`: what is due. `lost` is told how many messages the log had deleted before they were read."""

    def __init__(self, reading: ReadContext, partition: int, next_offset: int, lost: Callable[[int], None]) -> None:
        self._consumer, self._log = reading
        self._topic = self._consumer.topic
        self._partition = partition
        self.next_offset = next_offset
        self._lost = lost
        self._quiet_since = asyncio.get_running_loop().time()

    async def accept(self, offset: int) -> bool:
        """Whether this message is to be taken now; then the one behind it is due."""
        if offset > self.next_offset:
            try:
                await self._explain(offset)
            except (KafkaError, TimeoutError):
                return False  # nobody to ask; what is due is asked for again when nothing comes
        if offset != self.next_offset:
            return False
        self.next_offset = offset + 1
        self._quiet_since = asyncio.get_running_loop().time()
        return True

    async def _explain(self, offset: int) -> None:
        """A message came that is not due yet: make it due, or go back."""
        await self._see_beginning(offset)
        if offset > self.next_offset and await self._log.holds(self._topic, self._partition, self.next_offset, offset):
            await self._go_back()
        else:
            self.next_offset = offset

    async def _see_beginning(self, offset: int | None = None) -> None:
        """What was deleted before it was read is lost; not what lies at `offset` and above, for that has come."""
        begins = (await self._log.begins(self._topic, [self._partition]))[self._partition]
        begins = begins if offset is None else min(begins, offset)
        if begins > self.next_offset:
            self._lost(begins - self.next_offset)
            self.next_offset = begins

    async def check_for_missed_messages(self) -> None:
        """Call this while nothing waits to be taken. Raises LogRecreatedError."""
        if asyncio.get_running_loop().time() - self._quiet_since < _PATIENCE_S:
            return
        end = self._consumer.end(self._partition)
        if end is not None and end < self.next_offset:
            with contextlib.suppress(KafkaError):
                await self._check_end()
        elif end is not None and end > self.next_offset:
            with contextlib.suppress(KafkaError):
                await self._see_beginning()
            await self._go_back()
        self._quiet_since = asyncio.get_running_loop().time()

    async def _go_back(self) -> None:
        await self._consumer.seek(self._partition, self.next_offset)
        self._quiet_since = asyncio.get_running_loop().time()

    async def _check_end(self) -> None:
        """What the fetcher heard last may be older than what was taken; the broker's own word counts."""
        end = (await self._log.ends(self._topic, [self._partition]))[self._partition]
        if end < self.next_offset:
            raise LogRecreatedError(
                f"topic {self._topic} was recreated while the worker ran: partition {self._partition} ends at offset "
                f"{end}, but was read up to offset {self.next_offset}. {NEW_LOG_REMEDY}"
            )
