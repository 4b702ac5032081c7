"""Which broker a test session uses: one that is there, Docker's, or one of our own."""

import gc
import os
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from tests.kafka_broker.broker import NEVER_KILLED, Broker

# Confluent's image: testcontainers' Kafka module knows its start-up script and no other.
_IMAGE = "confluentinc/cp-kafka:7.6.0"


@contextmanager
def session_broker(directory: Path) -> Iterator[str]:
    """The address of a broker. Raises NoBrokerError where none of the three ways is open."""
    if given := os.environ.get("KAFKA_BOOTSTRAP"):
        yield given
    elif _docker_answers():
        with _container() as address:
            yield address
    else:
        broker = Broker(directory, NEVER_KILLED)
        broker.start()
        try:
            yield broker.bootstrap
        finally:
            broker.stop()


def _docker_answers() -> bool:
    import docker
    from docker.errors import DockerException

    with warnings.catch_warnings():
        warnings.simplefilter(
            "ignore", ResourceWarning
        )  # where no engine is, docker leaves its socket to the collector
        try:
            client = docker.from_env()
            try:
                return bool(client.ping())
            finally:
                client.close()
        except DockerException:
            return False
        finally:
            gc.collect()


@contextmanager
def _container() -> Iterator[str]:
    from testcontainers.community.kafka import KafkaContainer

    container = KafkaContainer(_IMAGE).with_kraft()
    container.with_env("KAFKA_TRANSACTION_STATE_LOG_REPLICATION_FACTOR", "1")
    container.with_env("KAFKA_TRANSACTION_STATE_LOG_MIN_ISR", "1")
    with container:
        yield str(container.get_bootstrap_server())
