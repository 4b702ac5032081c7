"""An idempotent aiokafka producer that is replaced after a fatal error, and the classification of its errors.

In aiokafka 0.14, `send()` blocks its caller while the broker is unreachable, for up to the request timeout. An idempotent
producer keeps its buffered messages during an outage. But a batch that fails permanently leaves a hole in the producer's
sequence numbers, and the broker then refuses every later batch. Only a new producer (`renew`) can continue, and the caller
has to send every unconfirmed message again.
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

from streamgauge.kafka.connection_diagnosis import refusal_of
from streamgauge.kafka.security import Brokers, brokers_at
from streamgauge.kafka.shims.cancelling import end_task
from streamgauge.kafka.shims.discarding import discard

# How long the broker may take to answer one request before the connection counts as dead (milliseconds). Half-open
# connections are detected within this time.
REQUEST_TIMEOUT_MS = 10_000
# How long a broker may give no result, although it answers, until it counts as unreachable (seconds): three failed requests.
PATIENCE_S = 3 * REQUEST_TIMEOUT_MS / 1000


class Message(NamedTuple):
    """A message to send. `partition` None: chosen by the key's hash."""

    topic: str
    value: bytes | None
    key: bytes | None = None
    partition: int | None = None
    headers: tuple[tuple[str, bytes], ...] = ()


class Meaning(Enum):
    """Meanings of a failed send for its message."""

    AGAIN = auto()  # the error is not about the message: send it again
    REFUSED = auto()  # the broker will never accept this message
    DENIED = auto()  # the broker accepts no message until an operator acts


_REFUSED = (MessageSizeTooLargeError, RecordListTooLargeError, CorruptRecordException)
_DENIED = (
    TopicAuthorizationFailedError,
    ClusterAuthorizationFailedError,
    InvalidTopicError,
    InvalidTimestampError,  # our clock is wrong, or the topic uses the producer's time as the message's time
)
_INVALID_RECORD = 87  # INVALID_RECORD: the record violates a rule of its topic; aiokafka has no class for this code


def meaning_of(error: BaseException) -> Meaning:
    """Classify the error of a failed send."""
    if isinstance(error, _REFUSED) or (isinstance(error, BrokerResponseError) and error.errno == _INVALID_RECORD):
        return Meaning.REFUSED
    if isinstance(error, _DENIED):
        return Meaning.DENIED
    return Meaning.AGAIN


# Errors about the broker's state or the producer's sequence: a new producer or a later retry gets the message accepted.
_TEMPORARY = (
    BrokerNotAvailableError,
    ReplicaNotAvailableError,
    OutOfOrderSequenceNumber,
    InvalidProducerEpoch,
    InvalidProducerIdMapping,
    UnknownProducerId,
    OperationNotAttempted,
)


def may_concern_message(error: BaseException) -> bool:
    """Whether the error may be about this message, or about something else: a checksum error, which the network may have
    caused, or a non-retriable error that no other rule covers. Send such a message again alone, a limited number of times."""
    if isinstance(error, CorruptRecordException):
        return True
    is_final = isinstance(error, BrokerResponseError) and not error.retriable
    return is_final and not isinstance(error, _TEMPORARY) and meaning_of(error) is Meaning.AGAIN


class Producer:
    """A producer with acks=all, idempotence, and no compression: bundles are already compressed, records and state are few.

    `generation`: the number of replacements so far. Give `renew` the generation with which the send failed.
    """

    def __init__(self, at: Brokers | str, *, max_message_bytes: int, batch_bytes: int, linger_ms: int = 0) -> None:
        self._brokers = brokers_at(at)
        self._settings: dict[str, Any] = {
            "client_id": "streamgauge",
            "acks": "all",
            "enable_idempotence": True,
            "compression_type": None,
            # 4096 bytes for the headers and the record batch's own fields.
            "max_request_size": max_message_bytes + 4096,
            "max_batch_size": batch_bytes,
            "linger_ms": linger_ms,
            "request_timeout_ms": REQUEST_TIMEOUT_MS,
        }
        self.generation = 0
        self._producer: Any = None
        self._to_discard: list[Any] = []  # producers that are still to be discarded
        self._renewing = asyncio.Lock()

    async def start(self) -> bool:
        """Connect. Returns False, and raises no error, if no broker answers; call it again to retry."""
        producer = AIOKafkaProducer(**self._brokers.options(), **self._settings)
        self._to_discard.append(producer)  # until it has started: if this task is cancelled, it is discarded later
        try:
            async with asyncio.timeout(REQUEST_TIMEOUT_MS / 1000):
                await producer.start()
        except (KafkaError, TimeoutError):
            await self._discard_all()
            return False
        self._to_discard.remove(producer)
        self._producer = producer
        return True

    async def send(self, message: Message) -> "asyncio.Future[Any]":
        """Buffer one message. The returned future is done when the message is durable. Raises KafkaError if not buffered."""
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
        except AssertionError as error:  # aiokafka raises this for a partition that its metadata does not contain (yet)
            await producer.client.force_metadata_update()
            raise KafkaError(f"unknown partition {message.partition} of {message.topic}") from error
        return future

    async def renew(self, failed: int) -> bool:
        """Replace the producer of generation `failed`, unless it was replaced already. False if no broker answers."""
        async with self._renewing:
            if self.generation != failed and self._producer is not None:
                return True
            old, self._producer = self._producer, None
            self.generation += 1
            if old is not None:
                self._to_discard.append(old)
            await self._discard_all()
            return await self.start()

    @property
    def started(self) -> bool:
        """Whether a producer is running; False until the first start, and after a failed start."""
        return self._producer is not None

    async def answers(self) -> bool | None:
        """Whether the broker answers a metadata request now; None if this producer is not started."""
        producer = self._producer
        if producer is None:
            return None
        with contextlib.suppress(TimeoutError, KafkaError):
            async with asyncio.timeout(REQUEST_TIMEOUT_MS / 1000):
                return bool(await producer.client.force_metadata_update())
        return False

    async def refusal(self) -> str | None:
        """The broker's refusal and its remedy as a sentence for the operator; None if nothing is known."""
        refusal = await refusal_of(self._brokers)
        return refusal.sentence if refusal is not None else None

    async def stop(self, deadline_s: float) -> None:
        """Send the buffered messages, for at most `deadline_s` seconds, and disconnect."""
        producer, self._producer = self._producer, None
        if producer is not None:
            self._to_discard.append(producer)
            stopping = asyncio.ensure_future(producer.stop())
            done, _ = await asyncio.wait({stopping}, timeout=deadline_s)
            if not done:
                await end_task(stopping)
        await self._discard_all()

    async def _discard_all(self) -> None:
        for producer in list(self._to_discard):
            await discard(producer)
            if producer in self._to_discard:
                self._to_discard.remove(producer)
