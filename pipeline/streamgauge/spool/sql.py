"""The spool's SQL statements: rows, totals, space, pages returned to the disk, and the meaning of errors."""

import errno
import sqlite3
from collections.abc import Callable, Iterator, Sequence
from enum import StrEnum
from typing import Literal, cast

from streamgauge.spool.file import COLUMNS, PAGE_BYTES, DamagedError, checksum, is_intact

# A row's cost besides its value (bytes): its columns and its place in the tree, and the unused end of its last page: on
# average less than half a page, and less than the value itself.
ROW_BYTES = 100
PAGE_END_BYTES = PAGE_BYTES // 2
# Free pages that are returned to the disk at a time while rows remain (1 MiB: each is searched in the list of free
# pages). They are returned from so many free pages on (4 MiB: fewer are soon reused).
VACUUM_PAGES = 256
VACUUM_FROM_PAGES = 1024
# Rows that lose their reads in one transaction: each is decoded and encoded again, which takes about a millisecond.
STRIP_ROWS = 64
# SQLite's own limit on parameters in one statement is 999 in old builds.
_IDS_AT_ONCE = 500

Order = Literal["ASC", "DESC"]

# Gives a row's value without its reads; None for a value that it cannot read.
Lighter = Callable[[bytes], bytes | None]


class Failure(StrEnum):
    """Reasons why the disk refused an operation."""

    DISK_FULL = "disk_full"
    READ_ONLY = "read_only"
    BUSY = "busy"
    BROKEN = "broken"


def cost_of(value: bytes) -> int:
    """The space that a row with this value takes (bytes)."""
    return len(value) + ROW_BYTES + min(len(value), PAGE_END_BYTES)


def insert(connection: sqlite3.Connection, rows: Sequence[tuple[int, int, bytes]], put_s: int) -> None:
    """Put rows, as (slot, reads, value), at the end, and add them to the totals."""
    last = connection.execute("SELECT seq FROM sqlite_sequence WHERE name='rows'").fetchone()
    if last is None:
        raise DamagedError("the spool's last row id is missing")
    new = [
        (row_id, slot, reads, put_s, checksum(row_id, slot, reads, put_s, value), value)
        for row_id, (slot, reads, value) in enumerate(rows, last[0] + 1)
    ]
    connection.executemany(f"INSERT INTO rows({COLUMNS}) VALUES (?, ?, ?, ?, ?, ?)", new)
    add_waiting(connection, 1, [(reads, len(value)) for _, reads, value in rows])


def add_waiting(connection: sqlite3.Connection, sign: int, rows: Sequence[tuple[int, int]]) -> None:
    """Add rows, as (reads, bytes), to the totals; `sign` -1 subtracts them."""
    connection.execute(
        "UPDATE totals SET waiting_rows = waiting_rows + ?, waiting_reads = waiting_reads + ?,"
        " waiting_bytes = waiting_bytes + ?",
        (sign * len(rows), sign * sum(reads for reads, _ in rows), sign * sum(size for _, size in rows)),
    )


def remove(connection: sqlite3.Connection, ids: Sequence[int], *, delivered: bool) -> int:
    """Remove rows, and subtract them from the totals. Gives how many reads they had.

    Raises DamagedError for a row that exists but cannot be found by its id: `take` would give it again and again.
    """
    removed: list[tuple[int, int]] = []
    for start in range(0, len(ids), _IDS_AT_ONCE):
        batch = list(ids[start : start + _IDS_AT_ONCE])
        rows_of_batch = f"FROM rows WHERE id IN ({','.join('?' * len(batch))})"
        removed_rows = connection.execute(f"SELECT reads, length(value) {rows_of_batch}", batch).fetchall()
        deleted = connection.execute(f"DELETE {rows_of_batch}", batch).rowcount
        if deleted < len(batch) and set(batch) & {row[0] for row in connection.execute("SELECT +id FROM rows")}:
            raise DamagedError("a row is not where it should be")
        removed += removed_rows
    add_waiting(connection, -1, removed)
    reads = sum(reads for reads, _ in removed)
    if delivered:
        connection.execute("UPDATE totals SET delivered = delivered + ?, negative = negative - ?", (reads, reads))
    return reads


