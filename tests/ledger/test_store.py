"""How records are read from a ledger. Which records: test_contract.py."""

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import psycopg
import pytest

from streamgauge.ledger import ALL_RECORDS, Filter, SqliteLedger, open_ledger
from streamgauge.ledger.store import PAGE_ROWS
from tests.ledger.rows import make_row
from tests.ledger.statements import each_statement
from tests.metrics.records import make_usage

IN_RANGE = Filter(since_us=0, until_us=2**60)
BY_INDEX = "SEARCH records USING INDEX records_by_start (<expr>>? AND <expr><?)"
COVERED = BY_INDEX.replace("INDEX", "COVERING INDEX", 1)


class Explained:
    """Keeps how SQLite goes through the records for each statement of a ledger."""

    def __init__(self, ledger: SqliteLedger) -> None:
        self.ledger = ledger
        self.plans: list[str] = []

    def explain(self, connection: Any, cursor: Any, sql: str, parameters: Any) -> None:
        """Called with each statement."""
        if "records.record" in sql or "FROM records" in sql:
            plan = connection.connection.dbapi_connection.execute(f"EXPLAIN QUERY PLAN {sql}", parameters).fetchall()
            self.plans += [line[3] for line in plan if " records " in f"{line[3]} "]


@pytest.fixture
def explained(tmp_path: Path) -> Iterator[Explained]:
    with SqliteLedger(tmp_path / "ledger.sqlite") as ledger:
        ledger.insert([make_row(number) for number in range(2 * PAGE_ROWS)])
        ledger.insert([make_row(90_000, started_at=None)])
        explained = Explained(ledger)
        with each_statement(explained.explain):
            yield explained


@pytest.mark.parametrize("newest_first", [False, True])
@pytest.mark.parametrize("chosen", [ALL_RECORDS, IN_RANGE, Filter(where=(("tenant", None),))])
def test_a_page_does_not_read_what_is_before_it(explained: Explained, chosen: Filter, newest_first: bool) -> None:
    found = len(list(explained.ledger.query(None, chosen, newest_first=newest_first)))
    assert found == 2 * PAGE_ROWS + (chosen is not IN_RANGE)
    assert len(explained.plans) == (3 if chosen is IN_RANGE else 4)
    assert set(explained.plans) == {BY_INDEX}


def test_totals_of_a_range_read_that_range_alone(explained: Explained) -> None:
    (total,) = explained.ledger.totals(["upstream"], IN_RANGE)
    assert total.streams == 2 * PAGE_ROWS
    *_, plan = explained.plans
    assert plan == COVERED


@pytest.mark.parametrize(("chosen", "plan"), [(IN_RANGE, "SEARCH"), (ALL_RECORDS, "SCAN")])
def test_the_slowest_are_found_in_the_index_alone(explained: Explained, chosen: Filter, plan: str) -> None:
    chosen = replace(chosen, where=(("outcome", "completed"), ("model", "gpt-4o-2024-08-06")))
    assert len(explained.ledger.slowest(3, chosen)) == 3
    by_id, by_wait = explained.plans
    assert by_id == "SEARCH records USING INDEX sqlite_autoindex_records_1 (stream_id=?)"
    assert by_wait.startswith(f"{plan} records USING COVERING INDEX records_by_start")


def test_a_trace_is_found_by_its_index(explained: Explained) -> None:
    assert list(explained.ledger.query(None, Filter(where=(("trace_id", "t"),)))) == []
    assert explained.ledger.totals(["trace_id"], Filter(where=(("trace_id", "t"),))) == []
    # Whether there are resumed streams, or responses that were read more than once.
    plans = [plan for plan in explained.plans if "records_legs" not in plan and "records_reread" not in plan]
    assert set(plans) == {"SEARCH records USING INDEX records_by_trace (trace_id=?)"}


def test_postgresql_finds_unusual_records_by_their_index(postgres_url: str) -> None:
    rows = [make_row(number) for number in range(2 * PAGE_ROWS)]
    rows[7] = make_row(7, usage=make_usage(bad_values=1))
    with open_ledger(postgres_url) as ledger:
        ledger.insert(rows)
        plans: list[str] = []

        def explain(connection: Any, cursor: Any, sql: str, parameters: Any) -> None:
            if "SELECT records.record" in sql:
                found = connection.connection.dbapi_connection.execute(f"EXPLAIN {sql}", parameters).fetchall()
                plans.append("\n".join(line[0] for line in found))

        with psycopg.connect(postgres_url, autocommit=True) as database:
            database.execute("ANALYZE records")
        (part,) = ledger.parts
        with part.usage_step(0, 2**60) as step, each_statement(explain):
            assert step is not None
            assert list(step.unusual()) == [rows[7].record]
    (plan,) = plans
    assert "records_default_coalesce_stream_id_idx" in plan, "the partition's part of records_unusual"
    assert "Filter: (CASE" not in plan


def test_postgresql_reads_a_page_by_the_index(postgres_url: str) -> None:
    with open_ledger(postgres_url) as ledger:
        ledger.insert([make_row(number) for number in range(2 * PAGE_ROWS)])
        plans: list[str] = []

        def explain(connection: Any, cursor: Any, sql: str, parameters: Any) -> None:
            if "records.record" in sql:
                found = connection.connection.dbapi_connection.execute(f"EXPLAIN {sql}", parameters).fetchall()
                plans.append("\n".join(line[0] for line in found))

        with psycopg.connect(postgres_url, autocommit=True) as database:
            database.execute("ANALYZE records")
        with each_statement(explain):
            assert len(list(ledger.query(PAGE_ROWS, Filter(since_us=0)))) == PAGE_ROWS
    assert "records_default_coalesce_stream_id_wait_us_idx" in plans[0], "the partition's part of records_by_start"
    assert "Sort" not in plans[0]
