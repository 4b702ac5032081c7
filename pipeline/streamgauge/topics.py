"""Every topic of Streamgauge: the only place where one is named, and where topics are created, compared and described.

| topic | key | value | partitions |
|---|---|---|---|
| PREFIX.segments | none | a bundle (`bundles.py`) | a power of two up to 64; partition = slot % partitions |
| PREFIX.records | the stream id as text | the record as UTF-8 JSON | as segments |
| PREFIX.state | partition/entry | an assembler's state (`worker/store.py`) | as segments: Faust pairs them |
| PREFIX.deadletter | the message's own key | the message's own bytes, its story in headers | 1 |
"""

import re
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from typing import Any

from aiokafka.admin import AIOKafkaAdminClient, NewTopic  # type: ignore[import-untyped]
from aiokafka.admin.config_resource import ConfigResource, ConfigResourceType  # type: ignore[import-untyped]
from aiokafka.errors import KafkaConnectionError, KafkaError, for_code  # type: ignore[import-untyped]

from streamgauge.broker.watch import damp
from streamgauge.core.segments import SLOTS

DEFAULT_PREFIX = "streamgauge"
DEFAULT_PARTITIONS = 8

# A bundle is closed at about 48 KiB, but one body that is no event stream may be 16 MiB before compression (bytes).
MAX_MESSAGE_BYTES = 8 * 1024 * 1024
# A dead letter is a whole message and its headers (bytes).
MAX_DEADLETTER_BYTES = MAX_MESSAGE_BYTES + 64 * 1024
# A bucket of 1,000 open streams at their limit of 4 KiB; one segment of the changelog holds several (bytes).
MAX_STATE_BYTES = 8 * 1024 * 1024

_DAY_MS = 24 * 3600 * 1000
# Bundles are needed until a worker has read them: three days bridge a weekend without workers.
SEGMENTS_RETENTION_MS = 3 * _DAY_MS
# Records rest in the ledger; the topic serves those who read along.
RECORDS_RETENTION_MS = 7 * _DAY_MS
# Somebody has to look at a dead letter: two weeks outlast a holiday.
DEADLETTER_RETENTION_MS = 14 * _DAY_MS

# A worker that lost its partition can still flush an old entry. Its successor writes every entry again within 30 s, and
# for five minutes compaction removes neither, so that recovery sees both and keeps the newer one.
STATE_MIN_COMPACTION_LAG_MS = 300_000
STATE_SEGMENT_BYTES = 32 * 1024 * 1024

# Copies of a partition where the cluster has as many brokers.
_REPLICAS = 3

# How long one request of an administrator may take before the broker counts as away (milliseconds).
_REQUEST_TIMEOUT_MS = 10_000

_PREFIX_FORM = re.compile(r"[A-Za-z0-9_-][A-Za-z0-9._-]{0,99}")
_TOPIC_EXISTS = 36


class TopicsError(Exception):
    """Something about the broker or its topics that the operator can put right: one sentence that says how."""


class BrokerUnreachableError(TopicsError):
    """Nobody answers at the bootstrap address, or not as a Kafka broker does."""


class TopicsMissingError(TopicsError):
    """Topics that are needed are not there."""


class TopicsUnfitError(TopicsError):
    """A topic is there but cannot serve: wrong partition count, or times that are the producers' own."""


class TopicsDeniedError(TopicsError):
    """The broker refuses what was asked."""


@dataclass(frozen=True)
class Topic:
    """One topic as it should be. `config` holds what matters here, not all that a broker knows."""

    name: str
    partitions: int
    config: Mapping[str, str]


