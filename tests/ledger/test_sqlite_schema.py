"""A ledger's file of version 1 becomes one of version 2, in place, whole or not at all."""

import contextlib
import json
import sqlite3
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from streamgauge.core.record import encode_record
from streamgauge.ledger import Inserted, LedgerRow, SqliteLedger, Total
from streamgauge.ledger.sqlite_schema import SCHEMA_VERSION, Database, bring_up_to_date, version_of
from tests.ledger.rows import make_row, stream_id
from tests.metrics.records import make_record, make_usage

ROOT = Path(__file__).parents[2]
# As version 1 made it.
VERSION_1 = """
    CREATE TABLE records (
        stream_id TEXT NOT NULL UNIQUE,
        started_us INTEGER,
        day TEXT, model TEXT, request_model TEXT, response_model TEXT, upstream TEXT, dialect TEXT, endpoint TEXT,
        outcome TEXT NOT NULL, finish_reason TEXT, tenant TEXT, credential_id TEXT, service_tier TEXT,
        usage_source TEXT, resumed_from TEXT,
        input_tokens INTEGER, output_tokens INTEGER, total_tokens INTEGER,
        record BLOB NOT NULL
    );
    CREATE INDEX records_by_start ON records (ifnull(started_us, 9223372036854775807), stream_id);
    PRAGMA user_version = 1;
"""
COLUMNS_1 = (
    "stream_id", "started_us", "day", "model", "request_model", "response_model", "upstream", "dialect", "endpoint",
    "outcome", "finish_reason", "tenant", "credential_id", "service_tier", "usage_source", "resumed_from",
    "input_tokens", "output_tokens", "total_tokens", "record",
)  # fmt: skip

ORIGIN = {
    "request_digest": "d" * 32,
    "response_id": "msg_1",
    "last_event_id": "17",
    "credential_id": "key",
    "outcome": "truncated",
    "usage": make_usage(41, None, source="partial"),
    "attempt": 1,
}
LEG = {
    **ORIGIN,
    "response_id": None,
    "last_event_id": "40",
    "resumed_from": "17",
    "outcome": "completed",
    "usage": make_usage(None, 20),
    "attempt": 2,
}


def file_of_version_1(path: Path, *rows: LedgerRow) -> Path:
    with contextlib.closing(sqlite3.connect(path)) as database, database:
        database.execute("PRAGMA journal_mode = WAL")
        database.executescript(VERSION_1)
        values = [[getattr(row, column) for column in COLUMNS_1] for row in rows]
        database.executemany(f"INSERT INTO records VALUES ({', '.join('?' * len(COLUMNS_1))})", values)
    return path


def schema_of(path: Path) -> list[tuple[Any, ...]]:
    with contextlib.closing(sqlite3.connect(path)) as database:
        return [
            ("version", version_of(database)),
            *database.execute("SELECT name, sql FROM sqlite_schema ORDER BY name"),
        ]


def rows_of(path: Path) -> list[tuple[Any, ...]]:
    with contextlib.closing(sqlite3.connect(path)) as database:
        return list(database.execute("SELECT * FROM records ORDER BY stream_id"))


def test_a_carried_over_file_is_as_if_made_anew(tmp_path: Path) -> None:
    rows = [make_row(1, **ORIGIN), make_row(2, **LEG), make_row(3, started_at=None)]
    old = file_of_version_1(tmp_path / "old.sqlite", *rows)
    SqliteLedger(old).close()
    with SqliteLedger(tmp_path / "new.sqlite") as new:
        new.insert(rows)
    assert schema_of(old) == schema_of(tmp_path / "new.sqlite")
    assert rows_of(old) == rows_of(tmp_path / "new.sqlite")


def test_legs_in_a_carried_over_file_are_known(tmp_path: Path) -> None:
    path = file_of_version_1(tmp_path / "ledger.sqlite", make_row(1, **ORIGIN), make_row(2, **LEG))
    with SqliteLedger(path) as ledger:
        assert ledger.totals(["day"]) == [Total(("2026-03-01",), 2, 41, 20, 61)]
        assert [total.keys for total in ledger.totals(["request_digest", "attempt"])] == [("d" * 32, 1), ("d" * 32, 2)]
        assert ledger.insert([make_row(1, **ORIGIN), make_row(4)]) == Inserted(new=1, same=1)


def test_several_pages_keep_their_order_and_their_bytes(tmp_path: Path) -> None:
    rows = [make_row(number, tenant=f"t{number}") for number in range(2_100)]
    path = file_of_version_1(tmp_path / "ledger.sqlite", *rows)
    with SqliteLedger(path) as ledger:
        assert list(ledger.query()) == [row.record for row in rows]


def test_an_empty_file_of_version_1(tmp_path: Path) -> None:
    with SqliteLedger(file_of_version_1(tmp_path / "ledger.sqlite")) as ledger:
        assert ledger.totals(["day"]) == []
        assert ledger.insert([make_row(1)]) == Inserted(new=1)


def test_what_version_1_let_in_of_another_type_is_not_known(tmp_path: Path) -> None:
    members = json.loads(encode_record(make_record(stream_id=stream_id(1))))
    odd = {
        **members,
        "response_id": 5,
        "last_event_id": ["x"],
        "attempt": True,
        "request_digest": {"a": 1},
        "cost": None,
    }
    row = make_row(1)
    path = file_of_version_1(
        tmp_path / "ledger.sqlite", row.__class__(**{**vars(row), "record": json.dumps(odd).encode()})
    )
    with SqliteLedger(path) as ledger:
        by = ["request_digest", "response_id", "attempt"]
        assert [total.keys for total in ledger.totals(by)] == [(None, None, None)]


def test_one_that_is_broken_off_leaves_version_1_as_it_was(tmp_path: Path) -> None:
    path = file_of_version_1(tmp_path / "ledger.sqlite", *(make_row(number) for number in range(1_500)))
    before = schema_of(path), rows_of(path)
    with contextlib.closing(sqlite3.connect(path, isolation_level=None)) as database:
        database.execute("BEGIN IMMEDIATE")
        bring_up_to_date(database)
        assert version_of(database) == SCHEMA_VERSION
        database.execute("ROLLBACK")
    assert (schema_of(path), rows_of(path)) == before


@pytest.mark.parametrize("version", [SCHEMA_VERSION, 99])
def test_any_other_version_is_left_alone(tmp_path: Path, version: int) -> None:
    with contextlib.closing(sqlite3.connect(tmp_path / "x.sqlite", isolation_level=None)) as database:
        database.execute(f"PRAGMA user_version = {version}")
        as_database: Database = database
        bring_up_to_date(as_database)
        assert database.execute("SELECT count(*) FROM sqlite_schema").fetchone() == (0,)


def test_processes_that_open_it_at_once_carry_it_over_once(tmp_path: Path) -> None:
    path = file_of_version_1(tmp_path / "ledger.sqlite", *(make_row(number) for number in range(500)))
    program = (
        "import sys; from pathlib import Path; from streamgauge.ledger import SqliteLedger as L; L(Path(sys.argv[1]))"
    )
    openers = [subprocess.Popen([sys.executable, "-c", program, str(path)], cwd=ROOT) for _ in range(3)]
    assert [opener.wait(100) for opener in openers] == [0, 0, 0]
    assert len(rows_of(path)) == 500
