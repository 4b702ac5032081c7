"""The format of the spool's file: its tables and checksums; how a file is made, opened, converted and replaced.

A bundle has a row in `light`: its value without reads. While it has its reads, it also has a row in `whole`: its value as
it was captured. So the reads of a bundle are dropped by deleting its row in `whole`. `rows` joins both: the whole value
where there is one, else the light one. It has the columns of the table `rows` of layout 2; so one statement reads both
layouts, and a version with layout 2 takes over the rows of this one.
"""

import os
import re
import sqlite3
import time
import zlib
from collections.abc import Iterator
from contextlib import closing, contextmanager, suppress
from pathlib import Path
from typing import cast

# How long a statement waits for another program that has the file open (s), such as `replay`.
BUSY_S = 5.0
# Damaged files that are kept for inspection (files): each may be as large as the spool.
DAMAGED_KEPT = 1
# SQLite's page size.
PAGE_BYTES = 4096

_APPLICATION = 0x53475350  # "SGSP" in the file's header
_LAYOUT = 3
_CONVERTED_LAYOUT = 2  # of the versions before reads had a table of their own
# user_version and application_id in the file's header: https://www.sqlite.org/fileformat2.html#the_database_header
_VERSION, _ID = slice(60, 64), slice(68, 72)
_HEADER_BYTES = 100
_CRC_BYTES = 4  # layout 2: the checksum before each value in `meta`

# `checksum` covers the whole row: SQLite does not detect a flipped byte in a value. `put_s` is the time of the age clock
# (row_clock.py). `totals`: the reads delivered so far, and the last row that was taken for delivery.
_WHOLE = """CREATE TABLE whole(id INTEGER PRIMARY KEY, slot INTEGER NOT NULL, reads INTEGER NOT NULL,
    put_s INTEGER NOT NULL, checksum INTEGER NOT NULL, value BLOB NOT NULL)"""
_META = "CREATE TABLE meta(key TEXT PRIMARY KEY, value BLOB NOT NULL) WITHOUT ROWID"
_LIGHT = """CREATE TABLE light(id INTEGER PRIMARY KEY AUTOINCREMENT, slot INTEGER NOT NULL, checksum INTEGER NOT NULL,
    value BLOB NOT NULL)"""
_TOTALS = "CREATE TABLE totals(delivered INTEGER NOT NULL, taken INTEGER NOT NULL)"
_ROWS = """CREATE VIEW rows AS SELECT light.id AS id, light.slot AS slot, coalesce(whole.reads, 0) AS reads,
    coalesce(whole.put_s, 0) AS put_s, coalesce(whole.checksum, light.checksum) AS checksum,
    coalesce(whole.value, light.value) AS value, light.value AS light
    FROM light LEFT JOIN whole ON whole.id = light.id"""
COLUMNS = "id, slot, reads, put_s, checksum, value"

Stored = tuple[int, int, int, int, int, bytes]  # COLUMNS


class DamagedError(Exception):
    """The file exists, but is not a readable spool of this version."""


def checksum(row: int, slot: int, reads: int, put_s: int, value: bytes) -> int:
    """The checksum of a row (CRC-32). A row of `light` has 0 as `reads` and `put_s`."""
    return zlib.crc32(value, zlib.crc32(b"%d %d %d %d" % (row, slot, reads, put_s)))


def is_intact(row: Stored) -> bool:
    """Whether a row is as it was put: its types and its checksum are right."""
    number, slot, reads, put_s, stated, value = row
    typed = isinstance(slot, int) and isinstance(reads, int) and isinstance(put_s, int) and isinstance(value, bytes)
    return typed and checksum(number, slot, reads, put_s, value) == stated


# What a statement raises on a damaged file. UnicodeDecodeError: SQLite quotes a damaged name in the text of an error.
SQLITE_FAULTS = (sqlite3.Error, UnicodeDecodeError)
# What work on the file raises.
FAULTS = (*SQLITE_FAULTS, OSError, DamagedError)
# SQLITE_ERROR and SQLITE_MISMATCH: our statements fit our tables, so the tables or the header are damaged.
_DAMAGE = {sqlite3.SQLITE_CORRUPT, sqlite3.SQLITE_NOTADB, sqlite3.SQLITE_ERROR, sqlite3.SQLITE_MISMATCH}


def is_damage(error: Exception) -> bool:
    """Whether damage of the file caused the error (not the disk, and not a lock)."""
    return (
        isinstance(error, DamagedError | UnicodeDecodeError) or getattr(error, "sqlite_errorcode", 0) & 0xFF in _DAMAGE
    )


def is_known_layout(path: Path) -> bool:
    """Whether an existing file has the header of a spool of this version, or of one that this version converts."""
    try:
        with path.open("rb") as file:
            header = file.read(_HEADER_BYTES)
    except OSError:
        return False
    layout, application = int.from_bytes(header[_VERSION]), int.from_bytes(header[_ID])
    return application == _APPLICATION and layout in (_LAYOUT, _CONVERTED_LAYOUT)


