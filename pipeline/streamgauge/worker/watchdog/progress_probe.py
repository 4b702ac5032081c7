"""A look at the worker's own work, by the broker's word: what is committed, and what there is to be done.

Faust's consumer is not asked: if it is stuck it believes that there is nothing more.
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

# How often it is looked (seconds), and how long the broker may take to answer: one request and a second try.
_EVERY_S = 5.0
_ANSWER_S = 20.0
# Looks that find a partition unchanged, until it is asked whether there is a message at all.
_DOUBT_AFTER = 4
# Failed looks in a row after which a line is logged; fewer occur whenever the group gets another coordinator (count).
_SAID_AFTER = 6


class MonitoredTopic(Protocol):
    """One topic's partitions, as the worker holds them."""

    @property
    def topic(self) -> str: ...
    @property
    def settled(self) -> bool: ...
    def moves(self) -> tuple[int, ...]: ...
    def tries(self) -> Mapping[int, int]: ...


class ProgressProbe:
    """Looks at `parts`, and at the owners of all partitions, and tells `report` what it found."""

    def __init__(
        self, log: Log, parts: Sequence[MonitoredTopic], report: Callable[[Probe], None], owners: Owners | None = None
    ) -> None:
        self._log = log
        self._parts = parts
        self._owners = owners
        self._report = report
        self._seen: dict[TopicPartition, tuple[range, int]] = {}  # what waits, and at how many looks it was the same
        self._empty: dict[TopicPartition, range] = {}  # what waits, and holds no message
        self._failed = 0  # looks in a row that failed

    async def run(self) -> None:
        """Until it is cancelled."""
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
        """One look."""
        try:
            async with asyncio.timeout(_ANSWER_S):
                if self._owners is not None:
                    await self._owners.look()
                standings = [await self._standings(part) for part in self._parts]
            found = {spot: standing for one in standings for spot, standing in one.items()}
            # Beside each other: each may take its time, and who waits for this look has less than that for all of them.
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
        """Offsets without a message (a transaction's markers) are legal, and nobody commits them: they are nothing to do."""
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
