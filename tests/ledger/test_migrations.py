"""A ledger of an earlier version becomes one of the current version, in place, whole or not at all."""

import contextlib
import json
import sqlite3
import subprocess
import sys
import uuid
from collections.abc import Iterator
from dataclasses import replace
from functools import cache
from pathlib import Path
from typing import Any

import psycopg
import pytest

from streamgauge.core.record import encode_record
from streamgauge.ledger import (
    Inserted,
    LedgerRow,
    LedgerUnavailableError,
    SqliteLedger,
    Total,
    open_ledger,
    sqlite_file,
)
from streamgauge.ledger.postgresql import PostgresqlLedger
from streamgauge.ledger.row import COLUMNS
from streamgauge.ledger.schema import SCHEMA_VERSION, records
from tests.ledger.places import SCHEMES, fresh_url
from tests.ledger.rows import make_row, stream_id
from tests.ledger.statements import each_statement
from tests.metrics.records import make_record, make_usage

ROOT = Path(__file__).parents[2]
# As these versions made it. They were SQLite files; PostgreSQL gets the same tables, since it is converted by the same code.
_START_INDEX = "CREATE INDEX records_by_start ON records ({ifnull}(started_us, 9223372036854775807), stream_id);"
_RESUMED_INDEX = "CREATE INDEX records_legs ON records (resumed_from) WHERE resumed_from IS NOT NULL;"
_TRACE_INDEX = "CREATE INDEX records_by_trace ON records (trace_id) WHERE trace_id IS NOT NULL;"
NAMES_1 = "day TEXT, model TEXT, request_model TEXT, response_model TEXT, upstream TEXT, dialect TEXT, endpoint TEXT,"
NAMES_3 = NAMES_1.replace("upstream TEXT", "tap TEXT, upstream TEXT")
REST = """
        outcome TEXT NOT NULL, finish_reason TEXT, tenant TEXT, credential_id TEXT, service_tier TEXT,
        usage_source TEXT,
"""
LINKS = "request_digest TEXT, response_id TEXT, last_event_id TEXT, resumed_from TEXT, attempt {number},"
TOKENS = "input_tokens {number}, output_tokens {number}, total_tokens {number},"
PARTS = "input_cached_tokens {number}, reasoning_tokens {number},"
KINDS = (
    "input_uncached",
    "input_cached",
    "input_cache_write",
    "input_audio",
    "output_text",
    "reasoning",
    "output_audio",
)
ADDED_5 = (
    "trace_id TEXT, inference_geo TEXT, wait_us {number}, input_cache_write_tokens {number}, "
    "input_cache_write_1h_tokens {number}, audio_input_tokens {number}, audio_output_tokens {number}, "
    + "".join(f"{kind} {{number}}, " for kind in KINDS)
    + "cost_input {number}, cost_output {number}, price_source TEXT, price_date TEXT,"
)
_CREATE = "CREATE TABLE records (stream_id TEXT NOT NULL UNIQUE, started_us {number}, "
SCHEMAS = {
    1: f"{_CREATE} {NAMES_1} {REST} resumed_from TEXT, {TOKENS} record {{bytes}} NOT NULL); {_START_INDEX}",
    2: f"{_CREATE} {NAMES_1} {REST} {LINKS} {TOKENS} record {{bytes}} NOT NULL); {_START_INDEX} {_RESUMED_INDEX}",
    3: f"{_CREATE} {NAMES_3} {REST} {LINKS} {TOKENS} {PARTS} record {{bytes}} NOT NULL); {_START_INDEX} {_RESUMED_INDEX}",
    4: f"{_CREATE} {NAMES_3} {REST} {LINKS} attributes {{json}}, {TOKENS} {PARTS} record {{bytes}} NOT NULL);"
    f" {_START_INDEX} {_RESUMED_INDEX}",
    5: f"{_CREATE} {NAMES_3} {REST} {LINKS} attributes {{json}}, {TOKENS} {PARTS} {ADDED_5} record {{bytes}} NOT NULL);"
    f" {_START_INDEX} {_RESUMED_INDEX} {_TRACE_INDEX} CREATE TABLE audit_runs ({{number_key}}, run {{bytes}} NOT NULL);",
}
TYPES = {
    "sqlite": {"number": "INTEGER", "bytes": "BLOB", "json": "TEXT", "ifnull": "ifnull",
               "number_key": "number INTEGER NOT NULL PRIMARY KEY AUTOINCREMENT"},
    "postgresql": {"number": "BIGINT", "bytes": "BYTEA", "json": "JSONB", "ifnull": "coalesce",
                   "number_key": "number SERIAL NOT NULL PRIMARY KEY"},
}  # fmt: skip

