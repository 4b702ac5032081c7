"""Requests for which aiokafka's admin client has no method, or a method that hides errors.

Written for aiokafka 0.13 to 0.14. No public report. Its Metadata stops at version 5: topic ids need version 10 (KIP-516,
Kafka 2.8), the authorized operations version 8 (KIP-430). Its DescribeGroups reads a response without the authorized
operations. Its `list_consumer_group_offsets` returns no offsets, instead of an error, if the coordinator has not loaded the
group yet, or is no longer its coordinator.

The admin client chooses a request's version from those that the broker supports, and sends it with a private method.
"""

from collections.abc import Sequence
from io import BytesIO
from typing import Any, NamedTuple

from aiokafka.admin import AIOKafkaAdminClient  # type: ignore[import-untyped]
from aiokafka.errors import IncompatibleBrokerVersion, for_code  # type: ignore[import-untyped]
from aiokafka.protocol.abstract import AbstractType  # type: ignore[import-untyped]
from aiokafka.protocol.api import Request, RequestStruct, Response  # type: ignore[import-untyped]
from aiokafka.protocol.commit import OffsetFetchRequest  # type: ignore[import-untyped]
from aiokafka.protocol.types import (  # type: ignore[import-untyped]
    Array,
    Boolean,
    Bytes,
    CompactArray,
    CompactString,
    Int16,
    Int32,
    Schema,
    String,
    TaggedFields,
)

# The value for authorized operations that were not requested, or that the broker does not return.
NO_OPERATIONS = -(2**31)

# Errors of a broker that is too old for a request.
_TOO_OLD = (NotImplementedError, IncompatibleBrokerVersion)
_ID_BYTES = 16
_NO_ID = bytes(_ID_BYTES)


class CommittedOffset(NamedTuple):
    """The offset that a group has committed for one partition, and the commit's metadata."""

    offset: int
    metadata: str


async def topic_metadata(
    admin: AIOKafkaAdminClient, names: Sequence[str], *, operations: bool = False
) -> list[dict[str, Any]]:
    """The broker's description of each topic; creates no topic. Raises KafkaError.

    Keys: error_code, topic (its name), topic_id (hexadecimal; "" from a broker older than Kafka 2.8), partitions, operations
    (bits; NO_OPERATIONS if the broker does not return them, or `operations` does not ask for them).
    """
    try:
        topics = (await admin._send_request(_Metadata(names, operations))).to_object()["topics"]
    except _TOO_OLD:
        return [{"topic_id": "", "operations": NO_OPERATIONS, **topic} for topic in await admin.describe_topics()]
    return [{**topic, "topic_id": "" if topic["topic_id"] == _NO_ID else topic["topic_id"].hex()} for topic in topics]


async def group_description(admin: AIOKafkaAdminClient, group: str) -> dict[str, Any] | None:
    """The coordinator's description of a group; None from a broker older than Kafka 2.3. Raises KafkaError.

    Keys: error_code, group, state, members (each with its encoded assignment), operations (bits).
    """
    try:
        node = await admin.find_coordinator(group)
        described: dict[str, Any] = (await admin._send_request(_Groups(group), node)).to_object()["groups"][0]
    except _TOO_OLD:
        return None
    return described


async def committed_offsets(admin: AIOKafkaAdminClient, group: str, topic: str) -> dict[int, CommittedOffset]:
    """The committed offsets of a topic by partition; leaves out partitions without one. Raises KafkaError."""
    node = await admin.find_coordinator(group)
    answer = await admin._send_request(OffsetFetchRequest(group, None), node)
    committed = {}
    _raise(answer.error_code, group)
    for name, partitions in answer.topics:
        for number, offset, metadata, code in partitions:
            _raise(code, group)
            if name == topic and offset >= 0:
                committed[number] = CommittedOffset(offset, metadata)
    return committed


def _raise(code: int, group: str) -> None:
    if code:
        raise for_code(code)(f"offsets of group {group}")


# --- Metadata v10 ---------------------------------------------------------------------------------------------------


class _Id(AbstractType):  # type: ignore[misc]
    @classmethod
    def encode(cls, value: bytes) -> bytes:
        return value

    @classmethod
    def decode(cls, data: BytesIO) -> bytes:
        return data.read(_ID_BYTES)


_NUMBERS = CompactArray(Int32)
_BROKER = (
    ("node_id", Int32),
    ("host", CompactString()),
    ("port", Int32),
    ("rack", CompactString()),
    ("tags", TaggedFields),
)
_PARTITION = (
    ("error_code", Int16),
    ("partition", Int32),
    ("leader", Int32),
    ("leader_epoch", Int32),
    ("replicas", _NUMBERS),
    ("isr", _NUMBERS),
    ("offline_replicas", _NUMBERS),
    ("tags", TaggedFields),
)
_TOPIC = (
    ("error_code", Int16),
    ("topic", CompactString()),
    ("topic_id", _Id),
    ("is_internal", Boolean),
    ("partitions", CompactArray(*_PARTITION)),
    ("operations", Int32),
    ("tags", TaggedFields),
)


class _MetadataResponse(Response):  # type: ignore[misc]
    API_KEY = 3
    API_VERSION = 10
    SCHEMA = Schema(
        ("throttle_time_ms", Int32),
        ("brokers", CompactArray(*_BROKER)),
        ("cluster_id", CompactString()),
        ("controller_id", Int32),
        ("topics", CompactArray(*_TOPIC)),
        ("cluster_operations", Int32),
        ("tags", TaggedFields),
    )


class _MetadataStruct(RequestStruct):  # type: ignore[misc]
    FLEXIBLE_VERSION = True
    API_KEY = 3
    API_VERSION = 10
    RESPONSE_TYPE = _MetadataResponse
    SCHEMA = Schema(
        ("topics", CompactArray(("topic_id", _Id), ("topic", CompactString()), ("tags", TaggedFields))),
        ("auto_create", Boolean),
        ("cluster_operations", Boolean),
        ("topic_operations", Boolean),
        ("tags", TaggedFields),
    )


class _Metadata(Request[_MetadataStruct]):  # type: ignore[misc]
    """Metadata v10, by topic name; it creates no topic."""

    API_KEY = 3

    def __init__(self, names: Sequence[str], operations: bool) -> None:
        self._names, self._operations = names, operations

    def build(self, request_struct_class: type[_MetadataStruct]) -> _MetadataStruct:
        topics: list[tuple[bytes, str, dict[int, bytes]]] = [(_NO_ID, name, {}) for name in self._names]
        return request_struct_class(topics, False, False, self._operations, {})


# --- DescribeGroups v3 ----------------------------------------------------------------------------------------------


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
    """DescribeGroups v3, with the authorized operations."""

    API_KEY = 15

    def __init__(self, group: str) -> None:
        self._group = group

    def build(self, request_struct_class: type[_GroupsStruct]) -> _GroupsStruct:
        return request_struct_class([self._group], True)
