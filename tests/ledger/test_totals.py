"""Totals: their order, sums over several ledgers, and those of a ledger with resumed streams.

What counts for a resumed stream: test_contract.py, test_resumption.py.
"""

import contextlib
import itertools
import sqlite3
import time
from collections.abc import Iterator, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

import pytest
from sqlalchemy import Connection, create_engine, insert

from streamgauge.ledger import Filter, LedgerRow, SqliteLedger, Total
from streamgauge.ledger.contract import add_totals, sort_totals, sum_of
from streamgauge.ledger.migrations import bring_up_to_date
from streamgauge.ledger.resumption import UsagePart
from streamgauge.ledger.row import COLUMNS
from streamgauge.ledger.schema import records
from streamgauge.ledger.totals import totals_of
from tests.ledger.counting import count_once
from tests.ledger.rows import make_row
from tests.ledger.statements import each_statement
from tests.metrics.records import ABSENT, make_usage

pytestmark = pytest.mark.slow


def total(*keys: Any, **known: Any) -> Total:
    numbers: dict[str, Any] = {
        "streams": 1,
        "with_usage": 0,
        "input_tokens": None,
        "output_tokens": None,
        "total_tokens": None,
    }
    return Total(keys, **{**numbers, **known})


def test_the_order_is_that_of_the_keys_with_none_last() -> None:
    totals = [total(None, 1), total("b", 1), total("a", None), total("a", 10), total("a", 2)]
    assert [one.keys for one in sort_totals(totals)] == [("a", 2), ("a", 10), ("a", None), ("b", 1), (None, 1)]


def test_the_newest_are_first_on_request_and_those_without_a_start_last() -> None:
    totals = [total("a", last_us=1), total("b"), total("c", last_us=3), total("d", last_us=3)]
    assert [one.keys[0] for one in sort_totals(totals, newest_first=True)] == ["c", "d", "a", "b"]


def test_known_numbers_are_added_and_unknown_ones_stay_null() -> None:
    one = total("a", streams=2, with_usage=1, input_tokens=5, kinds={"input_uncached": 5}, cost=7, without_price=1,
                without_usage=1, longest_wait_us=4, last_us=20, first_us=8)  # fmt: skip
    other = total("a", streams=3, with_usage=3, input_tokens=1, output_tokens=2, kinds={"input_uncached": 1, "reasoning": 2},
                  longest_wait_us=9, last_us=6, first_us=5)  # fmt: skip
    (added,) = add_totals([[one], [other]])
    assert asdict(added) == asdict(
        total("a", streams=5, with_usage=4, input_tokens=6, output_tokens=2, kinds={"input_uncached": 6, "reasoning": 2},
              cost=7, without_price=1, without_usage=1, longest_wait_us=9, last_us=20, first_us=5)
    )  # fmt: skip
    assert added.total_tokens is None


def test_the_sum_of_all_lines_has_no_keys() -> None:
    total_of_all = sum_of([total("a", streams=2, cost=5, first_us=7), total(None, streams=1, cost=None, first_us=3)])
    assert total_of_all is not None
    assert (total_of_all.keys, total_of_all.streams, total_of_all.cost, total_of_all.first_us) == ((), 3, 5, 3)
    assert sum_of([]) is None


def test_lines_of_one_ledger_alone_stay() -> None:
    assert [one.keys for one in add_totals([[total("b")], [total("a"), total(None)], []])] == [("a",), ("b",), (None,)]


# Twenty thousand records take half a second alone; machines are shared (seconds).
PATIENCE_S = 30.0


def test_totals_leave_nothing_in_the_file(tmp_path: Path) -> None:
    path = tmp_path / "ledger.sqlite"
    with SqliteLedger(path) as ledger:
        ledger.insert(
            [
                make_row(1, response_id="r", usage=ABSENT),
                make_row(2, response_id="r", resumed_from="4", usage=make_usage(3, 4)),
            ]
        )
        for _ in range(2):
            assert ledger.totals(["upstream"]) == [Total(("nimbus",), 2, 1, 3, 4, 7)]
    with contextlib.closing(sqlite3.connect(path)) as database:
        tables = database.execute(
            "SELECT name FROM sqlite_schema WHERE type = 'table' AND name NOT LIKE 'sqlite_%'"
        ).fetchall()
    assert sorted(tables) == [("audit_runs",), ("earlier_costs",), ("records",)]


def test_totals_are_of_one_moment_while_others_write(tmp_path: Path) -> None:
    """A writer that holds the file is not waited for, and what it has not confirmed is not there."""
    with SqliteLedger(tmp_path / "ledger.sqlite") as ledger:
        ledger.insert([make_row(1, response_id="r", usage=make_usage(3, 4))])
        with contextlib.closing(sqlite3.connect(tmp_path / "ledger.sqlite", isolation_level=None)) as writer:
            writer.execute("BEGIN IMMEDIATE")
            writer.execute("DELETE FROM records")
            assert ledger.totals(["day"]) == [Total(("2026-03-01",), 1, 1, 3, 4, 7)]
            writer.execute("ROLLBACK")


VALUES = (None, "1", "a", "masked")


@pytest.fixture
def memory() -> Iterator[Connection]:
    """A connection to a ledger in memory."""
    engine = create_engine("sqlite://", json_serializer=str, json_deserializer=str)
    with engine.connect() as connection:
        bring_up_to_date(connection, 0)
        connection.commit()
        yield connection
    engine.dispose()


def counted_in(memory: Connection, rows: Sequence[LedgerRow]) -> list[int | None]:
    """What a ledger of these rows counts for each, by the tenant that each has of its own."""
    memory.execute(insert(records), [dict(zip(COLUMNS, row.values(None), strict=True)) for row in rows])
    totals = totals_of(memory, ["tenant"])
    memory.rollback()
    return [total.output_tokens for total in totals]


@pytest.mark.parametrize("resumed_from", ["1", "a", "masked"])
def test_totals_read_every_record_that_may_have_been_resumed(memory: Connection, resumed_from: str) -> None:
    # Every third case: as 3 and 4 have no common divisor, each four of the values meet in some of them.
    cases = itertools.islice(itertools.product(VALUES, repeat=5), 0, None, 3)
    for digest, response_id, origin_digest, origin_id, last_event_id in cases:
        known = {"request_digest": digest, "response_id": response_id, "resumed_from": resumed_from}
        resumed = make_row(2, tenant="resumed", usage=make_usage(2, 2), **known)
        known = {"request_digest": origin_digest, "response_id": origin_id, "last_event_id": last_event_id}
        rows = make_row(1, tenant="a stream", usage=make_usage(1, 1), **known), resumed
        parts = [UsagePart._make(getattr(row, name, None) for name in UsagePart._fields) for row in rows]
        counted = [line.output_tokens for line in count_once(parts, parts)] or [1, 2]
        assert counted_in(memory, rows) == counted, rows


def test_many_resumed_streams_take_no_longer_than_records(tmp_path: Path) -> None:
    """All of one request: a comparison of each resumed stream with each stream would not end in time."""
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


def test_a_statement_does_not_grow_with_the_number_of_mapped_credentials(tmp_path: Path) -> None:
    with SqliteLedger(tmp_path / "ledger.sqlite") as ledger:
        statements: list[str] = []

        def note(_c: object, _d: object, statement: str, *_: object) -> None:
            statements.append(statement)

        with each_statement(note):
            ledger.totals(["tenant"], Filter(tenants=tuple((str(number), "a") for number in range(5_000))))
        assert 0 < max(map(len, statements)) < 20_000
