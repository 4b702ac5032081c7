"""The ledger as one SQLite file: for `up`, and for workers that share a disk.

Writers of several processes wait for each other (WAL, a busy timeout). Readers never wait, and never block a writer.
"""

import os
import sqlite3
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from sqlalchemy import Connection, QueuePool, create_engine
from sqlalchemy.dialects.sqlite import insert

from streamgauge.ledger.contract import LedgerUnavailableError, Pricing
from streamgauge.ledger.row import COLUMNS
from streamgauge.ledger.schema import SCHEMA_VERSION, records
from streamgauge.ledger.store import SqlLedger
from streamgauge.ledger.urls import sqlite_path

# A writer waits this long for another one's transaction (ms): each takes a few ms, so after a minute the disk is stuck.
BUSY_TIMEOUT_MS = 60_000

_HAS_OTHER_CONTENT = (
    "SELECT EXISTS (SELECT 1 FROM sqlite_master) AND (SELECT user_version FROM pragma_user_version) = 0"
)


class SqliteLedger(SqlLedger):
    """A ledger in the file `path`, which is made with mode 0600 if it is missing and `create` is true. `most_bytes`: the
    largest size of the file; if it is larger already, it does not grow.

    Raises LedgerUnavailableError if it cannot be opened.
    """

    path_of = staticmethod(sqlite_path)

    def __init__(
        self, path: Path, *, create: bool = True, prices: Pricing | None = None, most_bytes: int | None = None
    ) -> None:
        # This module begins transactions itself: Python's driver would begin them late, and never as a writer's.
        engine = create_engine(
            "sqlite+pysqlite://",
            creator=lambda: _connect(path, most_bytes),
            poolclass=QueuePool,
            pool_size=2,
            max_overflow=-1,
            json_serializer=str,
            json_deserializer=str,
            hide_parameters=True,
        )
        super().__init__(engine, f"the ledger {path}", prices)
        self._path = path
        # Its parameters are in the order of the columns.
        ignoring = insert(records).values(dict.fromkeys(COLUMNS)).on_conflict_do_nothing(index_elements=["stream_id"])
        self._insert = str(ignoring.compile(engine))
        with self._translated("opened"):
            _touch(path, create)
            try:
                self._open()
            except BaseException:
                engine.dispose()
                raise

    def _open(self) -> None:
        with self._reading() as connection:
            self._version(connection)  # before a byte of another program's file is changed
            try:
                _use_wal(connection)
            except (sqlite3.Error, UnicodeDecodeError) as error:  # this statement does not pass SQLAlchemy
                raise LedgerUnavailableError(f"{self._name} cannot be opened: {error}") from error
        self._prepare()
        self._engine.dispose()  # a connection that made tables sorts in files

    def _bring_up_to_date(self, connection: Connection) -> None:
        # SQLite sorts the entries of a new index, some 350 bytes a record: in files of TMPDIR, else in memory.
        connection.exec_driver_sql("PRAGMA temp_store = FILE")
        super()._bring_up_to_date(connection)

    @contextmanager
    def _writing(self) -> Iterator[Connection]:
        with self._engine.connect() as connection:
            connection.exec_driver_sql("BEGIN IMMEDIATE")
            yield connection
            connection.commit()

    @contextmanager
    def _snapshot(self) -> Iterator[Connection]:
        with self._engine.connect() as connection:
            connection.exec_driver_sql("BEGIN")
            yield connection
            connection.rollback()

    def _version(self, connection: Connection) -> int:
        # One statement, because another process may make the tables and set the version meanwhile.
        if connection.exec_driver_sql(_HAS_OTHER_CONTENT).scalar_one():
            raise LedgerUnavailableError(f"the file {self._path} holds other data than a ledger")
        return int(connection.exec_driver_sql("PRAGMA user_version").scalar_one())

    def _set_version(self, connection: Connection) -> None:
        connection.exec_driver_sql(f"PRAGMA user_version = {SCHEMA_VERSION}")

    def _cause(self, error: BaseException) -> str:
        if isinstance(error, sqlite3.Error) and getattr(error, "sqlite_errorcode", None) == sqlite3.SQLITE_FULL:
            return "it has its largest size (--ledger-bytes), or its disk is full"
        return str(error.strerror) if isinstance(error, OSError) else str(error)

    def _insert_new(self, connection: Connection, rows: Mapping[str, tuple[Any, ...]]) -> set[str]:
        """All rows are inserted; if some were there already, all of that is undone, and only the others are inserted.

        No other writer comes between the statements. RETURNING, or SQLAlchemy's own handling of parameters, would take
        longer than SQLite itself.
        """
        if connection.exec_driver_sql(self._insert, list(rows.values())).rowcount == len(rows):
            return set(rows)
        connection.exec_driver_sql("ROLLBACK")
        connection.exec_driver_sql("BEGIN IMMEDIATE")
        new = rows.keys() - self._stored(connection, list(rows)).keys()
        if new:
            connection.exec_driver_sql(self._insert, [row for name, row in rows.items() if name in new])
        return new


def _connect(path: Path, most_bytes: int | None) -> sqlite3.Connection:
    database = sqlite3.connect(path, isolation_level=None, check_same_thread=False)
    try:
        database.execute(f"PRAGMA busy_timeout = {BUSY_TIMEOUT_MS}")
        database.execute("PRAGMA synchronous = FULL")
        database.execute("PRAGMA temp_store = MEMORY")
        if most_bytes is not None:
            (page_bytes,) = database.execute("PRAGMA page_size").fetchone()
            database.execute(f"PRAGMA max_page_count = {max(most_bytes // page_bytes, 1)}")
    except BaseException:
        database.close()
        raise
    return database


def _touch(path: Path, create: bool) -> None:
    """Make the file with mode 0600: SQLite gives its log and index files the same."""
    if create:
        os.close(os.open(path, os.O_RDWR | os.O_CREAT, 0o600))
    else:
        path.stat()


def _use_wal(connection: Connection) -> None:
    """Turn the WAL on. SQLite does not apply the busy timeout here, so this function retries."""
    database: Any = connection.connection.dbapi_connection
    deadline = time.monotonic() + BUSY_TIMEOUT_MS / 1000
    while True:
        try:
            database.execute("PRAGMA journal_mode = WAL").close()
            return
        except sqlite3.OperationalError as error:
            if error.sqlite_errorcode & 0xFF != sqlite3.SQLITE_BUSY or time.monotonic() > deadline:
                raise
            time.sleep(0.01)
