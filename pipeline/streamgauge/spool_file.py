"""The spool's file: made, opened, and when it is damaged put aside with what can be read of it carried over.

Two processes have it open. Whoever makes or replaces it holds a lock file meanwhile; whoever has the old one open sees
by its inode that it was replaced.
"""

import fcntl
import os
import sqlite3
import time
import zlib
from collections.abc import Iterator
from contextlib import closing, contextmanager, suppress
from pathlib import Path

# How long one process waits for the other's transaction (s): they are short, a checkpoint on a slow disk the longest.
BUSY_S = 5.0
# Damaged files that are kept for whoever wants to look: each may be as large as the spool.
DAMAGED_KEPT = 1
# SQLite's page size.
PAGE_BYTES = 4096

_APPLICATION = 0x53475350  # "SGSP" in the file's header
_LAYOUT = 1

# `checksum` goes over slot, reads and value: SQLite itself does not notice a flipped byte in a value.
_SCHEMA = """
CREATE TABLE rows(id INTEGER PRIMARY KEY AUTOINCREMENT, slot INTEGER NOT NULL, reads INTEGER NOT NULL,
                  checksum INTEGER NOT NULL, value BLOB NOT NULL);
CREATE TABLE meta(key TEXT PRIMARY KEY, value BLOB NOT NULL) WITHOUT ROWID;
CREATE TABLE totals(one INTEGER PRIMARY KEY CHECK (one = 1), delivered INTEGER NOT NULL, waiting_rows INTEGER NOT NULL,
                    waiting_reads INTEGER NOT NULL, waiting_bytes INTEGER NOT NULL);
INSERT INTO totals VALUES (1, 0, 0, 0, 0);
"""

Stored = tuple[int, int, int, int, bytes]  # id, slot, reads, checksum, value


class DamagedError(Exception):
    """The file is there and is no spool of ours that can be read."""


def checksum(slot: int, reads: int, value: bytes) -> int:
    """What a row's checksum must be."""
    return zlib.crc32(value, zlib.crc32(b"%d %d" % (slot, reads)))


def inode(path: Path) -> int | None:
    """Which file is at this path; None if there is none."""
    try:
        return path.stat().st_ino
    except FileNotFoundError:
        return None


def is_damage(error: sqlite3.Error) -> bool:
    """Whether the file, and not the disk or the moment, is at fault."""
    return getattr(error, "sqlite_errorcode", 0) & 0xFF in {sqlite3.SQLITE_CORRUPT, sqlite3.SQLITE_NOTADB}


def open_spool(path: Path) -> sqlite3.Connection:
    """A connection to the spool at this path, made if missing. Raises DamagedError, sqlite3.Error or OSError."""
    with _locked(path):
        fresh = not path.exists() or path.stat().st_size == 0
        if fresh:
            _make(path)
        return _connect(path)


def replace(path: Path, damaged_inode: int | None, delivered: int) -> tuple[int, int] | None:
    """Put a damaged file aside and begin a new one with what can be read of it. Row ids stay.

    `delivered`: the reads delivered so far. Gives the reads that waited by the old file's own books (-1 where these
    cannot be read) and the reads carried over; None if somebody else replaced the file already.
    """
    with _locked(path):
        if inode(path) != damaged_inode:
            return None
        aside = _put_aside(path)
        _make(path)
        with closing(_connect(path)) as connection:
            return _carry_over(aside, connection, delivered)


def _connect(path: Path) -> sqlite3.Connection:
    connection = sqlite3.connect(path, timeout=BUSY_S, isolation_level=None, check_same_thread=False)
    try:
        connection.execute("PRAGMA synchronous=NORMAL")
        connection.execute("PRAGMA cell_size_check=ON")
        layout = connection.execute("PRAGMA user_version").fetchone()[0]
        ours = connection.execute("PRAGMA application_id").fetchone()[0] == _APPLICATION
        if not ours or layout != _LAYOUT or connection.execute("SELECT one FROM totals").fetchone() is None:
            raise DamagedError(f"{path} is not a spool of this version")
    except sqlite3.Error as error:
        connection.close()
        gone = "no such table" in str(error)
        if is_damage(error) or gone:
            raise DamagedError(f"{path} cannot be read as a spool") from error
        raise
    except DamagedError:
        connection.close()
        raise
    return connection


