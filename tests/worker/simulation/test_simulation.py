"""Hundreds of schedules of what can go wrong: exactly one record a stream in each of them.

Each seed is one schedule (`schedule.py` draws it, `verdict.py` judges it). A seed that fails is printed, and runs again
alone with STREAMGAUGE_SIMULATION_SEED=SEED; STREAMGAUGE_SIMULATION_SCHEDULES=N runs the first N seeds.
"""

import os
from collections import Counter

import pytest

from streamgauge.metrics import table
from tests.worker.simulation.faults import Faults
from tests.worker.simulation.schedule import Schedule
from tests.worker.simulation.verdict import wrong

# Schedules of an ordinary run, and of one test of it: the tests are shared among processes.
SCHEDULES = int(os.environ.get("STREAMGAUGE_SIMULATION_SCHEDULES", "400"))
_A_TEST = 50
_ONE = os.environ.get("STREAMGAUGE_SIMULATION_SEED")

SEEDS = (
    [[int(_ONE)]] if _ONE else [list(range(at, min(at + _A_TEST, SCHEDULES))) for at in range(0, SCHEDULES, _A_TEST)]
)


def failures(seed: int) -> list[str]:
    """What is wrong after the schedule of this seed, each with the words that repeat it."""
    schedule = Schedule(seed)
    schedule.run()
    return [f"STREAMGAUGE_SIMULATION_SEED={seed}: {what} ({schedule.faults})" for what in wrong(schedule)]


@pytest.mark.parametrize("seeds", SEEDS, ids=lambda seeds: f"{seeds[0]}-{seeds[-1]}")
def test_one_record_for_every_stream_whatever_happens(seeds: list[int]) -> None:
    found = [what for seed in seeds for what in failures(seed)]
    assert not found, "\n".join(found)


def test_the_same_seed_is_the_same_schedule() -> None:
    first, second = Schedule(11), Schedule(11)
    assert first.run() == second.run()
    assert first.faults == second.faults
    assert first.world.now == second.world.now
    assert first.recorded == second.recorded
    assert first.group.committed == second.group.committed
    assert [len(log) for log in first.history] == [len(log) for log in second.history]


def test_events_of_the_schedules_happen() -> None:
    """A simulation in which nothing goes wrong would always pass."""
    seen: Counter[str] = Counter()
    for seed in range(60):
        schedule = Schedule(seed)
        schedule.run()
        seen["streams"] += len(schedule.streams)
        seen["records"] += len(schedule.recorded)
        seen["records twice"] += sum(len(records) > 1 for records in schedule.recorded.values())
        seen["lives"] += len(schedule.lives)
        seen["rebalances"] += schedule.group.rebalances
        seen["incomplete"] += sum(b'"complete":false' in record for record in schedule.shelf.records.values())
        seen["lost bundles"] += sum(not sent.arrivals for tap in schedule.taps for sent in tap.sent)
        for metric in (table.DUPLICATE_BUNDLES, table.LATE_SEGMENTS):
            seen[metric.name] += sum(life.metrics.counts[str(metric.counted_as)] for life in schedule.lives)
        seen["dead letters"] += schedule.counted(table.DEAD_LETTERS.name)
        seen["lost from the log"] += schedule.gaps_reported
    rare = {name for name in seen if seen[name] < 10}
    assert not rare, seen


def test_without_faults_nothing_is_done_twice() -> None:
    schedule = Schedule(5, Faults(partitions=2, workers=2))
    assert schedule.run()
    assert wrong(schedule) == []
    assert all(len(records) == 1 for records in schedule.recorded.values())
    assert len(schedule.recorded) == len([stream for stream in schedule.streams if stream.bundles])