def open_spool(path: Path) -> sqlite3.Connection:
    """A connection to the spool at this path. A missing or empty file is made, a file of layout 2 converted.

    Raises one of FAULTS.
    """
    if not path.exists():
        try:
            os.close(os.open(path, os.O_CREAT | os.O_EXCL | os.O_RDWR, 0o600))
        except FileExistsError:  # another connection has just made it
            if not path.exists():  # a link to a missing file
                raise
    connection = _connect(path)
    try:
        if _is_empty(connection):
            with transaction(connection):
                if _is_empty(connection):  # not filled by another connection since
                    _make_tables(connection)
        layout = connection.execute("PRAGMA user_version").fetchone()[0]
        ours = connection.execute("PRAGMA application_id").fetchone()[0] == _APPLICATION
        if not ours or layout not in (_LAYOUT, _CONVERTED_LAYOUT):
            raise DamagedError(f"{path} is not a spool of this version")
        if layout == _CONVERTED_LAYOUT:
            with transaction(connection):
                _convert(connection)
        connection.execute("PRAGMA journal_mode=WAL").fetchone()
    except BaseException:
        connection.close()
        raise
    return connection


@contextmanager
def transaction(connection: sqlite3.Connection) -> Iterator[None]:
    """One transaction: committed at the end of the block, rolled back if that raises."""
    connection.execute("BEGIN IMMEDIATE")
    try:
        yield
        connection.execute("COMMIT")
    finally:
        if connection.in_transaction:
            connection.execute("ROLLBACK")


@contextmanager
def not_waiting(connection: sqlite3.Connection) -> Iterator[None]:
    """Statements of the block wait for no other program that has the file open."""
    connection.execute("PRAGMA busy_timeout=0")
    try:
        yield
    finally:
        connection.execute(f"PRAGMA busy_timeout={round(BUSY_S * 1000)}")


def insert(connection: sqlite3.Connection, row: Stored, light: bytes) -> None:
    """Put a row with its id and checksum. `light`: the value without reads, of a row that has reads."""
    row_id, slot, reads, _, _, value = row
    if reads:
        connection.execute(f"INSERT INTO whole({COLUMNS}) VALUES (?, ?, ?, ?, ?, ?)", row)
    kept = light if reads else value
    connection.execute(
        "INSERT INTO light VALUES (?, ?, ?, ?)", (row_id, slot, checksum(row_id, slot, 0, 0, kept), kept)
    )


def replace(path: Path, delivered: int) -> None:
    """Move a damaged file aside, and make a new one with the rows that can be read, under their ids.

    `delivered`: the reads delivered so far, if the old file has no larger number. Raises one of FAULTS.
    """
    new_file = path.with_name(f"{path.name}.new")
    _remove(new_file)
    os.close(os.open(new_file, os.O_CREAT | os.O_EXCL | os.O_RDWR, 0o600))
    with closing(_connect(new_file)) as new, closing(_connect(path)) as old, transaction(new):
        _make_tables(new)
        _carry_over(old, new, delivered)
    _put_aside(path)
    new_file.replace(path)


def _connect(path: Path) -> sqlite3.Connection:
    connection = sqlite3.connect(path, timeout=BUSY_S, isolation_level=None, check_same_thread=False)
    # A flipped bit may turn a blob into a text that is not valid UTF-8.
    connection.text_factory = lambda text: text.decode(errors="replace")
    with suppress(*FAULTS):  # a file that is no database: the first query raises the same
        connection.execute(f"PRAGMA page_size={PAGE_BYTES}")  # this and the next: of a file without tables
        connection.execute("PRAGMA auto_vacuum=INCREMENTAL")
        connection.execute("PRAGMA synchronous=NORMAL")
        connection.execute("PRAGMA cell_size_check=ON")
        # Some builds overwrite deleted data with zeros: twice the writing, for masked data. Free pages are reused.
        connection.execute("PRAGMA secure_delete=FAST").fetchall()
    return connection


def _is_empty(connection: sqlite3.Connection) -> bool:
    return connection.execute("SELECT 1 FROM sqlite_master LIMIT 1").fetchone() is None