ORIGIN = {
    "request_digest": "d" * 32,
    "response_id": "msg_1",
    "last_event_id": "17",
    "credential_id": "key",
    "outcome": "truncated",
    "usage": make_usage(41, None, source="partial", input_cached_tokens=30),
    "attempt": 1,
    "tap": "httpx",
    "trace_id": "t" * 32,
    "attributes": {"agent": "planner"},
    "host": None,  # no earlier version recorded it
}
RESUMED = {
    **ORIGIN,
    "response_id": None,
    "last_event_id": "40",
    "resumed_from": "17",
    "outcome": "completed",
    "usage": make_usage(None, 20, reasoning_tokens=8),
    "attempt": 2,
}


# Versions 6, 7 and 8 are made from the current one: in PostgreSQL their table had partitions by day already.
ADDED_7 = ("upstream_host", "cost_unknown")
OLD = [*sorted(SCHEMAS), 6, 7, 8]


@pytest.fixture(params=OLD)
def version(request: pytest.FixtureRequest) -> int:
    return int(request.param)


class Database:
    """A database that a test writes to with its own driver."""

    def __init__(self, url: str) -> None:
        self.url = url
        self.kind = url.partition(":")[0]

    def run(self, *statements: str) -> None:
        with self._connection() as connection:
            for statement in statements:
                connection.execute(statement)
            connection.commit()

    def rows(self, query: str) -> list[tuple[Any, ...]]:
        with self._connection() as connection:
            return [tuple(row) for row in connection.execute(query).fetchall()]

    def insert(self, columns: list[str], rows: list[list[Any]]) -> None:
        mark = "?" if self.kind == "sqlite" else "%s"
        insert = f"INSERT INTO records ({', '.join(columns)}) VALUES ({', '.join([mark] * len(columns))})"
        with self._connection() as connection:
            connection.cursor().executemany(insert, rows)
            connection.commit()

    def columns(self) -> list[str]:
        if self.kind == "sqlite":
            return [row[0] for row in self.rows("SELECT name FROM pragma_table_info('records')")]
        table = "attrelid = 'records'::regclass AND attnum > 0 AND NOT attisdropped"
        return [row[0] for row in self.rows(f"SELECT attname::text FROM pg_attribute WHERE {table} ORDER BY attnum")]

    def contents(self) -> tuple[int, list[str], list[tuple[Any, ...]], list[tuple[Any, ...]]]:
        """The version, the columns' names, the indexes, and all values by the columns' names."""
        names = sorted(self.columns())
        indexes = (
            "SELECT name, replace(sql, char(10), '') FROM sqlite_schema WHERE type = 'index' ORDER BY name"
            if self.kind == "sqlite"
            else "SELECT indexname::text, replace(indexdef, schemaname || '.', '') FROM pg_indexes "
            "WHERE schemaname = current_schema() AND tablename = 'records' ORDER BY 1"
        )
        return (
            self.version(),
            names,
            self.rows(indexes),
            self.rows(f"SELECT {', '.join(names)} FROM records ORDER BY stream_id"),
        )

    def to_version(self, version: int) -> str:
        """The statement that says that its tables are of this version."""
        name = "PRAGMA user_version" if self.kind == "sqlite" else "UPDATE ledger_version SET version"
        return f"{name} = {version}"

    def version(self) -> int:
        query = "PRAGMA user_version" if self.kind == "sqlite" else "SELECT version FROM ledger_version"
        return int(self.rows(query)[0][0])

    @contextlib.contextmanager
    def _connection(self) -> Iterator[Any]:
        path = sqlite_file(self.url)
        connection: Any = psycopg.connect(self.url) if path is None else sqlite3.connect(path)
        with contextlib.closing(connection):
            yield connection


def sixth(url: str, *rows: LedgerRow) -> Database:
    database = seventh(url, *rows)
    columns = [f"ALTER TABLE records DROP COLUMN {name}" for name in ADDED_7]
    database.run("DROP INDEX records_reread", *columns, database.to_version(6))
    return database


def eighth(url: str, *rows: LedgerRow) -> Database:
    database = Database(url)
    with open_ledger(url) as ledger:
        ledger.insert(rows)
    by_start = _START_INDEX.format(**TYPES[database.kind])
    database.run("DROP INDEX records_by_start", "DROP INDEX records_unusual", by_start, database.to_version(8))
    return database


def seventh(url: str, *rows: LedgerRow) -> Database:
    database = eighth(url, *rows)
    # Its function in PostgreSQL did not delete from this table.
    function = ["DROP FUNCTION streamgauge_expire"] if database.kind == "postgresql" else []
    database.run("DROP TABLE earlier_costs", *function, database.to_version(7))
    return database


