"""The producer on a real broker: how errors are classified, and how it is renewed after a fatal one."""

import asyncio
from typing import Any

import pytest
from aiokafka import AIOKafkaProducer
from aiokafka.errors import (
    CorruptRecordException,
    InvalidTimestampError,
    KafkaError,
    MessageSizeTooLargeError,
    NotEnoughReplicasError,
    NotLeaderForPartitionError,
    OutOfOrderSequenceNumber,
    PolicyViolationError,
    ProducerFenced,
    RequestTimedOutError,
    TopicAuthorizationFailedError,
    UnknownError,
)

from streamgauge.kafka.producer import Meaning, Message, Producer, may_concern_message, meaning_of
from streamgauge.kafka.shims.cancelling import end_task
from tests.kafka_broker.administration import set_config
from tests.kafka_broker.reading import read_all
from tests.running import PATIENCE_S


@pytest.mark.parametrize(
    ("error", "meaning"),
    [
        (NotLeaderForPartitionError(), Meaning.AGAIN),
        (RequestTimedOutError(), Meaning.AGAIN),
        (NotEnoughReplicasError(), Meaning.AGAIN),
        (OutOfOrderSequenceNumber(), Meaning.AGAIN),
        (ProducerFenced(), Meaning.AGAIN),
        (KafkaError("who knows"), Meaning.AGAIN),
        (MessageSizeTooLargeError(), Meaning.REFUSED),
        (TopicAuthorizationFailedError("t"), Meaning.DENIED),
        (InvalidTimestampError(), Meaning.DENIED),
    ],
)
def test_what_errors_mean(error: Exception, meaning: Meaning) -> None:
    assert meaning_of(error) is meaning


@pytest.mark.parametrize(
    ("error", "maybe"),
    [
        (UnknownError(), True),
        (PolicyViolationError(), True),
        (CorruptRecordException(), True),
        (MessageSizeTooLargeError(), False),
        (TopicAuthorizationFailedError("t"), False),
        (NotEnoughReplicasError(), False),
        (OutOfOrderSequenceNumber(), False),
        (ProducerFenced(), False),
        (KafkaError("who knows"), False),
    ],
)
def test_errors_that_may_concern_the_message(error: Exception, maybe: bool) -> None:
    assert may_concern_message(error) is maybe


@pytest.mark.kafka
def test_refused_message_breaks_the_producer_until_it_is_renewed(kafka: str, prefix: str) -> None:
    topic = f"{prefix}.records"
    asyncio.run(set_config(kafka, topic, max_message_bytes="100000"))

    async def work() -> None:
        producer = Producer(kafka, max_message_bytes=2**20, batch_bytes=2**18)
        assert await producer.start()
        await (await producer.send(Message(topic, b"one", partition=0)))
        with pytest.raises(MessageSizeTooLargeError):
            while True:  # the topic's new limit reaches the broker a moment later
                await (await producer.send(Message(topic, b"x" * 200_000, partition=0)))
        assert await producer.renew(0)
        assert await producer.renew(0)  # another task noticed the same: no second renewal
        assert producer.generation == 1
        await (await producer.send(Message(topic, b"two", b"key", 0, (("name", b"text"),))))
        assert await producer.answers()
        await producer.stop(5)

    asyncio.run(work())
    messages: list[Any] = [one for one in asyncio.run(read_all(kafka, topic)) if len(one.value) < 100]
    assert [(message.value, message.key, message.headers) for message in messages] == [
        (b"one", None, ()),
        (b"two", b"key", (("name", b"text"),)),
    ]


@pytest.mark.kafka
def test_it_stops_after_a_stop_that_was_cut_off_at_any_moment(
    kafka: str, prefix: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    stop = AIOKafkaProducer.stop

    async def work(steps: int) -> bool:
        was_cut_off: list[bool] = []

        async def cut_off(of_aiokafka: AIOKafkaProducer) -> None:
            stopping = asyncio.ensure_future(stop(of_aiokafka))
            for _ in range(steps):
                await asyncio.sleep(0)
            was_cut_off.append(not stopping.done())
            await end_task(stopping)

        producer = Producer(kafka, max_message_bytes=2**20, batch_bytes=2**18)
        assert await producer.start()
        await (await producer.send(Message(f"{prefix}.records", b"one", partition=0)))
        monkeypatch.setattr(AIOKafkaProducer, "stop", cut_off)
        await producer.stop(PATIENCE_S)
        [cut] = was_cut_off
        return cut

    steps = 0
    while asyncio.run(work(steps)):
        steps += 1
    assert steps > 3


def test_producer_without_a_broker_does_not_start_and_stops() -> None:
    async def work() -> None:
        producer = Producer("127.0.0.1:1", max_message_bytes=2**20, batch_bytes=2**18)
        assert not await producer.start()
        assert not producer.started
        assert await producer.answers() is None
        with pytest.raises(KafkaError):
            await producer.send(Message("t", b"x"))
        assert not await producer.renew(0)
        await producer.stop(1)

    asyncio.run(work())