def strip_reads(
    connection: sqlite3.Connection,
    lighter: Lighter,
    order: Order,
    *,
    want: int | None = None,
    put_before: int | None = None,
) -> int:
    """Drop the reads of up to STRIP_ROWS waiting rows that were not taken; the rows stay. Returns the number of reads.

    `want`: stop when so many bytes were freed. `put_before`: only rows put before that time of the age clock (seconds). A
    damaged row stays as it is: `take` removes it.
    """
    freed = lost = 0
    changed = 0
    for row_id in _with_reads(connection, order):
        if changed == STRIP_ROWS or (want is not None and freed >= want):
            break
        row = connection.execute(f"SELECT {COLUMNS} FROM rows WHERE id=?", (row_id,)).fetchone()
        if row is None:
            raise DamagedError("a row is not where it should be")
        _, slot, reads, put_s, _, value = row
        if put_before is not None and put_s >= put_before:
            break
        lighter_value = lighter(value) if is_intact(row) else None
        if lighter_value is None:
            continue
        # Not an update: SQLite merges pages only when a row is removed, and each stripped row would keep a page.
        connection.execute("DELETE FROM rows WHERE id=?", (row_id,))
        stripped = (row_id, slot, 0, put_s, checksum(row_id, slot, 0, put_s, lighter_value), lighter_value)
        connection.execute(f"INSERT INTO rows({COLUMNS}) VALUES (?, ?, ?, ?, ?, ?)", stripped)
        add_waiting(connection, -1, [(reads, len(value))])
        add_waiting(connection, 1, [(0, len(lighter_value))])
        changed += 1
        freed += cost_of(value) - cost_of(lighter_value)
        lost += reads
    return lost


def _with_reads(connection: sqlite3.Connection, order: Order) -> Iterator[int]:
    """The rows that may lose their reads, in that order: STRIP_ROWS by one query, so that rows may be changed meanwhile."""
    after = "<" if order == "DESC" else ">"
    statement = (
        "SELECT id FROM rows INDEXED BY with_reads WHERE reads > 0 AND id > (SELECT taken FROM totals)"
        f" AND id {after} ? ORDER BY id {order} LIMIT {STRIP_ROWS}"
    )
    last = 2**63 - 1 if order == "DESC" else -1
    while rows := connection.execute(statement, (last,)).fetchall():
        for (last,) in rows:
            yield last


def totals(connection: sqlite3.Connection) -> tuple[int, int, int, int, int]:
    """The totals: delivered, its negative, and rows, reads and bytes that wait. Raises DamagedError."""
    row = connection.execute(
        "SELECT delivered, negative, waiting_rows, waiting_reads, waiting_bytes FROM totals"
    ).fetchone()
    if row is None or not all(isinstance(number, int) for number in row):
        raise DamagedError("the spool's totals cannot be read")
    return cast("tuple[int, int, int, int, int]", row)


def purge(connection: sqlite3.Connection) -> tuple[int, int]:
    """Remove every damaged row, and recompute the totals of those that wait. It reads the whole file.

    Gives the reads that are lost, and the reads that wait. The lost reads are the difference to the old totals, since a
    damaged row's own number cannot be trusted.
    """
    _, _, _, waited, _ = totals(connection)
    damaged_ids: list[int] = []
    rows = reads = size = last = 0
    for row in connection.execute(f"SELECT {COLUMNS} FROM rows ORDER BY id"):
        if is_intact(row):
            rows, reads, size, last = rows + 1, reads + row[2], size + len(row[5]), row[0]
        else:
            damaged_ids.append(row[0])
    for row_id in damaged_ids:
        if not connection.execute("DELETE FROM rows WHERE id=?", (row_id,)).rowcount:
            raise DamagedError("a row is not where it should be")
    connection.execute(
        "UPDATE totals SET waiting_rows=?, waiting_reads=?, waiting_bytes=?, taken=min(taken, ?)",
        (rows, reads, size, last),
    )
    return max(waited - reads, 0), reads


def delivered_total(connection: sqlite3.Connection) -> tuple[int | None, bool]:
    """Reads delivered by the totals (None: that number is damaged), and whether a damaged file was replaced."""
    delivered, negative, *_ = totals(connection)
    damaged = connection.execute("SELECT 1 FROM meta WHERE key='damaged'").fetchone() is not None
    return delivered if delivered == -negative else None, damaged


def return_free_pages(connection: sqlite3.Connection) -> None:
    """Return free pages to the disk: all when the spool is empty, some when most of the file is free."""
    free = pragma_number(connection, "freelist_count")
    if free < VACUUM_FROM_PAGES:
        return
    empty = connection.execute("SELECT 1 FROM rows LIMIT 1").fetchone() is None
    if empty:
        connection.execute("VACUUM")  # copies the remaining data, which is nearly nothing
        connection.execute("PRAGMA wal_checkpoint(TRUNCATE)").fetchall()
    elif free * 2 > pragma_number(connection, "page_count"):
        # A page is freed at each step of this statement; `execute` would stop after the first.
        connection.executescript(f"PRAGMA incremental_vacuum({VACUUM_PAGES})")


def used_bytes(connection: sqlite3.Connection) -> int:
    """The size of the file's used pages (bytes). Raises DamagedError if its header is impossible."""
    pages, free = pragma_number(connection, "page_count"), pragma_number(connection, "freelist_count")
    if not 0 <= free < pages:
        raise DamagedError("more pages are free than there are")
    return (pages - free) * PAGE_BYTES


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
    """The failure that an error of SQLite or of the system stands for."""
    if isinstance(error, OSError):
        return _SYSTEM_FAILURES.get(error.errno or 0, Failure.BROKEN)
    return _FAILURES.get(getattr(error, "sqlite_errorcode", 0) & 0xFF, Failure.BROKEN)
