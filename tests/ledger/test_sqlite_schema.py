"""A ledger's file of an earlier version becomes one of the current version, in place, whole or not at all."""

import contextlib
import json
import sqlite3
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from streamgauge.core.record import encode_record
from streamgauge.ledger import Inserted, LedgerRow, LedgerUnavailableError, SqliteLedger, Total
from streamgauge.ledger.sqlite_schema import SCHEMA_VERSION, Database, bring_up_to_date, version_of
from tests.ledger.rows import make_row, stream_id
from tests.metrics.records import make_record, make_usage

ROOT = Path(__file__).parents[2]
# As these versions made it.
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
VERSION_2 = """
    CREATE TABLE records (
        stream_id TEXT NOT NULL UNIQUE,
        started_us INTEGER,
        day TEXT, model TEXT, request_model TEXT, response_model TEXT, upstream TEXT, dialect TEXT, endpoint TEXT,
        outcome TEXT NOT NULL, finish_reason TEXT, tenant TEXT, credential_id TEXT, service_tier TEXT,
        usage_source TEXT,
        request_digest TEXT, response_id TEXT, last_event_id TEXT, resumed_from TEXT, attempt INTEGER,
        input_tokens INTEGER, output_tokens INTEGER, total_tokens INTEGER,
        record BLOB NOT NULL
    );
    CREATE INDEX records_by_start ON records (ifnull(started_us, 9223372036854775807), stream_id);
    CREATE INDEX records_legs ON records (resumed_from) WHERE resumed_from IS NOT NULL;
    PRAGMA user_version = 2;
"""
VERSION_3 = """
    CREATE TABLE records (
        stream_id TEXT NOT NULL UNIQUE,
        started_us INTEGER,
        day TEXT, model TEXT, request_model TEXT, response_model TEXT, tap TEXT, upstream TEXT, dialect TEXT,
        endpoint TEXT, outcome TEXT NOT NULL, finish_reason TEXT, tenant TEXT, credential_id TEXT, service_tier TEXT,
        usage_source TEXT,
        request_digest TEXT, response_id TEXT, last_event_id TEXT, resumed_from TEXT, attempt INTEGER,
        input_tokens INTEGER, output_tokens INTEGER, total_tokens INTEGER,
        input_cached_tokens INTEGER, reasoning_tokens INTEGER,
        record BLOB NOT NULL
    );
    CREATE INDEX records_by_start ON records (ifnull(started_us, 9223372036854775807), stream_id);
    CREATE INDEX records_legs ON records (resumed_from) WHERE resumed_from IS NOT NULL;
    PRAGMA user_version = 3;
"""
COLUMNS_1 = (
    "stream_id", "started_us", "day", "model", "request_model", "response_model", "upstream", "dialect", "endpoint",
    "outcome", "finish_reason", "tenant", "credential_id", "service_tier", "usage_source", "resumed_from",
    "input_tokens", "output_tokens", "total_tokens", "record",
)  # fmt: skip
COLUMNS_2 = (
    *COLUMNS_1[:15], "request_digest", "response_id", "last_event_id", "resumed_from", "attempt", *COLUMNS_1[16:],
)  # fmt: skip
COLUMNS_3 = (*COLUMNS_2[:6], "tap", *COLUMNS_2[6:-1], "input_cached_tokens", "reasoning_tokens", "record")
EARLIER = {1: (VERSION_1, COLUMNS_1), 2: (VERSION_2, COLUMNS_2), 3: (VERSION_3, COLUMNS_3)}

ORIGIN = {
    "request_digest": "d" * 32,
    "response_id": "msg_1",
    "last_event_id": "17",
    "credential_id": "key",
    "outcome": "truncated",
    "usage": make_usage(41, None, source="partial", input_cached_tokens=30),
    "attempt": 1,
    "tap": "httpx",
    "attributes": {"agent": "planner"},
}
LEG = {
    **ORIGIN,
    "response_id": None,
    "last_event_id": "40",
    "resumed_from": "17",
    "outcome": "completed",
    "usage": make_usage(None, 20, reasoning_tokens=8),
    "attempt": 2,
}


@pytest.fixture(params=EARLIER)
def version(request: pytest.FixtureRequest) -> int:
    return int(request.param)


def file_of(version: int, path: Path, *rows: LedgerRow) -> Path:
    schema, columns = EARLIER[version]
    with contextlib.closing(sqlite3.connect(path)) as database, database:
        database.execute("PRAGMA journal_mode = WAL")
        database.executescript(schema)
        values = [[getattr(row, column) for column in columns] for row in rows]
        database.executemany(f"INSERT INTO records VALUES ({', '.join('?' * len(columns))})", values)
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


def test_every_earlier_version_is_tested() -> None:
    assert list(EARLIER) == list(range(1, SCHEMA_VERSION))


def test_a_carried_over_file_equals_a_new_one(version: int, tmp_path: Path) -> None:
    rows = [make_row(1, **ORIGIN), make_row(2, **LEG), make_row(3, started_at=None, tap=None)]
    old = file_of(version, tmp_path / "old.sqlite", *rows)
    SqliteLedger(old).close()
    with SqliteLedger(tmp_path / "new.sqlite") as new:
        new.insert(rows)
    assert schema_of(old) == schema_of(tmp_path / "new.sqlite")
    assert rows_of(old) == rows_of(tmp_path / "new.sqlite")


