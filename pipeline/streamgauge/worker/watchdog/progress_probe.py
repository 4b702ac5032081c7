"""Read the worker's progress from the broker: the committed offsets, and the messages not processed yet.

Faust's consumer is not used for this: a stuck consumer reports that there are no more messages.
"""

import asyncio
import logging
from collections.abc import Callable, Mapping, Sequence
from typing import Protocol

from aiokafka.errors import KafkaError  # type: ignore[import-untyped]

from streamgauge.worker.log import Log
from streamgauge.worker.owners import Owners
from streamgauge.worker.watchdog.rules import PartitionProgress, Probe, TopicPartition

_LOG = logging.getLogger("streamgauge.worker")

# The pause between two probes (seconds).
_EVERY_S = 5.0
# How long the broker may take to answer a probe (seconds): one request and a retry.
_ANSWER_S = 20.0
# After this many unchanged probes of a partition, its log is checked for a message between committed offset and end.
_DOUBT_AFTER = 4
# After this many failed probes in a row, a line is logged; fewer occur whenever the group gets another coordinator.
_SAID_AFTER = 6


class MonitoredTopic(Protocol):
    """The worker's assigned partitions of one topic; Assignment and LedgerSink implement it."""

    @property
    def topic(self) -> str: ...
    @property
    def settled(self) -> bool: ...
    def moves(self) -> tuple[int, ...]: ...
    def tries(self) -> Mapping[int, int]: ...


class ProgressProbe:
    """Probes the partitions of `parts`, and the owners of all partitions, and calls `report` with each result."""

    def __init__(
        self, log: Log, parts: Sequence[MonitoredTopic], report: Callable[[Probe], None], owners: Owners | None = None
    ) -> None:
        self._log = log
        self._parts = parts
        self._owners = owners
        self._report = report
        self._seen: dict[TopicPartition, tuple[range, int]] = {}  # uncommitted offsets, and the probes without a change
        self._empty: dict[TopicPartition, range] = {}  # uncommitted offsets without a message
        self._failed = 0  # failed probes in a row

    async def run(self) -> None:
        """Probe until cancelled."""
        while True:
            found = await self.look()
            self._say(found)
            self._report(found)
            await asyncio.sleep(_EVERY_S)

    def _say(self, found: Probe) -> None:
        if found.broker_answers and self._failed >= _SAID_AFTER:
            _LOG.warning("the broker reports the worker's progress again, after %d failed requests", self._failed)
        self._failed = 0 if found.broker_answers else self._failed + 1
        if self._failed == _SAID_AFTER:
            _LOG.warning(
                "%d requests for the worker's progress failed in a row, so a stuck worker would not be detected: %s",
                self._failed,
                found.why,
            )

    async def look(self) -> Probe:
        """Probe once."""
        try:
            async with asyncio.timeout(_ANSWER_S):
                if self._owners is not None:
                    await self._owners.look()
                standings = [await self._standings(part) for part in self._parts]
            found = {spot: standing for one in standings for spot, standing in one.items()}
            # In parallel, because each may take up to 30 s, and the watchdog waits at most 120 s for a probe.
            certain = await asyncio.gather(*(self._certain(*one) for one in found.items()))
            found = dict(zip(found, certain, strict=True))
        except (KafkaError, TimeoutError) as error:
            return Probe(broker_answers=False, why=repr(error))
        why = self._owners.problem if self._owners is not None else None
        settled = all(part.settled for part in self._parts) and why is None
        moves = tuple(move for part in self._parts for move in part.moves())
        return Probe(broker_answers=True, settled=settled, moves=moves, standings=found, why=why)

    async def _standings(self, part: MonitoredTopic) -> dict[TopicPartition, PartitionProgress]:
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

    async def _certain(self, spot: TopicPartition, standing: PartitionProgress) -> PartitionProgress:
        """Count uncommitted offsets without a message (a transaction's markers) as committed: no worker commits them."""
        span = range(standing.committed, standing.end)
        before, times = self._seen.get(spot, (span, 0))
        times = times + 1 if span and span == before else 0
        if times == _DOUBT_AFTER and not await self._holds(spot, span):
            self._empty[spot] = span
        self._seen[spot] = (span, times)
        return standing._replace(committed=standing.end) if span == self._empty.get(spot) else standing

    async def _holds(self, spot: TopicPartition, span: range) -> bool:
        try:
            return await self._log.holds(spot.topic, spot.partition, span.start, span.stop)
        except TimeoutError:
            return False