def _make_tables(connection: sqlite3.Connection) -> None:
    for statement in (_WHOLE, _META, _LIGHT, _TOTALS, _ROWS):
        connection.execute(statement)
    connection.execute("INSERT INTO totals VALUES (0, 0)")
    # Ids start at the wall clock's microseconds, so that an id of an earlier file is not used again.
    connection.execute("INSERT INTO sqlite_sequence VALUES ('light', ?)", (time.time_ns() // 1000,))
    connection.execute(f"PRAGMA application_id={_APPLICATION}")
    connection.execute(f"PRAGMA user_version={_LAYOUT}")


def _convert(connection: sqlite3.Connection) -> None:
    """Make layout 3 of layout 2, in place: the values with reads stay where they are."""
    delivered, taken = connection.execute("SELECT delivered, taken FROM totals").fetchone()
    for statement in (
        "DROP TABLE totals",
        "DROP INDEX with_reads",
        "ALTER TABLE rows RENAME TO whole",
        _LIGHT,
        _TOTALS,
    ):
        connection.execute(statement)
    connection.execute("INSERT INTO totals VALUES (?, ?)", (delivered, taken))
    for row in connection.execute(f"SELECT {COLUMNS} FROM whole ORDER BY id"):
        row_id, slot, reads, _, _, value = row
        intact = is_intact(row)
        kept = (_light_of(value) if reads else value) if intact else b""
        stated = checksum(row_id, slot, 0, 0, kept) if intact else -1  # `Spool.take` finds a damaged row, and counts it
        connection.execute("INSERT INTO light VALUES (?, ?, ?, ?)", (row_id, slot, stated, kept))
    connection.execute("DELETE FROM whole WHERE reads = 0")
    connection.execute(_ROWS)
    connection.execute("DELETE FROM sqlite_sequence WHERE name = 'light'")
    connection.execute("INSERT INTO sqlite_sequence SELECT 'light', seq FROM sqlite_sequence WHERE name = 'whole'")
    connection.execute("UPDATE meta SET value = substr(value, ?)", (_CRC_BYTES + 1,))
    connection.execute(f"PRAGMA user_version={_LAYOUT}")


def _light_of(value: bytes) -> bytes:
    """A bundle without its reads; nothing for a value that this version cannot decode."""
    # Imported here: applications with a tap use the counters of this package, and never convert a spool.
    from streamgauge.core.capture.bundles import UnreadableBundle, decode_bundle, encode_bundle, without_reads

    try:
        return encode_bundle(without_reads(decode_bundle(value)))
    except UnreadableBundle:
        return b""


def _carry_over(old: sqlite3.Connection, new: sqlite3.Connection, delivered: int) -> None:
    """Copy the intact rows, `meta` and the totals."""
    taken = 0
    with suppress(*FAULTS, TypeError):
        delivered_then, taken = old.execute("SELECT delivered, taken FROM totals").fetchone()
        delivered = max(delivered, delivered_then)
    new.execute("UPDATE totals SET delivered = ?, taken = ?", (delivered, taken))
    is_converted = False
    with suppress(*FAULTS):
        is_converted = old.execute("PRAGMA user_version").fetchone()[0] == _LAYOUT
    with suppress(*FAULTS):
        start = 1 if is_converted else _CRC_BYTES + 1
        new.executemany(
            "INSERT INTO meta VALUES (?, ?)", old.execute("SELECT key, substr(value, ?) FROM meta", (start,))
        )
    for row, light in _readable(old, (("rows", "light"), ("whole", "NULL")) if is_converted else (("rows", "NULL"),)):
        if is_intact(row):
            insert(new, row, _light_of(row[-1]) if light is None and row[2] else light or b"")


def _readable(old: sqlite3.Connection, sources: tuple[tuple[str, str], ...]) -> Iterator[tuple[Stored, bytes | None]]:
    """The rows that can be read: of each source from the first up to the damage, then from the last down to it.

    `sources`: tables, with the column of the value without reads.
    """
    seen: set[int] = set()
    for table, light_column in sources:
        for order in ("ASC", "DESC"):
            with suppress(*FAULTS):
                for *columns, light in old.execute(
                    f"SELECT {COLUMNS}, {light_column} FROM {table} ORDER BY id {order}"
                ):
                    row = cast("Stored", tuple(columns))
                    if row[0] not in seen:
                        seen.add(row[0])
                        yield row, light
                    elif order == "DESC":
                        break


def _put_aside(path: Path) -> None:
    ours = re.compile(re.escape(f"{path.name}.damaged-") + "[0-9]{1,9}")  # copies made by users have other names
    kept = sorted((file for file in path.parent.iterdir() if ours.fullmatch(file.name)), key=_number)
    aside = path.with_name(f"{path.name}.damaged-{_number(kept[-1]) + 1 if kept else 1}")
    for old in kept[: len(kept) + 1 - DAMAGED_KEPT]:
        _remove(old)
    for source, target in zip((path, *_companions(path)), (aside, *_companions(aside)), strict=True):
        with suppress(FileNotFoundError):
            source.rename(target)


def _companions(path: Path) -> tuple[Path, Path]:
    return path.with_name(f"{path.name}-wal"), path.with_name(f"{path.name}-shm")


def _remove(path: Path) -> None:
    for file in (path, *_companions(path), path.with_name(f"{path.name}-journal")):
        file.unlink(missing_ok=True)


def _number(path: Path) -> int:
    return int(path.name.rsplit("-", 1)[1])
