"""Writes a worker's dead letters: one run of messages at a time, at a limited rate, and with retries without a time limit.

the broker accepts it      pause, then continue the partition: many unreadable messages must not starve other partitions
it is too large            send a truncated dead letter, with the message's sizes
any other error            the partition waits: nothing is lost or acknowledged; one log line, and a metric shows it
too many were foreign      the partition stops at the message, in the same way, until a worker starts again, or a readable
                           bundle follows (decision 39, `ForeignRun`)
"""

import asyncio
import contextlib
import logging
from collections.abc import Callable, Sequence
from itertools import zip_longest
from typing import Any

from aiokafka.errors import (  # type: ignore[import-untyped]
    KafkaError,
    KafkaTimeoutError,
    UnknownTopicOrPartitionError,
)

from streamgauge.kafka.backoff import Backoff
from streamgauge.kafka.dead_letters import Stage, dead_letter_of, is_truncated, truncated
from streamgauge.kafka.producer import Meaning, Message, Producer, meaning_of
from streamgauge.kafka.shims.cancelling import retrieve_exception
from streamgauge.kafka.topics import Topics
from streamgauge.metrics import table
from streamgauge.metrics.prometheus import Metrics
from streamgauge.worker.settings import FOREIGN_ALONE_S

_LOG = logging.getLogger("streamgauge.worker")

# The highest rate of one worker (dead letters per second, bytes per second).
_PER_S = 2_000
_BYTES_PER_S = 16 * 1024 * 1024
# The pause after a dead letter, as a multiple of the time that its message took to process. A forged bundle that inflates
# to 64 MiB takes 50 ms; with this pause, such messages get at most a fifth of the worker's time.
_PAUSES = 4
# The shortest time between two log lines about dead letters (seconds).
_REPEAT_S = 60.0
# How often a stopped partition reports to the watchdog that it waits for a good reason (seconds).
_STOPPED_S = 1.0
# How long the broker may take to confirm a dead letter before that counts as an error (seconds): electing a partition
# leader takes some seconds.
_CONFIRM_S = 10.0


