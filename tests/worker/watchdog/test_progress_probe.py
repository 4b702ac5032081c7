"""The result of a progress probe, on a real broker: committed offsets, waiting messages, and offsets without a message."""

import asyncio
from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Any

import aiokafka
import pytest
from aiokafka import AIOKafkaConsumer, AIOKafkaProducer
from aiokafka.errors import GroupAuthorizationFailedError

from streamgauge.kafka.security import brokers_at
from streamgauge.worker.log import Log
from streamgauge.worker.watchdog.progress_probe import ProgressProbe
from streamgauge.worker.watchdog.rules import PartitionProgress, Probe, TopicPartition
from tests.faults.mock_kafka import MockCluster, mock_cluster
from tests.kafka_broker.administration import delete_beginning
from tests.kafka_broker.reading import write_all

pytestmark = pytest.mark.kafka


@dataclass
class Held:
    """Partitions as a worker holds them."""

    topic: str
    numbers: list[int] = field(default_factory=lambda: [0])
    is_assigned: bool = True

    def recovery_progress(self) -> tuple[int, ...]:
        return (7,)

    def tries(self) -> dict[int, int]:
        return dict.fromkeys(self.numbers, 3)


async def look(bootstrap: str, group: str, held: Held, times: int = 1) -> Probe:
    """The last of so many looks that the broker answered: a coordinator may refuse a group that it still loads."""
    log = Log(brokers_at(bootstrap), group)
    await log.start()
    try:
        checkup = ProgressProbe(log, [held], lambda result: None)
        return [await _answered(checkup) for _ in range(times)][-1]
    finally:
        await log.stop()


async def _answered(checkup: ProgressProbe) -> Probe:
    for _ in range(100):
        result = await checkup.probe()
        if result.broker_answers:
            return result
        await asyncio.sleep(0.1)
    raise AssertionError(f"the broker did not answer: {result.why}")


async def commit(bootstrap: str, group: str, topic: str, offset: int) -> None:
    consumer = AIOKafkaConsumer(bootstrap_servers=bootstrap, group_id=group, enable_auto_commit=False)
    await consumer.start()
    try:
        consumer.assign([aiokafka.TopicPartition(topic, 0)])
        await consumer.commit({aiokafka.TopicPartition(topic, 0): offset})
    finally:
        await consumer.stop()


def test_probe_gives_committed_offsets_and_ends(kafka: str, prefix: str) -> None:
    topic = f"{prefix}.segments"
    asyncio.run(write_all(kafka, topic, [(0, b"%d" % number) for number in range(5)]))
    asyncio.run(commit(kafka, prefix, topic, 2))
    result = asyncio.run(look(kafka, prefix, Held(topic, [0, 1])))
    progress = {
        TopicPartition(topic, 0): PartitionProgress(2, 5, 3),
        TopicPartition(topic, 1): PartitionProgress(0, 0, 3),
    }
    assert result == Probe(broker_answers=True, is_assigned=True, recovery_progress=(7,), progress=progress)
    # There is a message, so it stays what it is, however often it is looked at.
    assert asyncio.run(look(kafka, prefix, Held(topic), 8)).progress[TopicPartition(topic, 0)] == PartitionProgress(
        2, 5, 3
    )


def test_log_without_messages_is_no_work(kafka: str, prefix: str) -> None:
    topic = f"{prefix}.segments"
    asyncio.run(write_all(kafka, topic, [(0, b"%d" % number) for number in range(5)]))
    asyncio.run(delete_beginning(kafka, topic, 0, 5))
    assert asyncio.run(look(kafka, prefix, Held(topic))).progress == {
        TopicPartition(topic, 0): PartitionProgress(5, 5, 3)
    }


def test_transaction_marker_is_no_work(kafka: str, prefix: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """A marker has an offset, but no consumer receives it, so no worker commits the offset after it."""
    monkeypatch.setattr("streamgauge.worker.log._READ_TIMEOUT_S", 3.0)
    topic = f"{prefix}.segments"

    async def write_in_a_transaction() -> None:
        producer: Any = AIOKafkaProducer(bootstrap_servers=kafka, transactional_id=prefix)
        await producer.start()
        async with producer.transaction():
            await producer.send_and_wait(topic, b"x", partition=0)
        await producer.stop()

    asyncio.run(write_in_a_transaction())
    asyncio.run(commit(kafka, prefix, topic, 1))
    assert asyncio.run(look(kafka, prefix, Held(topic))).progress[TopicPartition(topic, 0)] == PartitionProgress(
        1, 2, 3
    )
    assert asyncio.run(look(kafka, prefix, Held(topic), 5)).progress[TopicPartition(topic, 0)] == PartitionProgress(
        2, 2, 3
    )


def test_unreachable_broker_gives_a_probe_without_an_answer() -> None:
    async def run(broker: MockCluster) -> Probe:
        log = Log(brokers_at(broker.bootstrap), "group")
        await log.start()
        broker.down()
        try:
            return await ProgressProbe(log, [Held("topic")], lambda result: None).probe()
        finally:
            await log.stop()

    with mock_cluster() as broker:
        result = asyncio.run(run(broker))
    assert not result.broker_answers
    assert result.why


class Failing(Log):
    """A log whose broker refuses the first questions."""

    def __init__(self, refusals: int) -> None:
        super().__init__(brokers_at("127.0.0.1:1"), "group")
        self.asked = 0
        self._refusals = refusals

    async def committed(self, topic: str) -> dict[int, int]:
        self.asked += 1
        if self.asked <= self._refusals:
            raise GroupAuthorizationFailedError("group")
        return {}

    async def begins(self, topic: str, partitions: Iterable[int]) -> dict[int, int]:
        return dict.fromkeys(partitions, 0)

    ends = begins


@pytest.mark.parametrize(("refusals", "lines"), [(5, 0), (6, 2), (20, 2)])
def test_failed_progress_requests_are_logged_once_with_their_reason(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture, refusals: int, lines: int
) -> None:
    """While checkups fail, the watchdog detects no stuck worker: a log line says so and gives the reason."""
    monkeypatch.setattr("streamgauge.worker.watchdog.progress_probe._EVERY_S", 0.0)
    log = Failing(refusals)

    async def run() -> None:
        answered = asyncio.Event()
        task = asyncio.create_task(
            ProgressProbe(log, [Held("topic")], lambda result: answered.set() if result.broker_answers else None).run()
        )
        await answered.wait()
        task.cancel()

    asyncio.run(run())
    sentences = [record.getMessage() for record in caplog.records if record.name == "streamgauge.worker"]
    assert len(sentences) == lines
    assert not sentences or ("GroupAuthorizationFailedError" in sentences[0] and "again" in sentences[1])
