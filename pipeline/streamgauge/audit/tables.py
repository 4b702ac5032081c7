"""The temporary database of an audit, in SQLite: the rows of the invoices, and the streams of cells that differ.

SQLite keeps it in memory while it is small, else in a file of the folder that TMPDIR names, which is gone when the database
is closed. Both sides are numbered by group (`GroupKey`), so that a row names its group in a few bytes.
"""

import sqlite3
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from decimal import Decimal

from streamgauge.audit.amounts import EXACT, ZERO_USD
from streamgauge.errors import Unavailable

# Memory of the database (KiB). What is beyond it is in the file.
CACHE_KIB = 16 * 1024
# Rows that are inserted at a time.
BATCH = 1_000

# lines: rows of invoices. file: its place among the files. grp: the number of its group. bucket: a digest of what the row is
# for: two exports must not have different rows for it. Money is decimal text. A row without tokens has null in all four.
# groups: the provider of a group, and the number of the cell that it is a part of.
_SCHEMA = """
CREATE TABLE lines (
    file INTEGER NOT NULL, grp INTEGER NOT NULL, digest BLOB NOT NULL, bucket BLOB,
    uncached INTEGER, cached INTEGER, written INTEGER, output INTEGER, usd TEXT, half_digit TEXT, kind TEXT,
    requests INTEGER, request_id BLOB, charge TEXT, label TEXT, splits INTEGER NOT NULL
);
CREATE TABLE groups (grp INTEGER PRIMARY KEY, provider TEXT NOT NULL, cell INTEGER);
"""
_INSERT = "INSERT INTO {table} VALUES ({places})"
_HALF_BITS = 32


class Tables:
    """A new database. Nothing is ever committed: it belongs to this process alone."""

    def __init__(self) -> None:
        self.database = sqlite3.connect("", isolation_level=None)
        self.database.execute("PRAGMA journal_mode = OFF")
        self.database.execute(f"PRAGMA cache_size = -{CACHE_KIB}")
        self.database.create_aggregate("exact_sum", 1, _ExactSum)  # type: ignore[arg-type]
        self.database.executescript(_SCHEMA)
        self.database.execute("BEGIN")

    def insert(self, table: str, rows: Iterable[tuple[object, ...]]) -> None:
        """Insert rows with a value for each column, some at a time."""
        waiting: list[tuple[object, ...]] = []
        for row in rows:
            waiting.append(row)
            if len(waiting) >= BATCH:
                self._write(table, waiting)
                waiting.clear()
        if waiting:
            self._write(table, waiting)

    def _write(self, table: str, rows: list[tuple[object, ...]]) -> None:
        self.database.executemany(_INSERT.format(table=table, places=", ".join("?" * len(rows[0]))), rows)


class _ExactSum:
    """The aggregate `exact_sum` of decimal texts: exact, and null if there is none. SQLite's own sum would round."""

    def __init__(self) -> None:
        self._total: Decimal | None = None

    def step(self, amount: str | None) -> None:
        if amount is not None:
            self._total = EXACT.add(self._total or ZERO_USD, Decimal(amount))

    def finalize(self) -> str | None:
        return None if self._total is None else str(self._total)


def whole_sum(expression: str) -> str:
    """The SQL of two columns, which `joined` makes a sum of: SQLite's own sum of whole numbers fails beyond 63 bits."""
    return f"sum(({expression}) >> {_HALF_BITS}), sum(({expression}) & {2**_HALF_BITS - 1})"


def joined(high: int | None, low: int | None) -> int:
    """The sum of the two columns of `whole_sum`; 0 of no rows."""
    return ((high or 0) << _HALF_BITS) + (low or 0)


def id_bytes(text: str) -> bytes:
    """An id as the tables hold it: also one that is no well-formed text."""
    return text.encode("utf-8", "surrogatepass")


@contextmanager
def temporary_file_errors() -> Iterator[None]:
    """Raises Unavailable, which says what to do, if the temporary file cannot be written within the context."""
    try:
        yield
    except sqlite3.OperationalError as error:
        raise Unavailable(
            f"the audit's temporary file cannot be written ({error}): name a folder with more space by TMPDIR"
        ) from error
