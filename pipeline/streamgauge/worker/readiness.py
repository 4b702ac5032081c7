"""Whether a worker is ready: whether each partition of its topics has an owner in the group, and the log lines about it.

A group leader without the metadata of a topic assigns its partitions to no member. A recovery of no partitions succeeds at
once, so each member would count as ready. A spare worker is ready: other members have all partitions.
"""

import logging
from collections.abc import Sequence

from streamgauge.worker.faust.consumer import FaustConsumer
from streamgauge.worker.log import Log

_LOG = logging.getLogger("streamgauge.worker")

# How long a worker may be unready before a line is logged (seconds): a rebalance and a recovery take less.
LOGGED_AFTER_S = 10.0
# The most partitions that a sentence names.
_NAMED = 3


class Owners:
    """Whether each partition has an owner, by the group's coordinator; `check` asks it.

    `consumers`: one for each topic that the worker reads.
    """

    def __init__(self, log: Log, consumers: Sequence[FaustConsumer]) -> None:
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
        """The reason why the worker is not ready, as a part of a sentence; None if nothing is wrong."""
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


class Readiness:
    """Call `update` at each check. It logs a line when the worker is first ready, when it stays unready, and when it is ready
    again.
    """

    def __init__(self) -> None:
        self._since: float | None = None
        self._logged = self._was_ready = False

    def update(self, why: str | None, now: float, partitions: int | None = None) -> None:
        """Record one check. `why`: why the worker is not ready at `now` (seconds, monotonic); None if ready or unknown.

        `partitions`: its number of partitions; None if unknown. Both None: unknown whether it is ready.
        """
        if why is None and partitions is None:  # unknown
            if not self._logged:
                self._since = None
            return
        if why is None:
            if not self._was_ready:
                _LOG.info("the worker is ready, with %d partitions", partitions)
            elif self._logged and self._since is not None:
                _LOG.warning("the worker is ready again, after %.0f s", now - self._since)
            self._was_ready, self._since, self._logged = True, None, False
            return
        self._since = now if self._since is None else self._since
        if not self._logged and now - self._since >= LOGGED_AFTER_S:
            self._logged = True
            _LOG.error("the worker has not been ready for %.0f s: %s", now - self._since, why)
