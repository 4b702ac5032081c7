"""The gauges of each assigned partition: its lag and its committed offset. They leave the page with the partition.

The main loop sets them, so they do not depend on the partition's own task, which may wait without end for a topic that
refuses its checkpoint. The lag does not depend on the consumer alone: while the partition's queue is full, the consumer
fetches nothing, and the end that it knows stands still. So the end that the progress probe reads from the broker counts, too.
"""

from collections.abc import Mapping

from streamgauge.metrics import table
from streamgauge.worker.settings import WorkerMetrics
from streamgauge.worker.watchdog.rules import PartitionProgress


class PartitionGauges:
    """Sets and removes the gauges of the partitions of one assignment."""

    def __init__(self, metrics: WorkerMetrics) -> None:
        self._metrics = metrics
        self._committed: dict[int, int] = {}
        self._probed: dict[int, PartitionProgress] = {}

    def assigned(self, partition: int, committed: int, end: int) -> None:
        """Begin with a partition: its committed offset and its log's end, as they were read at the assignment."""
        self._committed[partition] = committed
        self._probed[partition] = PartitionProgress(committed, end)

    def probed(self, progress: Mapping[int, PartitionProgress]) -> None:
        """Take the result of a progress probe, by partition. Offsets without a message count as committed there."""
        self._probed.update({partition: one for partition, one in progress.items() if partition in self._probed})

    def update(self, partition: int, committed: int | None, end: int | None) -> None:
        """Set the gauges. `committed`: the last committed offset; `end`: the end that the consumer knows; None if unknown."""
        probed = self._probed[partition]
        if committed is not None:
            self._committed[partition] = committed
        lag = max(end or 0, probed.end) - max(self._committed[partition], probed.committed)
        self._metrics.set(table.WORKER_LAG.name, max(0, lag), partition=partition)
        self._metrics.set(table.COMMITTED_OFFSET.name, self._committed[partition], partition=partition)

    def forget(self) -> None:
        """Remove the gauges of all partitions: they are revoked, or the worker stops."""
        for partition in self._committed:
            self._metrics.unset(table.WORKER_LAG.name, partition=partition)
            self._metrics.unset(table.COMMITTED_OFFSET.name, partition=partition)
        self._committed.clear()
        self._probed.clear()
