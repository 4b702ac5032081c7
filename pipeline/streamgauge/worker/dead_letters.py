"""Writes a worker's dead letters: one at a time, at a limited rate, and with retries without a time limit.

the broker accepts it      pause, then continue the partition: many unreadable messages must not starve other partitions
it is too large            send a truncated dead letter, with the message's sizes
any other error            the partition waits: nothing is lost or acknowledged; one log line, and a metric shows it
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

# The highest rate of one worker (dead letters per second, bytes per second).
_PER_S = 200
_BYTES_PER_S = 16 * 1024 * 1024
# The pause after a dead letter, as a multiple of the time that its message took to process. A forged bundle that inflates
# to 64 MiB takes 50 ms; with this pause, such messages get at most a fifth of the worker's time.
_PAUSES = 4
# The shortest time between two log lines about dead letters (seconds).
_REPEAT_S = 60.0
# How long the broker may take to confirm a dead letter before that counts as an error (seconds): electing a partition
# leader takes some seconds.
_CONFIRM_S = 10.0


class DeadLetters:
    """The dead letters of one worker. `producer` must not be shared, so that errors of this topic affect no other sends.

    `waiting`: the number of dead letters that wait because the topic accepts none; at most one per partition. `tries` grows
    with each retry, so that the watchdog can distinguish a worker that waits for the topic from one that is stuck.
    """

    def __init__(self, producer: Producer, topics: Topics, metrics: WorkerMetrics) -> None:
        self._producer = producer
        self._topics = topics
        self._metrics = metrics
        self.tries = 0
        self._connected = False
        self._turn = asyncio.Lock()
        self._here = 0  # the number of dead letters that are not durable yet
        self._trouble = False
        self._buried, self._said_s = 0, -_REPEAT_S

    @property
    def waiting(self) -> int:
        return self._here if self._trouble else 0

    async def bury(self, message: Any, stage: Stage, error_class: str, spent_s: float = 0.0) -> None:
        """Write the dead letter of a message; returns when it is durable and the rate limit's pause is over.

        `message`: has topic, partition, offset, key and value. `spent_s`: how long the failed processing took (seconds).
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
        """Send until the broker confirms. Returns what was sent: the dead letter, or its truncated form."""
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
        """Log the first dead letter, and later the number of all so far, at most once per _REPEAT_S."""
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
    """Retrieve the exception: asyncio would log it if the partition was revoked and no code awaits the dead letter."""
    if not future.cancelled():
        future.exception()