@dataclass(frozen=True)
class Topics:
    """The names under one prefix. Raises ValueError for a prefix that Kafka would not take."""

    prefix: str = DEFAULT_PREFIX

    def __post_init__(self) -> None:
        if not _PREFIX_FORM.fullmatch(self.prefix):
            raise ValueError(f"topic prefix {self.prefix!r}: letters, digits, '.', '_' and '-', at most 100")

    @property
    def segments(self) -> str:
        return f"{self.prefix}.segments"

    @property
    def records(self) -> str:
        return f"{self.prefix}.records"

    @property
    def state(self) -> str:
        return f"{self.prefix}.state"

    @property
    def deadletter(self) -> str:
        return f"{self.prefix}.deadletter"

    @property
    def names(self) -> tuple[str, ...]:
        return (self.segments, self.records, self.state, self.deadletter)

    def wanted(self, partitions: int) -> list[Topic]:
        """The four topics for this partition count. Raises TopicsUnfitError unless it is a power of two up to 64."""
        check_partitions(self.segments, partitions)
        size = str(MAX_MESSAGE_BYTES)
        delete = {"cleanup.policy": "delete"}
        return [
            Topic(
                self.segments,
                partitions,
                # The log's own time is what streams expire by: no tap's clock touches another tap's streams.
                delete
                | {
                    "message.timestamp.type": "LogAppendTime",
                    "retention.ms": str(SEGMENTS_RETENTION_MS),
                    "max.message.bytes": size,
                },
            ),
            Topic(
                self.records,
                partitions,
                delete | {"retention.ms": str(RECORDS_RETENTION_MS), "max.message.bytes": size},
            ),
            Topic(
                self.state,
                partitions,
                {
                    "cleanup.policy": "compact",
                    "min.compaction.lag.ms": str(STATE_MIN_COMPACTION_LAG_MS),
                    "segment.bytes": str(STATE_SEGMENT_BYTES),
                    "max.message.bytes": str(MAX_STATE_BYTES),
                },
            ),
            Topic(
                self.deadletter,
                1,
                delete | {"retention.ms": str(DEADLETTER_RETENTION_MS), "max.message.bytes": str(MAX_DEADLETTER_BYTES)},
            ),
        ]


@dataclass(frozen=True)
class Created:
    """What `create` did: the topics it made, and a sentence for each way in which one that was there differs."""

    created: list[str] = field(default_factory=list)
    differences: list[str] = field(default_factory=list)


def check_partitions(topic: str, partitions: int) -> None:
    """Raises TopicsUnfitError unless the count is a power of two up to 64, so that it divides the slots evenly."""
    if not 1 <= partitions <= SLOTS or partitions & (partitions - 1):
        raise TopicsUnfitError(
            f"topic {topic}: {partitions} partitions do not do, it takes a power of two up to {SLOTS}"
        )


async def create(bootstrap: str, partitions: int | None = None, prefix: str = DEFAULT_PREFIX) -> Created:
    """Make the topics that are missing and compare those that are there; changes nothing that exists.

    `partitions` None: those of the segments topic if it is there, else DEFAULT_PARTITIONS. Raises TopicsError.
    """
    topics = Topics(prefix)
    async with _admin(bootstrap) as admin:
        found = await _found(admin, topics)
        if partitions is None:
            partitions = found[topics.segments].partitions if topics.segments in found else DEFAULT_PARTITIONS
        result = Created()
        missing = [topic for topic in topics.wanted(partitions) if topic.name not in found]
        for wanted in topics.wanted(partitions):
            if wanted.name in found:
                result.differences.extend(_differences(wanted, found[wanted.name]))
        if missing:
            result.created.extend(await _make(admin, missing))
    return result


async def describe(bootstrap: str, prefix: str = DEFAULT_PREFIX) -> list[Topic]:
    """The topics of this prefix that are there, as they are. Raises TopicsError."""
    topics = Topics(prefix)
    async with _admin(bootstrap) as admin:
        found = await _found(admin, topics)
    return [found[name] for name in topics.names if name in found]


async def check(bootstrap: str, prefix: str = DEFAULT_PREFIX) -> int:
    """The partition count, if everything that a worker needs is there and fits. Raises TopicsError."""
    topics = Topics(prefix)
    async with _admin(bootstrap) as admin:
        found = await _found(admin, topics)
    if missing := [name for name in topics.names if name not in found]:
        raise TopicsMissingError(
            f"{_listed(missing)} not there (or not for us to see): run `streamgauge topics create` first"
        )
    segments, state = found[topics.segments], found[topics.state]
    check_partitions(segments.name, segments.partitions)
    if state.partitions != segments.partitions:
        raise TopicsUnfitError(
            f"topics {segments.name} and {state.name} have {segments.partitions} and {state.partitions} partitions, "
            "and must have the same number: add partitions to the smaller one"
        )
    if segments.config.get("message.timestamp.type", "LogAppendTime") != "LogAppendTime":
        raise TopicsUnfitError(f"topic {segments.name} needs message.timestamp.type=LogAppendTime: alter it")
    return segments.partitions


