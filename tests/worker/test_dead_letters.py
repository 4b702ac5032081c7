"""Dead letters are confirmed one by one. If the topic accepts none, they wait, with one log line. Uses librdkafka's mock."""

import asyncio
import logging
from collections import Counter
from typing import Any, NamedTuple

import pytest

from streamgauge.kafka.dead_letters import TRUNCATED_BYTES, Stage
from streamgauge.kafka.producer import Producer
from streamgauge.kafka.topics import MAX_DEADLETTER_BYTES, Topics
from streamgauge.metrics import table
from streamgauge.metrics.prometheus import Metrics
from streamgauge.worker.dead_letters import DeadLetters
from tests.faults.mock_kafka import MESSAGE_TOO_LARGE, TOPIC_AUTHORIZATION_FAILED, MockCluster, mock_cluster
from tests.kafka_broker.reading import read_all

NAMES = Topics("house")


class Poison(NamedTuple):
    value: bytes | None
    offset: int = 0
    topic: str = NAMES.segments
    partition: int = 0
    key: bytes | None = None


def page(metrics: Metrics) -> Counter[str]:
    """Dead letters by class, and those that wait."""
    lines = [line for line in metrics.render().decode().splitlines() if not line.startswith("#")]
    named = {line.rpartition(" ")[0]: float(line.rpartition(" ")[2]) for line in lines}
    found = Counter[str]()
    for name, value in named.items():
        if name.startswith(table.DEAD_LETTERS.name):
            found["buried"] += int(value)
    found["waiting"] = int(named.get(table.DEAD_LETTERS_WAITING.name, 0))
    return found


async def buried(cluster: MockCluster, *poison: Poison, metrics: Metrics) -> list[Any]:
    """All of them at once, as partitions do; gives the letters."""
    producer = Producer(cluster.bootstrap, max_message_bytes=MAX_DEADLETTER_BYTES, batch_bytes=1024)
    letters = DeadLetters(producer, NAMES, metrics)
    try:
        async with asyncio.timeout(60):
            burying = [asyncio.ensure_future(letters.write([one], Stage.DECODE, "frame")) for one in poison]
            await asyncio.sleep(0)
            while not all(one.done() for one in burying):
                assert letters.waiting <= len(poison)
                if letters.waiting:
                    assert page(metrics)["waiting"] == letters.waiting
                await asyncio.sleep(0.05)
            for one in burying:
                one.result()
    finally:
        await producer.stop(1)
    assert letters.waiting == 0
    return await read_all(cluster.bootstrap, NAMES.deadletter)


def test_dead_letter_is_durable_when_write_returns(caplog: pytest.LogCaptureFixture) -> None:
    metrics = Metrics()
    with mock_cluster() as cluster:
        cluster.create_topic(NAMES.deadletter, 1)
        poison = [Poison(b"poison %d" % number, number) for number in range(20)]
        letters = asyncio.run(buried(cluster, *poison, metrics=metrics))
    assert [letter.value for letter in letters] == [one.value for one in poison]
    assert page(metrics) == {"buried": 20, "waiting": 0}
    [line] = [record.getMessage() for record in caplog.records if record.name == "streamgauge.worker"]
    assert line.startswith(
        "1 messages so far could not be read and are in house.deadletter, the last one from house.segments"
    )


def test_denied_dead_letter_waits_and_is_logged_once(caplog: pytest.LogCaptureFixture) -> None:
    metrics = Metrics()
    with mock_cluster() as cluster, caplog.at_level(logging.WARNING, "streamgauge.worker"):
        cluster.create_topic(NAMES.deadletter, 1)
        cluster.fail_produce([TOPIC_AUTHORIZATION_FAILED] * 2)
        letters = asyncio.run(buried(cluster, Poison(b"one"), Poison(b"two"), metrics=metrics))
    assert sorted(letter.value for letter in letters) == [b"one", b"two"]
    lines = [record.getMessage() for record in caplog.records if record.name == "streamgauge.worker"]
    lines = [sentence for sentence in lines if "could not be read" not in sentence]
    assert len(lines) == 2
    assert lines[0].startswith(
        "dead letters cannot be written to house.deadletter (the broker denies it, TopicAuthorizationFailedError: allow"
    )
    assert lines[1] == "dead letters can be written to house.deadletter again"


def test_dead_letter_that_is_too_large_is_truncated() -> None:
    metrics = Metrics()
    with mock_cluster() as cluster:
        cluster.create_topic(NAMES.deadletter, 1)
        cluster.fail_produce([MESSAGE_TOO_LARGE])
        (letter,) = asyncio.run(buried(cluster, Poison(b"v" * 100_000), metrics=metrics))
    assert letter.value == b"v" * TRUNCATED_BYTES
    assert dict(letter.headers)["value_bytes"] == b"100000"


def test_cancelled_dead_letter_releases_the_lock() -> None:
    """A partition that is taken away while its letter waits."""

    async def run(cluster: MockCluster) -> list[Any]:
        producer = Producer(cluster.bootstrap, max_message_bytes=MAX_DEADLETTER_BYTES, batch_bytes=1024)
        letters = DeadLetters(producer, NAMES, Metrics())
        cluster.fail_produce([TOPIC_AUTHORIZATION_FAILED])
        first = asyncio.ensure_future(letters.write([Poison(b"one")], Stage.DECODE, "frame"))
        while not letters.waiting:
            await asyncio.wait({first}, timeout=0.02)
        first.cancel()
        await asyncio.wait({first})
        assert letters.waiting == 0
        async with asyncio.timeout(60):
            await letters.write([Poison(b"two")], Stage.DECODE, "frame")
        await producer.stop(1)
        return await read_all(cluster.bootstrap, NAMES.deadletter)

    with mock_cluster() as cluster:
        cluster.create_topic(NAMES.deadletter, 1)
        assert [one.value for one in asyncio.run(run(cluster))] == [b"two"]


def test_letters_of_a_run_that_the_broker_refused_are_written_again() -> None:
    async def run(cluster: MockCluster) -> list[Any]:
        producer = Producer(cluster.bootstrap, max_message_bytes=MAX_DEADLETTER_BYTES, batch_bytes=1024)
        letters = DeadLetters(producer, NAMES, metrics := Metrics())
        try:
            async with asyncio.timeout(60):
                await letters.write([Poison(b"first")], Stage.DECODE, "frame")
                cluster.fail_produce([TOPIC_AUTHORIZATION_FAILED])
                await letters.write([Poison(b"%03d" % number * 50) for number in range(200)], Stage.DECODE, "frame")
        finally:
            await producer.stop(1)
        assert page(metrics) == {"buried": 201, "waiting": 0}
        return await read_all(cluster.bootstrap, NAMES.deadletter)

    with mock_cluster() as cluster:
        cluster.create_topic(NAMES.deadletter, 1)
        written = [letter.value for letter in asyncio.run(run(cluster))]
    assert sorted(written) == sorted([b"first", *[b"%03d" % number * 50 for number in range(200)]])
