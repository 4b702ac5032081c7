"""An idempotent aiokafka producer that is replaced when it is beyond help, and what an error of it means.

Of aiokafka 0.14: `send()` blocks its caller while the broker is away, for up to the request timeout. An idempotent
producer keeps what it has buffered through an outage, but a batch that fails for good leaves a hole in its sequence
numbers, after which the broker refuses all that follows: then only a new producer helps (`renew`), and whoever sent
sends again what was not confirmed.
"""

import asyncio
import contextlib
from enum import Enum, auto
from typing import Any, NamedTuple

from aiokafka import AIOKafkaProducer  # type: ignore[import-untyped]
from aiokafka.errors import (  # type: ignore[import-untyped]
    BrokerNotAvailableError,
    BrokerResponseError,
    ClusterAuthorizationFailedError,
    CorruptRecordException,
    InvalidProducerEpoch,
    InvalidProducerIdMapping,
    InvalidTimestampError,
    InvalidTopicError,
    KafkaConnectionError,
    KafkaError,
    MessageSizeTooLargeError,
    OperationNotAttempted,
    OutOfOrderSequenceNumber,
    RecordListTooLargeError,
    ReplicaNotAvailableError,
    TopicAuthorizationFailedError,
    UnknownProducerId,
)

from streamgauge.kafka.cancelling import end_task
from streamgauge.kafka.connection_diagnosis import refusal_of
from streamgauge.kafka.security import Brokers, brokers_at

# How long the broker may take to answer one request; then the connection counts as dead (milliseconds). Half-open
# connections are noticed within this time.
REQUEST_TIMEOUT_MS = 10_000

# How long a producer that is given up may take to let go of its connections (seconds).
_DISCARD_TIMEOUT_S = 2.0


class Message(NamedTuple):
    """What is sent. `partition` None: by the key's hash."""

    topic: str
    value: bytes | None
    key: bytes | None = None
    partition: int | None = None
    headers: tuple[tuple[str, bytes], ...] = ()


class Meaning(Enum):
    """What an error says about the message that it is about."""

    AGAIN = auto()  # nothing about the message: send it again
    REFUSED = auto()  # this message will never be taken
    DENIED = auto()  # nothing will be taken until an operator has put something right


_REFUSED = (MessageSizeTooLargeError, RecordListTooLargeError, CorruptRecordException)
_DENIED = (
    TopicAuthorizationFailedError,
    ClusterAuthorizationFailedError,
    InvalidTopicError,
    InvalidTimestampError,  # our clock, or a topic that takes it for the message's time
)
_INVALID_RECORD = 87  # the broker's word for a record that fits no rule of its topic; aiokafka has no class for it


def meaning_of(error: BaseException) -> Meaning:
    """What to do about a failed send."""
    if isinstance(error, _REFUSED) or (isinstance(error, BrokerResponseError) and error.errno == _INVALID_RECORD):
        return Meaning.REFUSED
    if isinstance(error, _DENIED):
        return Meaning.DENIED
    return Meaning.AGAIN


# What a broker says of itself, or of a producer's numbers: a new producer, or another moment, and it takes the message.
_OF_THE_MOMENT = (
    BrokerNotAvailableError,
    ReplicaNotAvailableError,
    OutOfOrderSequenceNumber,
    InvalidProducerEpoch,
    InvalidProducerIdMapping,
    UnknownProducerId,
    OperationNotAttempted,
)


def may_be_the_message(error: BaseException) -> bool:
    """Whether the broker's answer may be about this very message, and may be about something else: a checksum that the way
    may have spoilt, an error without a reason, one that should not come. To be tried again by itself, and not for ever."""
    if isinstance(error, CorruptRecordException):
        return True
    told = isinstance(error, BrokerResponseError) and not error.retriable
    return told and not isinstance(error, _OF_THE_MOMENT) and meaning_of(error) is Meaning.AGAIN


