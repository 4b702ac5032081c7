"""The text of streams, kept for a while after their records were stored, so that it can be counted again: one SQLite file.

`up --capture full --text-age SECONDS` writes it, `recount` reads it. It holds the segments of each stream as its tap captured
them, and nothing of a stream whose capture is masked. A stream is deleted when it is older than the age, and the oldest ones
when the file would grow above its size; deleted text is overwritten.

Texts are worth less than records: whatever the disk refuses, no method raises. Then the streams of that moment are not kept.
"""

import os
import sqlite3
import time
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from uuid import UUID

import msgspec

from streamgauge.core.capture.bundles import encode_bundle
from streamgauge.core.capture.segments import Bundle
from streamgauge.core.record import Record
from streamgauge.spool.file import SQLITE_FAULTS, is_damage

# The file's name in the data directory.
TEXTS = "texts.sqlite"
# "SGTX" in the file's header, and the version of its tables.
APPLICATION = 0x53475458
_LAYOUT = 1
_PAGE_BYTES = 4096
# How long a write waits for another program that has the file open (s).
_BUSY_S = 2.0
# Segments that are held until they are written (bytes).
_PENDING_BYTES = 1024 * 1024
# The space that a segment takes besides its bytes: its columns, its entry in the index, the end of its last page.
_SEGMENT_BYTES = 256
# Parts of the largest size: what segments may use, and what the oldest streams are deleted down to.
_FULL, _TRIMMED = 0.95, 0.85
# How often streams that are too old are looked for (s).
EXPIRE_EVERY_S = 10.0

_SCHEMA = """
CREATE TABLE streams(stream BLOB PRIMARY KEY, begun_s REAL NOT NULL, is_ended INTEGER NOT NULL DEFAULT 0,
    bytes INTEGER NOT NULL DEFAULT 0);
CREATE INDEX streams_by_age ON streams(begun_s, stream);
CREATE TABLE segments(stream BLOB NOT NULL, number INTEGER NOT NULL, value BLOB NOT NULL, UNIQUE(stream, number));
CREATE TRIGGER segment_bytes AFTER INSERT ON segments BEGIN
    UPDATE streams SET bytes = bytes + length(new.value) WHERE stream = new.stream;
END;
CREATE TRIGGER stream_deleted AFTER DELETE ON streams BEGIN
    DELETE FROM segments WHERE stream = old.stream;
END;
"""
# Nothing of a stream that was deleted meanwhile, to make room.
_INSERT = """
INSERT OR IGNORE INTO segments SELECT ?1, ?2, ?3 WHERE EXISTS (SELECT 1 FROM streams WHERE stream = ?1)
"""
_OLDEST = """
DELETE FROM streams WHERE stream IN (SELECT stream FROM (
    SELECT stream, bytes, sum(bytes) OVER (ORDER BY begun_s, stream) AS up_to FROM streams
) WHERE up_to - bytes < ?)
"""


class TextStore:
    """The file `path`, made with mode 0600 if it is missing; one that is damaged is replaced.

    `max_bytes`: the largest size of the file; `max_age_s`: how long a stream is kept after its begin (s). `say` takes a
    sentence for the operator, when the disk begins to refuse and when it works again. `now`: the wall clock (s since 1970).
    Raises one of SQLITE_FAULTS or OSError if the file cannot be opened.
    """

    def __init__(
        self,
        path: Path,
        max_bytes: int,
        max_age_s: float,
        say: Callable[[str], None],
        now: Callable[[], float] = time.time,
    ) -> None:
        self._path = path
        self._max_bytes, self._max_age_s = max_bytes, max_age_s
        self._say, self._now = say, now
        self._failing = False
        self._expired_at = float("-inf")
        try:
            self._database = _open(path, max_bytes)
        except SQLITE_FAULTS as error:
            if not is_damage(error):
                raise
            say(f"{path} is damaged, and is replaced: the texts in it cannot be counted again")
            delete_texts(path)
            self._database = _open(path, max_bytes)
        self._open: set[bytes] = self._unended()
        self._new: dict[bytes, float] = {}
        self._segments: list[tuple[bytes, int, bytes]] = []
        self._pending_bytes = 0
        self._ended: set[bytes] = set()
        self._dropped: set[bytes] = set()

    def take(self, bundle: Bundle, records: Iterable[Record], is_open: Callable[[bytes], bool]) -> None:
        """Take the segments of a bundle that was applied, and the records that it made. `is_open`: whether a stream is open.

        Of a stream that has ended without a record nothing is kept.
        """
        recorded = {UUID(record.stream_id).bytes for record in records}
        for segment in bundle.segments:
            opening = segment.opening
            if segment.number == 0 and opening is not None and opening.capture == "full":
                self._begin(segment.stream)
            if segment.stream not in self._open:
                continue
            alone = msgspec.structs.replace(bundle, segments=[segment], farewell=False, dead=[])
            value = encode_bundle(alone)
            self._segments.append((segment.stream, segment.number, value))
            self._pending_bytes += len(value) + _SEGMENT_BYTES
            if segment.end is not None and segment.stream not in recorded and not is_open(segment.stream):
                self._open.discard(segment.stream)
                self._dropped.add(segment.stream)
        ended = recorded & self._open
        self._ended |= ended
        self._open -= ended
        if self._pending_bytes > _PENDING_BYTES:
            self.commit()

    def _begin(self, stream: bytes) -> None:
        """Begin to keep a stream, unless it is known: after a crash its segments come again."""
        if stream in self._open or stream in self._ended:
            return
        known = None
        with suppress(*SQLITE_FAULTS):
            known = self._database.execute("SELECT is_ended FROM streams WHERE stream = ?", (stream,)).fetchone()
        if known is None:
            self._new[stream] = self._now()
        if known is None or not known[0]:
            self._open.add(stream)

    def commit(self) -> None:
        """Write what was taken: after this call it survives a kill and a power cut."""
        if not (self._segments or self._ended or self._dropped):
            return
        with self._attempt():
            self._make_room()
            with _transaction(self._database) as database:
                database.executemany("INSERT OR IGNORE INTO streams(stream, begun_s) VALUES (?, ?)", self._new.items())
                database.executemany(_INSERT, self._segments)
                database.executemany(
                    "UPDATE streams SET is_ended = 1 WHERE stream = ?", [(stream,) for stream in self._ended]
                )
                database.executemany("DELETE FROM streams WHERE stream = ?", [(stream,) for stream in self._dropped])
        self._new, self._segments, self._pending_bytes = {}, [], 0
        self._ended, self._dropped = set(), set()

    def expire(self, now_s: float) -> None:
        """Delete the streams that are too old, every EXPIRE_EVERY_S. `now_s`: monotonic seconds."""
        if now_s - self._expired_at < EXPIRE_EVERY_S:
            return
        self._expired_at = now_s
        with self._attempt():
            before = self._now() - self._max_age_s
            if self._database.execute("SELECT 1 FROM streams WHERE begun_s < ? LIMIT 1", (before,)).fetchone():
                self._delete("DELETE FROM streams WHERE begun_s < ?", before)

    def close(self) -> None:
        """Write what was taken, and close the file."""
        self.commit()
        self._database.close()

    def _make_room(self) -> None:
        used = _used_bytes(self._database)
        if used + self._pending_bytes > self._max_bytes * _FULL:
            self._delete(_OLDEST, used + self._pending_bytes - self._max_bytes * _TRIMMED)

    def _delete(self, statement: str, parameter: float) -> None:
        with _transaction(self._database) as database:
            database.execute(statement, (parameter,))
        self._open &= self._unended() | self._new.keys()
        # What was deleted leaves the log as well, and free pages go back to the disk.
        self._database.execute("PRAGMA incremental_vacuum").fetchall()
        self._database.execute("PRAGMA wal_checkpoint(TRUNCATE)").fetchall()

    def _unended(self) -> set[bytes]:
        return {stream for (stream,) in self._database.execute("SELECT stream FROM streams WHERE NOT is_ended")}

    @contextmanager
    def _attempt(self) -> Iterator[None]:
        try:
            yield
        except SQLITE_FAULTS as error:
            if not self._failing:
                self._say(
                    f"{self._path} cannot be written ({error}): the texts of these streams cannot be counted again, their "
                    "records are stored"
                )
            self._failing = True
            self._open -= {stream for stream, _, _ in self._segments} | self._new.keys()
        else:
            if self._failing:
                self._say("texts are kept again")
            self._failing = False


