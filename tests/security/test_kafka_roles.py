"""The roles of docs/security.md in Kafka, on a broker with an authorizer: each does its work, and may do nothing else.

That each single right is needed is in tests/faults/test_broker_rights.py.
"""

import asyncio
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import Consumer, KafkaError, KafkaException, Producer, TopicPartition
from confluent_kafka.admin import (  # type: ignore[attr-defined]
    AdminClient,
    AlterConfigOpType,
    ConfigEntry,
    ConfigResource,
    NewTopic,
    ResourceType,
)

from streamgauge.kafka import topics
from streamgauge.kafka.administrator import Kind, Operation, Right
from streamgauge.kafka.topics import Job, Topics
from tests.faults.doors import SECRET, run_by, scram_door, tap_by, worker_by
from tests.faults.test_broker_rights import APPLIED_S, brokers_for, outcome
from tests.kafka_broker.reading import read_all
from tests.kafka_broker.secured import Secured
from tests.running import wait_for

# The jobs of each role, as in docs/security.md.
ROLES = {
    "tap": (Job.TAP,),
    "worker": (Job.WORKER,),
    "operator": (Job.CREATE, Job.DESCRIBE, Job.REPLAY, Job.DEADLETTER, Job.RETRY),
}
# How long a broker may take to answer (seconds).
ANSWER_S = 30.0
DENIED = {
    KafkaError.TOPIC_AUTHORIZATION_FAILED,
    KafkaError.GROUP_AUTHORIZATION_FAILED,
    KafkaError.CLUSTER_AUTHORIZATION_FAILED,
}


def rights_of(role: str, prefix: str) -> list[Right]:
    return list(dict.fromkeys(right for job in ROLES[role] for right in Topics(prefix).rights(job)))


class User:
    """What a user of the broker tries by librdkafka, which checks nothing by itself. True: it was allowed."""

    def __init__(self, secured: Secured, name: str) -> None:
        self._settings: dict[str, Any] = {
            "bootstrap.servers": secured.address["SCRAM"],
            "security.protocol": "SASL_SSL",
            "sasl.mechanism": "SCRAM-SHA-512",
            "sasl.username": name,
            "sasl.password": SECRET,
            "ssl.ca.location": str(secured.files.ca),
            "log_level": 0,
        }
        self._admin = AdminClient(self._settings)

    def writes(self, topic: str) -> bool:
        errors: list[Any] = []
        producer = Producer({**self._settings, "message.timeout.ms": int(ANSWER_S * 1000)})
        producer.produce(topic, b"x", b"key", partition=0, on_delivery=lambda error, _: errors.append(error))
        producer.flush(ANSWER_S)
        [error] = errors
        return allowed(error)

    def reads(self, topic: str) -> bool:
        consumer = Consumer({**self._settings, "group.id": "of-nobody", "enable.partition.eof": True})
        try:
            if not allowed(consumer.list_topics(topic, ANSWER_S).topics[topic].error):
                return False  # it does not even see the topic
            consumer.assign([TopicPartition(topic, 0, 0)])
            while True:
                message = consumer.poll(ANSWER_S)
                assert message is not None
                error = message.error()
                if error is None or error.code() == KafkaError._PARTITION_EOF:
                    return True
                if error.code() != KafkaError.GROUP_AUTHORIZATION_FAILED:  # a partition is read without its group
                    return allowed(error)
        finally:
            consumer.close()

    def joins(self, group: str, topic: str) -> bool:
        """Becomes a member of a consumer group, and so would get a part of its partitions."""
        consumer = Consumer({**self._settings, "group.id": group, "enable.auto.commit": False})
        joined: list[Any] = []
        try:
            consumer.subscribe([topic], on_assign=lambda *assigned: joined.append(assigned))
            deadline = time.monotonic() + ANSWER_S
            while not joined:
                assert time.monotonic() < deadline
                message = consumer.poll(0.1)
                if message is not None and message.error() is not None:
                    return allowed(message.error())
            return True
        finally:
            consumer.close()

    def creates(self, topic: str) -> bool:
        return self._did(self._admin.create_topics([NewTopic(topic, 1, 1)]))

    def deletes(self, topic: str) -> bool:
        return self._did(self._admin.delete_topics([topic]))

    def reconfigures(self, topic: str) -> bool:
        entry = ConfigEntry("retention.ms", "1", incremental_operation=AlterConfigOpType.SET)
        change = ConfigResource(ResourceType.TOPIC, topic, incremental_configs=[entry])
        return self._did(self._admin.incremental_alter_configs([change]))

    @staticmethod
    def _did(answers: dict[Any, Any]) -> bool:
        [answer] = answers.values()
        try:
            answer.result(ANSWER_S)
        except KafkaException as error:
            return allowed(error.args[0])
        return True


