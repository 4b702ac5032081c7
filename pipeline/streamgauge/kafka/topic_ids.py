"""Read topic ids. A topic that is recreated under the same name has another id (KIP-516).

aiokafka has the Metadata request up to version 5; topic ids need version 10, which Kafka supports since 2.8.
"""

from collections.abc import Sequence
from io import BytesIO
from typing import Any, NamedTuple

from aiokafka.admin import AIOKafkaAdminClient  # type: ignore[import-untyped]
from aiokafka.errors import IncompatibleBrokerVersion  # type: ignore[import-untyped]
from aiokafka.protocol.abstract import AbstractType  # type: ignore[import-untyped]
from aiokafka.protocol.api import Request, RequestStruct, Response  # type: ignore[import-untyped]
from aiokafka.protocol.types import (  # type: ignore[import-untyped]
    Boolean,
    CompactArray,
    CompactString,
    Int16,
    Int32,
    Schema,
    TaggedFields,
)

from streamgauge.kafka.admin_requests import send

_ID_BYTES = 16
_NO_ID = bytes(_ID_BYTES)
_METADATA = 3
_METADATA_WITH_IDS = 10


class Identity(NamedTuple):
    """A topic's present id and partition count. `id`: hexadecimal, or "" if the broker returns no ids."""

    id: str
    partitions: int


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


class _Answer(Response):  # type: ignore[misc]
    API_KEY = _METADATA
    API_VERSION = _METADATA_WITH_IDS
    SCHEMA = Schema(
        ("throttle_time_ms", Int32),
        ("brokers", CompactArray(*_BROKER)),
        ("cluster_id", CompactString()),
        ("controller_id", Int32),
        ("topics", CompactArray(*_TOPIC)),
        ("cluster_operations", Int32),
        ("tags", TaggedFields),
    )


class _Question(RequestStruct):  # type: ignore[misc]
    FLEXIBLE_VERSION = True
    API_KEY = _METADATA
    API_VERSION = _METADATA_WITH_IDS
    RESPONSE_TYPE = _Answer
    SCHEMA = Schema(
        ("topics", CompactArray(("topic_id", _Id), ("topic", CompactString()), ("tags", TaggedFields))),
        ("auto_create", Boolean),
        ("cluster_operations", Boolean),
        ("topic_operations", Boolean),
        ("tags", TaggedFields),
    )


class _Metadata(Request[_Question]):  # type: ignore[misc]
    """Metadata v10, by topic name; it creates no topic."""

    API_KEY = _METADATA

    def __init__(self, names: Sequence[str]) -> None:
        self._names = names

    def build(self, request_struct_class: type[_Question]) -> _Question:
        topics: list[tuple[bytes, str, dict[int, bytes]]] = [(_NO_ID, name, {}) for name in self._names]
        return request_struct_class(topics, False, False, False, {})


async def identities(admin: AIOKafkaAdminClient, names: Sequence[str]) -> dict[str, Identity]:
    """The present identities of the topics of `names` that exist, by name. Raises KafkaError."""
    try:
        answer: Any = (await send(admin, _Metadata(names))).to_object()
    except (NotImplementedError, IncompatibleBrokerVersion):
        answer = {"topics": [{"topic_id": _NO_ID, **topic} for topic in await admin.describe_topics()]}
    return {
        topic["topic"]: Identity(_spelt(topic["topic_id"]), len(topic["partitions"]))
        for topic in answer["topics"]
        if topic["topic"] in names and not topic["error_code"]
    }


def _spelt(topic_id: bytes) -> str:
    return "" if topic_id == _NO_ID else topic_id.hex()