def _make(path: Path) -> None:
    """A new, empty spool. It is made under another name: nobody finds half of one."""
    made = path.with_name(f"{path.name}.new")
    _remove(made)
    os.close(os.open(made, os.O_CREAT | os.O_EXCL | os.O_RDWR, 0o600))
    with closing(sqlite3.connect(made, isolation_level=None)) as connection:
        connection.execute(f"PRAGMA page_size={PAGE_BYTES}")
        connection.execute("PRAGMA auto_vacuum=INCREMENTAL")
        connection.executescript(_SCHEMA)
        # Ids go on from the wall clock's microseconds: an id of an earlier file is never given again.
        connection.execute("INSERT INTO sqlite_sequence VALUES ('rows', ?)", (time.time_ns() // 1000,))
        connection.execute(f"PRAGMA application_id={_APPLICATION}")
        connection.execute(f"PRAGMA user_version={_LAYOUT}")
        connection.execute("PRAGMA journal_mode=WAL")
    for companion in _companions(path):
        companion.unlink(missing_ok=True)
    made.replace(path)


def _put_aside(path: Path) -> Path:
    kept = sorted(path.parent.glob(f"{path.name}.damaged-*[0-9]"), key=_number)
    aside = path.with_name(f"{path.name}.damaged-{_number(kept[-1]) + 1 if kept else 1}")
    for old in kept[: len(kept) + 1 - DAMAGED_KEPT]:
        _remove(old)
    for now, then in zip((path, *_companions(path)), (aside, *_companions(aside)), strict=True):
        with suppress(FileNotFoundError):
            now.rename(then)
    return aside


def _carry_over(aside: Path, connection: sqlite3.Connection, delivered: int) -> tuple[int, int]:
    """Copy what is intact: rows, meta, the delivered total. What cannot be read stays behind."""
    waited, carried = -1, [0, 0, 0]
    connection.execute("BEGIN IMMEDIATE")
    with closing(sqlite3.connect(aside, timeout=BUSY_S, isolation_level=None)) as old:
        with suppress(sqlite3.Error):
            waited, delivered_then = old.execute("SELECT waiting_reads, delivered FROM totals").fetchone() or (-1, 0)
            delivered = max(delivered, delivered_then)
        with suppress(sqlite3.Error):
            connection.executemany("INSERT INTO meta VALUES (?, ?)", old.execute("SELECT key, value FROM meta"))
        for row in _intact(old):
            connection.execute("INSERT OR IGNORE INTO rows VALUES (?, ?, ?, ?, ?)", row)
            carried = [carried[0] + 1, carried[1] + row[2], carried[2] + len(row[4])]
    connection.execute(
        "UPDATE totals SET delivered=?, waiting_rows=?, waiting_reads=?, waiting_bytes=?", (delivered, *carried)
    )
    connection.execute("INSERT OR REPLACE INTO meta VALUES ('damaged', x'01')")
    connection.execute("COMMIT")
    return waited, carried[1]


def _intact(old: sqlite3.Connection) -> Iterator[Stored]:
    """Rows from the front up to the damage, then from the back down to it."""
    seen: set[int] = set()
    for order in ("ASC", "DESC"):
        with suppress(sqlite3.Error):
            for row in old.execute(f"SELECT id, slot, reads, checksum, value FROM rows ORDER BY id {order}"):
                if row[0] in seen:
                    break
                seen.add(row[0])
                if is_intact(row):
                    yield row


def is_intact(row: Stored) -> bool:
    """Whether a row is what was put in."""
    _, slot, reads, stated, value = row
    typed = isinstance(slot, int) and isinstance(reads, int) and isinstance(value, bytes)
    return typed and checksum(slot, reads, value) == stated


def _companions(path: Path) -> tuple[Path, Path]:
    return path.with_name(f"{path.name}-wal"), path.with_name(f"{path.name}-shm")


def _remove(path: Path) -> None:
    for file in (path, *_companions(path), path.with_name(f"{path.name}-journal")):
        file.unlink(missing_ok=True)


def _number(path: Path) -> int:
    return int(path.name.rsplit("-", 1)[1])


@contextmanager
def _locked(path: Path) -> Iterator[None]:
    lock = os.open(path.with_name(f"{path.name}.lock"), os.O_CREAT | os.O_RDWR, 0o600)
    try:
        fcntl.flock(lock, fcntl.LOCK_EX)
        yield
    finally:
        os.close(lock)
