"""Topics on a real broker: created once, compared later; each problem gives one sentence."""

import asyncio
import contextlib
import uuid
from collections.abc import AsyncIterator, Sequence
from types import SimpleNamespace
from typing import Any

import pytest

from streamgauge.kafka import administrator as administration
from streamgauge.kafka import topics
from streamgauge.kafka.security import brokers_at
from tests.faults.log_faults import add_partitions
from tests.faults.mock_kafka import MockCluster, mock_cluster
from tests.kafka_broker.administration import delete_topic

pytestmark = pytest.mark.kafka


def new_prefix() -> str:
    return f"topics-{uuid.uuid4().hex[:8]}"


def test_created_once_then_compared(kafka: str) -> None:
    prefix = new_prefix()
    first = asyncio.run(topics.create(kafka, 4, prefix))
    assert first.created == [f"{prefix}.{name}" for name in ("segments", "records", "state", "deadletter")]
    assert first.differences == []
    assert asyncio.run(topics.create(kafka, 4, prefix)) == topics.Created()
    assert asyncio.run(topics.create(kafka, None, prefix)) == topics.Created()
    again = asyncio.run(topics.create(kafka, 8, prefix))
    assert again.created == []
    assert again.differences[0] == f"{prefix}.segments has 4 partitions, not 8"
    assert asyncio.run(topics.check(kafka, prefix)) == 4


def test_the_configuration_is_what_recovery_needs(kafka: str) -> None:
    prefix = new_prefix()
    asyncio.run(topics.create(kafka, 2, prefix))
    found = {topic.name.rsplit(".", 1)[1]: topic for topic in asyncio.run(topics.describe(kafka, prefix))}
    assert {one.config["message.timestamp.type"] for one in found.values()} == {"LogAppendTime"}
    assert found["state"].config["cleanup.policy"] == "compact"
    assert found["state"].config["min.compaction.lag.ms"] == "300000"
    assert found["state"].config["segment.bytes"] == str(32 * 1024 * 1024)
    assert found["state"].config["segment.ms"] == "300000"
    assert [found[name].partitions for name in ("segments", "records", "state", "deadletter")] == [2, 2, 2, 1]


def test_a_missing_topic_is_made_beside_those_that_are_there(kafka: str) -> None:
    prefix = new_prefix()
    asyncio.run(topics.create(kafka, 2, prefix))
    asyncio.run(delete_topic(kafka, f"{prefix}.records"))
    with pytest.raises(topics.TopicsMissingError, match=r"records does not exist.*streamgauge topics create"):
        asyncio.run(topics.check(kafka, prefix))
    assert asyncio.run(topics.create(kafka, None, prefix)) == topics.Created(created=[f"{prefix}.records"])


def test_a_broker_that_is_not_there_is_one_sentence() -> None:
    for call in (topics.create("127.0.0.1:1"), topics.check("127.0.0.1:1"), topics.describe("127.0.0.1:1")):
        with pytest.raises(
            topics.BrokerUnreachableError,
            match=r"^no Kafka broker answers at 127\.0\.0\.1:1: check that it runs and that --kafka is right$",
        ):
            asyncio.run(call)


@pytest.mark.slow
def test_broker_that_hangs_during_a_request_is_unreachable(monkeypatch: pytest.MonkeyPatch) -> None:
    """A worker waits for a broker that is away; one that refuses ends it."""
    monkeypatch.setattr(administration, "REQUEST_TIMEOUT_MS", 2_000)

    async def ask(broker: MockCluster) -> None:
        async with administration.administrator(brokers_at(broker.bootstrap)) as client:
            broker.slow(60_000)
            await client.list_topics()

    with (
        mock_cluster() as broker,
        pytest.raises(topics.BrokerUnreachableError, match=r"^no Kafka broker answers at "),
    ):
        asyncio.run(ask(broker))


@pytest.mark.parametrize("partitions", [0, 3, 6, 128, -8])
def test_partition_counts_that_do_not_divide_the_slots(kafka: str, partitions: int) -> None:
    with pytest.raises(topics.TopicsUnfitError, match="power of two"):
        asyncio.run(topics.create(kafka, partitions, new_prefix()))


@pytest.mark.parametrize("partitions", [3, 128])
def test_existing_topics_with_an_invalid_partition_count_are_refused(kafka: str, partitions: int) -> None:
    """Neither a tap nor a worker takes them."""
    prefix = new_prefix()
    asyncio.run(topics.create(kafka, 1, prefix))
    asyncio.run(add_partitions(kafka, partitions, *(f"{prefix}.{name}" for name in ("segments", "records", "state"))))
    for ask in (topics.segments_partitions, topics.check):
        with pytest.raises(topics.TopicsUnfitError, match=rf"segments: {partitions} is not allowed.*power of two"):
            asyncio.run(ask(kafka, prefix))


@pytest.mark.parametrize("prefix", ["", "a/b", "a b", ".a", "x" * 101])
def test_invalid_prefixes_are_refused(prefix: str) -> None:
    with pytest.raises(ValueError, match="topic prefix"):
        topics.Topics(prefix)


def test_reading_creates_no_topic(kafka: str) -> None:
    prefix = new_prefix()
    with pytest.raises(topics.TopicsMissingError):
        asyncio.run(topics.segments_partitions(kafka, prefix))
    assert asyncio.run(topics.describe(kafka, prefix)) == []


def created_with(
    monkeypatch: pytest.MonkeyPatch, codes: Sequence[int], listed: list[tuple[list[str], list[str]]]
) -> topics.Created:
    """What `create` returns if the brokers answer so: with these error codes, and then, each time they are asked, with these
    topics and these that may not be described. Those that it asks for are removed from `listed`.
    """

    async def seen(admin: object, names: Sequence[str]) -> object:
        described, denied = listed.pop(0)
        return dict.fromkeys(described), denied

    async def configs(*_: object) -> dict[str, dict[str, str]]:
        return {}

    async def create_topics(new: Sequence[Any]) -> object:
        return SimpleNamespace(topic_errors=[(one.name, code, None) for one, code in zip(new, codes, strict=True)])

    @contextlib.asynccontextmanager
    async def administrator(_: object) -> AsyncIterator[object]:
        yield SimpleNamespace(create_topics=create_topics)

    monkeypatch.setattr(topics, "administrator", administrator)
    monkeypatch.setattr(topics, "existing_topics", seen)
    monkeypatch.setattr(topics, "configs_of", configs)
    monkeypatch.setattr(topics, "LIST_POLL_S", 0.0)
    return asyncio.run(topics.create("127.0.0.1:1", 1, "sg", 1))


def test_topics_that_were_made_are_waited_for_until_the_brokers_list_them(monkeypatch: pytest.MonkeyPatch) -> None:
    """Another command, right after `topics create`, said that they are missing."""
    [first, *others] = topics.Topics("sg").names
    none: tuple[list[str], list[str]] = ([], [])
    listed = [none, none, ([first], []), ([first], others), ([first, *others], [])]
    assert created_with(monkeypatch, (0, 0, 0, 0), listed).created == [first, *others]
    assert len(listed) == 1, "one that may not be described is not waited for"


def test_a_topic_that_another_process_created_meanwhile_is_not_reported_as_created(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    names = list(topics.Topics("sg").names)
    assert created_with(monkeypatch, (0, 36, 0, 0), [([], []), (names, [])]).created == [names[0], *names[2:]]