class DeadLetters:
    """The dead letters of one worker. `producer` must not be shared, so that errors of this topic affect no other sends.

    `limit`, `alone_s`: see ForeignRun. `waiting`: the number of unreadable messages that wait, because the topic accepts none
    or their partition has stopped; at most one per partition. `tries` grows meanwhile, so that the watchdog can distinguish a
    waiting worker from a stuck worker.
    """

    def __init__(
        self,
        producer: Producer,
        topics: Topics,
        metrics: Metrics,
        limit: int = 0,
        alone_s: float = FOREIGN_ALONE_S,
    ) -> None:
        self._producer = producer
        self._topics = topics
        self._metrics = metrics
        self.tries = 0
        self._connected = False
        self._lock = asyncio.Lock()
        self.limit, self.alone_s = limit, alone_s
        self._stopped = 0  # the number of partitions that have stopped
        self._unwritten = 0  # the number of dead letters that are not durable yet
        self._failing = False
        self._written, self._logged_s = 0, -_REPEAT_S
        self._export_waiting()

    @property
    def waiting(self) -> int:
        """Unreadable messages at which partitions have stopped, and dead letters that the broker does not accept."""
        return self._stopped + (self._unwritten if self._failing else 0)

    async def stop(self, message: Any, stage: Stage, error_class: str, readable_follows: Callable[[], bool]) -> None:
        """Log that a partition stops at this message, and show it in the metric. Ends when `readable_follows`, which it calls
        once a second, or when it is cancelled.
        """
        self._stopped += 1
        self._export_waiting()
        try:
            _LOG.error(
                "partition %d of %s stops at offset %d (%s: %s): %d messages that this version cannot process came, as"
                " --dead-letter-limit allows, and for %.0f s none that it can. Nothing is lost. If taps are newer than this"
                " worker, upgrade it; to put more messages into %s, start it with a higher limit",
                message.partition, message.topic, message.offset, stage.value, error_class, self.limit, self.alone_s,
                self._topics.deadletter,
            )  # fmt: skip
            while not readable_follows():
                self.tries += 1
                await asyncio.sleep(_STOPPED_S)
            _LOG.warning(
                "partition %d of %s continues at offset %d: a bundle follows that this version may read",
                message.partition, message.topic, message.offset,
            )  # fmt: skip
        finally:
            self._stopped -= 1
            self._export_waiting()

    async def write(self, messages: Sequence[Any], stage: Stage, error_class: str, spent_s: float = 0.0) -> None:
        """Write the dead letters of messages; returns when all are durable and the rate limit's pause is over.

        `messages`: each has topic, partition, offset, key and value. `spent_s`: how long their processing took (seconds).
        """
        self._unwritten += len(messages)
        self._export_waiting()
        try:
            async with self._lock:
                letters = [dead_letter_of(self._topics, one, one.value, stage, error_class) for one in messages]
                sent = await self._send_all(letters)
                self._metrics.add(table.DEAD_LETTERS.name, len(messages), stage=stage.value, error_class=error_class)
                self._log_written(messages, stage, error_class)
                size = sum(len(letter.value or b"") + len(letter.key or b"") for letter in sent)
                await asyncio.sleep(max(len(sent) / _PER_S, size / _BYTES_PER_S, _PAUSES * spent_s))
        finally:
            self._unwritten -= len(messages)
            self._export_waiting()

    async def _send_all(self, letters: list[Message]) -> list[Message]:
        """Send at once, and then one by one what the broker did not confirm. Returns what was sent."""
        futures: list[asyncio.Future[Any]] = []
        if len(letters) > 1 and await self._connect():
            with contextlib.suppress(KafkaError):
                for letter in letters:
                    futures.append(await self._producer.send(letter))
                    futures[-1].add_done_callback(retrieve_exception)
            if futures:
                await asyncio.wait(futures, timeout=_CONFIRM_S)
        return [
            letter if future is not None and _is_confirmed(future) else await self._send(letter)
            for letter, future in zip_longest(letters, futures)
        ]

    async def _send(self, message: Message) -> Message:
        """Send until the broker confirms. Returns what was sent: the dead letter, or its truncated form."""
        backoff = Backoff()
        while True:
            generation = self._producer.generation
            try:
                await self._confirmed(message)
            except KafkaError as error:
                if meaning_of(error) is Meaning.REFUSED and not is_truncated(message):
                    message = truncated(message)
                else:
                    self._log_failure(error)
                    await asyncio.sleep(backoff.failed())
                self.tries += 1
                self._connected = await self._producer.renew(generation)
            else:
                self._log_recovery()
                return message

    async def _connect(self) -> bool:
        if not self._connected:
            self._connected = await self._producer.renew(self._producer.generation)
        return self._connected

    async def _confirmed(self, message: Message) -> None:
        await self._connect()
        future = await self._producer.send(message)
        future.add_done_callback(retrieve_exception)
        done, _ = await asyncio.wait({future}, timeout=_CONFIRM_S)
        if not done:
            raise KafkaTimeoutError
        if future.cancelled():
            raise KafkaError("cut off")
        future.result()

    def _log_written(self, messages: Sequence[Any], stage: Stage, error_class: str) -> None:
        """Log the first dead letters, and later the number of all so far, at most once per _REPEAT_S."""
        self._written += len(messages)
        message = messages[-1]
        now = asyncio.get_running_loop().time()
        if now - self._logged_s < _REPEAT_S:
            return
        self._logged_s = now
        _LOG.warning(
            "%d messages so far could not be read and are in %s, the last one from %s, partition %d, offset %d (%s: %s): list"
            " them with `streamgauge deadletter list`",
            self._written, self._topics.deadletter,
            message.topic, message.partition, message.offset, stage.value, error_class,
        )  # fmt: skip

    def _log_failure(self, error: KafkaError) -> None:
        if not self._failing:
            _LOG.error(
                "dead letters cannot be written to %s (%s): a partition with an unreadable message waits, nothing is lost",
                self._topics.deadletter,
                _reason_of(error),
            )
        self._failing = True
        self._export_waiting()

    def _log_recovery(self) -> None:
        if self._failing:
            _LOG.warning("dead letters can be written to %s again", self._topics.deadletter)
        self._failing = False
        self._export_waiting()

    def _export_waiting(self) -> None:
        self._metrics.set(table.DEAD_LETTERS_WAITING.name, self.waiting)


def _is_confirmed(future: "asyncio.Future[Any]") -> bool:
    return future.done() and not future.cancelled() and future.exception() is None


def _reason_of(error: KafkaError) -> str:
    if isinstance(error, UnknownTopicOrPartitionError):
        return "the topic does not exist: run `streamgauge topics create`"
    if meaning_of(error) is Meaning.DENIED:
        return f"the broker denies it, {type(error).__name__}: allow the worker to write to this topic"
    return f"{type(error).__name__}: check the topic's replicas and the broker"


class ForeignRun:
    """Foreign messages of a partition: bundles in the format of another version, since its last readable bundle.

    If taps were upgraded before the workers, every message of a partition is foreign, and the partition is to stop
    (decision 39). A client that may write the topic can forge foreign messages; it must not be able to stop a partition that
    taps use. So a partition stops only if no bundle could be read for some time, in which each tap sends several heartbeats.
    Damaged messages, messages of other programs, and bundles on which the assembler fails do not count: taps of a later
    version are not their cause.

    `limit`: how many there may be, 0 for no limit; `alone_s`: for how long at least no bundle could be read (seconds, by the
    timestamps that the broker gives to messages).
    """

    def __init__(self, limit: int, alone_s: float = FOREIGN_ALONE_S) -> None:
        self._limit, self._alone_s = limit, alone_s
        self._count, self._since_s = 0, 0.0

    def readable(self) -> None:
        """Count from 0 again, since a bundle of a tap could be read."""
        self._count = 0

    def foreign(self, at_s: float) -> bool:
        """Count one foreign message with this timestamp. Returns whether the partition is to stop at it."""
        if self._count == 0:
            self._since_s = at_s
        stops = 0 < self._limit <= self._count and at_s - self._since_s >= self._alone_s
        self._count += 1
        return stops
