"""Workers that are killed every few seconds go on with the work, since they are static members with a short session."""

import itertools
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from itertools import pairwise
from pathlib import Path
from unittest.mock import patch

from streamgauge.worker.slots import Slot
from tests.worker.simulation import schedule as scheduling
from tests.worker.simulation.faults import Faults
from tests.worker.simulation.life import Life
from tests.worker.simulation.schedule import Schedule
from tests.worker.simulation.verdict import wrong

_SEEDS = (1, 2, 3)
_FAULTS = Faults(workers=2, partitions=2, slow=True)
# Each life ends after this (seconds), and the next one begins half a second later.
_LIFE_S = (4.0, 9.0)
# What a takeover may take (seconds): the session timeout and ten more.
_TAKEOVER_S = 20.0


class KilledAgainAndAgain(Schedule):
    """Two workers in slots of one data directory, each killed every few seconds for as long as taps send."""

    def __init__(self, seed: int, data_dir: Path) -> None:
        super().__init__(seed, _FAULTS)
        self._data_dir = data_dir
        self._slots: dict[str, Slot] = {}
        self.commits_at = [0.0]

    def _start_worker(self, identity: str) -> None:
        slot = Slot(self._data_dir)
        self._slots[slot.instance_id] = slot
        super()._start_worker(slot.instance_id)
        self.world.after(
            self.world.chance.uniform(*_LIFE_S), lambda: self._kill_and_follow(self._current[slot.instance_id])
        )

    def _kill_and_follow(self, life: Life) -> None:
        if self.world.now < self.faults.traffic_s:
            life.kill()
            del self._current[life.identity]
            self._slots.pop(life.identity).release()
            self.world.after(0.5, lambda: self._start_worker(""))

    def _look_after_workers(self) -> None:
        """They follow each other by themselves."""

    def _on_commit(self, topic: str, partition: int, offset: int) -> None:
        super()._on_commit(topic, partition, offset)
        if self.world.now < self.faults.traffic_s:
            self.commits_at.append(self.world.now)

    @property
    def standstill_s(self) -> float:
        """The longest time without a commit while workers were being killed."""
        return max(later - earlier for earlier, later in pairwise([*self.commits_at, self.faults.traffic_s]))

    def close(self) -> None:
        for slot in self._slots.values():
            slot.release()


def killed(seed: int, data_dir: Path) -> tuple[float, list[str]]:
    """The longest standstill (seconds), and what is wrong in the end."""
    run = KilledAgainAndAgain(seed, data_dir)
    try:
        run.run()
        return run.standstill_s, wrong(run)
    finally:
        run.close()


@contextmanager
def dynamic_members() -> Iterator[None]:
    """Faust's default: each run joins the group as a new member, and the group removes an ended one after a minute."""
    number = itertools.count()
    settings = replace(scheduling.SETTINGS, session_timeout_s=60.0)
    made = Slot.__init__

    def no_known_member(slot: Slot, data_dir: Path) -> None:
        made(slot, data_dir)
        slot.instance_id = f"life-{next(number)}"

    with patch.object(Slot, "__init__", no_known_member), patch.object(scheduling, "SETTINGS", settings):
        yield


def test_w2_workers_that_are_killed_every_few_seconds_go_on(tmp_path: Path) -> None:
    for seed in _SEEDS:
        standstill_s, found = killed(seed, tmp_path)
        assert found == []
        assert standstill_s < _TAKEOVER_S, seed


def test_dynamic_members_make_no_progress(tmp_path: Path) -> None:
    with dynamic_members():
        assert all(killed(seed, tmp_path)[0] > _TAKEOVER_S for seed in _SEEDS)
