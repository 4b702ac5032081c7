"""What the spool does to its file, statement by statement: books, room, space given back, and what went wrong."""

import errno
import sqlite3
from collections.abc import Sequence
from enum import StrEnum

from streamgauge.spool_file import PAGE_BYTES

# A row's cost beside its value (bytes): its columns and its place in the tree, and the end of its last page that stays
# unused: on average less than half a page, and less than the value itself.
ROW_BYTES = 100
PAGE_END_BYTES = PAGE_BYTES // 2
# Free pages given back at a time while rows remain (1 MiB: each is looked up in the list of free ones), and from how
# many free ones on (4 MiB: less is used again at once).
VACUUM_PAGES = 256
VACUUM_FROM_PAGES = 1024


class Failure(StrEnum):
    """Why the disk did not take something."""

    DISK_FULL = "disk_full"
    READ_ONLY = "read_only"
    BUSY = "busy"
    BROKEN = "broken"


def cost_of(value: bytes) -> int:
    """What a row with this value takes of the room, in bytes."""
    return len(value) + ROW_BYTES + min(len(value), PAGE_END_BYTES)


def add_waiting(connection: sqlite3.Connection, sign: int, rows: Sequence[tuple[int, int]]) -> None:
    """Enter rows, as (reads, bytes), into the books; `sign` -1 takes them out."""
    connection.execute(
        "UPDATE totals SET waiting_rows = waiting_rows + ?, waiting_reads = waiting_reads + ?,"
        " waiting_bytes = waiting_bytes + ?",
        (sign * len(rows), sign * sum(reads for reads, _ in rows), sign * sum(size for _, size in rows)),
    )


def give_back(connection: sqlite3.Connection) -> None:
    """Give free pages back to the disk: all when the spool is empty, some when most of the file is free."""
    free = pragma_number(connection, "freelist_count")
    if free < VACUUM_FROM_PAGES:
        return
    empty = connection.execute("SELECT waiting_rows FROM totals").fetchone()[0] == 0
    if empty:
        connection.execute("VACUUM")  # copies what is left: next to nothing
        connection.execute("PRAGMA wal_checkpoint(TRUNCATE)").fetchall()
    elif free * 2 > pragma_number(connection, "page_count"):
        # A page is freed at each step of this statement; `execute` would stop after the first.
        connection.executescript(f"PRAGMA incremental_vacuum({VACUUM_PAGES})")


def used_bytes(connection: sqlite3.Connection) -> int:
    """What the file holds, without its free pages."""
    pages = pragma_number(connection, "page_count") - pragma_number(connection, "freelist_count")
    return pages * pragma_number(connection, "page_size")


def pragma_number(connection: sqlite3.Connection, pragma: str) -> int:
    """The value of a pragma that is a number."""
    return int(connection.execute(f"PRAGMA {pragma}").fetchone()[0])


_FAILURES = {
    sqlite3.SQLITE_FULL: Failure.DISK_FULL,
    sqlite3.SQLITE_READONLY: Failure.READ_ONLY,
    sqlite3.SQLITE_BUSY: Failure.BUSY,
    sqlite3.SQLITE_LOCKED: Failure.BUSY,
}


_SYSTEM_FAILURES = {
    errno.ENOSPC: Failure.DISK_FULL,
    errno.EDQUOT: Failure.DISK_FULL,
    errno.EROFS: Failure.READ_ONLY,
    errno.EACCES: Failure.READ_ONLY,
}


def failure_of(error: Exception) -> Failure:
    """What went wrong, of an error of SQLite's or of the system's."""
    if isinstance(error, OSError):
        return _SYSTEM_FAILURES.get(error.errno or 0, Failure.BROKEN)
    return _FAILURES.get(getattr(error, "sqlite_errorcode", 0) & 0xFF, Failure.BROKEN)
