"""Where reading of one partition stands: every message is taken once, in order, and none is passed over unseen.

Faust may lose messages between its consumer and an agent: after a rebalance it clears queues that the fetcher fills
already, and it goes back only where an offset was committed before. So what comes is compared with what is due, and
where it does not fit, or does not come, reading is set back to what is due.

    below what is due          came before: left out
    what is due                taken
    above, and the log begins above what is due      deleted before it was read: counted
    above, and the log has messages in between       lost on the way: back to what is due
    above, and it has none                           legal: a transaction's markers
    nothing, though the log goes on                  lost on the way: back to what is due
"""

import asyncio
from collections.abc import Callable

from streamgauge.worker.faults import LogMadeAnewError
from streamgauge.worker.seams import Consumer

# How long nothing may come while the log goes on (seconds): fetching takes a second at most.
_PATIENCE_S = 3.0


class Place:
    """`next_offset`: what is due. `lost` is told how many messages the log had deleted before they were read."""

    def __init__(self, consumer: Consumer, partition: int, next_offset: int, lost: Callable[[int], None]) -> None:
        self._consumer = consumer
        self._partition = partition
        self.next_offset = next_offset
        self._lost = lost
        self._quiet_since = asyncio.get_running_loop().time()

    async def admits(self, offset: int) -> bool:
        """Whether this message is to be taken now; then the one behind it is due."""
        if offset > self.next_offset and not await self._explained(offset):
            return False
        if offset < self.next_offset:
            return False
        self.next_offset = offset + 1
        self._quiet_since = asyncio.get_running_loop().time()
        return True

    async def _explained(self, offset: int) -> bool:
        begins = (await self._consumer.begins([self._partition]))[self._partition]
        if begins > self.next_offset:
            self._lost(min(begins, offset) - self.next_offset)
            self.next_offset = min(begins, offset)
        if offset > self.next_offset and await self._consumer.was_skipped(self._partition, self.next_offset, offset):
            await self._go_back()
            return False
        self.next_offset = offset
        return True

    async def nudge(self) -> None:
        """Call this while nothing waits to be taken. Raises LogMadeAnewError."""
        if asyncio.get_running_loop().time() - self._quiet_since < _PATIENCE_S:
            return
        end = self._consumer.end(self._partition)
        if end is not None and end < self.next_offset:
            await self._check_end()
        elif end is not None and end > self.next_offset:
            await self._go_back()
        self._quiet_since = asyncio.get_running_loop().time()

    async def _go_back(self) -> None:
        await self._consumer.seek(self._partition, self.next_offset)
        self._quiet_since = asyncio.get_running_loop().time()

    async def _check_end(self) -> None:
        """What the fetcher heard last may be older than what was taken; the broker's own word counts."""
        end = (await self._consumer.ends([self._partition]))[self._partition]
        if end < self.next_offset:
            raise LogMadeAnewError(
                f"{self._consumer.topic}/{self._partition} ends at offset {end}, below {self.next_offset} that was read: "
                "it was made anew"
            )
