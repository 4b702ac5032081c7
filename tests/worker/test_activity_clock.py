"""The seconds of a partition's task: by the clock itself, by one partition, and by a simulated group of workers."""

import asyncio
from collections.abc import Coroutine
from types import SimpleNamespace
from typing import Any
from unittest.mock import patch

import pytest

from streamgauge.core.assembly.assembler import Assembler
from streamgauge.core.record import Record
from streamgauge.kafka.topics import Topics
from streamgauge.metrics import table
from streamgauge.metrics.prometheus import Metrics
from streamgauge.worker import partition as partitions
from streamgauge.worker.activity_clock import Activity, ActivityClock
from streamgauge.worker.partition import Partition, PartitionContext
from streamgauge.worker.partition_offsets import ReadContext
from tests.worker.simulation.faults import Faults
from tests.worker.simulation.schedule import Schedule

NAME = table.WORKER_SECONDS.name


class Time:
    """A clock that is moved by hand (seconds)."""

    def __init__(self) -> None:
        self.now = 100.0

    def __call__(self) -> float:
        return self.now


def test_each_moment_belongs_to_one_activity() -> None:
    time = Time()
    clock = ActivityClock(time)
    time.now += 1
    assert clock.enter(Activity.APPLYING) is Activity.WAITING
    time.now += 2
    with pytest.raises(OSError, match="away"), clock.during(Activity.SENDING):
        time.now += 4
        with clock.during(Activity.COMMITTING):
            time.now += 8
        time.now += 16
        raise OSError("the broker is away")
    time.now += 32
    assert clock.take_seconds() == {
        Activity.WAITING: 1,
        Activity.DECODING: 0,
        Activity.APPLYING: 34,
        Activity.SENDING: 20,
        Activity.COMMITTING: 8,
    }
    time.now += 64
    assert clock.take_seconds() == dict.fromkeys(Activity, 0) | {Activity.APPLYING: 64}


def seconds_of(metrics: Metrics) -> dict[str, float]:
    """The metric's series, by activity."""
    lines = [line for line in metrics.render().decode().splitlines() if line.startswith(f"{NAME}{{")]
    return {line.split('"')[1]: float(line.rpartition(" ")[2]) for line in lines}


def test_a_partition_adds_what_it_does_with_each_message(monkeypatch: pytest.MonkeyPatch, a_record: Record) -> None:
    """Decoding takes 1 s here, applying 2, each send 4, each confirmation 8."""
    time, metrics = Time(), Metrics()

    def decode(value: bytes) -> Any:
        time.now += 1
        return SimpleNamespace(instance=b"tap")

    class Assembling(Assembler):
        def apply(self, *_: Any) -> list[Record]:
            time.now += 2
            return [a_record]

    class Outbox:
        tries = 0

        async def send(self, _: Any) -> None:
            time.now += 4

        async def confirmed(self) -> None:
            time.now += 8

    async def run() -> None:
        consumer: Any = SimpleNamespace(topic="segments", end=lambda number: None)
        anything: Any = SimpleNamespace(limit=0, alone_s=0.0)
        context = PartitionContext(
            Topics(), ReadContext(consumer, anything), anything, metrics, lambda *_: None, failures.append, 3600.0, 60.0
        )
        sender: Any = Outbox()
        partition = Partition(3, Assembling(), sender, context, acknowledged=0, next_offset=0, lost=0, known=[])
        time.now += 1_000  # before the task starts: no time of it
        nonlocal began  # type: ignore[misc]
        began = time.now
        partition.start()
        for offset in range(5):
            partition.put(
                SimpleNamespace(offset=offset, timestamp=1.0, key=None, value=b"SG\x01x", partition=3, headers=())
            )
        await partition.finish()
        partition.add_seconds()  # after its end: nothing more

    failures: list[Exception] = []
    began = 0.0
    monkeypatch.setattr(partitions, "decode_bundle", decode)
    monkeypatch.setattr(partitions, "ActivityClock", lambda: ActivityClock(time))
    asyncio.run(run())
    assert failures == []
    found = seconds_of(metrics)
    assert (found["decoding"], found["applying"], found["sending"]) == (5, 10, 20)
    assert found["committing"] == 28, "three confirmations, and one send: of the entry of producers"
    assert found["waiting"] == 0
    assert sum(found.values()) == time.now - began


def test_activities_add_up_to_the_lifetime_of_the_partitions(monkeypatch: pytest.MonkeyPatch) -> None:
    """Two workers with four partitions, one of which is killed, and a broker that does not take each send at once."""
    schedule = Schedule(7, Faults(partitions=4, workers=2, kills=1, trouble=0.05, checkpoint_s=0.6))
    lived = {"seconds": 0.0}
    start, create_task = Partition.start, asyncio.create_task

    async def timed(work: Coroutine[Any, Any, None]) -> None:
        began = schedule.world.now
        try:
            await work
        finally:
            lived["seconds"] += schedule.world.now - began

    def start_timed(self: Partition) -> None:
        with patch.object(asyncio, "create_task", lambda work: create_task(timed(work))):
            start(self)

    monkeypatch.setattr(Partition, "start", start_timed)
    monkeypatch.setattr(partitions, "ActivityClock", lambda: ActivityClock(lambda: schedule.world.now))
    schedule.run()
    found = {
        activity: sum(life.metrics.sums[f"{NAME}:{activity.value}"] for life in schedule.lives) for activity in Activity
    }
    assert lived["seconds"] > 60
    assert sum(found.values()) == pytest.approx(lived["seconds"])
    assert found[Activity.WAITING] > found[Activity.COMMITTING] > 1
