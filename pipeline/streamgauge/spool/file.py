"""Makes and opens the spool's file. A damaged or deleted file is replaced by a new one with the rows that can be read.

Two processes have it open. The process that makes or replaces it holds a lock file meanwhile, and the old file's write
lock if it can get that. A process that still has the old file open detects the replacement by the inode.
"""

import errno
import fcntl
import os
import re
import sqlite3
import threading
import time
import zlib
from collections.abc import Iterator
from contextlib import closing, suppress
from pathlib import Path
from types import TracebackType

# How long one process waits for the other's transaction (s). Transactions are short; the longest wait is a checkpoint
# on a slow disk.
BUSY_S = 5.0
# Damaged files that are kept for inspection (files): each may be as large as the spool.
DAMAGED_KEPT = 1
# SQLite's page size.
PAGE_BYTES = 4096

_APPLICATION = 0x53475350  # "SGSP" in the file's header
_LAYOUT = 2
_CRC_BYTES = 4
# SQLite's file header: its size; its two version bytes, which show whether a WAL is used; the parts that are equal in
# all spools (magic, page size, versions, fractions; schema format, cache, last root, encoding, numbers of ours,
# reserved); the file's size in pages.
_HEADER_BYTES = 100
_VERSIONS = slice(18, 20)
_WAL_VERSIONS = b"\2\2"
_SAME = (slice(0, 24), slice(44, 92))
_PAGES = slice(28, 32)
_VERSION, _ID = slice(60, 64), slice(68, 72)  # user_version and application_id
_FEW_BYTES = 8

# `checksum` covers the whole row: SQLite itself does not detect a flipped byte in a value, or in an id. `put_s` is the
# time of the age clock (row_clock.py). `taken`: the last row that was taken for delivery. `negative` is -delivered.
_SCHEMA = """
CREATE TABLE rows(id INTEGER PRIMARY KEY AUTOINCREMENT, slot INTEGER NOT NULL, reads INTEGER NOT NULL,
                  put_s INTEGER NOT NULL, checksum INTEGER NOT NULL, value BLOB NOT NULL);
CREATE INDEX with_reads ON rows(id) WHERE reads > 0;
CREATE TABLE meta(key TEXT PRIMARY KEY, value BLOB NOT NULL) WITHOUT ROWID;
CREATE TABLE totals(one INTEGER PRIMARY KEY CHECK (one = 1), delivered INTEGER NOT NULL, negative INTEGER NOT NULL,
                    waiting_rows INTEGER NOT NULL, waiting_reads INTEGER NOT NULL, waiting_bytes INTEGER NOT NULL,
                    taken INTEGER NOT NULL);
INSERT INTO totals VALUES (1, 0, 0, 0, 0, 0, 0);
"""
COLUMNS = "id, slot, reads, put_s, checksum, value"

Stored = tuple[int, int, int, int, int, bytes]  # COLUMNS


class DamagedError(Exception):
    """The file exists, but is not a readable spool of this version."""


def checksum(row: int, slot: int, reads: int, put_s: int, value: bytes) -> int:
    """The checksum of a row (CRC-32)."""
    return zlib.crc32(value, zlib.crc32(b"%d %d %d %d" % (row, slot, reads, put_s)))


def with_checksum(value: bytes) -> bytes:
    """A value of the `meta` table in its stored form: after its checksum."""
    return zlib.crc32(value).to_bytes(_CRC_BYTES) + value


def without_checksum(stored: object) -> bytes | None:
    """The value of a stored `meta` entry; None if its checksum is wrong."""
    if not isinstance(stored, bytes) or stored[:_CRC_BYTES] != zlib.crc32(stored[_CRC_BYTES:]).to_bytes(_CRC_BYTES):
        return None
    return stored[_CRC_BYTES:]


def inode(path: Path) -> int | None:
    """The inode of the file at this path; None if there is no file."""
    try:
        return path.stat().st_ino
    except FileNotFoundError:
        return None


# SQLITE_ERROR and SQLITE_MISMATCH: our statements fit our tables, so the tables or the header are damaged.
_DAMAGE = {sqlite3.SQLITE_CORRUPT, sqlite3.SQLITE_NOTADB, sqlite3.SQLITE_ERROR, sqlite3.SQLITE_MISMATCH}


def is_damage(error: Exception, path: Path) -> bool:
    """Whether damage of the file caused the error (not the disk, and not a lock).

    No connection to the file may be open in this process.
    """
    if isinstance(error, DamagedError):
        return True
    code = getattr(error, "sqlite_errorcode", 0) & 0xFF
    if code == sqlite3.SQLITE_READONLY:
        return _header(path)[_VERSIONS] not in (b"", _WAL_VERSIONS)
    return code in _DAMAGE


def _header(path: Path) -> bytes:
    try:
        with path.open("rb") as file:
            return file.read(_HEADER_BYTES)
    except OSError:
        return b""


