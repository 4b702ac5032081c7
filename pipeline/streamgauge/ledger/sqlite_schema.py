"""The ledger's file: its columns, and how a file of an earlier version becomes one of this version, in place.

Version 2 has what links a leg to the stream that it continues, and retries of one request to each other; version 1 did not.
"""

from collections.abc import Iterable, Iterator, Sequence
from typing import Any, Protocol

from streamgauge.core.json_text import parse
from streamgauge.core.labels import whole_number

SCHEMA_VERSION = 2

# Records carried over at a time (rows): about 2 MB, so that memory does not grow with the ledger.
PAGE_ROWS = 1_000

# Sorts what has no start behind all that has one.
NO_START = 2**63 - 1

COLUMNS = (
    "stream_id", "started_us", "day", "model", "request_model", "response_model", "upstream", "dialect", "endpoint",
    "outcome", "finish_reason", "tenant", "credential_id", "service_tier", "usage_source",
    "request_digest", "response_id", "last_event_id", "resumed_from", "attempt",
    "input_tokens", "output_tokens", "total_tokens", "record",
)  # fmt: skip

# What version 2 added, to be read from the records' own JSON.
_ADDED = ("request_digest", "response_id", "last_event_id", "attempt")
_KEPT = tuple(column for column in COLUMNS if column not in _ADDED)

_CREATE = (
    """
    CREATE TABLE records (
        stream_id TEXT NOT NULL UNIQUE,
        started_us INTEGER,
        day TEXT, model TEXT, request_model TEXT, response_model TEXT, upstream TEXT, dialect TEXT, endpoint TEXT,
        outcome TEXT NOT NULL, finish_reason TEXT, tenant TEXT, credential_id TEXT, service_tier TEXT,
        usage_source TEXT,
        request_digest TEXT, response_id TEXT, last_event_id TEXT, resumed_from TEXT, attempt INTEGER,
        input_tokens INTEGER, output_tokens INTEGER, total_tokens INTEGER,
        record BLOB NOT NULL
    )
    """,
    f"CREATE INDEX records_by_start ON records (ifnull(started_us, {NO_START}), stream_id)",
    # Legs are few: a ledger without any is told in no time, and all others need no index.
    "CREATE INDEX records_legs ON records (resumed_from) WHERE resumed_from IS NOT NULL",
)
_NOW_VERSION_2 = f"PRAGMA user_version = {SCHEMA_VERSION}"
_SET_ASIDE = ("DROP INDEX records_by_start", "ALTER TABLE records RENAME TO records_of_version_1")
_PAGE = f"SELECT rowid, {', '.join(_KEPT)} FROM records_of_version_1 WHERE rowid > ? ORDER BY rowid LIMIT {PAGE_ROWS}"
_CARRY_OVER = f"""
    INSERT INTO records ({", ".join((*_KEPT, *_ADDED))}) VALUES ({", ".join("?" * len(COLUMNS))})
"""


class Rows(Protocol):
    """What a statement gives."""

    def __iter__(self) -> Iterator[Any]: ...

    def fetchall(self) -> list[Any]: ...

    def fetchone(self) -> Any: ...


class Database(Protocol):
    """A connection, inside of a transaction."""

    def execute(self, sql: str, parameters: Sequence[Any] = ..., /) -> Rows: ...

    def executemany(self, sql: str, parameters: Iterable[Sequence[Any]], /) -> object: ...


def version_of(database: Database) -> int:
    """The version of a ledger's file; 0 for an empty one."""
    return int(database.execute("PRAGMA user_version").fetchone()[0])


def bring_up_to_date(database: Database) -> None:
    """Make the tables of an empty file, or carry over those of version 1. Leaves any other version as it is."""
    version = version_of(database)
    if version == 0:
        _run(database, _CREATE)
    elif version == 1:
        _run(database, (*_SET_ASIDE, *_CREATE))
        for page in _pages(database):
            database.executemany(_CARRY_OVER, ((*row, *_added(row[-1])) for row in page))
        database.execute("DROP TABLE records_of_version_1")
    else:
        return
    database.execute(_NOW_VERSION_2)


def _run(database: Database, statements: Sequence[str]) -> None:
    for statement in statements:
        database.execute(statement)


def _pages(database: Database) -> Iterator[list[tuple[Any, ...]]]:
    last = -NO_START
    while rows := database.execute(_PAGE, (last,)).fetchall():
        last = rows[-1][0]
        yield [row[1:] for row in rows]


def _added(record: bytes) -> list[str | int | None]:
    """What version 2 added, of a stored record; None for what is not of its type, since version 1 did not look."""
    members = parse(record)
    known = members if isinstance(members, dict) else {}
    *texts, attempt = (known.get(name) for name in _ADDED)
    return [*map(_text, texts), whole_number(attempt)]


def _text(value: object) -> str | None:
    return value if isinstance(value, str) and value.isprintable() else None