def allowed(error: Any) -> bool:
    """Whether the broker did not refuse for a missing right. Any other error fails the test."""
    if error is None:
        return True
    assert error.code() in DENIED, error
    return False


@pytest.fixture
def prefix(secured: Secured, tmp_path: Path) -> str:
    """The beginning of the names of topics that do not exist yet."""
    return f"roles-{tmp_path.name[-8:].replace('_', '-')}"


@pytest.fixture
def users(secured: Secured, prefix: str) -> Iterator[dict[str, str]]:
    """A user of each role, with the rights of the role and no other."""
    made = {role: secured.user(SECRET) for role in ROLES}
    for role, user in made.items():
        secured.allow(user, rights_of(role, prefix))
    yield made


def wait_until_rights_apply(secured: Secured, user: str, prefix: str) -> None:
    wait_for(
        lambda: outcome(topics.check, brokers_for(secured, user), prefix) == "", "the rights of the worker", APPLIED_S
    )


@pytest.mark.kafka
def test_the_three_roles_do_the_whole_work(
    secured: Secured, users: dict[str, str], prefix: str, tmp_path: Path
) -> None:
    doors = {role: scram_door(secured, tmp_path / role, user) for role, user in users.items()}
    done = run_by(doors["operator"], prefix, "topics", "create", "--partitions", "4", "--replicas", "1")
    assert done.returncode == 0, done.stderr
    assert run_by(doors["operator"], prefix, "topics", "describe").returncode == 0
    wait_until_rights_apply(secured, users["worker"], prefix)

    async def run() -> None:
        async with tap_by(doors["tap"], tmp_path / "capture", prefix) as rig:
            await rig.traffic.run_for(2)
            await rig.deliver_all()
            rig.traffic.judge()

    with worker_by(doors["worker"], tmp_path / "work", prefix) as worker:
        asyncio.run(run())
        wait_for(lambda: asyncio.run(read_all(secured.bootstrap, f"{prefix}.records")), "records")
        assert worker.stop() == 0
        assert "denies" not in worker.log
    assert run_by(doors["operator"], prefix, "deadletter", "list").returncode == 0
    done = run_by(doors["operator"], prefix, "replay", "--output", "jsonl")
    assert done.returncode == 0, done.stderr
    assert done.stdout.count("\n") > 0


@pytest.mark.kafka
@pytest.mark.parametrize("role", ROLES)
def test_a_role_may_do_nothing_but_its_work(secured: Secured, users: dict[str, str], prefix: str, role: str) -> None:
    """What an attacker gets who has its password."""
    asyncio.run(topics.create(secured.bootstrap, 1, prefix))
    names, user, rights = Topics(prefix), User(secured, users[role]), set(rights_of(role, prefix))

    def may(operation: Operation, name: str, kind: Kind = Kind.TOPIC) -> bool:
        return Right(operation, kind, name) in rights

    expected = {
        (operation, name): may(operation, name)
        for name in names.names
        for operation in (Operation.READ, Operation.WRITE)
    }
    wait_for(lambda: tried(user, expected) == expected, f"exactly the rights of the {role}", APPLIED_S * 3)
    assert user.joins(prefix, names.segments) == may(Operation.READ, prefix, Kind.GROUP)
    for name in names.names:
        assert not user.deletes(name), name
        assert not user.reconfigures(name), name
    assert not user.creates(f"{prefix}.another")


def tried(user: User, expected: dict[tuple[Operation, str], bool]) -> dict[tuple[Operation, str], bool]:
    ways = {Operation.READ: user.reads, Operation.WRITE: user.writes}
    return {(operation, name): ways[operation](name) for operation, name in expected}