def earlier(version: int, url: str, *rows: LedgerRow) -> Database:
    if version >= 6:
        return {6: sixth, 7: seventh, 8: eighth}[version](url, *rows)
    database = Database(url)
    schema = SCHEMAS[version].format(**TYPES[database.kind])
    statements = [statement for statement in schema.split(";") if statement.strip()]
    if database.kind == "sqlite":
        statements = ["PRAGMA journal_mode = WAL", *statements, f"PRAGMA user_version = {version}"]
    else:
        statements += [
            "CREATE TABLE ledger_version (version integer NOT NULL)",
            f"INSERT INTO ledger_version VALUES ({version})",
        ]
    database.run(*statements)
    columns = database.columns()
    if rows:
        database.insert(columns, [[getattr(row, column, None) for column in columns] for row in rows])
    return database


def changed(row: LedgerRow, record: dict[str, Any]) -> LedgerRow:
    return replace(row, record=json.dumps(record).encode())


@pytest.fixture(params=SCHEMES)
def url(request: pytest.FixtureRequest) -> str:
    return fresh_url(request, request.param)


def test_the_table_has_the_columns_of_a_row_in_their_order() -> None:
    assert tuple(records.c.keys()) == COLUMNS


def test_every_earlier_version_is_tested() -> None:
    assert list(range(1, SCHEMA_VERSION)) == OLD


def test_a_converted_ledger_equals_a_new_one(
    version: int, request: pytest.FixtureRequest, url: str, tmp_path: Path
) -> None:
    rows = [make_row(1, **ORIGIN), make_row(2, **RESUMED), make_row(3, started_at=None, tap=None, host=None)]
    old = earlier(version, url, *rows)
    open_ledger(url).close()
    converted = old.contents()
    (tmp_path / "new").mkdir()
    if old.kind == "sqlite":
        new = Database(f"sqlite:///{tmp_path}/new/ledger.sqlite")
    else:
        new = Database(request.getfixturevalue("postgres").fresh(f"new_{uuid.uuid4().hex}"))
    with open_ledger(new.url) as ledger:
        ledger.insert(rows)
    made = new.contents()
    assert converted[0] == made[0] == SCHEMA_VERSION
    assert converted[1] == made[1]
    assert [name for name, _ in converted[2]] == [name for name, _ in made[2]]
    assert {sql for name, sql in converted[2] if name.startswith("records_") and name != "records_stream_id_key"} == {
        sql for name, sql in made[2] if name.startswith("records_") and name != "records_stream_id_key"
    }
    assert converted[3] == made[3]


def test_indexes_of_a_large_ledger_are_sorted_in_files(tmp_path: Path) -> None:
    url = f"sqlite:///{tmp_path}/ledger.sqlite"
    eighth(url, make_row(1))
    places = []

    def look(connection: Any, cursor: Any, sql: str, parameters: Any) -> None:
        if "CREATE INDEX" in sql:
            places.append(_temp_store(connection))

    with each_statement(look), open_ledger(url) as ledger:
        assert set(places) == {1}  # files
        look_again: list[int] = []
        with each_statement(lambda connection, *_: look_again.append(_temp_store(connection))):
            ledger.totals(["day"])
        assert set(look_again) == {2}  # memory


def _temp_store(connection: Any) -> int:
    return int(connection.connection.dbapi_connection.execute("PRAGMA temp_store").fetchone()[0])


def test_resumed_streams_of_a_converted_ledger_are_known(version: int, url: str) -> None:
    earlier(version, url, make_row(1, **ORIGIN), make_row(2, **RESUMED))
    with open_ledger(url) as ledger:
        (total,) = ledger.totals(["day"])
        assert total == Total(("2026-03-01",), 2, 1, 41, 20, 61, 30, 8)
        assert total.kinds == {"input_uncached": 11, "input_cached": 30, "output_text": 12, "reasoning": 8}
        assert (total.cost, total.longest_wait_us) == (None, 200_000)
        assert [total.keys for total in ledger.totals(["tap"])] == [("httpx",)]
        assert [total.keys for total in ledger.totals(["trace_id"])] == [("t" * 32,)]
        assert [total.keys for total in ledger.totals(["request_digest", "attempt"])] == [("d" * 32, 1), ("d" * 32, 2)]
        assert ledger.insert([make_row(1, **ORIGIN), make_row(4)]) == Inserted(new=1, same=1)


@cache
def rows_of_several_pages() -> list[LedgerRow]:
    return [make_row(number, tenant=f"t{number}") for number in range(2_100)]


def test_several_pages_keep_their_order_and_their_bytes(version: int, url: str) -> None:
    rows = rows_of_several_pages()
    earlier(version, url, *rows)
    with open_ledger(url) as ledger:
        assert list(ledger.query()) == [row.record for row in rows]


def test_an_empty_ledger_of_an_earlier_version(version: int, url: str) -> None:
    earlier(version, url)
    with open_ledger(url) as ledger:
        assert ledger.totals(["day"]) == []
        assert ledger.insert([make_row(1)]) == Inserted(new=1)


