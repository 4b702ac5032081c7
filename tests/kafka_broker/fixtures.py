"""Fixtures for tests with a real Apache Kafka: one broker a session, topics of its own for each test."""

import asyncio
import contextlib
import uuid
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from tests.kafka_broker.broker import Broker
from tests.kafka_broker.choice import session_broker
from tests.kafka_broker.jars import NoBrokerError

# Each test process loads this module, and few use a broker: a client of Kafka is imported where it is used.
if TYPE_CHECKING:
    from tests.kafka_broker.secured import Secured

# Enough for two workers to share, few enough to be quick to recover.
PARTITIONS = 4
# How often a broker is asked for a test's topics: each time it has ten seconds to answer.
_ATTEMPTS = 6


@pytest.fixture(scope="session")
def kafka(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """The bootstrap address of the session's broker."""
    try:
        with session_broker(tmp_path_factory.mktemp("kafka") / "broker") as address:
            yield address
    except NoBrokerError as why:
        pytest.skip(f"no Kafka: {why}")


@pytest.fixture(scope="session")
def secured(tmp_path_factory: pytest.TempPathFactory) -> "Iterator[Secured]":
    """The session's broker with TLS, log-ins and an authorizer. One process of a run has all of its tests."""
    from tests.kafka_broker.secured import Secured

    broker = Secured(tmp_path_factory.mktemp("secured"))
    try:
        yield broker.start()
    except NoBrokerError as why:
        pytest.skip(f"no Kafka: {why}")
    finally:
        broker.broker.stop()


@pytest.fixture
def prefix(kafka: str) -> Iterator[str]:
    """A prefix under which this test's topics have been made, with PARTITIONS partitions. They are deleted afterwards."""
    from tests.kafka_broker.administration import delete_topics

    prefix = make_topics(kafka)
    yield prefix
    asyncio.run(delete_topics(kafka, prefix))


@pytest.fixture
def own_broker(tmp_path: Path) -> Iterator[Callable[..., Broker]]:
    """Makes brokers that a test may kill and start again: call it with settings as keyword arguments."""
    brokers: list[Broker] = []

    def make(**settings: str) -> Broker:
        broker = Broker(tmp_path / f"broker-{len(brokers)}", {k.replace("_", "."): v for k, v in settings.items()})
        brokers.append(broker)
        try:
            broker.start()
        except NoBrokerError as why:
            pytest.skip(f"no Kafka: {why}")
        return broker

    yield make
    for broker in brokers:
        broker.stop()


def make_topics(bootstrap: str, partitions: int = PARTITIONS) -> str:
    """Creates the topics under a new prefix, and returns it. Waits for a broker that does not answer yet."""
    from streamgauge.kafka import topics
    from streamgauge.kafka.faults import BrokerUnreachableError

    prefix = f"test-{uuid.uuid4().hex[:12]}"
    for _ in range(_ATTEMPTS - 1):
        with contextlib.suppress(BrokerUnreachableError):
            asyncio.run(topics.create(bootstrap, partitions, prefix))
            return prefix
    asyncio.run(topics.create(bootstrap, partitions, prefix))
    return prefix
