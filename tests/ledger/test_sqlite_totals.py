"""Totals of a file that holds streams and legs, as SQLite is asked for them. What counts: test_contract.py, test_legs.py."""

import contextlib
import sqlite3
import time
from pathlib import Path

from streamgauge.ledger import SqliteLedger, Total
from tests.ledger.rows import make_row
from tests.metrics.records import ABSENT, make_usage

# Twenty thousand records take half a second alone; machines are shared (seconds).
PATIENCE_S = 30.0


def test_totals_leave_nothing_in_the_file(tmp_path: Path) -> None:
    path = tmp_path / "ledger.sqlite"
    with SqliteLedger(path) as ledger:
        ledger.insert(
            [make_row(1, response_id="r", usage=ABSENT), make_row(2, resumed_from="r", usage=make_usage(3, 4))]
        )
        for _ in range(2):
            assert ledger.totals(["upstream"]) == [Total(("nimbus",), 2, 3, 4, 7)]
    with contextlib.closing(sqlite3.connect(path)) as database:
        tables = database.execute("SELECT name FROM sqlite_schema WHERE type = 'table'").fetchall()
    assert tables == [("records",)]


def test_totals_are_of_one_moment_while_others_write(tmp_path: Path) -> None:
    """A writer that holds the file is not waited for, and what it has not confirmed is not there."""
    with SqliteLedger(tmp_path / "ledger.sqlite") as ledger:
        ledger.insert([make_row(1, response_id="r", usage=make_usage(3, 4))])
        with contextlib.closing(sqlite3.connect(tmp_path / "ledger.sqlite", isolation_level=None)) as writer:
            writer.execute("BEGIN IMMEDIATE")
            writer.execute("DELETE FROM records")
            assert ledger.totals(["day"]) == [Total(("2026-03-01",), 1, 3, 4, 7)]
            writer.execute("ROLLBACK")


def test_legs_without_number_take_no_longer_than_records(tmp_path: Path) -> None:
    """All of one request: nothing that compares each leg with each stream would ever end."""
    row = vars(make_row(1, request_digest="d" * 32, last_event_id="9", outcome="truncated", usage=make_usage(2, 1)))
    with SqliteLedger(tmp_path / "ledger.sqlite") as ledger:
        ledger.insert([make_row(0)])
        kind = type(make_row(0))
        for first in range(1, 20_001, 2_000):
            names = range(first, first + 2_000)
            ledger.insert(
                [kind(**{**row, "stream_id": f"{n:032x}", "resumed_from": "9" if n % 2 else None}) for n in names]
            )
        began = time.monotonic()
        (total,) = ledger.totals(["day"])
        assert time.monotonic() - began < PATIENCE_S
    assert (total.streams, total.output_tokens) == (20_001, 5 + 10_000)
