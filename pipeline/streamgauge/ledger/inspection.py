"""Inspects a ledger without changing it: `open_ledger` would make its tables, or convert tables of an earlier version."""

import contextlib
import dataclasses
import sqlite3
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from streamgauge.ledger.contract import LedgerUnavailableError, UnsupportedLedgerError
from streamgauge.ledger.urls import POSTGRESQL, sqlite_file

# How long a database may take to answer (seconds).
_TIMEOUT_S = 5

_TABLES = """
SELECT relname::text, has_table_privilege(oid, 'INSERT') AND has_table_privilege(oid, 'SELECT')
FROM pg_catalog.pg_class WHERE relname IN ('ledger_version', 'records') AND pg_table_is_visible(oid)
"""


# A writer makes the partitions of new days. Null in tables of an earlier version, which have none.
_MAY_MAKE_DAYS = """
SELECT coalesce(has_function_privilege(to_regprocedure('streamgauge_make_day(date)'), 'EXECUTE'), true)
"""


@dataclass(frozen=True)
class LedgerState:
    """The state of a ledger.

    `version`: of the tables, 0 if there are none yet. `writable`: whether this process may store records. `tls_warning`: a
    sentence if the connection to the database is less safe than TLS with a verified server.
    """

    version: int
    writable: bool
    tls_warning: str = ""


def inspect_ledger(url: str) -> LedgerState | None:
    """The state of the ledger at `url`; None if its file does not exist.

    Raises LedgerUnavailableError if it cannot be read, UnsupportedLedgerError for a URL of another scheme. Neither error
    repeats the URL.
    """
    path = sqlite_file(url)
    if path is not None:
        return _sqlite(path) if path.exists() else None
    if not url.startswith(f"{POSTGRESQL}://"):
        raise UnsupportedLedgerError("this ledger URL is not supported")
    return _postgresql(url)


def _sqlite(path: Path) -> LedgerState:
    try:
        uri = f"{path.absolute().as_uri()}?mode=rw"  # creates no file
        with contextlib.closing(sqlite3.connect(uri, uri=True, timeout=_TIMEOUT_S, isolation_level=None)) as database:
            version = int(database.execute("PRAGMA user_version").fetchone()[0])
            others = database.execute("SELECT count(*) FROM sqlite_master").fetchone()[0]
            if others and not version:
                raise LedgerUnavailableError(f"the file {path} holds other data than a ledger")
            return LedgerState(version, _takes_writers(database))
    except (sqlite3.Error, UnicodeDecodeError) as error:  # SQLite quotes a damaged name in the text of an error
        raise LedgerUnavailableError(f"the ledger {path} cannot be read ({error})") from None


def _takes_writers(database: sqlite3.Connection) -> bool:
    """Whether a transaction for writes can begin; it ends at once. A writer of another process counts as a yes."""
    try:
        database.execute("BEGIN IMMEDIATE")
    except sqlite3.OperationalError as error:
        return error.sqlite_errorcode & 0xFF == sqlite3.SQLITE_BUSY
    database.execute("ROLLBACK")
    return True


def _postgresql(url: str) -> LedgerState:
    try:
        import psycopg  # it takes time to import, and SQLite does not need it

        from streamgauge.ledger.postgresql_tls import tls_of
    except ImportError as error:
        raise LedgerUnavailableError(f"PostgreSQL's driver cannot be loaded ({error})") from None
    try:
        known = psycopg.conninfo.conninfo_to_dict(url)
    except psycopg.Error:
        raise UnsupportedLedgerError("the ledger's URL is not one that PostgreSQL accepts") from None
    tls = tls_of(known)
    options: dict[str, Any] = {"connect_timeout": known.get("connect_timeout", _TIMEOUT_S), **tls.options}
    try:
        with psycopg.connect(url, **options) as connection:
            connection.read_only = True
            return dataclasses.replace(_state_of(connection), tls_warning=tls.warning)
    except psycopg.Error as error:
        sentence = _first_line(error)
        raise LedgerUnavailableError(
            f"the ledger in PostgreSQL cannot be opened ({sentence}{tls.hint(sentence)})"
        ) from None


def _state_of(connection: Any) -> LedgerState:
    def scalar(query: str) -> Any:
        return connection.execute(query).fetchone()[0]

    tables = dict(connection.execute(_TABLES).fetchall())
    is_standby = scalar("SELECT pg_is_in_recovery()")
    if "ledger_version" not in tables:
        if tables:
            raise LedgerUnavailableError("the database has a table `records` that is no ledger's")
        return LedgerState(0, scalar("SELECT has_schema_privilege(current_schema(), 'CREATE')") and not is_standby)
    writable = tables.get("records", False) and scalar(_MAY_MAKE_DAYS) and not is_standby
    return LedgerState(scalar("SELECT version FROM ledger_version"), writable)


def _first_line(error: Exception) -> str:
    """The server's first sentence: the others may quote values."""
    return (str(error).strip().splitlines() or [type(error).__name__])[0]
