"""How records are read from a ledger's file. Which records: test_contract.py."""

import contextlib
import sqlite3
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from streamgauge.ledger import ALL_RECORDS, Filter, SqliteLedger
from streamgauge.ledger.sqlite_query import records_of
from streamgauge.ledger.sqlite_schema import PAGE_ROWS
from streamgauge.ledger.sqlite_totals import totals_of
from tests.ledger.rows import make_row

IN_RANGE = Filter(since_us=0, until_us=2**60)


class Explained(sqlite3.Connection):
    """A connection that keeps how SQLite goes through the records for each statement."""

    def __init__(self, *arguments: Any, **options: Any) -> None:
        super().__init__(*arguments, **options)
        self.plans: list[str] = []

    def execute(self, sql: str, parameters: Any = (), /) -> sqlite3.Cursor:
        if "FROM records" in sql:
            plan = super().execute(f"EXPLAIN QUERY PLAN {sql}", parameters)
            self.plans += [line[3] for line in plan if " records " in f"{line[3]} "]
        return super().execute(sql, parameters)


@pytest.fixture
def database(tmp_path: Path) -> Iterator[Explained]:
    with SqliteLedger(tmp_path / "ledger.sqlite") as ledger:
        ledger.insert([make_row(number) for number in range(2 * PAGE_ROWS)])
        ledger.insert([make_row(90_000, started_at=None)])
    opened = sqlite3.connect(tmp_path / "ledger.sqlite", isolation_level=None, factory=Explained)
    with contextlib.closing(opened):
        yield opened


@pytest.mark.parametrize("newest_first", [False, True])
@pytest.mark.parametrize("chosen", [ALL_RECORDS, IN_RANGE, Filter(where=(("tenant", None),))])
def test_a_page_does_not_read_what_is_before_it(database: Explained, chosen: Filter, newest_first: bool) -> None:
    found = len(list(records_of(database, chosen, None, newest_first)))
    assert found == 2 * PAGE_ROWS + (chosen is not IN_RANGE)
    assert len(database.plans) == (3 if chosen is IN_RANGE else 4)
    assert set(database.plans) == {"SEARCH records USING INDEX records_by_start (<expr>>? AND <expr><?)"}


def test_totals_of_a_range_read_that_range_alone(database: Explained) -> None:
    (total,) = totals_of(database, ["upstream"], IN_RANGE)
    assert total.streams == 2 * PAGE_ROWS
    *_, plan = database.plans
    assert plan == "SEARCH records USING INDEX records_by_start (<expr>>? AND <expr><?)"