def kept_streams(database: sqlite3.Connection) -> Iterator[list[bytes]]:
    """Of each stream that has ended, oldest first, the encoded bundles with one segment each, in order.

    A stream that lacks a segment is left out. `database`: a connection that reads the file, also while it is written. Raises
    one of SQLITE_FAULTS.
    """
    after: tuple[float, bytes] = (float("-inf"), b"")
    while found := database.execute(_NEXT_STREAM, after).fetchone():
        after = found
        segments = database.execute(_SEGMENTS, (found[1],)).fetchall()
        if [number for number, _ in segments] == list(range(len(segments))):
            yield [value for _, value in segments]


_NEXT_STREAM = """
SELECT begun_s, stream FROM streams WHERE is_ended AND (begun_s, stream) > (?, ?) ORDER BY begun_s, stream LIMIT 1
"""
_SEGMENTS = "SELECT number, value FROM segments WHERE stream = ? ORDER BY number"


def delete_texts(path: Path) -> None:
    """Delete the file and SQLite's files beside it, if they exist. Raises OSError."""
    for file in (path, path.with_name(f"{path.name}-wal"), path.with_name(f"{path.name}-shm")):
        file.unlink(missing_ok=True)


def _open(path: Path, max_bytes: int) -> sqlite3.Connection:
    os.close(os.open(path, os.O_RDWR | os.O_CREAT, 0o600))
    database = sqlite3.connect(path, timeout=_BUSY_S, isolation_level=None, check_same_thread=False)
    try:
        database.execute(f"PRAGMA page_size = {_PAGE_BYTES}")  # this and the next: of a file without tables
        database.execute("PRAGMA auto_vacuum = INCREMENTAL")
        database.execute("PRAGMA secure_delete = ON").fetchall()
        database.execute(f"PRAGMA max_page_count = {max_bytes // _PAGE_BYTES}").fetchall()
        database.execute("PRAGMA synchronous = FULL")
        if database.execute("SELECT 1 FROM sqlite_master LIMIT 1").fetchone() is None:
            database.executescript(
                f"BEGIN; {_SCHEMA} PRAGMA application_id = {APPLICATION}; PRAGMA user_version = {_LAYOUT}; COMMIT;"
            )
        # After the tables: the file's own header says what it is, before the log is ever folded into it.
        database.execute("PRAGMA journal_mode = WAL").fetchall()
    except BaseException:
        database.close()
        raise
    return database


def _used_bytes(database: sqlite3.Connection) -> int:
    """The bytes of the file's pages in use."""
    pages, free = (database.execute(f"PRAGMA {name}").fetchone()[0] for name in ("page_count", "freelist_count"))
    return int(pages - free) * _PAGE_BYTES


@contextmanager
def _transaction(database: sqlite3.Connection) -> Iterator[sqlite3.Connection]:
    database.execute("BEGIN IMMEDIATE")
    try:
        yield database
        database.execute("COMMIT")
    finally:
        if database.in_transaction:
            database.execute("ROLLBACK")
