"""Dead letters: the message and its facts, truncated if it is too large; reading all of them; sending them back."""

import asyncio
from typing import Any, NamedTuple

import pytest
from aiokafka.errors import KafkaTimeoutError, NodeNotReadyError, RequestTimedOutError

import streamgauge
from streamgauge.core.capture.segments import FORMAT_VERSION
from streamgauge.kafka import dead_letters
from streamgauge.kafka.dead_letters import (
    DeadLetter,
    NotRetriableError,
    Sender,
    Stage,
    dead_letter_of,
    message_of,
    truncated,
)
from streamgauge.kafka.faults import BrokerUnreachableError
from streamgauge.kafka.producer import Message
from streamgauge.kafka.topics import Topics, TopicsMissingError
from tests.dead_letters import send_back
from tests.faults.mock_kafka import MockCluster, mock_cluster
from tests.kafka_broker.administration import delete_beginning, delete_topic
from tests.kafka_broker.reading import read_all

NAMES = Topics("house")


class Source(NamedTuple):
    """Where a message was."""

    topic: str
    partition: int = 3
    offset: int = 41
    key: bytes | None = None


def test_dead_letter_has_the_message_and_its_facts() -> None:
    made = dead_letter_of(NAMES, Source(NAMES.segments, key=b"key"), b"bytes", Stage.DECODE, "frame")
    assert (made.topic, made.key, made.value, made.partition) == (NAMES.deadletter, b"key", b"bytes", 0)
    assert dict(made.headers) == {
        "topic": b"house.segments",
        "partition": b"3",
        "offset": b"41",
        "stage": b"decode",
        "error": b"frame",
        "version": streamgauge.__version__.encode(),
        "format": b"%d" % FORMAT_VERSION,
    }


def test_message_without_key_and_value_has_a_dead_letter() -> None:
    assert dead_letter_of(NAMES, Source(NAMES.segments), None, Stage.DECODE, "frame").value == b""
    assert dead_letter_of(NAMES, Source(NAMES.segments, key=b"k"), None, Stage.DECODE, "frame").value is None


@pytest.mark.parametrize(
    ("key", "value"), [(b"k" * 10_000_000, b""), (None, b"v" * 10_000_000), (b"k" * 9_000_000, None)]
)
def test_too_large_dead_letter_is_truncated_with_its_sizes(key: bytes | None, value: bytes | None) -> None:
    made = dead_letter_of(NAMES, Source(NAMES.segments, key=key), value, Stage.DECODE, "frame")
    assert made.key == (key[: dead_letters.TRUNCATED_BYTES] if key else None)
    assert made.value == (value or b"")[: dead_letters.TRUNCATED_BYTES]
    headers = dict(made.headers)
    assert (int(headers["key_bytes"]), int(headers["value_bytes"])) == (len(key or b""), len(value or b""))
    assert headers["topic"] == b"house.segments"


def test_largest_message_of_our_topics_is_not_truncated() -> None:
    made = dead_letter_of(NAMES, Source(NAMES.segments), bytes(8 * 1024 * 1024), Stage.DECODE, "frame")
    assert not dead_letters.is_truncated(made)
    assert dead_letters.is_truncated(truncated(made))


def dead(topic: str | None, partition: int | None = 2, whole: tuple[int, int] | None = None) -> DeadLetter:
    return DeadLetter(7, 0, "decode", "frame", topic, partition, 5, None, None, b"key", b"value", whole)


def test_a_bundle_goes_back_to_its_partition_and_a_record_to_its_key() -> None:
    assert message_of(NAMES, dead(NAMES.segments)) == Message(NAMES.segments, b"value", b"key", 2)
    assert message_of(NAMES, dead(NAMES.records)) == Message(NAMES.records, b"value", b"key", None)


@pytest.mark.parametrize("topic", ["payroll", "house.state", "house.deadletter", "other.segments", None])
def test_dead_letter_of_another_topic_is_not_sent_back(topic: str | None) -> None:
    with pytest.raises(NotRetriableError, match=r"dead letter 7 did not come from house\.segments or house\.records"):
        message_of(NAMES, dead(topic))


def test_truncated_dead_letter_is_not_sent_back() -> None:
    with pytest.raises(NotRetriableError, match="dead letter 7 is truncated"):
        message_of(NAMES, dead(NAMES.segments, whole=(0, 9_000_000)))


async def put(bootstrap: str, *letters: Message) -> None:
    async with Sender(bootstrap) as sender:
        for letter in letters:
            await sender.send(letter)


