"""The simulation fails without any one of the worker's rules. `rules.py` lists each rule with its code and seeds."""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any
from unittest.mock import patch

import msgspec
import pytest
from sqlalchemy import Connection
from sqlalchemy.dialects.sqlite import insert

from streamgauge.cli.worker import LedgerStore
from streamgauge.ledger import SqliteLedger, schema
from streamgauge.ledger.row import COLUMNS
from streamgauge.metrics import table
from streamgauge.worker.local import LocalLoop
from streamgauge.worker.settings import Stored
from tests.each import each
from tests.worker.local_life import Killed, Life, put, records, undisturbed, whole
from tests.worker.simulation.faults import Faults
from tests.worker.simulation.rules import RULES, Rule
from tests.worker.simulation.schedule import Schedule
from tests.worker.simulation.scripts import Script, assembled, scripts
from tests.worker.simulation.verdict import wrong


def judged(seed: int, faults: Faults | None) -> list[str]:
    schedule = Schedule(seed, faults)
    schedule.run()
    return wrong(schedule)


@pytest.mark.parametrize("rule", RULES, ids=lambda rule: rule.name)
def test_simulation_fails_without_each_rule(rule: Rule) -> None:
    for seed in rule.seeds:
        assert judged(seed, rule.faults) == [], f"seed {seed} fails with the rule"
    with rule.off():
        assert any(judged(seed, rule.faults) for seed in rule.seeds), (
            f"no seed fails without {', '.join(map(str, rule.code))}"
        )


# --- the expected records of the scripts ------------------------------------------------------------------------------


@each(scripts(), lambda script: script.name)
def test_a_whole_script_ends_as_documented(script: Script) -> None:
    record = assembled(script, len(script.segments))
    assert (record.outcome, record.integrity.complete) == (script.outcome, True)
    if len(script.segments) > 1:
        assert assembled(script, len(script.segments) - 1).integrity.reasons == ["no_end"]


# --- 5: the ledger ----------------------------------------------------------------------------------------------------


class RealShelf:
    """The ledger itself, as `streamgauge worker` uses it."""

    def __init__(self, path: Path) -> None:
        self.ledger = SqliteLedger(path)
        self._store = LedgerStore(self.ledger)
        self.refusing = 0.0

    def insert(self, records: Sequence[bytes]) -> Stored:
        return self._store.insert(records)

    @property
    def records(self) -> dict[str, bytes]:
        rows = [row.replace(b',"cost":null}', b"}") for row in self.ledger.query()]
        return {msgspec.json.decode(row)["stream_id"]: row for row in rows}


# Records come twice, and some are forged.
_FORGED = Faults(workers=2, kills=3, trouble=0.05, forgeries=4)
_FORGED_SEEDS = (1, 2)


def keep_the_last(_: SqliteLedger, connection: Connection, rows: Mapping[str, tuple[Any, ...]]) -> set[str]:
    """What a ledger would do that keeps the last record instead of the first."""
    statement = insert(schema.records)
    updating = statement.on_conflict_do_update(index_elements=["stream_id"], set_={"record": statement.excluded.record})
    connection.execute(updating, [dict(zip(COLUMNS, row, strict=True)) for row in rows.values()])
    return set(rows)


def with_ledger(seed: int, directory: Path) -> tuple[list[str], Schedule]:
    shelf = RealShelf(directory / f"ledger-{seed}.sqlite")
    try:
        schedule = Schedule(seed, _FORGED, shelf)
        schedule.run()
        return wrong(schedule), schedule
    finally:
        shelf.ledger.close()


@pytest.mark.parametrize("seed", _FORGED_SEEDS)
def test_the_ledger_keeps_the_first_record_and_counts_others(seed: int, tmp_path: Path) -> None:
    faults, schedule = with_ledger(seed, tmp_path)
    assert faults == []
    assert schedule.counted(f"{table.LEDGER_ROWS.name}:different") > 0


def test_a_ledger_that_took_the_last_record_would_be_found(tmp_path: Path) -> None:
    with patch.object(SqliteLedger, "_insert_new", keep_the_last):
        faults = [with_ledger(seed, tmp_path)[0] for seed in _FORGED_SEEDS]
    assert all(faults)


# --- 10: without a broker ---------------------------------------------------------------------------------------------


def survives(directory: Path, kill_at: int) -> bool:
    """Whether `up` makes the same records as without a crash if it is killed at this step."""
    directory.mkdir()
    bundles = whole(8)
    expected = undisturbed(directory, bundles)
    life = Life(directory, kill_at)
    for start in range(0, len(bundles), 3):
        put(directory, *bundles[start : start + 3])
        try:
            life.work()
        except Killed:
            life.end()
            life = Life(directory)
    life.work(2)
    life.end()
    return records(directory) == expected


def rows_before_state(self: LocalLoop, now: float) -> bool:
    """A checkpoint in the wrong order."""
    self._spool.done(self._held)
    self._held = []
    self._store()
    self._state.save(self._assembler)
    self._saved_at = now
    return True


STEPS = range(1, 11)


def test_up_makes_records_then_state_then_the_spools_rows_durable(tmp_path: Path) -> None:
    assert all(survives(tmp_path / str(step), step) for step in STEPS)


def test_up_in_another_order_would_be_found(tmp_path: Path) -> None:
    with patch.object(LocalLoop, "checkpoint", rows_before_state):
        assert not all(survives(tmp_path / str(step), step) for step in STEPS)