def test_resumed_streams_of_a_converted_file_are_known(version: int, tmp_path: Path) -> None:
    path = file_of(version, tmp_path / "ledger.sqlite", make_row(1, **ORIGIN), make_row(2, **LEG))
    with SqliteLedger(path) as ledger:
        assert ledger.totals(["day"]) == [Total(("2026-03-01",), 2, 1, 41, 20, 61, 30, 8)]
        assert [total.keys for total in ledger.totals(["tap"])] == [("httpx",)]
        assert [total.keys for total in ledger.totals(["request_digest", "attempt"])] == [("d" * 32, 1), ("d" * 32, 2)]
        assert ledger.insert([make_row(1, **ORIGIN), make_row(4)]) == Inserted(new=1, same=1)


def test_several_pages_keep_their_order_and_their_bytes(version: int, tmp_path: Path) -> None:
    rows = [make_row(number, tenant=f"t{number}") for number in range(2_100)]
    path = file_of(version, tmp_path / "ledger.sqlite", *rows)
    with SqliteLedger(path) as ledger:
        assert list(ledger.query()) == [row.record for row in rows]


def test_an_empty_file_of_an_earlier_version(version: int, tmp_path: Path) -> None:
    with SqliteLedger(file_of(version, tmp_path / "ledger.sqlite")) as ledger:
        assert ledger.totals(["day"]) == []
        assert ledger.insert([make_row(1)]) == Inserted(new=1)


def test_values_of_another_type_that_earlier_versions_stored_are_null(version: int, tmp_path: Path) -> None:
    """Version 1 checked none of these; version 2 checked what it added, and neither the tap nor the further tokens; version
    3 checked all but the attributes.
    """
    members = json.loads(encode_record(make_record(stream_id=stream_id(1))))
    odd = {
        **members,
        "response_id": 5,
        "last_event_id": ["x"],
        "attempt": True,
        "request_digest": {"a": 1},
        "tap": 7,
        "attributes": {"agent": 7, "session": None},
        "usage": {**members["usage"], "input_cached_tokens": "30", "reasoning_tokens": 2**63},
        "cost": None,
    }
    row = make_row(1)
    path = file_of(
        version, tmp_path / "ledger.sqlite", row.__class__(**{**vars(row), "record": json.dumps(odd).encode()})
    )
    with SqliteLedger(path) as ledger:
        by = ["request_digest", "response_id", "attempt", "tap"]
        tap = row.tap if version == 3 else None
        assert ledger.totals(by) == [Total((None, None, None, tap), 1, 1, 10, 5, 15, None, None)]
        assert not ledger.has_attribute("agent")


@pytest.mark.parametrize("usage", [None, [], "many", {}])
def test_a_usage_that_is_none_is_carried_over(version: int, usage: object, tmp_path: Path) -> None:
    odd = {**json.loads(make_row(1).record), "usage": usage}
    row = make_row(1).__class__(**{**vars(make_row(1)), "record": json.dumps(odd).encode()})
    with SqliteLedger(file_of(version, tmp_path / "ledger.sqlite", row)) as ledger:
        assert list(ledger.query()) == [row.record]


def test_one_that_is_broken_off_leaves_the_file_as_it_was(version: int, tmp_path: Path) -> None:
    path = file_of(version, tmp_path / "ledger.sqlite", *(make_row(number) for number in range(1_500)))
    before = schema_of(path), rows_of(path)
    with contextlib.closing(sqlite3.connect(path, isolation_level=None)) as database:
        database.execute("BEGIN IMMEDIATE")
        bring_up_to_date(database)
        assert version_of(database) == SCHEMA_VERSION
        database.execute("ROLLBACK")
    assert (schema_of(path), rows_of(path)) == before


@pytest.mark.parametrize("other", [-1, SCHEMA_VERSION, 99])
def test_any_other_version_is_left_alone(tmp_path: Path, other: int) -> None:
    with contextlib.closing(sqlite3.connect(tmp_path / "x.sqlite", isolation_level=None)) as database:
        database.execute(f"PRAGMA user_version = {other}")
        as_database: Database = database
        bring_up_to_date(as_database)
        assert database.execute("SELECT count(*) FROM sqlite_schema").fetchone() == (0,)


def test_processes_that_open_it_at_once_carry_it_over_once(version: int, tmp_path: Path) -> None:
    path = file_of(version, tmp_path / "ledger.sqlite", *(make_row(number) for number in range(500)))
    program = (
        "import sys; from pathlib import Path; from streamgauge.ledger import SqliteLedger as L; L(Path(sys.argv[1]))"
    )
    openers = [subprocess.Popen([sys.executable, "-c", program, str(path)], cwd=ROOT) for _ in range(3)]
    assert [opener.wait(100) for opener in openers] == [0, 0, 0]
    assert len(rows_of(path)) == 500


@pytest.mark.parametrize("create", [True, False])
def test_a_file_of_another_program_is_refused_and_stays_as_it_is(tmp_path: Path, *, create: bool) -> None:
    path = tmp_path / "state.sqlite"
    with contextlib.closing(sqlite3.connect(path)) as database:
        database.execute("CREATE TABLE state(key INTEGER PRIMARY KEY, value BLOB NOT NULL)")
        database.commit()
    before = path.read_bytes()
    with pytest.raises(LedgerUnavailableError, match=r"state\.sqlite holds other data than a ledger"):
        SqliteLedger(path, create=create)
    assert path.read_bytes() == before
    assert [one.name for one in tmp_path.iterdir()] == ["state.sqlite"]


def test_a_file_that_is_refused_is_closed(tmp_path: Path) -> None:
    path = tmp_path / "ledger.sqlite"
    with contextlib.closing(sqlite3.connect(path)) as database:
        database.execute(f"PRAGMA user_version = {SCHEMA_VERSION + 1}")
    with pytest.raises(LedgerUnavailableError, match="a later version"):
        SqliteLedger(path)
    assert path not in [one.readlink() for one in Path("/proc/self/fd").iterdir() if one.is_symlink()]
