"""Runs of the loop without Kafka, on real files: each may be killed between any two of its steps."""

import json
import sqlite3
from collections import Counter
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, cast

from streamgauge.core.capture.bundles import encode_bundle
from streamgauge.core.capture.segments import Bundle
from streamgauge.core.limits import Limits
from streamgauge.core.record import Record
from streamgauge.ledger import SqliteLedger, row_of
from streamgauge.recorder.bundler import reads_of
from streamgauge.spool import NewRow, Spool
from streamgauge.spool.response_counters import ASSEMBLER, ResponseCounters
from streamgauge.worker.local import DeliveryFailed, LocalLoop, StateFile
from tests.streams import bundles_of, interleaved

# Longer than the interval of checkpoints (seconds).
LATER_S = 1_000.0


class Killed(BaseException):
    """The process was killed here: it does nothing more."""


class Counted:
    def __init__(self) -> None:
        self.added: Counter[tuple[str, ...]] = Counter()
        self.counts: Counter[str] = Counter()
        self.gauges: dict[str, dict[str | None, float]] = {}

    def add(self, name: str, value: float = 1, **labels: object) -> None:
        self.added[(name, *map(str, labels.values()))] += int(value)

    def add_counts(self, counts: Mapping[str, int]) -> None:
        self.counts.update(counts)

    def set_all(self, name: str, values: Mapping[str | None, float]) -> None:
        self.gauges[name] = dict(values)


class Life:
    """One life of the process that runs the loop, on the files in a data directory. `kill_at`: the step that it dies at."""

    def __init__(self, data_dir: Path, kill_at: int | None = None, limits: Limits | None = None) -> None:
        self.steps = 0
        self.kill_at = kill_at
        self.ledger = SqliteLedger(data_dir / "ledger.sqlite")
        self.spool = Spool(data_dir / "spool.sqlite")
        self.state = StateFile(data_dir / "state.sqlite")
        self.counted = Counted()
        self.said: list[str] = []
        self.refusals: list[str] = []
        self.now = 0.0
        self._step_around(self.state, "save")
        self._step_around(self.spool, "done")
        self._step_around(self.state, "keep_dead_letter")
        self.responses = ResponseCounters(data_dir / "counters", ASSEMBLER)
        self.loop = LocalLoop(
            self.spool,
            self.state,
            self._deliver,
            cast(Any, self.counted),
            limits or Limits(),
            self.said.append,
            responses=self.responses,
        )

    def work(self, steps: int = 1) -> None:
        """Reads, stores and checkpoints, each time."""
        for _ in range(steps):
            self.now += LATER_S
            self.loop.step(self.now)

    def put(self, *bundles: Bundle) -> None:
        """Put bundles while the loop runs on its own thread. The spool has one connection, so this uses that of the loop."""
        assert self.spool.put([new_row(bundle) for bundle in bundles]).failure is None

    def end(self) -> None:
        """What a kill does to its files: they are closed as they are."""
        self.state.close()
        self.spool.close()
        self.ledger.close()
        self.responses.close()

    def _deliver(self, records: list[Record]) -> None:
        if self.refusals:
            raise DeliveryFailed(self.refusals.pop())
        self._step()
        self.ledger.insert([row_of(record) for record in records])
        self._step()

    def _step(self) -> None:
        self.steps += 1
        if self.steps == self.kill_at:
            raise Killed

    def _step_around(self, part: Any, name: str) -> None:
        inner: Callable[..., object] = getattr(part, name)

        def wrapped(*arguments: object) -> object:
            self._step()
            result = inner(*arguments)
            self._step()
            return result

        setattr(part, name, wrapped)


def put(data_dir: Path, *bundles: Bundle | bytes) -> None:
    spool = Spool(data_dir / "spool.sqlite")
    rows = [NewRow(0, 0, bundle) if isinstance(bundle, bytes) else new_row(bundle) for bundle in bundles]
    assert spool.put(rows).failure is None
    spool.close()


def new_row(bundle: Bundle) -> NewRow:
    return NewRow(bundle.slot, reads_of(bundle), encode_bundle(bundle))


def records(data_dir: Path) -> list[dict[str, Any]]:
    with SqliteLedger(data_dir / "ledger.sqlite") as ledger:
        return [json.loads(line) for line in ledger.query()]


def waiting(data_dir: Path) -> int:
    spool = Spool(data_dir / "spool.sqlite")
    try:
        return spool.waiting().rows
    finally:
        spool.close()


def deadletters(data_dir: Path) -> list[tuple[str, bytes]]:
    database = sqlite3.connect(data_dir / "state.sqlite")
    try:
        return list(database.execute("SELECT error_class, value FROM deadletter ORDER BY row"))
    finally:
        database.close()


def whole(streams: int) -> list[Bundle]:
    return bundles_of(interleaved(streams))


def undisturbed(data_dir: Path, bundles: list[Bundle]) -> list[dict[str, Any]]:
    """What an undisturbed run makes of these bundles."""
    (data_dir / "quiet").mkdir()
    put(data_dir / "quiet", *bundles)
    one = Life(data_dir / "quiet")
    one.work(2)
    one.end()
    return records(data_dir / "quiet")
