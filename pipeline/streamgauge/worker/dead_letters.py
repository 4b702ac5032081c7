"""What a worker puts into the dead letter topic: one letter at a time, slowly, and for as long as it takes.

the topic takes it        a pause, then on with the partition: a flood of poison must not drown the good partitions
it is too large for it    its beginning goes, with its sizes
anything else             its partition waits: nothing is lost, nothing acknowledged; said once, and shown as a metric
"""

import asyncio
import logging
from typing import Any

from aiokafka.errors import (  # type: ignore[import-untyped]
    KafkaError,
    KafkaTimeoutError,
    UnknownTopicOrPartitionError,
)

from streamgauge.kafka.backoff import Pace
from streamgauge.kafka.dead_letters import Stage, is_shortened, letter, shortened
from streamgauge.kafka.producer import Meaning, Message, Producer, meaning_of
from streamgauge.kafka.topics import Topics
from streamgauge.metrics import table
from streamgauge.worker.settings import WorkerMetrics

_LOG = logging.getLogger("streamgauge.worker")

# At most so many dead letters a second and worker, and so many of their bytes.
_PER_S = 200
_BYTES_PER_S = 16 * 1024 * 1024
# The pause after a letter is this many times what it took to see that its message is none: a forged bundle that inflates
# to 64 MiB takes 50 ms, and poison gets a fifth of the worker at most.
_PAUSES = 4
# How often a line tells of dead letters at most (seconds).
_REPEAT_S = 60.0
# How long the topic may take to confirm one letter before that counts as trouble (seconds): a new leader takes some.
_CONFIRM_S = 10.0


class DeadLetters:
    """Of one worker. `producer`: one that nobody else uses, so that trouble with this topic is nobody else's.

    `waiting`: the letters that wait because the topic takes none; a partition has one at most. `tries` grows meanwhile:
    who waits by rule is told from who hangs by it.
    """

    def __init__(self, producer: Producer, topics: Topics, metrics: WorkerMetrics) -> None:
        self._producer = producer
        self._topics = topics
        self._metrics = metrics
        self.tries = 0
        self._connected = False
        self._turn = asyncio.Lock()
        self._here = 0  # letters that are not durable yet
        self._trouble = False
        self._buried, self._said_s = 0, -_REPEAT_S

    @property
    def waiting(self) -> int:
        return self._here if self._trouble else 0

    async def bury(self, message: Any, stage: Stage, error_class: str, spent_s: float = 0.0) -> None:
        """Returns when the letter of this message is durable, and some time has passed.

        `message`: topic, partition, offset, key and value. `spent_s`: what it took to see that it is poison.
        """
        self._here += 1
        self._show()
        try:
            async with self._turn:
                sent = await self._send(letter(self._topics, message, message.value, stage, error_class))
                self._metrics.add(table.DEAD_LETTERS.name, stage=stage.value, error_class=error_class)
                self._say_buried(message, stage, error_class)
                size = len(sent.value or b"") + len(sent.key or b"")
                await asyncio.sleep(max(1 / _PER_S, size / _BYTES_PER_S, _PAUSES * spent_s))
        finally:
            self._here -= 1
            self._show()

    async def _send(self, message: Message) -> Message:
        """What was sent in the end: the letter, or its beginning."""
        pace = Pace()
        while True:
            generation = self._producer.generation
            try:
                await self._confirmed(message)
            except KafkaError as error:
                if meaning_of(error) is Meaning.REFUSED and not is_shortened(message):
                    message = shortened(message)
                else:
                    self._say_trouble(error)
                    await asyncio.sleep(pace.failed())
                self.tries += 1
                self._connected = await self._producer.renew(generation)
            else:
                self._say_good()
                return message

    async def _confirmed(self, message: Message) -> None:
        if not self._connected:
            self._connected = await self._producer.renew(self._producer.generation)
        future = await self._producer.send(message)
        future.add_done_callback(_note)
        done, _ = await asyncio.wait({future}, timeout=_CONFIRM_S)
        if not done:
            raise KafkaTimeoutError
        if future.cancelled():
            raise KafkaError("cut off")
        future.result()

    def _say_buried(self, message: Any, stage: Stage, error_class: str) -> None:
        """Log the first letter, and then the number of them each _REPEAT_S."""
        self._buried += 1
        now = asyncio.get_running_loop().time()
        if now - self._said_s < _REPEAT_S:
            return
        self._said_s = now
        _LOG.warning(
            "%d messages so far could not be read and are in %s, the last one from %s, partition %d, offset %d (%s: %s): list"
            " them with `streamgauge deadletter list`",
            self._buried, self._topics.deadletter, message.topic, message.partition, message.offset, stage.value, error_class,
        )  # fmt: skip

    def _say_trouble(self, error: KafkaError) -> None:
        if not self._trouble:
            _LOG.error(
                "dead letters cannot be written to %s (%s): a partition with an unreadable message waits, nothing is lost",
                self._topics.deadletter,
                _why(error),
            )
        self._trouble = True
        self._show()

    def _say_good(self) -> None:
        if self._trouble:
            _LOG.warning("dead letters can be written to %s again", self._topics.deadletter)
        self._trouble = False
        self._show()

    def _show(self) -> None:
        self._metrics.set(table.DEAD_LETTERS_WAITING.name, self.waiting)


def _why(error: KafkaError) -> str:
    if isinstance(error, UnknownTopicOrPartitionError):
        return "the topic does not exist: run `streamgauge topics create`"
    if meaning_of(error) is Meaning.DENIED:
        return f"the broker denies it, {type(error).__name__}: allow the worker to write to this topic"
    return f"{type(error).__name__}: check the topic's replicas and the broker"


def _note(future: "asyncio.Future[Any]") -> None:
    """An error of a letter that nobody waits for any more (its partition was revoked) is no news."""
    if not future.cancelled():
        future.exception()