async def segments_partitions(bootstrap: str, prefix: str = DEFAULT_PREFIX) -> int:
    """How many partitions the segments topic has: what a tap needs to know. Raises TopicsError."""
    name = Topics(prefix).segments
    async with _admin(bootstrap) as admin:
        found = await _partitions(admin, [name])
    if name not in found:
        raise TopicsMissingError(
            f"topic {name} is not there (or not for us to see): run `streamgauge topics create` first"
        )
    check_partitions(name, found[name])
    return found[name]


@asynccontextmanager
async def _admin(bootstrap: str) -> AsyncIterator[AIOKafkaAdminClient]:
    """An administrator's client; whatever aiokafka raises leaves as a TopicsError, and what it logs is damped."""
    damp()
    client = AIOKafkaAdminClient(bootstrap_servers=bootstrap, request_timeout_ms=_REQUEST_TIMEOUT_MS)
    try:
        await client.start()
        yield client
    except KafkaConnectionError as error:
        raise BrokerUnreachableError(
            f"no Kafka broker answers at {bootstrap}: is it up, and is the address right?"
        ) from error
    except KafkaError as error:
        raise TopicsDeniedError(f"the broker at {bootstrap} refuses: {type(error).__name__}") from error
    finally:
        await client.close()


async def _partitions(admin: AIOKafkaAdminClient, names: list[str]) -> dict[str, int]:
    """Partition counts of those that exist. Asks for all topics: asking for one by name could create it."""
    return {
        topic["topic"]: len(topic["partitions"])
        for topic in await admin.describe_topics()
        if topic["topic"] in names and not topic["error_code"]
    }


async def _found(admin: AIOKafkaAdminClient, topics: Topics) -> dict[str, Topic]:
    counts = await _partitions(admin, list(topics.names))
    configs = await _configs(admin, list(counts))
    return {name: Topic(name, count, configs.get(name, {})) for name, count in counts.items()}


async def _configs(admin: AIOKafkaAdminClient, names: list[str]) -> dict[str, dict[str, str]]:
    """The configuration of each topic, of the keys that matter here; none for a topic whose configuration is denied."""
    if not names:
        return {}
    keys = {key for topic in Topics().wanted(1) for key in topic.config}
    answers = await admin.describe_configs([ConfigResource(ConfigResourceType.TOPIC, name) for name in names])
    found: dict[str, dict[str, str]] = {}
    for answer in answers:
        for code, _message, _kind, name, entries in answer.resources:
            if not code:
                found[name] = {entry[0]: entry[1] for entry in entries if entry[0] in keys}
    return found


def _differences(wanted: Topic, found: Topic) -> list[str]:
    differences = []
    if wanted.partitions != found.partitions:
        differences.append(f"{wanted.name} has {found.partitions} partitions, not {wanted.partitions}")
    differences.extend(
        f"{wanted.name} has {key}={found.config[key]}, not {value}"
        for key, value in wanted.config.items()
        if found.config and found.config.get(key) != value
    )
    return differences


async def _make(admin: AIOKafkaAdminClient, missing: list[Topic]) -> list[str]:
    brokers = len((await admin.describe_cluster())["brokers"])
    new = [
        NewTopic(topic.name, topic.partitions, min(_REPLICAS, brokers), topic_configs=dict(topic.config))
        for topic in missing
    ]
    answer: Any = await admin.create_topics(new)
    for name, code, *_ in answer.topic_errors:
        if code and code != _TOPIC_EXISTS:  # somebody else may create them at the same moment
            raise TopicsDeniedError(f"topic {name} could not be created: {for_code(code).__name__}")
    return [topic.name for topic in missing]


def _listed(names: list[str]) -> str:
    return f"topic {names[0]} is" if len(names) == 1 else f"topics {', '.join(names)} are"
