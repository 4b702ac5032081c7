"""An administrator's client: topics, their configuration, and what we may do with topics and a group.

What we may do is asked before it is done. Kafka tells it with the metadata (KIP-430): Faust waits in silence where the
group's right is missing, and runs on without a topic that is denied, so the worker asks first.
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
from streamgauge.kafka.security import Brokers

# How long one request of an administrator may take before the broker counts as away (milliseconds).
_REQUEST_TIMEOUT_MS = 10_000
# A cluster that never had a group makes its coordinator at the first question: how often, and how soon it is asked again.
_COORDINATOR_TRIES = 20
_COORDINATOR_RETRY_S = 0.5

_TOPIC_DENIED, _GROUP_DENIED = 29, 30  # TOPIC_ and GROUP_AUTHORIZATION_FAILED
_COORDINATOR_MOVES = (
    GroupCoordinatorNotAvailableError,
    GroupLoadInProgressError,
    NotCoordinatorForGroupError,
    NodeNotReadyError,
    RequestTimedOutError,
)
_NOT_TOLD = -(2**31)  # authorized operations that were not asked for, or that the broker does not tell


class Kind(StrEnum):
    """What a right is about, as `kafka-acls` spells it."""

    TOPIC = "topic"
    GROUP = "group"


class Operation(IntEnum):
    """What may be done with it, by the protocol's codes (org.apache.kafka.common.acl.AclOperation)."""

    READ = 3
    WRITE = 4
    CREATE = 5
    DESCRIBE = 8
    DESCRIBE_CONFIGS = 10

    @property
    def spelt(self) -> str:
        """As `kafka-acls --operation` takes it."""
        return self.name.title().replace("_", "")


class Right(NamedTuple):
    """What somebody may do with one topic or group."""

    operation: Operation
    kind: Kind
    name: str

    def __str__(self) -> str:
        return f"{self.operation.spelt} on {self.kind} {self.name}"


class TopicSeen(NamedTuple):
    """A topic that is there, as the broker shows it to this principal.

    `may`: the operations that are allowed; None where the broker does not say it. `replicas`: of the partition with the
    fewest.
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
    """Metadata v8, by name, which creates nothing. aiokafka knows it up to v5, which does not tell what we may do."""

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
    """DescribeGroups v3. aiokafka's own reads an answer without the operations."""

    API_KEY = 15

    def __init__(self, group: str) -> None:
        self._group = group

    def build(self, request_struct_class: type[_GroupsStruct]) -> _GroupsStruct:
        return request_struct_class([self._group], True)


@asynccontextmanager
async def administrator(brokers: Brokers) -> AsyncIterator[AIOKafkaAdminClient]:
    """An administrator's client; whatever aiokafka raises leaves as a TopicsError, and what it logs is damped."""
    throttle_logs()
    client = AIOKafkaAdminClient(**brokers.options(), request_timeout_ms=_REQUEST_TIMEOUT_MS)
    try:
        await client.start()
        yield client
    except (KafkaConnectionError, NodeNotReadyError, RequestTimedOutError, KafkaTimeoutError, TimeoutError) as error:
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


async def seen_topics(admin: AIOKafkaAdminClient, names: Sequence[str]) -> tuple[dict[str, TopicSeen], list[str]]:
    """Those of `names` that are there; and those that are not for us to see, there or not. Creates none."""
    try:
        answer = (await send(admin, _Metadata(names))).to_object()
    except (NotImplementedError, IncompatibleBrokerVersion):  # older than Kafka 2.3
        answer = {"topics": [{"operations": _NOT_TOLD, **topic} for topic in await admin.describe_topics()]}
    found = {
        topic["topic"]: TopicSeen(
            len(topic["partitions"]),
            _operations(topic["operations"]),
            min((len(one["replicas"]) for one in topic["partitions"]), default=None),
        )
        for topic in answer["topics"]
        if topic["topic"] in names and not topic["error_code"]
    }
    return found, [topic["topic"] for topic in answer["topics"] if topic["error_code"] == _TOPIC_DENIED]


class GroupSeen(NamedTuple):
    """A consumer group as its coordinator describes it. `stable`: no rebalance is under way, and it has members.

    `assigned`: topic -> the partitions that some member has.
    """

    stable: bool
    assigned: dict[str, set[int]]


async def seen_group(admin: AIOKafkaAdminClient, group: str) -> GroupSeen | None:
    """What the group's members have; None where the coordinator does not say it now. Raises KafkaError."""
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
    return GroupSeen(described["state"] == "Stable", assigned)


async def may_with_group(admin: AIOKafkaAdminClient, group: str) -> frozenset[int] | None:
    """What we may do with a consumer group; None where the broker does not tell. Raises KafkaError."""
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
        await asyncio.sleep(_COORDINATOR_RETRY_S)  # the coordinator moves, or reads what it knows
    raise KafkaConnectionError("the consumer group has no coordinator yet")


def _operations(bits: int) -> frozenset[int] | None:
    return None if bits == _NOT_TOLD else frozenset(code for code in range(32) if bits >> code & 1)


def denied(user: str | None, missing: Iterable[Right]) -> TopicsDeniedError:
    """The sentence for rights that are not there; `user`: who we are, where we know."""
    rights = ", ".join(map(str, missing))
    who = f"User:{user}" if user else "the principal of this client"
    return TopicsDeniedError(f"the broker denies {rights}: grant it to {who}, for example with kafka-acls --add")


async def configs_of(admin: AIOKafkaAdminClient, names: Sequence[str], keys: set[str]) -> dict[str, dict[str, str]]:
    """The configuration of each topic, of these keys; a topic whose configuration is denied is left out."""
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
