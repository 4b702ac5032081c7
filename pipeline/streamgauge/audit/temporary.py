"""Private tables of an audit, for what an invoice may have millions of: SQLite keeps them in memory while they are small,
else in a temporary file (in the folder that TMPDIR names), which is gone when the table is closed.
"""

import sqlite3
from collections.abc import Iterator
from contextlib import contextmanager

from streamgauge.errors import Unavailable

# Memory of a table (KiB). What is beyond it is in the file.
CACHE_KIB = 32 * 1024


def temporary_table(definition: str) -> sqlite3.Connection:
    """A new database with one table. Nothing is ever committed: it belongs to this process alone."""
    database = sqlite3.connect("", isolation_level=None)
    database.execute("PRAGMA journal_mode = OFF")
    database.execute(f"PRAGMA cache_size = -{CACHE_KIB}")
    database.execute("BEGIN")
    database.execute(definition)
    return database


@contextmanager
def temporary_file_errors() -> Iterator[None]:
    """Raises Unavailable, which says what to do, if a temporary file cannot be written within the context."""
    try:
        yield
    except sqlite3.OperationalError as error:
        raise Unavailable(
            f"the audit's temporary file cannot be written ({error}): name a folder with more space by TMPDIR"
        ) from error
