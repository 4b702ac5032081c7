"""Check with the group's coordinator whether each partition of the worker's topics has an owner in the group.

A group leader without the metadata of a topic assigns its partitions to no member. A recovery of no partitions succeeds at
once, so each member would count as ready. A spare worker is ready: other members have all partitions.
"""

from collections.abc import Sequence
from typing import Protocol

from streamgauge.worker.log import Log

# The most partitions that a sentence names.
_NAMED = 3


class Member(Protocol):
    """The part of `FaustConsumer` that is used here."""

    topic: str

    @property
    def assignment_epoch(self) -> object:
        """Identifies the current assignment; changes with every new one."""

    def assigned(self) -> set[int]:
        """The numbers of the assigned partitions."""


class Owners:
    """Checks the owners with `check`. `consumers`: one for each topic that the worker reads."""

    def __init__(self, log: Log, consumers: Sequence[Member]) -> None:
        self._log = log
        self._consumers = consumers
        self._checked_epoch: object = None  # the assignment epoch of the last check
        self._missing: str | None = None

    async def check(self) -> None:
        """Check the owners now. Keeps the last result while the group rebalances. Raises KafkaError."""
        epoch = self._consumers[0].assignment_epoch
        topics = [consumer.topic for consumer in self._consumers]
        existing = await self._log.identities(topics)
        group = await self._log.group()
        if epoch is None or epoch != self._consumers[0].assignment_epoch or group is None or not group.stable:
            return
        without = [
            f"{topic}/{number}"
            for topic in topics
            for number in range(existing[topic].partitions if topic in existing else 0)
            if number not in group.assigned.get(topic, ())
        ]
        self._checked_epoch, self._missing = epoch, _sentence(without)

    @property
    def problem(self) -> str | None:
        """Why the worker is not ready, as a part of a sentence; None if nothing is wrong."""
        epoch = self._consumers[0].assignment_epoch
        if epoch is not None and epoch == self._checked_epoch:
            return self._missing
        if self._consumers[0].assigned():
            return None
        return "it has no partitions, and does not know yet whether other workers have all of them"


def _sentence(without: list[str]) -> str | None:
    if not without:
        return None
    more = f" and {len(without) - _NAMED} more" if len(without) > _NAMED else ""
    return f"no worker of the group has {', '.join(without[:_NAMED])}{more}"
