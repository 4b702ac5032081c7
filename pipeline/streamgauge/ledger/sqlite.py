"""The ledger as one SQLite file: for `up`, and for workers that share a disk.

Writers of several processes wait for each other (WAL, a busy timeout). Readers never wait, and never block a writer. A
commit reaches the disk before `insert` returns, since a record that is in the ledger is not sent again.
"""

import os
import sqlite3
import time
from collections.abc import Iterator, Sequence
from contextlib import closing, contextmanager
from pathlib import Path
from threading import Lock
from typing import Self

from streamgauge.ledger.contract import (
    ALL_RECORDS,
    KEYS,
    Filter,
    Inserted,
    LedgerUnavailableError,
    Total,
    UnknownKeyError,
    UnsupportedLedgerError,
)
from streamgauge.ledger.row import LedgerRow
from streamgauge.ledger.sqlite_query import has_attribute, records_of
from streamgauge.ledger.sqlite_schema import (
    COLUMNS,
    SCHEMA_VERSION,
    bring_up_to_date,
    is_of_another_program,
    version_of,
)
from streamgauge.ledger.sqlite_totals import totals_of

# A writer waits this long for another one's transaction (ms): each takes a few ms, so after a minute the disk is stuck.
BUSY_TIMEOUT_MS = 60_000

_INSERT = f"""
    INSERT INTO records ({", ".join(COLUMNS)}) VALUES ({", ".join("?" * len(COLUMNS))})
    ON CONFLICT (stream_id) DO NOTHING
"""
_SAME = "SELECT substr(record, 1, ?) = ? FROM records WHERE stream_id = ?"


class SqliteLedger:
    """A ledger in the file `path`, which is made with mode 0600 if it is missing and `create` is true.

    Raises LedgerUnavailableError if it cannot be opened.
    """

    def __init__(self, path: Path, *, create: bool = True) -> None:
        self._path = path
        self._lock = Lock()
        with self._translated("opened"):
            _touch(path, create)
            self._writer = self._connect()
            try:
                self._prepare()
            except BaseException:
                self._writer.close()
                raise

    @staticmethod
    def path_of(rest: str) -> Path:
        """The file of a URL `sqlite://REST`: /FILE is relative, //FILE absolute. Raises UnsupportedLedgerError otherwise."""
        if not rest.startswith("/") or rest.endswith("/"):
            raise UnsupportedLedgerError("an SQLite ledger is sqlite:///FILE, or sqlite:////FILE for an absolute path")
        return Path(rest[1:])

    def insert(self, rows: Sequence[LedgerRow]) -> Inserted:
        """See Ledger.insert."""
        with self._lock, self._translated("written"), _transaction(self._writer) as database:
            found = [_insert(database, row) for row in rows]
        places = tuple(place for place, what in enumerate(found) if what == "new")
        return Inserted(len(places), found.count("same"), found.count("different"), places)

    def query(
        self, limit: int | None = None, chosen: Filter = ALL_RECORDS, *, newest_first: bool = False
    ) -> Iterator[bytes]:
        """See Ledger.query."""
        with self._translated("read"), closing(self._connect()) as database:
            _check_keys(database, [key for key, _ in chosen.where])
            yield from records_of(database, chosen, limit, newest_first)

    def totals(self, by: Sequence[str], chosen: Filter = ALL_RECORDS, *, newest_first: bool = False) -> list[Total]:
        """See Ledger.totals."""
        if not by:
            raise UnknownKeyError(f"group totals by one or more of {', '.join(KEYS)}, or attributes")
        with self._translated("read"), closing(self._connect()) as database:
            _check_keys(database, [*by, *(key for key, _ in chosen.where)])
            return totals_of(database, by, chosen, newest_first)

    def has_attribute(self, name: str) -> bool:
        """See Ledger.has_attribute."""
        with self._translated("read"), closing(self._connect()) as database:
            return has_attribute(database, name)

    def close(self) -> None:
        """Close the file."""
        with self._lock:
            self._writer.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def _connect(self) -> sqlite3.Connection:
        # Several threads use the writer's connection, under the lock. This module begins and ends transactions itself.
        database = sqlite3.connect(self._path, isolation_level=None, check_same_thread=False)
        try:
            database.execute(f"PRAGMA busy_timeout = {BUSY_TIMEOUT_MS}")
            database.execute("PRAGMA synchronous = FULL")
        except BaseException:
            database.close()
            raise
        return database

    def _prepare(self) -> None:
        if is_of_another_program(self._writer):
            raise LedgerUnavailableError(f"the file {self._path} holds other data than a ledger")
        _use_wal(self._writer)
        if version_of(self._writer) < SCHEMA_VERSION:
            with _transaction(self._writer) as database:
                bring_up_to_date(database)  # it reads the version again: another process may have done it
        if version_of(self._writer) > SCHEMA_VERSION:
            raise LedgerUnavailableError(f"a later version of Streamgauge created the ledger {self._path}")

    @contextmanager
    def _translated(self, what: str) -> Iterator[None]:
        try:
            yield
        except (sqlite3.Error, OSError) as error:
            raise LedgerUnavailableError(
                f"the ledger {self._path} cannot be {what}: {error.strerror if isinstance(error, OSError) else error}"
            ) from error


def _check_keys(database: sqlite3.Connection, keys: Sequence[str]) -> None:
    """Raise UnknownKeyError for a name that is neither in KEYS nor an attribute of a record: names become a part of the SQL
    text, and an attribute that no record has is a typing error.
    """
    for key in keys:
        if key not in KEYS and not has_attribute(database, key):
            raise UnknownKeyError(f"{key[:64]} is not a key: use {', '.join(KEYS)}, or an attribute that records have")


def _touch(path: Path, create: bool) -> None:
    """Make the file with mode 0600: SQLite gives its log and index files the same."""
    if create:
        os.close(os.open(path, os.O_RDWR | os.O_CREAT, 0o600))
    else:
        path.stat()


def _use_wal(database: sqlite3.Connection) -> None:
    """Turn the WAL on. SQLite does not apply the busy timeout here, so this function retries."""
    deadline = time.monotonic() + BUSY_TIMEOUT_MS / 1000
    while True:
        try:
            database.execute("PRAGMA journal_mode = WAL")
            return
        except sqlite3.OperationalError as error:
            if error.sqlite_errorcode & 0xFF != sqlite3.SQLITE_BUSY or time.monotonic() > deadline:
                raise
            time.sleep(0.01)


@contextmanager
def _transaction(database: sqlite3.Connection) -> Iterator[sqlite3.Connection]:
    database.execute("BEGIN IMMEDIATE")
    try:
        yield database
        database.execute("COMMIT")
    except BaseException:
        database.rollback()
        raise


def _insert(database: sqlite3.Connection, row: LedgerRow) -> str:
    values = [getattr(row, column) for column in COLUMNS]
    if database.execute(_INSERT, values).rowcount:
        return "new"
    own = row.own_bytes  # the cost is added by the ledger, and is not compared
    same = database.execute(_SAME, (len(own), own, row.stream_id)).fetchone()[0]
    return "same" if same else "different"
