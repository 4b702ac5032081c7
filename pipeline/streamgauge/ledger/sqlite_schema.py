"""The ledger's file: its columns, and the conversion of a file of an earlier version, in place.

Version 2 added the columns that link a resumed stream to its origin, and the retries of one request to each other. Version
3 added the tap, and the tokens that are part of input or output. Version 4 added the attributes.
"""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any, Protocol

from streamgauge.core.formats.json_text import parse
from streamgauge.ledger.row import MAX_ATTEMPT, MAX_TOKENS, attributes_column

SCHEMA_VERSION = 4

# Records that are converted at a time (rows): about 2 MB, so that memory does not grow with the ledger.
PAGE_ROWS = 1_000

# Stands for a missing start: it sorts after every start.
NO_START = 2**63 - 1

COLUMNS = (
    "stream_id", "started_us", "day", "model", "request_model", "response_model", "tap", "upstream", "dialect",
    "endpoint", "outcome", "finish_reason", "tenant", "credential_id", "service_tier", "usage_source",
    "request_digest", "response_id", "last_event_id", "resumed_from", "attempt", "attributes",
    "input_tokens", "output_tokens", "total_tokens", "input_cached_tokens", "reasoning_tokens", "record",
)  # fmt: skip

# The columns that each version added. A file of an earlier version gets them from the records' own JSON.
_ADDED: Mapping[int, tuple[str, ...]] = {
    2: ("request_digest", "response_id", "last_event_id", "attempt"),
    3: ("tap", "input_cached_tokens", "reasoning_tokens"),
    4: ("attributes",),
}
# Added columns that hold a number: the record's member that contains it (None: the record itself), and its maximum.
_NUMBERS: Mapping[str, tuple[str | None, int]] = {
    "attempt": (None, MAX_ATTEMPT),
    "input_cached_tokens": ("usage", MAX_TOKENS),
    "reasoning_tokens": ("usage", MAX_TOKENS),
}

_CREATE = (
    """
    CREATE TABLE records (
        stream_id TEXT NOT NULL UNIQUE,
        started_us INTEGER,
        day TEXT, model TEXT, request_model TEXT, response_model TEXT, tap TEXT, upstream TEXT, dialect TEXT,
        endpoint TEXT, outcome TEXT NOT NULL, finish_reason TEXT, tenant TEXT, credential_id TEXT, service_tier TEXT,
        usage_source TEXT,
        request_digest TEXT, response_id TEXT, last_event_id TEXT, resumed_from TEXT, attempt INTEGER, attributes TEXT,
        input_tokens INTEGER, output_tokens INTEGER, total_tokens INTEGER,
        input_cached_tokens INTEGER, reasoning_tokens INTEGER,
        record BLOB NOT NULL
    )
    """,
    f"CREATE INDEX records_by_start ON records (ifnull(started_us, {NO_START}), stream_id)",
    # A partial index: few records are resumed streams, so it is small, and shows at once whether there are any. Its name is
    # from version 2, which called resumed streams legs.
    "CREATE INDEX records_legs ON records (resumed_from) WHERE resumed_from IS NOT NULL",
)
_NOW_CURRENT = f"PRAGMA user_version = {SCHEMA_VERSION}"
_HAS_OTHER_CONTENT = (
    "SELECT EXISTS (SELECT 1 FROM sqlite_master) AND (SELECT user_version FROM pragma_user_version) = 0"
)
_SET_ASIDE = (
    "DROP INDEX records_by_start",
    "DROP INDEX IF EXISTS records_legs",  # version 1 has none
    "ALTER TABLE records RENAME TO records_before",
)


class Rows(Protocol):
    """The result rows of a statement."""

    def __iter__(self) -> Iterator[Any]: ...

    def fetchall(self) -> list[Any]:
        """All remaining rows, each a tuple."""

    def fetchone(self) -> Any:
        """The next row, a tuple; None after the last one."""


class Database(Protocol):
    """A connection inside a transaction."""

    def execute(self, sql: str, parameters: Sequence[Any] = ..., /) -> Rows:
        """Run one statement. Raises sqlite3.Error."""

    def executemany(self, sql: str, parameters: Iterable[Sequence[Any]], /) -> object:
        """Run one statement for each of several tuples of parameters. Raises sqlite3.Error."""


def version_of(database: Database) -> int:
    """The version of a ledger's file; 0 for an empty one."""
    return int(database.execute("PRAGMA user_version").fetchone()[0])


def is_of_another_program(database: Database) -> bool:
    """Whether a file has content, and not that of a ledger."""
    # One statement, because another process may make the tables and set the version meanwhile.
    return bool(database.execute(_HAS_OTHER_CONTENT).fetchone()[0])


def bring_up_to_date(database: Database) -> None:
    """Make the tables of an empty file, or convert those of an earlier version. Leave any other file as it is."""
    version = version_of(database)
    if version == 0:
        _run(database, _CREATE)
    elif 0 < version < SCHEMA_VERSION:
        _carry_over(database, [name for later in _ADDED if later > version for name in _ADDED[later]])
    else:
        return
    database.execute(_NOW_CURRENT)


def _run(database: Database, statements: Sequence[str]) -> None:
    for statement in statements:
        database.execute(statement)


def _carry_over(database: Database, added: Sequence[str]) -> None:
    """Move the records to a new table, which also has the columns `added`."""
    kept = [column for column in COLUMNS if column not in added]
    insert = f"INSERT INTO records ({', '.join((*kept, *added))}) VALUES ({', '.join('?' * len(COLUMNS))})"
    _run(database, (*_SET_ASIDE, *_CREATE))
    for page in _pages(database, kept):
        database.executemany(insert, ((*row, *_values(row[-1], added)) for row in page))
    database.execute("DROP TABLE records_before")


def _pages(database: Database, columns: Sequence[str]) -> Iterator[list[tuple[Any, ...]]]:
    query = f"SELECT rowid, {', '.join(columns)} FROM records_before WHERE rowid > ? ORDER BY rowid LIMIT {PAGE_ROWS}"
    last = -NO_START
    while rows := database.execute(query, (last,)).fetchall():
        last = rows[-1][0]
        yield [row[1:] for row in rows]


def _values(record: bytes, columns: Sequence[str]) -> list[str | int | None]:
    """The values of the added columns, from a stored record.

    A value of another type becomes None: earlier versions did not check it.
    """
    members = parse(record)
    known = members if isinstance(members, dict) else {}
    return [_value(known, name) for name in columns]


def _value(members: Mapping[str, object], name: str) -> str | int | None:
    if name == "attributes":
        return _attributes(members.get(name))
    return _number(members, name) if name in _NUMBERS else _text(members.get(name))


def _attributes(value: object) -> str | None:
    known = value if isinstance(value, dict) else {}
    return attributes_column({name: text for name, text in known.items() if isinstance(text, str)})


def _number(members: Mapping[str, object], name: str) -> int | None:
    parent, largest = _NUMBERS[name]
    inside = members if parent is None else members.get(parent)
    value = inside.get(name) if isinstance(inside, dict) else None
    return value if isinstance(value, int) and not isinstance(value, bool) and 0 <= value <= largest else None


def _text(value: object) -> str | None:
    return value if isinstance(value, str) and value.isprintable() else None
