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
    IncompatibleBrokerVersion,
    KafkaConnectionError,
    KafkaError,
    KafkaTimeoutError,
    NodeNotReadyError,
    NotCoordinatorForGroupError,
    RequestTimedOutError,
)
from aiokafka.protocol.api import Request, RequestStruct, Response  # type: ignore[import-untyped]
from aiokafka.protocol.types import Array, Boolean, Bytes, Int16, Int32, Schema, String  # type: ignore[import-untyped]

from streamgauge.kafka.admin_requests import send
from streamgauge.kafka.connection_diagnosis import refusal_of
from streamgauge.kafka.faults import BrokerRefusesError, BrokerUnreachableError, TopicsDeniedError
from streamgauge.kafka.log_throttle import throttle_logs
from streamgauge.kafka.producer import REQUEST_TIMEOUT_MS
from streamgauge.kafka.security import Brokers

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
# The value for authorized operations that were not requested, or that the broker does not return.
_NOT_RETURNED = -(2**31)


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


class _MetadataResponse(Response):  # type: ignore[misc]
    API_KEY = 3
    API_VERSION = 8
    SCHEMA = Schema(
        ("throttle_time_ms", Int32),
        ("brokers", Array(("node_id", Int32), ("host", String()), ("port", Int32), ("rack", String()))),
        ("cluster_id", String()),
        ("controller_id", Int32),
        (
            "topics",
            Array(
                ("error_code", Int16),
                ("topic", String()),
                ("is_internal", Boolean),
                (
                    "partitions",
                    Array(
                        ("error_code", Int16),
                        ("partition", Int32),
                        ("leader", Int32),
                        ("leader_epoch", Int32),
                        ("replicas", Array(Int32)),
                        ("isr", Array(Int32)),
                        ("offline_replicas", Array(Int32)),
                    ),
                ),
                ("operations", Int32),
            ),
        ),
        ("cluster_operations", Int32),
    )


class _MetadataStruct(RequestStruct):  # type: ignore[misc]
    API_KEY = 3
    API_VERSION = 8
    RESPONSE_TYPE = _MetadataResponse
    SCHEMA = Schema(
        ("topics", Array(String())), ("auto_create", Boolean), ("cluster_operations", Boolean), ("operations", Boolean)
    )


class _Metadata(Request[_MetadataStruct]):  # type: ignore[misc]
    """Metadata v8, by topic name; it creates no topic. aiokafka has it up to v5, which lacks the authorized operations."""

    API_KEY = 3

    def __init__(self, topics: Sequence[str]) -> None:
        self._topics = list(topics)

    def build(self, request_struct_class: type[_MetadataStruct]) -> _MetadataStruct:
        return request_struct_class(self._topics, False, False, True)


class _GroupsResponse(Response):  # type: ignore[misc]
    API_KEY = 15
    API_VERSION = 3
    SCHEMA = Schema(
        ("throttle_time_ms", Int32),
        (
            "groups",
            Array(
                ("error_code", Int16),
                ("group", String()),
                ("state", String()),
                ("protocol_type", String()),
                ("protocol", String()),
                (
                    "members",
                    Array(
                        ("member_id", String()),
                        ("client_id", String()),
                        ("client_host", String()),
                        ("metadata", Bytes),
                        ("assignment", Bytes),
                    ),
                ),
                ("operations", Int32),
            ),
        ),
    )


class _GroupsStruct(RequestStruct):  # type: ignore[misc]
    API_KEY = 15
    API_VERSION = 3
    RESPONSE_TYPE = _GroupsResponse
    SCHEMA = Schema(("groups", Array(String())), ("operations", Boolean))


class _Groups(Request[_GroupsStruct]):  # type: ignore[misc]
    """DescribeGroups v3. aiokafka's own class reads a response without the authorized operations."""

    API_KEY = 15

    def __init__(self, group: str) -> None:
        self._group = group

    def build(self, request_struct_class: type[_GroupsStruct]) -> _GroupsStruct:
        return request_struct_class([self._group], True)


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
    try:
        answer = (await send(admin, _Metadata(names))).to_object()
    except (NotImplementedError, IncompatibleBrokerVersion):  # older than Kafka 2.3
        answer = {"topics": [{"operations": _NOT_RETURNED, **topic} for topic in await admin.describe_topics()]}
    found = {
        topic["topic"]: ExistingTopic(
            len(topic["partitions"]),
            _operations(topic["operations"]),
            min((len(one["replicas"]) for one in topic["partitions"]), default=None),
        )
        for topic in answer["topics"]
        if topic["topic"] in names and not topic["error_code"]
    }
    return found, [topic["topic"] for topic in answer["topics"] if topic["error_code"] == _TOPIC_DENIED]


class GroupDescription(NamedTuple):
    """A consumer group as its coordinator describes it. `stable`: it has members, and no rebalance is under way.

    `assigned`: topic -> the partitions that are assigned to any member.
    """

    stable: bool
    assigned: dict[str, set[int]]


async def describe_group(admin: AIOKafkaAdminClient, group: str) -> GroupDescription | None:
    """The group and its assignments; None if the coordinator does not return them now. Raises KafkaError."""
    node = await admin.find_coordinator(group)
    try:
        answer = (await send(admin, _Groups(group), node)).to_object()
    except (NotImplementedError, IncompatibleBrokerVersion):  # older than Kafka 2.3
        return None
    described = answer["groups"][0]
    if described["error_code"]:
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
            node = await admin.find_coordinator(group)
            answer = (await send(admin, _Groups(group), node)).to_object()
        except GroupAuthorizationFailedError:
            return frozenset()
        except _COORDINATOR_MOVES:
            await asyncio.sleep(_COORDINATOR_RETRY_S)
            continue
        except (NotImplementedError, IncompatibleBrokerVersion):
            return None
        described = answer["groups"][0]
        if described["error_code"] in (0, _GROUP_DENIED):
            return frozenset() if described["error_code"] else _operations(described["operations"])
        await asyncio.sleep(_COORDINATOR_RETRY_S)  # the coordinator is moving to another broker, or loading the group
    raise KafkaConnectionError("the consumer group has no coordinator yet")


def _operations(bits: int) -> frozenset[int] | None:
    return None if bits == _NOT_RETURNED else frozenset(code for code in range(32) if bits >> code & 1)


def denied(user: str | None, missing: Iterable[Right]) -> TopicsDeniedError:
    """The error for missing rights. `user`: the name that this client logs in with; None without a log-in."""
    rights = ", ".join(map(str, missing))
    who = f"User:{user}" if user else "the principal of this client"
    return TopicsDeniedError(f"the broker denies {rights}: grant it to {who}, for example with kafka-acls --add")


async def configs_of(admin: AIOKafkaAdminClient, names: Sequence[str], keys: set[str]) -> dict[str, dict[str, str]]:
    """The values of `keys` by topic name. Leaves out a topic whose configuration is denied. Raises KafkaError."""
    if not names:
        return {}
    answers: list[Any] = await admin.describe_configs(
        [ConfigResource(ConfigResourceType.TOPIC, name) for name in names]
    )
    found: dict[str, dict[str, str]] = {}
    for answer in answers:
        for code, _message, _kind, name, entries in answer.resources:
            if not code:
                found[name] = {entry[0]: entry[1] for entry in entries if entry[0] in keys}
    return found
