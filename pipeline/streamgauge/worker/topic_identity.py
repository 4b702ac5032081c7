"""Check that the state belongs to the present topics: at each assignment, and while the worker runs.

A recreated topic keeps its name, and its offsets start at 0 again. The state's applied offsets are then wrong, even if the
new log is long enough: the worker would silently skip the messages below them. Kafka gives each topic an id (KIP-516), and
deletes a group's committed offsets when it deletes a topic. So each commit stores the topic id as its metadata. The first
commit of a partition, of offset 0, comes before any state. From then on:

    the commit's metadata has another id          the segments topic was recreated
    state without a committed offset              the same, unless all applied messages have expired from the log
    a committed offset above 0 without state      the state topic was recreated
    another id while the worker runs              that topic was recreated
    another partition count while it runs         the topic was changed or recreated
    a topic missing while it runs                 the topic was deleted

The records topic has no state: it is compared only while the worker runs.

Each of these ends the worker with a sentence. Continuing would silently lose streams, or give some a second record.

Kafka also deletes a group's committed offsets when no worker has run for a week (`offsets.retention.minutes`). Only an
operator can know that the topic is still the same one, and states so with its id (`--segments-id`). Reading then continues
after the state's applied offset. A recreated topic has another id, so it is still detected if the option is left in place.
"""

import asyncio
from collections.abc import Callable, Mapping

from aiokafka.errors import KafkaError  # type: ignore[import-untyped]

from streamgauge.kafka.administrator import Identity
from streamgauge.kafka.topics import Topics
from streamgauge.metrics import table
from streamgauge.metrics.prometheus import Metrics
from streamgauge.worker.faults import (
    NEW_LOG_REMEDY,
    LogRecreatedError,
    StateRecreatedError,
    TopicsChangedError,
    WorkerError,
)
from streamgauge.worker.faust.consumer import FaustConsumer
from streamgauge.worker.log import Log

# Interval of attempts while the broker does not answer (seconds).
_RETRY_S = 1.0
# How often the topics are checked while the worker runs (seconds). A check is one small request; until the next check the
# worker may read messages of a recreated log.
_EVERY_S = 2.0
# After this many checks in a row without a topic, it counts as deleted: a broker that has just started may not list all.
_MISSING_CHECKS = 5
# The value of `--segments-id` if the broker returns no topic ids.
UNKNOWN_ID = "unknown"
# The commit metadata if the broker returns no topic ids.
_NO_ID = "no id"


class TopicIdentityCheck:
    """Checks at an assignment whether the state of the partitions belongs to the present segments topic."""

    def __init__(self, log: Log, topics: Topics, consumer: FaustConsumer, segments_id: str) -> None:
        self._log = log
        self._topics = topics
        self._consumer = consumer
        self._segments_id = segments_id

    async def check(
        self,
        offsets: Mapping[int, tuple[int, int, int]],
        applied: Mapping[int, int | None],
        resume: Mapping[int, int] = {},
    ) -> bool:
        """Check, and then commit the topic's id for partitions without a commit. Retries until the broker answers.

        All arguments are by partition. `offsets`: the committed offset, the log's first offset, the log's end. `applied`: the
        last offset applied to its state; None without state. `resume`: for partitions without a committed offset, the
        offset at which reading continues by the state.

        Returns True if the state belongs to the topic, False if the next rebalance has begun. Raises WorkerError.
        """
        epoch = self._consumer.assignment_epoch
        while epoch is not None and epoch == self._consumer.assignment_epoch:
            try:
                metadata = await self._log.committed_metadata(self._topics.segments)
                existing = (await self._log.identities([self._topics.segments])).get(self._topics.segments)
            except KafkaError:
                existing = None
            if existing is not None and epoch == self._consumer.assignment_epoch:
                for number, (committed, begins, _) in offsets.items():
                    self._compare(number, metadata.get(number), existing.id, (committed, begins, applied[number]))
                self._consumer.commit_metadata = existing.id or _NO_ID
                first = {number: 0 for number in offsets if number not in metadata}
                if await self._consumer.commit({**first, **resume}) is not None:
                    return True
            await asyncio.sleep(_RETRY_S)
        return False

    def _compare(
        self, number: int, committed_id: str | None, topic_id: str, offsets: tuple[int, int, int | None]
    ) -> None:
        committed, begins, applied = offsets
        segments = f"{self._topics.segments}/{number}"
        if committed_id is None:
            if applied is not None and applied >= begins and self._segments_id != (topic_id or UNKNOWN_ID):
                raise LogRecreatedError(self._forgotten(segments, applied + 1, topic_id))
        elif topic_id and committed_id not in (topic_id, _NO_ID, ""):
            raise LogRecreatedError(
                f"{segments} was recreated after offset {committed} was committed. {NEW_LOG_REMEDY}"
            )
        elif committed_id and committed and applied is None:
            raise StateRecreatedError(
                f"{self._topics.state} has no state of partition {number}, although {committed} messages of it are "
                f"acknowledged: the topic was recreated. {_REMEDY_STATE}"
            )

    def _forgotten(self, segments: str, applied: int, topic_id: str) -> str:
        return (
            f"the consumer group has no offsets of {segments}, although {applied} messages of it are applied: the offsets "
            f"expired because no worker ran, or the topic was recreated. If {self._topics.segments} is the same topic, start "
            f"the workers with --segments-id {topic_id or UNKNOWN_ID}: they continue where they stopped "
            f"(docs/guides/outages.md). If not: {NEW_LOG_REMEDY}"
        )


