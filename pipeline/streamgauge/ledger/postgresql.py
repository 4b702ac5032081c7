"""The ledger in a PostgreSQL database: for workers of several hosts.

The URL goes to libpq as it is: several hosts, TLS and other options work as in its documentation, and a password may come
from PGPASSWORD or a password file. One default differs: see `postgresql_tls`.
"""

import logging
import urllib.parse
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Any

import psycopg
from psycopg.types.json import set_json_dumps
from sqlalchemy import Connection, Engine, create_engine, text
from sqlalchemy.dialects.postgresql import insert
from sqlalchemy.exc import ProgrammingError

from streamgauge.ledger.contract import Expired, LedgerUnavailableError, Pricing, UnsupportedLedgerError
from streamgauge.ledger.partitions import PREPARING, Partitions
from streamgauge.ledger.postgresql_tls import tls_of
from streamgauge.ledger.row import COLUMNS
from streamgauge.ledger.schema import SCHEMA_VERSION, records
from streamgauge.ledger.store import SqlLedger

_LOG = logging.getLogger("streamgauge.ledger")

# How long a server may be silent, unless the URL says otherwise: a server that is away answers nothing, and the sink's thread
# would wait for a quarter of an hour. Seconds, but the last one: milliseconds.
_TIMEOUTS: Mapping[str, int] = {
    "connect_timeout": 10,
    "keepalives_idle": 30,
    "keepalives_interval": 10,
    "keepalives_count": 3,
    "tcp_user_timeout": 60_000,
}

_STARTED = COLUMNS.index("started_us")
_VERSION_TABLE = "CREATE TABLE IF NOT EXISTS ledger_version (version integer NOT NULL)"
# One statement, because another process may make both tables meanwhile; and a query, because to_regclass may answer from a
# cache that is older than the lock.
_OUR_TABLES = text(
    "SELECT relname FROM pg_catalog.pg_class WHERE relname IN ('ledger_version', 'records') AND pg_table_is_visible(oid)"
)


class PostgresqlLedger(SqlLedger):
    """A ledger in the database of `url` (postgresql://...), whose tables are made if they are missing and `create` is true.

    Raises UnsupportedLedgerError for a malformed URL, LedgerUnavailableError if it cannot be opened.
    """

    def __init__(self, url: str, *, create: bool = True, prices: Pricing | None = None) -> None:
        try:
            known: dict[str, Any] = dict(psycopg.conninfo.conninfo_to_dict(url))
        except psycopg.Error:
            raise UnsupportedLedgerError(
                "the ledger's URL is not one that PostgreSQL accepts: write postgresql://HOST:PORT/DATABASE, and "
                "special characters of a password as %XX"
            ) from None
        if "@" in str(known.get("host", "")):
            raise UnsupportedLedgerError("the host in the ledger's URL contains an @: write an @ of a password as %40")
        if not all(port.isdecimal() for port in str(known.get("port", "")).split(",") if port):
            raise UnsupportedLedgerError(  # without the @ after it, a password is read as the port
                "the port in the ledger's URL is no number: write postgresql://HOST:PORT/DATABASE, and an @ after a user "
                "and password before HOST"
            )
        tls = tls_of(known)
        if tls.warning:
            _LOG.warning("%s", tls.warning)
        self._tls = tls
        super().__init__(_engine(url, known, tls.options), f"the ledger {_shown(known)}", prices)
        self._create = create
        self._partitions = Partitions(self._engine, self._name)
        with self._translated("opened"):
            try:
                self._prepare()
            except BaseException:
                self._engine.dispose()
                raise

    @contextmanager
    def _writing(self) -> Iterator[Connection]:
        with self._engine.begin() as connection:
            yield connection

    @contextmanager
    def _snapshot(self) -> Iterator[Connection]:
        with self._engine.connect().execution_options(isolation_level="REPEATABLE READ") as connection:
            yield connection
            connection.rollback()

    def _prepare(self) -> None:
        with self._reading() as connection:
            version = self._version(connection)
        if version == 0 and not self._create:
            raise LedgerUnavailableError(f"{self._name} has no tables of a ledger")
        if version == SCHEMA_VERSION:
            return
        try:
            with self._writing() as connection:
                connection.execute(text("SELECT pg_advisory_xact_lock(:key)"), {"key": PREPARING})
                self._bring_up_to_date(connection)
        except ProgrammingError as error:
            if not isinstance(error.orig, psycopg.errors.InsufficientPrivilege):
                raise
            raise LedgerUnavailableError(
                f"this user may not {'convert' if version else 'create'} the tables of {self._name}; as their owner, run"
                " `streamgauge ledger import /dev/null --ledger URL` once"
            ) from error

    def _version(self, connection: Connection) -> int:
        tables = set(connection.scalars(_OUR_TABLES))
        if "ledger_version" in tables:
            return int(connection.execute(text("SELECT version FROM ledger_version")).scalar_one())
        if tables:
            raise LedgerUnavailableError(f"{self._name} has a table `records` that is no ledger's")
        return 0

    def _set_version(self, connection: Connection) -> None:
        connection.execute(text(_VERSION_TABLE))
        connection.execute(text("DELETE FROM ledger_version"))
        connection.execute(text("INSERT INTO ledger_version VALUES (:version)"), {"version": SCHEMA_VERSION})

    def expire(self, before_us: int, limit: int) -> Expired:
        """See Ledger.expire."""
        with self._lock, self._translated("written"):
            return self._partitions.expire(before_us, limit)

    def _cause(self, error: BaseException) -> str:
        """The server's first sentence: the others may quote values."""
        sentence = (str(error).strip().splitlines() or [type(error).__name__])[0]
        return sentence + self._tls.hint(sentence)

    def _insert_new(self, connection: Connection, rows: Mapping[str, tuple[Any, ...]]) -> set[str]:
        """One statement, since other writers may insert the same rows meanwhile: it waits for them."""
        self._partitions.make(connection, {name: row[_STARTED] for name, row in rows.items()})
        ignoring = insert(records).on_conflict_do_nothing(index_elements=["stream_id"])
        values = [dict(zip(COLUMNS, row, strict=True)) for row in rows.values()]
        return set(connection.scalars(ignoring.returning(records.c.stream_id), values))


def _engine(url: str, known: Mapping[str, Any], tls: Mapping[str, str]) -> Engine:
    ours: dict[str, Any] = {name: value for name, value in _TIMEOUTS.items() if name not in known} | dict(tls)

    def connect() -> "psycopg.Connection[Any]":
        # Prepared statements would break behind a pooler that gives each transaction another connection.
        connection = psycopg.connect(url, prepare_threshold=None, **ours)
        set_json_dumps(str, connection)  # attributes are JSON already
        return connection

    return create_engine(
        "postgresql+psycopg://",
        creator=connect,
        pool_size=2,
        max_overflow=-1,
        pool_pre_ping=True,  # a connection may be older than the server's last restart
        hide_parameters=True,
    )


def _shown(known: dict[str, Any]) -> str:
    """The database without user, password and options."""
    host, port, name = (str(known[key]) if key in known else "" for key in ("host", "port", "dbname"))
    address = f"{host}:{port}" if port else host
    return f"postgresql://{urllib.parse.quote(address, ':,[]/')}/{urllib.parse.quote(name)}"
