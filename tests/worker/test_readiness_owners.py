"""Owners of partitions, with a real group and a real coordinator."""

import asyncio
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, cast

import pytest
from aiokafka import AIOKafkaConsumer
from aiokafka.coordinator.assignors.roundrobin import RoundRobinPartitionAssignor
from aiokafka.coordinator.protocol import ConsumerProtocolMemberAssignment

from streamgauge.kafka.administrator import GroupDescription, Identity
from streamgauge.kafka.security import brokers_at
from streamgauge.worker.log import Log
from streamgauge.worker.readiness import Owners
from tests.running import PATIENCE_S

pytestmark = pytest.mark.kafka


@dataclass
class Held:
    """What a worker's consumer says of itself."""

    topic: str
    numbers: frozenset[int] = frozenset()
    assignment_epoch: object = 1

    def assigned(self) -> set[int]:
        return set(self.numbers)


class GivesNothing(RoundRobinPartitionAssignor):
    """A leader that knows no topic."""

    name = "gives-nothing"

    @classmethod
    def assign(cls, cluster: Any, member_metadata: Any) -> Any:
        return {member: ConsumerProtocolMemberAssignment(0, [], b"") for member in member_metadata}


class GivesSome(RoundRobinPartitionAssignor):
    """A leader that leaves two partitions out."""

    name = "gives-some"

    @classmethod
    def assign(cls, cluster: Any, member_metadata: Any) -> Any:
        topics = {topic for metadata in member_metadata.values() for topic in metadata.subscription}
        given = [(topic, [0, 1]) for topic in topics]
        return {member: ConsumerProtocolMemberAssignment(0, given, b"") for member in member_metadata}


async def problem(bootstrap: str, group: str, assignor: Any, held: Held) -> tuple[str | None, str | None]:
    """What is wrong before a look at a group of one member, and after it."""
    log = Log(brokers_at(bootstrap), group)
    await log.start()
    consumer = AIOKafkaConsumer(
        held.topic, bootstrap_servers=bootstrap, group_id=group, partition_assignment_strategy=[assignor]
    )
    await consumer.start()
    try:
        owners = Owners(log, [cast(Any, held)])
        before = owners.problem
        async with asyncio.timeout(PATIENCE_S):
            while owners.problem == before:  # until the group is stable
                await owners.check()
                await asyncio.sleep(0.2)
        return before, owners.problem
    finally:
        await consumer.stop()
        await log.stop()


def test_spare_worker_is_ready_once_all_partitions_have_owners(kafka: str, prefix: str) -> None:
    before, after = asyncio.run(problem(kafka, prefix, RoundRobinPartitionAssignor, Held(f"{prefix}.segments")))
    assert before == "it has no partitions, and does not know yet whether other workers have all of them"
    assert after is None


def test_partitions_without_an_owner_are_named(kafka: str, prefix: str) -> None:
    held = Held(f"{prefix}.segments")
    _, after = asyncio.run(problem(kafka, prefix, GivesNothing, held))
    assert after == f"no worker of the group has {held.topic}/0, {held.topic}/1, {held.topic}/2 and 1 more"


def test_worker_with_partitions_names_partitions_without_an_owner(kafka: str, prefix: str) -> None:
    held = Held(f"{prefix}.segments", frozenset({0, 1}))
    before, after = asyncio.run(problem(kafka, prefix, GivesSome, held))
    assert before is None
    assert after == f"no worker of the group has {held.topic}/2, {held.topic}/3"


class LogOfStableGroup:
    """A log whose group has all partitions of the topic."""

    async def identities(self, topics: Sequence[str]) -> dict[str, Identity]:
        return {topic: Identity("", 2) for topic in topics}

    async def group(self) -> GroupDescription:
        return GroupDescription(stable=True, assigned={"segments": {0, 1}})


def test_owners_of_an_earlier_assignment_do_not_count() -> None:
    held = Held("segments")

    async def run() -> tuple[str | None, str | None]:
        log: Any = LogOfStableGroup()
        owners = Owners(log, [cast(Any, held)])
        await owners.check()
        heard = owners.problem
        held.assignment_epoch = 2
        return heard, owners.problem

    heard, later = asyncio.run(run())
    assert heard is None
    assert later is not None
