"""An admin client that reads topics, their configuration, and this client's rights on topics and a group.

Brokers return the authorized operations with the metadata (KIP-430). The worker checks its rights before it starts Faust,
because Faust waits without a log line if it lacks the right on the group, and runs without a topic that is denied.
"""

import asyncio
from collections.abc import AsyncIterator, Iterable, Sequence
from contextlib import asynccontextmanager
from enum import IntEnum, StrEnum
from typing import Any, NamedTuple

from aiokafka.admin import AIOKafkaAdminClient  # type: ignore[import-untyped]
from aiokafka.admin.config_resource import ConfigResource, ConfigResourceType  # type: ignore[import-untyped]
from aiokafka.coordinator.protocol import ConsumerProtocol  # type: ignore[import-untyped]
from aiokafka.errors import (  # type: ignore[import-untyped]
    GroupAuthorizationFailedError,
    GroupCoordinatorNotAvailableError,
    GroupLoadInProgressError,
    KafkaConnectionError,
    KafkaError,
    KafkaTimeoutError,
    NodeNotReadyError,
    NotCoordinatorForGroupError,
    RequestTimedOutError,
)

from streamgauge.kafka.connection_diagnosis import refusal_of
from streamgauge.kafka.faults import BrokerRefusesError, BrokerUnreachableError, TopicsDeniedError
from streamgauge.kafka.log_throttle import throttle_logs
from streamgauge.kafka.producer import REQUEST_TIMEOUT_MS
from streamgauge.kafka.security import Brokers
from streamgauge.kafka.shims.admin_requests import NO_OPERATIONS, group_description, topic_metadata

# A cluster without any group yet creates its coordinator at the first request. The number of requests, and the pause
# between two of them (seconds).
_COORDINATOR_TRIES = 20
_COORDINATOR_RETRY_S = 0.5

# The errors of a client that cannot connect, or that gets no answer.
UNREACHABLE = (KafkaConnectionError, KafkaTimeoutError, NodeNotReadyError, RequestTimedOutError, TimeoutError)

_TOPIC_DENIED, _GROUP_DENIED = 29, 30  # TOPIC_ and GROUP_AUTHORIZATION_FAILED
_COORDINATOR_MOVES = (
    GroupCoordinatorNotAvailableError,
    GroupLoadInProgressError,
    NotCoordinatorForGroupError,
    NodeNotReadyError,
    RequestTimedOutError,
)


class Kind(StrEnum):
    """The type of a resource, as `kafka-acls` spells it."""

    TOPIC = "topic"
    GROUP = "group"


class Operation(IntEnum):
    """An operation on a resource, with the protocol's code (org.apache.kafka.common.acl.AclOperation)."""

    READ = 3
    WRITE = 4
    CREATE = 5
    DESCRIBE = 8
    DESCRIBE_CONFIGS = 10

    @property
    def acl_name(self) -> str:
        """The name that `kafka-acls --operation` takes."""
        return self.name.title().replace("_", "")


class Right(NamedTuple):
    """The right to one operation on one topic or group."""

    operation: Operation
    kind: Kind
    name: str

    def __str__(self) -> str:
        return f"{self.operation.acl_name} on {self.kind} {self.name}"


class ExistingTopic(NamedTuple):
    """An existing topic, as the broker describes it to this principal.

    `may`: the codes of the allowed operations; None if the broker does not return them. `replicas`: the lowest number of
    replicas that a partition of the topic has; None if it has no partitions.
    """

    partitions: int
    may: frozenset[int] | None
    replicas: int | None = None


class Identity(NamedTuple):
    """A topic's present id and partition count. A topic that is recreated under the same name has another id (KIP-516).

    `id`: hexadecimal, or "" if the broker returns no ids.
    """

    id: str
    partitions: int


@asynccontextmanager
async def administrator(brokers: Brokers) -> AsyncIterator[AIOKafkaAdminClient]:
    """A connected admin client as a context. Throttles aiokafka's log lines; turns its errors into TopicsError."""
    throttle_logs()
    client = AIOKafkaAdminClient(**brokers.options(), request_timeout_ms=REQUEST_TIMEOUT_MS)
    try:
        await client.start()
        yield client
    except UNREACHABLE as error:
        raise await unreachable(brokers) from error
    except KafkaError as error:
        raise TopicsDeniedError(f"the broker at {brokers} rejected a request: {type(error).__name__}") from error
    finally:
        await client.close()


