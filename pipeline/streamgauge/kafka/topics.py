"""The topics of Streamgauge: creates, compares and describes them. `topic_settings.py` describes the content of each."""

import asyncio
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Any

from aiokafka.admin import AIOKafkaAdminClient, NewTopic  # type: ignore[import-untyped]
from aiokafka.errors import for_code  # type: ignore[import-untyped]

from streamgauge.core.capture.segments import SLOTS
from streamgauge.kafka.administrator import (
    ExistingTopic,
    Kind,
    Operation,
    Right,
    administrator,
    configs_of,
    denied,
    existing_topics,
    may_with_group,
)
from streamgauge.kafka.faults import (
    BrokerRefusesError,
    BrokerUnreachableError,
    TopicsDeniedError,
    TopicsError,
    TopicsMissingError,
    TopicsUnfitError,
)
from streamgauge.kafka.security import Brokers, brokers_at
from streamgauge.kafka.topic_settings import (
    CONTENTS,
    MAX_DEADLETTER_BYTES,
    MAX_MESSAGE_BYTES,
    MAX_STATE_BYTES,
    TIMESTAMP_TYPE,
    settings_of,
)
from streamgauge.settings.declarations import DEFAULT_PARTITIONS, DEFAULT_REPLICAS, SETTINGS, Settings

__all__ = [
    "DEFAULT_PARTITIONS",
    "DEFAULT_PREFIX",
    "MAX_DEADLETTER_BYTES",
    "MAX_MESSAGE_BYTES",
    "MAX_STATE_BYTES",
    "BrokerRefusesError",
    "BrokerUnreachableError",
    "Created",
    "Job",
    "Topic",
    "Topics",
    "TopicsDeniedError",
    "TopicsError",
    "TopicsMissingError",
    "TopicsUnfitError",
    "check",
    "create",
    "describe",
    "differences",
    "missing_rights",
    "segments_partitions",
]

DEFAULT_PREFIX = Settings.topic_prefix

# Brokers list a new topic some milliseconds after its creation: the most polls for it, and the pause (seconds).
_LIST_POLLS = 100
LIST_POLL_S = 0.1

# Error codes of the protocol.
_TOPIC_EXISTS = 36  # TOPIC_ALREADY_EXISTS
_DENIED = (29, 31)  # TOPIC_ and CLUSTER_AUTHORIZATION_FAILED


@dataclass(frozen=True)
class Topic:
    """One topic, wanted or existing. `config` holds only the keys that Streamgauge sets."""

    name: str
    partitions: int
    config: Mapping[str, str]
    replicas: int | None = None  # of an existing topic; None if unknown, and of a wanted topic


@dataclass(frozen=True)
class Topics:
    """The topic names under one prefix. Raises ValueError for a prefix that Kafka would not accept."""

    prefix: str = DEFAULT_PREFIX

    def __post_init__(self) -> None:
        SETTINGS["topic_prefix"].type.read(self.prefix)

    @property
    def segments(self) -> str:
        """The topic of the bundles from taps."""
        return f"{self.prefix}.segments"

    @property
    def records(self) -> str:
        """The topic of the records, keyed by stream id."""
        return f"{self.prefix}.records"

    @property
    def state(self) -> str:
        """The compacted topic of the state of open streams."""
        return f"{self.prefix}.state"

    @property
    def deadletter(self) -> str:
        """The topic of the messages that could not be processed."""
        return f"{self.prefix}.deadletter"

    @property
    def names(self) -> tuple[str, ...]:
        """All four topics, in the order in which they are created and shown."""
        return (self.segments, self.records, self.state, self.deadletter)

    def rights(self, job: "Job") -> list[Right]:
        """The minimum rights that a job needs on our topics and the workers' group, on a cluster with an authorizer."""
        return [
            Right(operation, kind, f"{self.prefix}.{name}" if kind is Kind.TOPIC else self.prefix)
            for operation, kind, name in RIGHTS[job]
        ]

    def wanted(self, partitions: int) -> list[Topic]:
        """The four topics for this partition count. Raises TopicsUnfitError unless it is a power of two up to 64."""
        check_partitions(self.segments, partitions)
        return [
            Topic(
                f"{self.prefix}.{name}",
                content.partitions or partitions,
                {setting.key: setting.value for setting in settings_of(name)},
            )
            for name, content in CONTENTS.items()
        ]


class Job(StrEnum):
    """The part of Streamgauge that uses the broker; it decides which rights are needed."""

    TAP = "tap"
    WORKER = "worker"
    CREATE = "topics create"
    DESCRIBE = "topics describe"
    REPLAY = "replay --kafka"
    DEADLETTER = "deadletter list, show"
    RETRY = "deadletter retry"


