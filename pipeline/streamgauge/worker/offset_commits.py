"""Commit the offsets of processed messages, for all partitions together, at an interval."""

import asyncio
import contextlib

from streamgauge.metrics import table
from streamgauge.metrics.prometheus import Metrics
from streamgauge.worker.faust.consumer import FaustConsumer

# How often offsets are committed (seconds). After a crash, the next owner reads the uncommitted messages again, and skips
# those whose results a checkpoint made durable.
_COMMIT_S = 0.5


class OffsetCommits:
    """The commits of one topic, which `metrics` counts. A later offset of a partition replaces an earlier one.

    `committed`: the last offset of each partition that the broker accepted since the partition was assigned.
    """

    def __init__(self, consumer: FaustConsumer, metrics: Metrics) -> None:
        self._consumer = consumer
        self._metrics = metrics
        self._pending: dict[int, int] = {}
        self.committed: dict[int, int] = {}

    def done(self, partition: int, offset: int) -> None:
        """Report that every message below `offset` is processed and durable."""
        self._pending[partition] = offset

    def forget(self) -> None:
        """Discard uncommitted offsets, because the partitions were revoked; their next owner reads the messages again."""
        self._pending.clear()
        self.committed.clear()

    async def flush(self) -> None:
        """Commit the pending offsets; keeps those that the broker does not accept now for the next call."""
        pending = dict(self._pending)
        committed = await self._consumer.commit(pending) if pending else None
        if committed is None:
            return
        if committed:  # else all of them are partitions that are not assigned any more
            self._metrics.add(table.COMMITS.name)
        for partition, offset in pending.items():
            if partition in committed and partition in self._pending:  # not revoked in the meantime
                self.committed[partition] = offset
            if self._pending.get(partition) == offset:
                del self._pending[partition]

    async def run(self) -> None:
        """Commit every _COMMIT_S until cancelled."""
        with contextlib.suppress(asyncio.CancelledError):
            while True:
                await asyncio.sleep(_COMMIT_S)
                await self.flush()