_REMEDY_STATE = (
    "Open streams are lost: delete the consumer group's offsets, or use another --topic-prefix"
    " (docs/guides/partitions.md)"
)


class TopicsMonitor:
    """Checks, while the worker runs, whether its topics are still the same as at its start.

    `unread`: returns the number of messages not read yet. `fail` is called with the WorkerError that has to end the worker.
    """

    def __init__(
        self,
        log: Log,
        topics: Topics,
        metrics: Metrics,
        unread: Callable[[], int],
        fail: Callable[[WorkerError], None],
    ) -> None:
        self._log = log
        self._names = (topics.segments, topics.state, topics.records)
        self._metrics = metrics
        self._unread = unread
        self._fail = fail
        self._known: dict[str, Identity] = {}
        self._missing = dict.fromkeys(self._names, 0)
        self._waiting = 0

    async def run(self) -> None:
        """Check every _EVERY_S until cancelled, or until a topic has changed."""
        while True:
            try:
                self._check(await self._log.identities(self._names))
            except KafkaError:
                pass  # the broker is unreachable: check again later
            except WorkerError as error:
                self._fail(error)
                return
            await asyncio.sleep(_EVERY_S)

    def _check(self, existing: Mapping[str, Identity]) -> None:
        for name in self._names:
            now, before = existing.get(name), self._known.get(name)
            self._missing[name] = self._missing[name] + 1 if now is None else 0
            if self._missing[name] >= _MISSING_CHECKS:
                raise TopicsChangedError(
                    f"topic {name} does not exist any more: check whether it can be restored. {self._remedy(name)}"
                )
            if now is not None and before is not None and now.id and before.id and now.id != before.id:
                raise LogRecreatedError(f"topic {name} was recreated while the worker ran. {self._remedy(name)}")
            if now is not None and before is not None and now.partitions != before.partitions:
                raise TopicsChangedError(
                    f"topic {name} has {now.partitions} partitions now, and had {before.partitions}: stop all workers, give "
                    "the segments and state topics the same count, start the workers (docs/guides/partitions.md)"
                )
        self._known.update(existing)
        if (segments := existing.get(self._names[0])) is not None:
            self._metrics.set(table.EXPECTED_PARTITIONS.name, segments.partitions)
        self._waiting = self._unread()

    def _remedy(self, name: str) -> str:
        """Count the messages that are certainly lost: all that were unread at the last check of the old segments topic."""
        if name != self._names[0]:
            return NEW_LOG_REMEDY
        self._metrics.add(table.LOG_GAP_MESSAGES.name, self._waiting)
        return f"At least {self._waiting} unread messages are lost. {NEW_LOG_REMEDY}"
