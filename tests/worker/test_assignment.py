"""The gauges of partitions: what moves them while their tasks wait, and that they leave the page with the partitions."""

import asyncio
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from streamgauge.core.capture.bundles import encode_bundle
from streamgauge.core.capture.segments import Bundle
from streamgauge.metrics.declarations import MetricSource
from streamgauge.metrics.prometheus import Metrics
from streamgauge.worker import assignment as assignment_module
from streamgauge.worker.assignment import Assignment
from streamgauge.worker.settings import WorkerSettings
from streamgauge.worker.watchdog.rules import PartitionProgress, TopicPartition
from tests.metrics.pages import read_page

LAG, COMMITTED = "streamgauge_worker_lag_messages", "streamgauge_worker_committed_offset"
TOPIC = "streamgauge.segments"


class Consumer:
    """The consumer of one partition, 3. `heard`: the end of its log as of its last fetch."""

    topic = TOPIC
    generation, assignment_epoch, rebalance, rebalancing, is_member = 1, (1, 1, 1), 1, False, True
    commit_metadata = ""

    def __init__(self) -> None:
        self.heard: int | None = None

    def on_revoked(self, callback: Callable[[], Any]) -> None:
        pass

    def assigned(self) -> set[int]:
        return {3}

    async def is_current(self) -> bool:
        return True

    def end(self, partition: int) -> int | None:
        return self.heard

    def pause(self, partition: int) -> None:
        pass

    async def commit(self, offsets: dict[int, int]) -> dict[int, int]:
        return offsets


class Log:
    """The broker's answers: 40 of 50 messages are committed."""

    async def committed(self, topic: str) -> dict[int, int]:
        return {3: 40}

    async def begins(self, topic: str, partitions: Any) -> dict[int, int]:
        return {3: 0}

    async def ends(self, topic: str, partitions: Any) -> dict[int, int]:
        return {3: 50}


class Sender:
    """Sends nothing. `confirms`: whether its messages are confirmed; if not, a checkpoint waits for them."""

    tries = 0

    def __init__(self, *_: object) -> None:
        self.confirms = asyncio.Event()
        self.waits = asyncio.Event()

    async def send(self, message: Any) -> None:
        pass

    async def confirmed(self) -> None:
        self.waits.set()
        await self.confirms.wait()

    async def wait_and_forget(self, timeout_s: float) -> None:
        pass


class Worker:
    """An assignment of partition 3, as the worker's main loop has it."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.sender, self.consumer, self.metrics = Sender(), Consumer(), Metrics((MetricSource.WORKER,))
        monkeypatch.setattr(assignment_module, "ConfirmedSender", lambda *_: self.sender)
        settings = WorkerSettings("127.0.0.1:1", Path("unused"), checkpoint_s=0.01)
        producer: Any = None
        self.assignment = Assignment(settings, producer, self.metrics, self._fail)
        newest = SimpleNamespace(entries=lambda number: {}, newer={})
        state: Any = SimpleNamespace(newest=newest, on_recover=lambda _: None, on_recovery_restart=lambda _: None)
        consumer: Any = self.consumer
        log: Any = Log()
        dead_letters: Any = SimpleNamespace(limit=0, alone_s=0.0)
        self.commits = self.assignment.connect(consumer, state, log, dead_letters)

    @staticmethod
    def _fail(error: BaseException) -> None:
        raise error

    def put(self, offset: int) -> None:
        value = encode_bundle(Bundle(b"i" * 16, 0, offset, 1_000))
        self.assignment.receive(
            SimpleNamespace(
                partition=3, offset=offset, generation_id=1, key=b"", value=value, headers=(), timestamp=1.0
            )
        )

    def probed(self, committed: int, end: int) -> None:
        self.assignment.probed({TopicPartition(TOPIC, 3): PartitionProgress(committed, end)})

    def shown(self, name: str) -> float:
        self.assignment.report()
        return read_page(self.metrics.render()).value(name, partition="3")


def run(monkeypatch: pytest.MonkeyPatch, test: Callable[[Worker], Any]) -> None:
    async def limited() -> None:
        async with asyncio.timeout(20):
            made = Worker(monkeypatch)
            await made.assignment.on_recovered()
            try:
                await test(made)
            finally:
                await made.assignment.discard()

    asyncio.run(limited())


def test_the_lag_grows_while_a_checkpoint_waits(monkeypatch: pytest.MonkeyPatch) -> None:
    """The partition's own task set it, so it kept its last value while the task waited for the broker."""

    async def test(made: Worker) -> None:
        assert made.shown(LAG) == 10
        made.put(40)
        await made.sender.waits.wait()
        made.consumer.heard = 90
        assert made.shown(LAG) == 50

    run(monkeypatch, test)


def test_the_lag_grows_while_the_consumer_fetches_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    """With a full queue the consumer's end stands still. The end of another topic is none of ours."""

    async def test(made: Worker) -> None:
        made.consumer.heard = 60
        assert made.shown(LAG) == 20
        made.probed(40, 5_040)
        made.assignment.probed({TopicPartition("streamgauge.records", 3): PartitionProgress(0, 9_000)})
        assert made.shown(LAG) == 5_000

    run(monkeypatch, test)


def test_offsets_without_a_message_are_no_lag(monkeypatch: pytest.MonkeyPatch) -> None:
    """The marker of a transaction stays uncommitted. The probe reports it as committed."""

    async def test(made: Worker) -> None:
        made.consumer.heard = 50
        made.probed(50, 50)
        assert (made.shown(LAG), made.shown(COMMITTED)) == (0, 40)

    run(monkeypatch, test)


def test_the_committed_offset_follows_what_the_broker_accepted(monkeypatch: pytest.MonkeyPatch) -> None:
    async def test(made: Worker) -> None:
        assert made.shown(COMMITTED) == 40
        made.commits.done(3, 47)
        assert (made.shown(COMMITTED), made.shown(LAG)) == (40, 10)
        await made.commits.flush()
        assert (made.shown(COMMITTED), made.shown(LAG)) == (47, 3)

    run(monkeypatch, test)


def test_f1_the_gauges_of_a_partition_that_moved_away_leave_the_page(monkeypatch: pytest.MonkeyPatch) -> None:
    """Their last values stood there for good, and an alert fired for a partition that another worker has."""

    async def test(made: Worker) -> None:
        assert made.shown(LAG) == 10
        await made.assignment.discard()
        made.probed(40, 5_040)  # a probe that began before
        made.assignment.report()
        page = made.metrics.render().decode()
        assert f"{LAG}{{" not in page
        assert f"{COMMITTED}{{" not in page

    run(monkeypatch, test)
