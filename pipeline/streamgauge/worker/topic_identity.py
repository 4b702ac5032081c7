"""Is this the log that the state speaks of? Asked whenever partitions are given, and while the worker runs.

A topic that is deleted and made again keeps its name and begins at 0 once more. An offset that was applied means nothing in
it, even where it is long enough: what lies below would be skipped in silence. Kafka gives each topic an id (KIP-516), and
forgets what a group has committed when a topic is deleted. So each commit carries the id as its note, the first one of a
partition, of offset 0, comes before any state, and from then on:

    the note is another topic's                    the segments topic was made anew
    nothing is committed, and there is state       likewise, unless all that was applied has gone from the log meanwhile
    something is committed, and there is no state  the state topic was made anew
    another id, or another number of partitions    likewise, while the worker runs

Each ends the worker with a sentence. To go on would lose streams unsaid, or give some of them a second record.

Kafka also forgets what a group has committed when no worker has run for a week (`offsets.retention.minutes`). Only an
operator knows that the topic is still the same one, and says so with its id (`--segments-id`): then reading goes on
behind what the state speaks of. A topic that is made anew has another id, so an option that was left in place accepts
nothing else.
"""

import asyncio
from collections.abc import Callable, Mapping
from typing import Protocol

from aiokafka.errors import KafkaError  # type: ignore[import-untyped]

from streamgauge.kafka.topic_ids import Identity
from streamgauge.kafka.topics import Topics
from streamgauge.metrics import table
from streamgauge.worker.faults import (
    NEW_LOG_REMEDY,
    LogRecreatedError,
    StateRecreatedError,
    TopicsChangedError,
    WorkerError,
)
from streamgauge.worker.log import Log
from streamgauge.worker.settings import WorkerMetrics

# How soon a broker that does not answer is asked again (seconds).
_RETRY_S = 1.0
# How often it is looked while the worker runs (seconds): one small request; what is read until then may be another log's.
_EVERY_S = 2.0
# At so many looks in a row a topic is missing before it counts as gone: a broker that has just started may not know all.
_MISSING_LOOKS = 5
# What `--segments-id` is given where the broker tells no ids.
UNKNOWN_ID = "unknown"
# The note where the broker tells no ids.
_NO_ID = "no id"


class Committing(Protocol):
    """The part of `FaustConsumer` that is used here."""

    commit_metadata: str

    @property
    def assignment_epoch(self) -> object: ...
    async def commit(self, offsets: Mapping[int, int]) -> bool: ...


class TopicIdentityCheck:
    """Looks whether partitions that are given are those that their state speaks of."""

    def __init__(self, log: Log, topics: Topics, consumer: Committing, segments_id: str = "") -> None:
        self._log = log
        self._topics = topics
        self._consumer = consumer
        self._segments_id = segments_id

    async def check(
        self,
        places: Mapping[int, tuple[int, int, int]],
        spoken: Mapping[int, int | None],
        resume: Mapping[int, int] = {},
    ) -> bool:
        """`places`: committed, begin and end of each partition; `spoken`: up to where its state speaks, None without any.

        `resume`: where the state says that reading goes on, of partitions of which nothing is committed.

        True: all is well. False: the next rebalance has begun. Raises WorkerError. Asks until the broker answers.
        """
        holding = self._consumer.assignment_epoch
        while holding is not None and holding == self._consumer.assignment_epoch:
            try:
                notes = await self._log.notes(self._topics.segments)
                there = (await self._log.identities([self._topics.segments])).get(self._topics.segments)
            except KafkaError:
                there = None
            if there is not None and holding == self._consumer.assignment_epoch:
                for number, (committed, begins, _) in places.items():
                    self._compare(number, notes.get(number), there.id, (committed, begins, spoken[number]))
                self._consumer.commit_metadata = there.id or _NO_ID
                first = {number: 0 for number in places if number not in notes}
                if await self._consumer.commit({**first, **resume}):
                    return True
            await asyncio.sleep(_RETRY_S)
        return False

    def _compare(self, number: int, note: str | None, topic_id: str, place: tuple[int, int, int | None]) -> None:
        committed, begins, spoken = place
        segments = f"{self._topics.segments}/{number}"
        if note is None:
            if spoken is not None and spoken >= begins and self._segments_id != (topic_id or UNKNOWN_ID):
                raise LogRecreatedError(self._forgotten(segments, spoken + 1, topic_id))
        elif topic_id and note not in (topic_id, _NO_ID, ""):
            raise LogRecreatedError(
                f"{segments} was recreated after offset {committed} was committed. {NEW_LOG_REMEDY}"
            )
        elif note and committed and spoken is None:
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


class TopicsWatch:
    """Looks, while the worker runs, whether its topics are still those that it began with.

    `unread`: how many messages wait to be read; `fail` is told of what ends the worker.
    """

    def __init__(
        self,
        log: Log,
        topics: Topics,
        metrics: WorkerMetrics,
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
        """Until it is cancelled, or has found something."""
        while True:
            try:
                self._look(await self._log.identities(self._names))
            except KafkaError:
                pass  # who is away says nothing
            except WorkerError as error:
                self._fail(error)
                return
            await asyncio.sleep(_EVERY_S)

    def _look(self, there: Mapping[str, Identity]) -> None:
        for name in self._names:
            now, before = there.get(name), self._known.get(name)
            self._missing[name] = self._missing[name] + 1 if now is None else 0
            if self._missing[name] >= _MISSING_LOOKS:
                raise TopicsChangedError(
                    f"topic {name} does not exist any more: check whether it can be restored. {self._lost(name)}"
                )
            if now is not None and before is not None and now.id and before.id and now.id != before.id:
                raise LogRecreatedError(f"topic {name} was recreated while the worker ran. {self._lost(name)}")
            if now is not None and before is not None and now.partitions != before.partitions:
                raise TopicsChangedError(
                    f"topic {name} has {now.partitions} partitions now, and had {before.partitions}: stop all workers, give "
                    "the segments and state topics the same count, start the workers (docs/guides/partitions.md)"
                )
        self._known.update(there)
        self._waiting = self._unread()

    def _lost(self, name: str) -> str:
        """Count what is lost for certain: what waited to be read at the last look at the old topic."""
        if name != self._names[0]:
            return NEW_LOG_REMEDY
        self._metrics.add(table.LOG_GAP_MESSAGES.name, self._waiting)
        return f"At least {self._waiting} unread messages are lost. {NEW_LOG_REMEDY}"