async def unreachable(brokers: Brokers) -> BrokerRefusesError | BrokerUnreachableError:
    """The error for a client that could not connect."""
    refusal = await refusal_of(brokers)
    if refusal is not None and refusal.final:
        return BrokerRefusesError(refusal.sentence)
    return BrokerUnreachableError(
        f"no Kafka broker answers at {brokers}: check that it runs and that --kafka is right",
        None if refusal is None else refusal.sentence,
    )


async def existing_topics(
    admin: AIOKafkaAdminClient, names: Sequence[str]
) -> tuple[dict[str, ExistingTopic], list[str]]:
    """The topics of `names` that exist; and the names that the broker denies to this client, which may not exist.

    Creates no topic. Raises KafkaError.
    """
    topics = await topic_metadata(admin, names, operations=True)
    existing = {
        topic["topic"]: ExistingTopic(
            len(topic["partitions"]),
            _operations(topic["operations"]),
            min((len(partition["replicas"]) for partition in topic["partitions"]), default=None),
        )
        for topic in topics
        if topic["topic"] in names and not topic["error_code"]
    }
    return existing, [topic["topic"] for topic in topics if topic["error_code"] == _TOPIC_DENIED]


async def identities(admin: AIOKafkaAdminClient, names: Sequence[str]) -> dict[str, Identity]:
    """The present identities of the topics of `names` that exist, by name. Raises KafkaError."""
    return {
        topic["topic"]: Identity(topic["topic_id"], len(topic["partitions"]))
        for topic in await topic_metadata(admin, names)
        if topic["topic"] in names and not topic["error_code"]
    }


class GroupDescription(NamedTuple):
    """A consumer group as its coordinator describes it. `stable`: it has members, and no rebalance is under way.

    `assigned`: topic -> the partitions that are assigned to any member.
    """

    stable: bool
    assigned: dict[str, set[int]]


async def describe_group(admin: AIOKafkaAdminClient, group: str) -> GroupDescription | None:
    """The group and its assignments; None if the coordinator does not return them now. Raises KafkaError."""
    described = await group_description(admin, group)
    if described is None or described["error_code"]:
        return None
    assigned: dict[str, set[int]] = {}
    for member in described["members"]:
        if member["assignment"]:
            for topic, partitions in ConsumerProtocol.ASSIGNMENT.decode(member["assignment"]).assignment:
                assigned.setdefault(topic, set()).update(partitions)
    return GroupDescription(described["state"] == "Stable", assigned)


async def may_with_group(admin: AIOKafkaAdminClient, group: str) -> frozenset[int] | None:
    """The codes of the operations that this client may do with a group; None if the broker does not return them.

    Raises KafkaError.
    """
    for _ in range(_COORDINATOR_TRIES):
        try:
            described = await group_description(admin, group)
        except GroupAuthorizationFailedError:
            return frozenset()
        except _COORDINATOR_MOVES:
            await asyncio.sleep(_COORDINATOR_RETRY_S)
            continue
        if described is None:
            return None
        if described["error_code"] in (0, _GROUP_DENIED):
            return frozenset() if described["error_code"] else _operations(described["operations"])
        await asyncio.sleep(_COORDINATOR_RETRY_S)  # the coordinator is moving to another broker, or loading the group
    raise KafkaConnectionError("the consumer group has no coordinator yet")


def _operations(bits: int) -> frozenset[int] | None:
    return None if bits == NO_OPERATIONS else frozenset(code for code in range(32) if bits >> code & 1)


def denied(user: str | None, missing: Iterable[Right]) -> TopicsDeniedError:
    """The error for missing rights. `user`: the name that this client logs in with; None without a log-in."""
    rights = ", ".join(map(str, missing))
    principal = f"User:{user}" if user else "the principal of this client"
    return TopicsDeniedError(f"the broker denies {rights}: grant it to {principal}, for example with kafka-acls --add")


async def configs_of(admin: AIOKafkaAdminClient, names: Sequence[str], keys: set[str]) -> dict[str, dict[str, str]]:
    """The values of `keys` by topic name. Leaves out a topic whose configuration is denied. Raises KafkaError."""
    if not names:
        return {}
    answers: list[Any] = await admin.describe_configs(
        [ConfigResource(ConfigResourceType.TOPIC, name) for name in names]
    )
    configs: dict[str, dict[str, str]] = {}
    for answer in answers:
        for code, _message, _kind, name, entries in answer.resources:
            if not code:
                configs[name] = {entry[0]: entry[1] for entry in entries if entry[0] in keys}
    return configs