# Which job needs which rights: operation, kind, and the last part of the topic's name.
# The right to read or write a topic, or to read a group, includes the right to describe it. The right to write to any topic
# includes the right to an idempotent producer (KIP-679, Kafka 2.8).
# https://kafka.apache.org/documentation/#operations_resources_and_protocols
_DESCRIBE = (Operation.DESCRIBE, Operation.DESCRIBE_CONFIGS)
RIGHTS: Mapping[Job, Sequence[tuple[Operation, Kind, str]]] = {
    Job.TAP: [(Operation.WRITE, Kind.TOPIC, "segments")],
    Job.WORKER: [
        (Operation.READ, Kind.TOPIC, "segments"),
        (Operation.WRITE, Kind.TOPIC, "segments"),  # ticks, which advance the log's time
        (Operation.READ, Kind.TOPIC, "records"),  # to store them in the ledger
        (Operation.WRITE, Kind.TOPIC, "records"),
        (Operation.READ, Kind.TOPIC, "state"),
        (Operation.WRITE, Kind.TOPIC, "state"),
        (Operation.WRITE, Kind.TOPIC, "deadletter"),
        (Operation.READ, Kind.GROUP, ""),
    ],
    Job.CREATE: [(operation, Kind.TOPIC, name) for name in CONTENTS for operation in (Operation.CREATE, *_DESCRIBE)],
    Job.DESCRIBE: [(operation, Kind.TOPIC, name) for name in CONTENTS for operation in _DESCRIBE],
    Job.REPLAY: [(Operation.READ, Kind.TOPIC, "segments")],
    Job.DEADLETTER: [(Operation.READ, Kind.TOPIC, "deadletter")],
    Job.RETRY: [
        (Operation.READ, Kind.TOPIC, "deadletter"),
        (Operation.WRITE, Kind.TOPIC, "segments"),
        (Operation.WRITE, Kind.TOPIC, "records"),
    ],
}


@dataclass(frozen=True)
class Created:
    """The result of `create`: the names of the created topics, and one sentence per difference of an existing topic."""

    created: list[str] = field(default_factory=list)
    differences: list[str] = field(default_factory=list)


def check_partitions(topic: str, partitions: int) -> None:
    """Raises TopicsUnfitError unless the count is a power of two up to 64, so that it divides the slots evenly."""
    if not 1 <= partitions <= SLOTS or partitions & (partitions - 1):
        raise TopicsUnfitError(
            f"topic {topic}: {partitions} is not allowed: the partition count must be a power of two, at most {SLOTS}"
        )


async def create(
    brokers: Brokers | str,
    partitions: int | None = None,
    prefix: str = DEFAULT_PREFIX,
    replicas: int | None = None,
) -> Created:
    """Create the missing topics and compare the existing ones; changes no existing topic.

    `partitions` None: as the segments topic if it exists, else DEFAULT_PARTITIONS. `replicas` None: DEFAULT_REPLICAS, or the
    number of brokers if that is lower. Raises TopicsError.
    """
    topics, brokers = Topics(prefix), brokers_at(brokers)
    async with administrator(brokers) as admin:
        existing = await _existing(admin, brokers, topics, Job.CREATE)
        if partitions is None:
            partitions = existing[topics.segments].partitions if topics.segments in existing else DEFAULT_PARTITIONS
        result = Created()
        missing = [topic for topic in topics.wanted(partitions) if topic.name not in existing]
        for wanted in topics.wanted(partitions):
            if wanted.name in existing:
                result.differences.extend(differences(wanted, existing[wanted.name]))
        if missing:
            result.created.extend(await _create_missing(admin, brokers, missing, replicas))
            await _wait_until_listed(admin, [topic.name for topic in missing])
    return result


async def _wait_until_listed(admin: AIOKafkaAdminClient, names: Sequence[str]) -> None:
    """Wait until the brokers list the new topics: before that, other commands would report them as missing."""
    for _ in range(_LIST_POLLS):
        seen, denied_names = await existing_topics(admin, names)
        if {*seen, *denied_names} >= set(names):
            return
        await asyncio.sleep(LIST_POLL_S)


async def describe(brokers: Brokers | str, prefix: str = DEFAULT_PREFIX) -> list[Topic]:
    """The existing topics of this prefix, with their present configuration. Raises TopicsError."""
    topics, brokers = Topics(prefix), brokers_at(brokers)
    async with administrator(brokers) as admin:
        existing = await _existing(admin, brokers, topics, Job.DESCRIBE)
    return [existing[name] for name in topics.names if name in existing]


