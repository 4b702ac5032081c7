"""Read the worker's progress from the broker: the committed offsets, and the messages not processed yet.

Faust's consumer is not used for this: a stuck consumer reports that there are no more messages.
"""

import asyncio
import logging
from collections.abc import Callable, Mapping, Sequence
from typing import Protocol

from aiokafka.errors import KafkaError  # type: ignore[import-untyped]

from streamgauge.worker.log import Log
from streamgauge.worker.readiness import Owners
from streamgauge.worker.watchdog.rules import PartitionProgress, Probe, TopicPartition

_LOG = logging.getLogger("streamgauge.worker")

# The pause between two probes (seconds).
_EVERY_S = 5.0
# How long the broker may take to answer a probe (seconds): one request and a retry.
_ANSWER_S = 20.0
# After this many unchanged probes of a partition, its log is checked for a message between committed offset and end.
_DOUBT_AFTER = 4
# After this many failed probes in a row, a line is logged; fewer occur whenever the group gets another coordinator.
_LOGGED_AFTER = 6


class MonitoredTopic(Protocol):
    """The worker's assigned partitions of one topic; Assignment and LedgerSink implement it."""

    @property
    def topic(self) -> str:
        """The name of the topic."""

    @property
    def is_assigned(self) -> bool:
        """Whether the partitions are assigned, and ready to be processed."""

    def recovery_progress(self) -> tuple[int, ...]:
        """Numbers that change while a recovery makes progress; empty without a recovery."""

    def tries(self) -> Mapping[int, int]:
        """The retries of each assigned partition: a partition with retries is not stuck."""


class ProgressProbe:
    """Probes the partitions of `parts`, and the owners of all partitions, and calls `report` with each result."""

    def __init__(
        self, log: Log, parts: Sequence[MonitoredTopic], report: Callable[[Probe], None], owners: Owners | None = None
    ) -> None:
        self._log = log
        self._parts = parts
        self._owners = owners
        self._report = report
        # Uncommitted offsets, and the number of probes without a change.
        self._unchanged: dict[TopicPartition, tuple[range, int]] = {}
        self._empty: dict[TopicPartition, range] = {}  # uncommitted offsets without a message
        self._failed = 0  # failed probes in a row

    async def run(self) -> None:
        """Probe until cancelled."""
        while True:
            result = await self.probe()
            self._log_failures(result)
            self._report(result)
            await asyncio.sleep(_EVERY_S)

    def _log_failures(self, result: Probe) -> None:
        if result.broker_answers and self._failed >= _LOGGED_AFTER:
            _LOG.warning("the broker reports the worker's progress again, after %d failed requests", self._failed)
        self._failed = 0 if result.broker_answers else self._failed + 1
        if self._failed == _LOGGED_AFTER:
            _LOG.warning(
                "%d requests for the worker's progress failed in a row, so a stuck worker would not be detected: %s",
                self._failed,
                result.why,
            )

    async def probe(self) -> Probe:
        """Probe once."""
        try:
            async with asyncio.timeout(_ANSWER_S):
                if self._owners is not None:
                    await self._owners.check()
                progress = [await self._progress_of(part) for part in self._parts]
            result = {partition: progress for of_topic in progress for partition, progress in of_topic.items()}
            # In parallel, because each may take up to 30 s, and the watchdog waits at most 120 s for a probe.
            certain = await asyncio.gather(*(self._without_markers(*item) for item in result.items()))
            result = dict(zip(result, certain, strict=True))
        except (KafkaError, TimeoutError) as error:
            return Probe(broker_answers=False, why=repr(error))
        why = self._owners.problem if self._owners is not None else None
        is_assigned = all(part.is_assigned for part in self._parts) and why is None
        recovery_progress = tuple(move for part in self._parts for move in part.recovery_progress())
        return Probe(
            broker_answers=True, is_assigned=is_assigned, recovery_progress=recovery_progress, progress=result, why=why
        )

    async def _progress_of(self, part: MonitoredTopic) -> dict[TopicPartition, PartitionProgress]:
        tries = part.tries()
        committed = await self._log.committed(part.topic)
        begins = await self._log.begins(part.topic, tries)
        ends = await self._log.ends(part.topic, tries)
        return {
            TopicPartition(part.topic, number): PartitionProgress(
                max(committed.get(number, 0), begins[number]), ends[number], count
            )
            for number, count in tries.items()
        }

    async def _without_markers(self, partition: TopicPartition, progress: PartitionProgress) -> PartitionProgress:
        """Count uncommitted offsets without a message (a transaction's markers) as committed: no worker commits them."""
        span = range(progress.committed, progress.end)
        before, times = self._unchanged.get(partition, (span, 0))
        times = times + 1 if span and span == before else 0
        if times == _DOUBT_AFTER and not await self._has_message(partition, span):
            self._empty[partition] = span
        self._unchanged[partition] = (span, times)
        return progress._replace(committed=progress.end) if span == self._empty.get(partition) else progress

    async def _has_message(self, partition: TopicPartition, span: range) -> bool:
        try:
            return await self._log.has_message(partition.topic, partition.partition, span.start, span.stop)
        except TimeoutError:
            return False