class Producer:
    """acks=all, idempotent, no compression: bundles are compressed already, records and state are few.

    `generation` counts the producers that were used up: tell `renew` the one that failed.
    """

    def __init__(self, at: Brokers | str, *, max_message_bytes: int, batch_bytes: int, linger_ms: int = 0) -> None:
        self._brokers = brokers_at(at)
        self._settings: dict[str, Any] = {
            "client_id": "streamgauge",
            "acks": "all",
            "enable_idempotence": True,
            "compression_type": None,
            # The message, its headers and the frame around it.
            "max_request_size": max_message_bytes + 4096,
            "max_batch_size": batch_bytes,
            "linger_ms": linger_ms,
            "request_timeout_ms": REQUEST_TIMEOUT_MS,
        }
        self.generation = 0
        self._producer: Any = None
        self._given_up: list[Any] = []  # producers that are still to be let go of
        self._renewing = asyncio.Lock()

    async def start(self) -> bool:
        """Connects. False if no broker answers; raises nothing for that, so that it can be tried again and again."""
        producer = AIOKafkaProducer(**self._brokers.options(), **self._settings)
        self._given_up.append(producer)  # until it has started: a cancellation may come at any moment
        try:
            async with asyncio.timeout(REQUEST_TIMEOUT_MS / 1000):
                await producer.start()
        except (KafkaError, TimeoutError):
            await self._let_go()
            return False
        self._given_up.remove(producer)
        self._producer = producer
        return True

    async def send(self, message: Message) -> "asyncio.Future[Any]":
        """Hands one message over; the future tells when it is durable. Raises KafkaError: it was not handed over."""
        producer = self._producer
        if producer is None:
            raise KafkaConnectionError("not connected")
        try:
            future: asyncio.Future[Any] = await producer.send(
                message.topic,
                message.value,
                key=message.key,
                partition=message.partition,
                headers=list(message.headers),
            )
        except AssertionError as error:  # aiokafka's way to say that it does not know this partition (yet)
            await producer.client.force_metadata_update()
            raise KafkaError(f"unknown partition {message.partition} of {message.topic}") from error
        return future

    async def renew(self, failed: int) -> bool:
        """Replaces the producer of generation `failed`, unless somebody did so already. False: no broker answers."""
        async with self._renewing:
            if self.generation != failed and self._producer is not None:
                return True
            old, self._producer = self._producer, None
            self.generation += 1
            if old is not None:
                self._given_up.append(old)
            await self._let_go()
            return await self.start()

    @property
    def started(self) -> bool:
        return self._producer is not None

    async def answers(self) -> bool | None:
        """Whether the broker answers a request for metadata right now; None while there is no connection to ask by."""
        producer = self._producer
        if producer is None:
            return None
        with contextlib.suppress(TimeoutError, KafkaError):
            async with asyncio.timeout(REQUEST_TIMEOUT_MS / 1000):
                return bool(await producer.client.force_metadata_update())
        return False

    async def refusal(self) -> str | None:
        """What an operator has to put right for the broker to have us, as one sentence; None if nothing is known."""
        found = await refusal_of(self._brokers)
        return found.sentence if found is not None else None

    async def stop(self, deadline_s: float) -> None:
        """Sends what is buffered and disconnects; after the deadline disconnects only."""
        producer, self._producer = self._producer, None
        if producer is not None:
            self._given_up.append(producer)
            stopping = asyncio.ensure_future(producer.stop())
            done, _ = await asyncio.wait({stopping}, timeout=deadline_s)
            if not done:
                await end_task(stopping)
        await self._let_go()

    async def _let_go(self) -> None:
        for producer in list(self._given_up):
            await _discard(producer)
            if producer in self._given_up:
                self._given_up.remove(producer)


async def _discard(producer: Any) -> None:
    """Let go of a producer without waiting for what it holds. aiokafka's own `stop` waits until all is delivered."""
    producer._closed = True
    await producer.client.close()
    sender = producer._sender.sender_task
    if sender is not None and not sender.done():
        sender.cancel()
        await asyncio.wait({sender}, timeout=_DISCARD_TIMEOUT_S)
    accumulator = producer._message_accumulator
    accumulator.fail_all(KafkaConnectionError("the producer was given up"))
    for batch in (one for batches in accumulator._batches.values() for one in batches):
        if batch._drain_waiter.done() and not batch._drain_waiter.cancelled():
            batch._drain_waiter.exception()  # looked at, or asyncio complains that nobody did