def test_values_of_another_type_that_earlier_versions_stored_are_null(version: int, url: str) -> None:
    """Version 1 checked none of these; version 2 checked what it added, and neither the tap nor the further tokens; version
    3 checked all but the attributes, version 4 all but times, the trace and the tokens that version 5 added.
    """
    if version >= 5:
        return  # it checked all of them
    members = json.loads(encode_record(make_record(stream_id=stream_id(1))))
    odd = {
        **members,
        "response_id": 5,
        "last_event_id": ["x"],
        "attempt": True,
        "request_digest": {"a": 1},
        "tap": 7,
        "trace_id": 8,
        "attributes": {"agent": 7, "session": None},
        "usage": {
            **members["usage"],
            "input_cached_tokens": "30",
            "reasoning_tokens": 2**63,
            "input_cache_write_tokens": -1,
            "raw": {"inference_geo": 5},
        },
        "timing": {"first_token_s": "soon", "end_s": -1},
        "cost": None,
    }
    row = make_row(1)
    earlier(version, url, changed(row, odd))
    with open_ledger(url) as ledger:
        by = ["request_digest", "response_id", "attempt", "tap", "trace_id"]
        tap = row.tap if version >= 3 else None
        (total,) = ledger.totals(by)
        assert total == Total((None, None, None, tap, None), 1, 1, 10, 5, 15, None, None)
        assert (total.kinds, total.longest_wait_us) == ({"input_uncached": 10, "output_text": 5}, None)
        assert not ledger.has_attribute("agent")


def test_a_usage_that_is_none_is_converted(version: int, url: str) -> None:
    usages: tuple[object, ...] = (None, [], "many", {})
    odd = [
        changed(row, {**json.loads(row.record), "usage": usage})
        for row, usage in zip(map(make_row, range(4)), usages, strict=True)
    ]
    earlier(version, url, *odd)
    with open_ledger(url) as ledger:
        assert list(ledger.query()) == [row.record for row in odd]


def test_one_that_is_broken_off_leaves_the_ledger_as_it_was(
    version: int, url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    database = earlier(version, url, *rows_of_several_pages()[:1_500])
    before = database.contents()
    with monkeypatch.context() as patched:
        for kind in (SqliteLedger, PostgresqlLedger):
            patched.setattr(kind, "_set_version", lambda *_: 1 / 0)
        with pytest.raises(ZeroDivisionError):
            open_ledger(url)
    assert database.contents() == before
    with open_ledger(url) as ledger:
        assert len(list(ledger.query())) == 1_500


@pytest.mark.parametrize("other", [SCHEMA_VERSION + 1, 99])
def test_a_later_version_is_refused_and_left_alone(url: str, other: int) -> None:
    open_ledger(url).close()
    database = Database(url)
    database.run(
        f"PRAGMA user_version = {other}"
        if database.kind == "sqlite"
        else f"UPDATE ledger_version SET version = {other}"
    )
    before = database.contents()
    with pytest.raises(LedgerUnavailableError, match="a later version of Streamgauge created"):
        open_ledger(url)
    assert database.contents() == before


@pytest.mark.slow
def test_processes_that_open_it_at_once_convert_it_once(version: int, url: str) -> None:
    if version != OLD[-1]:
        return  # the lock is the same for all versions
    database = earlier(version, url, *rows_of_several_pages()[:500])
    program = "import sys; from streamgauge.ledger import open_ledger; open_ledger(sys.argv[1])"
    openers = [subprocess.Popen([sys.executable, "-c", program, url], cwd=ROOT) for _ in range(3)]
    assert [opener.wait(100) for opener in openers] == [0, 0, 0]
    assert len(database.contents()[3]) == 500


@pytest.mark.slow
def test_processes_that_make_it_at_once_make_it_once(url: str) -> None:
    program = "import sys; from streamgauge.ledger import open_ledger; open_ledger(sys.argv[1])"
    openers = [subprocess.Popen([sys.executable, "-c", program, url], cwd=ROOT) for _ in range(3)]
    assert [opener.wait(100) for opener in openers] == [0, 0, 0]
    assert Database(url).version() == SCHEMA_VERSION


def test_a_table_of_another_program_is_refused(url: str) -> None:
    database = Database(url)
    database.run("CREATE TABLE records (id integer)")
    with pytest.raises(LedgerUnavailableError, match=r"holds other data than a ledger|is no ledger's"):
        open_ledger(url)
    assert database.columns() == ["id"]


def test_a_database_without_a_ledger_is_not_changed_for_a_reader(url: str) -> None:
    database = Database(url)
    if database.kind == "sqlite":
        return  # test_sqlite.py
    with pytest.raises(LedgerUnavailableError, match="has no tables of a ledger"):
        open_ledger(url, create=False)
    assert database.rows("SELECT tablename FROM pg_tables WHERE schemaname = current_schema()") == []


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