async def read_letters(bootstrap: str, topics: Topics, start: int = 0) -> list[DeadLetter]:
    return [one async for one in dead_letters.read(bootstrap, topics, start)]


@pytest.mark.kafka
def test_they_are_read_from_a_beginning_to_the_end(kafka: str, prefix: str) -> None:
    topics = Topics(prefix)
    assert asyncio.run(read_letters(kafka, topics)) == []
    made = [dead_letter_of(topics, Source(topics.segments), b"%d" % one, Stage.DECODE, "frame") for one in range(40)]
    large = dead_letter_of(topics, Source(topics.segments), bytes(9_000_000), Stage.DECODE, "schema")
    asyncio.run(put(kafka, *made, large, Message(topics.deadletter, b"forged", None, 0, (("offset", b"x" * 30),))))
    found = asyncio.run(read_letters(kafka, topics))
    assert [one.value for one in found[:40]] == [b"%d" % one for one in range(40)]
    assert {(one.source_topic, one.source_partition, one.source_offset) for one in found[:40]} == {
        (topics.segments, 3, 41)
    }
    assert (found[40].whole, len(found[40].value or b"")) == ((0, 9_000_000), dead_letters.TRUNCATED_BYTES)
    assert (found[41].source_topic, found[41].source_offset, found[41].stage) == (None, None, None)
    assert asyncio.run(read_letters(kafka, topics, 39)) == found[39:]
    assert asyncio.run(read_letters(kafka, topics, 99)) == []
    asyncio.run(delete_beginning(kafka, topics.deadletter, 0, 38))
    assert asyncio.run(read_letters(kafka, topics)) == found[38:]


@pytest.mark.kafka
def test_what_is_sent_back_is_the_message(kafka: str, prefix: str) -> None:
    topics = Topics(prefix)
    letters = [
        DeadLetter(0, 0, "decode", "frame", topics.segments, 2, 5, None, None, None, b"one"),
        DeadLetter(1, 0, "decode", "frame", topics.segments, 2, 6, None, None, b"key", None),
    ]
    asyncio.run(send_back(kafka, topics, letters))
    back: list[Any] = asyncio.run(read_all(kafka, topics.segments))
    assert [(one.partition, one.key, one.value) for one in back] == [(2, None, b"one"), (2, b"key", None)]


@pytest.mark.slow
def test_a_broker_that_goes_away_meanwhile_is_not_waited_for_for_ever(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(dead_letters, "CONFIRM_S", 2.0)
    confirmed = []

    async def run(broker: MockCluster) -> None:
        async with Sender(broker.bootstrap) as sender:
            await sender.send(Message(NAMES.segments, b"one", None, 0))
            confirmed.append(b"one")
            broker.down()
            await sender.send(Message(NAMES.segments, b"two", None, 0))

    with mock_cluster() as broker, pytest.raises(BrokerUnreachableError, match="no Kafka broker answers"):
        broker.create_topic(NAMES.segments, 1)
        asyncio.run(run(broker))
    assert confirmed == [b"one"]


@pytest.mark.parametrize("error", [RequestTimedOutError, NodeNotReadyError, KafkaTimeoutError, TimeoutError])
def test_a_broker_that_is_too_slow_is_unreachable(error: type[Exception], monkeypatch: pytest.MonkeyPatch) -> None:
    """And has not denied anything."""

    async def fails(*_: object) -> None:
        raise error

    monkeypatch.setattr("streamgauge.kafka.dead_letters.AIOKafkaConsumer.start", fails)
    with pytest.raises(BrokerUnreachableError, match="no Kafka broker answers"):
        asyncio.run(read_letters("127.0.0.1:1", NAMES))

    async def send() -> None:
        sender = Sender("127.0.0.1:1")
        monkeypatch.setattr("streamgauge.kafka.dead_letters.Producer.send", fails)
        await sender.send(Message(NAMES.segments, b"one"))

    with pytest.raises(BrokerUnreachableError, match="no Kafka broker answers"):
        asyncio.run(send())


@pytest.mark.kafka
def test_a_topic_that_is_missing_is_one_sentence(kafka: str, prefix: str) -> None:
    topics = Topics(prefix)
    asyncio.run(delete_topic(kafka, topics.deadletter))
    with pytest.raises(TopicsMissingError, match="run `streamgauge topics create`"):
        asyncio.run(read_letters(kafka, topics))
