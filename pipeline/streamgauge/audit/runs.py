"""Kept runs of the audit, in the ledger's file. This module is all that knows how they are stored.

A run is the result, with the digests of what it was made of: so another run of the same period shows whether records came
late, or the provider issued its invoice again.
"""

import sqlite3
from collections.abc import Iterator
from contextlib import closing, contextmanager
from pathlib import Path
from typing import Protocol

import msgspec

from streamgauge.errors import Unavailable, UsageFault
from streamgauge.ledger import SqliteLedger

_SCHEME = "sqlite://"
_CREATE = """
    CREATE TABLE IF NOT EXISTS audit_runs (
        number INTEGER PRIMARY KEY AUTOINCREMENT,
        run BLOB NOT NULL
    )
"""
# As the ledger's: a writer waits for another one's transaction (ms).
_BUSY_TIMEOUT_MS = 60_000


class Run(msgspec.Struct):
    """A kept run. saved_at: UTC, RFC 3339. ledger_sha256: of the records of the period, as the ledger holds them.

    invoices_sha256: of each invoice, sorted, so that names and order do not count. result: its JSON. number: from 1; it is
    given when the run is added.
    """

    saved_at: str
    first: str
    end: str
    timezone: str
    agrees: bool
    is_preliminary: bool
    ledger_sha256: str
    invoices_sha256: list[str]
    result: msgspec.Raw
    number: int = 0


class Runs(Protocol):
    """A store of kept runs."""

    def add(self, run: Run) -> int:
        """Keep a run; returns its number. Raises Unavailable."""

    def all(self) -> list[Run]:
        """Every kept run, oldest first. Raises Unavailable."""

    def get(self, number: int) -> Run:
        """A kept run. Raises UsageFault if there is none of this number, Unavailable if it cannot be read."""


class SqliteRuns:
    """Kept runs in the file of an SQLite ledger, in a table of their own."""

    def __init__(self, path: Path) -> None:
        self._path = path

    def add(self, run: Run) -> int:
        """See Runs.add."""
        with self._connected() as database:
            database.execute(_CREATE)
            number = database.execute("INSERT INTO audit_runs (run) VALUES (?)", (msgspec.json.encode(run),)).lastrowid
            return int(number or 0)

    def all(self) -> list[Run]:
        """See Runs.all."""
        with self._connected() as database:
            if not database.execute("SELECT 1 FROM sqlite_master WHERE name = 'audit_runs'").fetchone():
                return []
            return [_run(*row) for row in database.execute("SELECT number, run FROM audit_runs ORDER BY number")]

    def get(self, number: int) -> Run:
        """See Runs.get."""
        for run in self.all():
            if run.number == number:
                return run
        raise UsageFault(f"there is no kept run {number}: `streamgauge audit list` shows the numbers")

    @contextmanager
    def _connected(self) -> Iterator[sqlite3.Connection]:
        try:
            with closing(sqlite3.connect(self._path)) as database, database:
                database.execute(f"PRAGMA busy_timeout = {_BUSY_TIMEOUT_MS}")
                yield database
        except sqlite3.Error as error:
            raise Unavailable(f"the kept runs of the ledger {self._path} cannot be used: {error}") from error


def _run(number: int, stored: bytes) -> Run:
    return msgspec.structs.replace(msgspec.json.decode(stored, type=Run), number=number)


def open_runs(ledger_url: str) -> Runs:
    """The kept runs of a ledger. Raises UsageFault for a ledger that cannot keep runs."""
    if not ledger_url.startswith(_SCHEME):
        raise UsageFault("runs can be kept in an SQLite ledger only: give one with --ledger, or leave --save out")
    return SqliteRuns(SqliteLedger.path_of(ledger_url.removeprefix(_SCHEME)))
