"""Work in portions: the items are unchanged, and other processes get the core in between."""

import os
import time

import pytest

from streamgauge.recorder import cpu_yield


@pytest.fixture(autouse=True)
def pace(monkeypatch: pytest.MonkeyPatch) -> cpu_yield.BulkDetector:
    """A pace with no work done yet, whose clock does not move."""
    made = cpu_yield.BulkDetector()
    monkeypatch.setattr(time, "monotonic_ns", lambda: 0)
    monkeypatch.setattr(cpu_yield, "pace", made)
    return made


@pytest.mark.parametrize(("items", "offers"), [(0, 0), (3, 0), (4, 1), (11, 2)])
def test_the_core_is_yielded_after_each_portion(items: int, offers: int, monkeypatch: pytest.MonkeyPatch) -> None:
    offered: list[int] = []
    monkeypatch.setattr(os, "sched_yield", lambda: offered.append(1))
    assert list(cpu_yield.yield_every(range(items), 4)) == list(range(items))
    assert len(offered) == offers


def test_in_a_bulk_the_core_is_kept_and_yielded_again_after_it(
    pace: cpu_yield.BulkDetector, monkeypatch: pytest.MonkeyPatch
) -> None:
    offered: list[int] = []
    monkeypatch.setattr(os, "sched_yield", lambda: offered.append(1))
    second, now = 1_000_000_000, 10**15
    for size, kept in ((3_000_000, False), (50_000_000, True), (3_000_000, False)):
        for _ in range(10):
            now += second // 10
            pace.add_bytes(size // 10, now)
        offered.clear()
        cpu_yield.yield_cpu()
        assert (not offered) is kept


def test_one_large_batch_is_not_a_bulk(pace: cpu_yield.BulkDetector) -> None:
    pace.add_bytes(0, 10**15)
    pace.add_bytes(262_144, 10**15 + 5_000_000)
    assert not pace.in_bulk
    pace.add_bytes(262_144, 10**15 + 265_000_000)
    assert not pace.in_bulk


def test_next_to_a_process_that_is_always_busy_half_of_the_core_is_kept(
    pace: cpu_yield.BulkDetector, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Such a process takes some milliseconds at each yield, and work is done in portions of 30 us."""
    now, turns = [0], list[int]()
    monkeypatch.setattr(time, "monotonic_ns", lambda: now[0])

    def offer() -> None:
        turns.append(3_000_000)
        now[0] += turns[-1]

    monkeypatch.setattr(os, "sched_yield", offer)
    worked = 0
    for _ in range(10_000):
        cpu_yield.yield_cpu()
        worked += 30_000
        now[0] += 30_000
    assert 0.9 * worked < sum(turns) < 1.1 * worked


def test_short_yields_are_made_each_time(pace: cpu_yield.BulkDetector, monkeypatch: pytest.MonkeyPatch) -> None:
    now, offers = [0], list[int]()
    monkeypatch.setattr(time, "monotonic_ns", lambda: now[0])

    def offer() -> None:
        offers.append(1)
        now[0] += 80_000

    monkeypatch.setattr(os, "sched_yield", offer)
    for _ in range(100):
        cpu_yield.yield_cpu()
    assert len(offers) == 100