def is_of_this_version(path: Path) -> bool:
    """Whether an existing file has the header of a spool of this version."""
    header = _header(path)
    return int.from_bytes(header[_VERSION]) == _LAYOUT and int.from_bytes(header[_ID]) == _APPLICATION


def _mend_header(path: Path, sound: Path) -> None:
    """Repair the parts of a damaged spool's header that are equal in all spools: one wrong byte there hides all rows.

    https://www.sqlite.org/fileformat2.html#the_database_header
    """
    with path.open("r+b") as file:
        header, sound_header = bytearray(file.read(_HEADER_BYTES)), _header(sound)
        differs = sum(old != new for part in _SAME for old, new in zip(header[part], sound_header[part], strict=False))
        if len(header) < _HEADER_BYTES or differs > _FEW_BYTES:
            return  # it never was a spool
        for part in _SAME:
            header[part] = sound_header[part]
        header[_PAGES] = (os.fstat(file.fileno()).st_size // PAGE_BYTES).to_bytes(4)
        file.seek(0)
        file.write(header)


def open_spool(path: Path) -> sqlite3.Connection:
    """A connection to the spool at this path; the file is made if missing. The caller holds the lock.

    Raises DamagedError, sqlite3.Error or OSError.
    """
    if not path.exists() or path.stat().st_size == 0:
        new_file = _build(path)
        _swap_in(new_file, path)
    return _connect(path)


def replace(path: Path, damaged_inode: int | None, delivered: int) -> tuple[int, int] | None:
    """Move a damaged file aside and make a new one with the rows that can be read. The caller holds the lock. Row ids stay.

    `delivered`: the reads delivered so far. Gives the reads that waited by the old file's own totals (-1 if these cannot
    be read) and the reads carried over; None if the other process has already replaced the file.
    """
    if inode(path) != damaged_inode:
        return None
    new_file = _build(path)
    _mend_header(path, new_file)
    with closing(_raw(path)) as old:
        reads_before_and_after = _carry_over(old, new_file, delivered, damaged=True)
        _put_aside(path)
        _swap_in(new_file, path)
    return reads_before_and_after


def rescue(path: Path, old: sqlite3.Connection, delivered: int) -> tuple[int, int]:
    """Make a new file with the rows of `old`, whose file was deleted. Otherwise like `replace`; never gives None."""
    new_file = _build(path)
    reads_before_and_after = _carry_over(old, new_file, delivered, damaged=False)
    _swap_in(new_file, path)
    return reads_before_and_after


def _raw(path: Path) -> sqlite3.Connection:
    connection = sqlite3.connect(path, timeout=BUSY_S, isolation_level=None, check_same_thread=False)
    # A flipped bit may turn a blob into a text that is not valid UTF-8.
    connection.text_factory = lambda text: text.decode(errors="replace")
    return connection


def _connect(path: Path) -> sqlite3.Connection:
    connection = _raw(path)
    try:
        connection.execute("PRAGMA synchronous=NORMAL")
        connection.execute("PRAGMA cell_size_check=ON")
        # Some builds overwrite deleted data with zeros: twice the writing, for masked data. Free pages are reused.
        connection.execute("PRAGMA secure_delete=FAST").fetchall()
        layout = connection.execute("PRAGMA user_version").fetchone()[0]
        ours = connection.execute("PRAGMA application_id").fetchone()[0] == _APPLICATION
        if not ours or layout != _LAYOUT or connection.execute("SELECT one FROM totals").fetchone() is None:
            raise DamagedError(f"{path} is not a spool of this version")
    except sqlite3.Error as error:
        connection.close()
        if is_damage(error, path):
            raise DamagedError(f"{path} cannot be read as a spool") from error
        raise
    except DamagedError:
        connection.close()
        raise
    return connection


def _build(path: Path) -> Path:
    """A new, empty spool under another name, so that no process opens an unfinished one."""
    new_file = path.with_name(f"{path.name}.new")
    _remove(new_file)
    os.close(os.open(new_file, os.O_CREAT | os.O_EXCL | os.O_RDWR, 0o600))
    with closing(sqlite3.connect(new_file, isolation_level=None)) as connection:
        connection.execute(f"PRAGMA page_size={PAGE_BYTES}")
        connection.execute("PRAGMA auto_vacuum=INCREMENTAL")
        connection.executescript(_SCHEMA)
        # Ids start at the wall clock's microseconds, so that an id of an earlier file is not used again.
        connection.execute("INSERT INTO sqlite_sequence VALUES ('rows', ?)", (time.time_ns() // 1000,))
        connection.execute(f"PRAGMA application_id={_APPLICATION}")
        connection.execute(f"PRAGMA user_version={_LAYOUT}")
        connection.execute("PRAGMA journal_mode=WAL")
    return new_file


def _swap_in(new_file: Path, path: Path) -> None:
    for companion in _companions(path):
        companion.unlink(missing_ok=True)
    new_file.replace(path)


def _put_aside(path: Path) -> None:
    ours = re.compile(re.escape(f"{path.name}.damaged-") + "[0-9]{1,9}")  # copies made by users have other names
    kept = sorted((file for file in path.parent.iterdir() if ours.fullmatch(file.name)), key=_number)
    aside = path.with_name(f"{path.name}.damaged-{_number(kept[-1]) + 1 if kept else 1}")
    for old in kept[: len(kept) + 1 - DAMAGED_KEPT]:
        _remove(old)
    for source, target in zip((path, *_companions(path)), (aside, *_companions(aside)), strict=True):
        with suppress(FileNotFoundError):
            source.rename(target)


def _carry_over(old: sqlite3.Connection, new_file: Path, delivered: int, *, damaged: bool) -> tuple[int, int]:
    """Copy the intact rows, meta, and the delivered total. Gives the reads that waited (-1: unknown) and those copied.

    The old file's write lock is kept until the caller has swapped the files and closed the old one. A process that waits
    for the lock then detects the new file.
    """
    with suppress(sqlite3.Error):
        old.execute("BEGIN IMMEDIATE")
    waited, carried, taken = -1, [0, 0, 0], 0
    with closing(_connect(new_file)) as new:
        new.execute("BEGIN IMMEDIATE")
        with suppress(sqlite3.Error, TypeError):
            waited, delivered_then, taken = old.execute("SELECT waiting_reads, delivered, taken FROM totals").fetchone()
            delivered = max(delivered, delivered_then)
        with suppress(sqlite3.Error):
            new.executemany("INSERT INTO meta VALUES (?, ?)", old.execute("SELECT key, value FROM meta"))
        for row in _intact(old):
            new.execute("INSERT OR IGNORE INTO rows VALUES (?, ?, ?, ?, ?, ?)", row)
            carried = [carried[0] + 1, carried[1] + row[2], carried[2] + len(row[5])]
        new.execute("UPDATE totals SET delivered=?, negative=?", (delivered, -delivered))
        new.execute("UPDATE totals SET waiting_rows=?, waiting_reads=?, waiting_bytes=?, taken=?", (*carried, taken))
        if damaged:
            new.execute("INSERT OR REPLACE INTO meta VALUES ('damaged', x'01')")
        new.execute("COMMIT")
    return waited, carried[1]


def _intact(old: sqlite3.Connection) -> Iterator[Stored]:
    """The intact rows: from the first up to the damage, then from the last down to it."""
    seen: set[int] = set()
    for order in ("ASC", "DESC"):
        with suppress(sqlite3.Error):
            for row in old.execute(f"SELECT {COLUMNS} FROM rows ORDER BY id {order}"):
                if row[0] in seen:
                    break
                seen.add(row[0])
                if is_intact(row):
                    yield row


def is_intact(row: Stored) -> bool:
    """Whether a row is as it was put: its types and its checksum are right."""
    number, slot, reads, put_s, stated, value = row
    typed = isinstance(slot, int) and isinstance(reads, int) and isinstance(put_s, int) and isinstance(value, bytes)
    return typed and checksum(number, slot, reads, put_s, value) == stated


def _companions(path: Path) -> tuple[Path, Path]:
    return path.with_name(f"{path.name}-wal"), path.with_name(f"{path.name}-shm")


def _remove(path: Path) -> None:
    for file in (path, *_companions(path), path.with_name(f"{path.name}-journal")):
        file.unlink(missing_ok=True)


def _number(path: Path) -> int:
    return int(path.name.rsplit("-", 1)[1])


class FileLock:
    """A reentrant lock over processes and threads, by a file beside the spool. Raises OSError."""

    def __init__(self, spool: Path) -> None:
        self._path = spool.with_name(f"{spool.name}.lock")
        self._threads = threading.RLock()
        self._depth = 0
        self._file = -1

    def __enter__(self) -> None:
        self._threads.acquire()
        try:
            if not self._depth:
                self._file = self._opened()
                fcntl.flock(self._file, fcntl.LOCK_EX)
        except OSError:
            if self._file >= 0:
                os.close(self._file)
                self._file = -1
            self._threads.release()
            raise
        self._depth += 1

    def _opened(self) -> int:
        """Open the lock file. We never make a link there, so a link in its place is removed and not followed."""
        try:
            return self._made()
        except OSError as error:
            if error.errno != errno.ELOOP:
                raise
        self._path.unlink(missing_ok=True)
        return self._made()

    def _made(self) -> int:
        return os.open(self._path, os.O_CREAT | os.O_RDWR | os.O_NOFOLLOW, 0o600)

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        self._depth -= 1
        if not self._depth:
            os.close(self._file)
        self._threads.release()