async def check(brokers: Brokers | str, prefix: str = DEFAULT_PREFIX) -> int:
    """Check that a worker's topics exist, fit, and are allowed; returns the partition count. Raises TopicsError."""
    topics, brokers = Topics(prefix), brokers_at(brokers)
    async with administrator(brokers) as admin:
        rights = topics.rights(Job.WORKER)
        seen, refused = await existing_topics(admin, topics.names)
        group = await may_with_group(admin, prefix)
        _require_rights(brokers, rights, seen, refused, group)
        _require_existing(topics.names, seen)
        configs = await configs_of(admin, topics.names, {TIMESTAMP_TYPE})
    check_partitions(topics.segments, seen[topics.segments].partitions)
    if seen[topics.state].partitions != seen[topics.segments].partitions:
        raise TopicsUnfitError(
            f"topics {topics.segments} and {topics.state} have {seen[topics.segments].partitions} and "
            f"{seen[topics.state].partitions} partitions, but must have the same number: add partitions to the smaller one"
        )
    # If reading the configuration is denied, `configs` lacks the topic, and this check is skipped.
    if configs.get(topics.segments, {}).get(TIMESTAMP_TYPE, "LogAppendTime") != "LogAppendTime":
        raise TopicsUnfitError(f"topic {topics.segments} requires message.timestamp.type=LogAppendTime: alter it")
    return seen[topics.segments].partitions


async def segments_partitions(brokers: Brokers | str, prefix: str = DEFAULT_PREFIX, job: Job = Job.TAP) -> int:
    """The partition count of the segments topic, for a job that uses only this topic. Raises TopicsError."""
    topics, brokers = Topics(prefix), brokers_at(brokers)
    name = topics.segments
    async with administrator(brokers) as admin:
        seen, refused = await existing_topics(admin, [name])
        _require_rights(brokers, topics.rights(job), seen, refused, None)
    _require_existing([name], seen)
    check_partitions(name, seen[name].partitions)
    return seen[name].partitions


def missing_rights(
    rights: Sequence[Right],
    seen: Mapping[str, ExistingTopic],
    refused: Sequence[str],
    group: frozenset[int] | None,
) -> list[Right]:
    """The rights that the broker reports as missing. It reports no right of a topic that does not exist.

    `refused`: names of denied topics; `group`: what the client may do with the group, None if that is unknown.
    """

    def is_missing(right: Right) -> bool:
        if right.kind is Kind.GROUP:
            return group is not None and right.operation not in group
        may = seen[right.name].may if right.name in seen else None
        return right.name in refused or (may is not None and right.operation not in may)

    return [right for right in rights if is_missing(right)]


def _require_rights(
    brokers: Brokers,
    rights: Sequence[Right],
    seen: Mapping[str, ExistingTopic],
    refused: Sequence[str],
    group: frozenset[int] | None,
) -> None:
    """Raises TopicsDeniedError if the broker reports that one of `rights` is missing."""
    if missing := missing_rights(rights, seen, refused, group):
        raise denied(brokers.login.username if brokers.login else None, missing)


def _require_existing(names: Sequence[str], seen: Mapping[str, ExistingTopic]) -> None:
    if missing := [name for name in names if name not in seen]:
        raise TopicsMissingError(f"{_listed(missing)} not exist: run `streamgauge topics create` first")


async def _existing(admin: AIOKafkaAdminClient, brokers: Brokers, topics: Topics, job: Job) -> dict[str, Topic]:
    """Our existing topics, with the configuration keys that Streamgauge sets. Raises TopicsDeniedError."""
    seen, refused = await existing_topics(admin, topics.names)
    # CREATE is needed only for missing topics, and the broker returns no rights for these.
    rights = [right for right in topics.rights(job) if right.operation is not Operation.CREATE]
    _require_rights(brokers, rights, seen, refused, None)
    keys = {key for topic in Topics().wanted(1) for key in topic.config}
    configs = await configs_of(admin, list(seen), keys)
    return {name: Topic(name, topic.partitions, configs.get(name, {}), topic.replicas) for name, topic in seen.items()}


def differences(wanted: Topic, present: Topic) -> list[str]:
    """A sentence for each property in which an existing topic differs from the wanted one."""
    different = []
    if wanted.partitions != present.partitions:
        different.append(f"{wanted.name} has {present.partitions} partitions, not {wanted.partitions}")
    different.extend(
        f"{wanted.name} has {key}={present.config[key]}, not {value}"
        for key, value in wanted.config.items()
        if present.config and present.config.get(key) != value
    )
    return different


async def _create_missing(
    admin: AIOKafkaAdminClient, brokers: Brokers, missing: list[Topic], replicas: int | None
) -> list[str]:
    count = replicas or min(DEFAULT_REPLICAS, len((await admin.describe_cluster())["brokers"]))
    new = [NewTopic(topic.name, topic.partitions, count, topic_configs=dict(topic.config)) for topic in missing]
    answer: Any = await admin.create_topics(new)
    created = [name for name, code, *_ in answer.topic_errors if not code]
    for name, code, *_ in answer.topic_errors:
        if code in _DENIED:
            raise denied(brokers.login.username if brokers.login else None, [Right(Operation.CREATE, Kind.TOPIC, name)])
        if code and code != _TOPIC_EXISTS:  # another process may create the topic at the same moment
            raise TopicsDeniedError(f"topic {name} could not be created: {for_code(code).__name__}")
    return created


def _listed(names: list[str]) -> str:
    return f"topic {names[0]} does" if len(names) == 1 else f"topics {', '.join(names)} do"
