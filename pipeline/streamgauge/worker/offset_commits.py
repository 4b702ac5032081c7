"""Offsets that are done, committed together once in a while."""

import asyncio
import contextlib

from streamgauge.worker.faust.consumer import FaustConsumer

# How often offsets are committed (seconds): a crash replays what a checkpoint made durable a moment ago, and skips it.
_COMMIT_S = 0.5


class OffsetCommits:
    """Commits for one topic. An offset that is given later for a partition takes the place of an earlier one."""

    def __init__(self, consumer: FaustConsumer) -> None:
        self._consumer = consumer
        self._pending: dict[int, int] = {}

    def done(self, partition: int, offset: int) -> None:
        """Everything below `offset` is done."""
        self._pending[partition] = offset

    def forget(self) -> None:
        """Partitions were taken away: what was not committed is read again by whoever has them."""
        self._pending.clear()

    async def flush(self) -> None:
        """Commit what there is; what the broker does not take now is kept for the next time."""
        pending = dict(self._pending)
        if pending and await self._consumer.commit(pending):
            for partition, offset in pending.items():
                if self._pending.get(partition) == offset:
                    del self._pending[partition]

    async def run(self) -> None:
        """Until it is cancelled."""
        with contextlib.suppress(asyncio.CancelledError):
            while True:
                await asyncio.sleep(_COMMIT_S)
                await self.flush()
