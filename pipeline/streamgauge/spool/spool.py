"""The bounded disk queue between the recorder and Kafka or the ledger: one SQLite file, one process, one connection.

The recorder puts rows in. The shipper or the assembler takes them in order and marks them as done. A killed process loses
nothing that was put (the file is in WAL mode); a power cut loses what was put after the last `sync`. No method raises if the
disk is full, read-only or broken: `put` gives the failure.

A row with reads comes with two values: whole, and without its reads (heads, ends, numbers, counts of loss). `put` decides
which of them have room. To drop the reads of a row later, for space or by age, is to delete its whole value. Rows that were
taken for delivery keep their reads.
"""

import errno
import os
import shutil
import sqlite3
import threading
from collections.abc import Callable, Sequence
from contextlib import closing, suppress
from enum import StrEnum
from pathlib import Path
from sqlite3 import Connection
from typing import Final, NamedTuple, TypeVar

import msgspec

from streamgauge.settings.declarations import SpoolPolicy, SpoolSettings
from streamgauge.spool.file import (
    COLUMNS,
    FAULTS,
    PAGE_BYTES,
    DamagedError,
    checksum,
    insert,
    is_damage,
    is_intact,
    not_waiting,
    open_spool,
    replace,
    transaction,
)
from streamgauge.spool.read_counters import (
    Balance,
    Counters,
    DropReason,
    Incident,
    close_balance,
    close_recorder_balance,
    read_balance,
)
from streamgauge.spool.response_counters import NotCaptured
from streamgauge.spool.row_clock import Moment, RowClock, moment

Result = TypeVar("Result")

# The part of the spool that only rows without reads may use: they are a few per cent of what a stream sends.
RESERVE = 0.05
# The part of the spool's size that SQLite's log beside the file may use (bytes). The log is emptied at a quarter of
# that; a transaction in flight, or a reader that defers the emptying for a moment, needs the rest.
LOG_BYTES = 16 * 1024**2
# The log is at most 1/LOG_PART of the spool, and of the disk: on a small disk 16 MiB would leave no space for rows.
LOG_PART = 8
# At most 1/IN_FLIGHT_PART of the spool may be taken and not yet done: with more, a small spool would have no row left
# that may lose its reads.
IN_FLIGHT_PART = 4
# A value's cost besides its bytes: its columns and its place in the tree, and the unused end of its last page: on average
# less than half a page, and less than the value itself.
VALUE_BYTES = 50
PAGE_END_BYTES = PAGE_BYTES // 2
# Rows that lose their reads by age in one transaction: some tens of milliseconds.
OLD_ROWS = 1000
# Free pages that are returned to the disk at a time while rows remain (1 MiB: each is searched in the list of free
# pages). They are returned from so many free pages on (4 MiB: fewer are soon reused).
VACUUM_PAGES = 256
VACUUM_FROM_PAGES = 1024
# No id of a row is as large as this: ids begin at the wall clock's microseconds.
MAX_ID = 2**62
# SQLite's own limit on parameters in one statement is 999 in old builds.
_IDS_AT_ONCE = 500
_CLOCK = "clock"


class Failure(StrEnum):
    """Reasons why the disk refused an operation."""

    DISK_FULL = "disk_full"
    READ_ONLY = "read_only"
    BUSY = "busy"
    BROKEN = "broken"


class NewRow(msgspec.Struct, frozen=True):
    """A row to put: an encoded bundle, its slot, and how many reads it has. `light`: the bundle without its reads, if any."""

    slot: int
    reads: int
    value: bytes
    light: bytes = b""

    @property
    def cost(self) -> int:
        """The space that the row takes (bytes)."""
        return _cost(self.value) + (_cost(self.light) if self.reads else 0)


class Row(msgspec.Struct, frozen=True):
    """A row that was taken. Ids grow in the order of putting and are never reused."""

    id: int
    slot: int
    reads: int
    value: bytes


class Put(msgspec.Struct, frozen=True):
    """The result of a put: how many rows were stored, from the first one on; with a `failure` of the disk none was."""

    stored: int = 0
    failure: Failure | None = None


class Waiting(msgspec.Struct, frozen=True):
    """The contents of the spool: rows, reads, and the size of the file (bytes)."""

    rows: int
    reads: int
    file_bytes: int


class Totals(msgspec.Struct, frozen=True):
    """The reads delivered so far, the reads that wait, and whether a damaged file was replaced when it was opened."""

    delivered: int
    waiting: int
    was_replaced: bool


class _Written(NamedTuple):
    """Rows that were stored and their last id, the reads that the spool gained, and those dropped."""

    rows: int
    last_id: int
    reads: int
    dropped: int


class _CallResult(threading.local):
    """The failure of a thread's last call, if it failed."""

    failure: Failure | None = None
    error = ""


_NOTHING: Final = Waiting(0, 0, 0)


class Spool:
    """The queue. Safe to use from several threads: one works at a time. `on_put` is called after rows were stored, on the
    thread that stored them.

    `counters`: counts delivered, damaged and dropped reads; without it only the file's total changes. `now`: the clock that
    gives rows their age. `most_at_once`: the limit of one `put` (bytes of `NewRow.cost`), so that SQLite's log keeps to its
    part of the space; a row that is larger loses its reads. Raises nothing if the disk fails: `put` gives the failure, `take`
    gives no rows, `done` gives 0 and may be called again.
    """

    def __init__(
        self,
        path: Path,
        max_bytes: int = SpoolSettings.spool_bytes,
        counters: Counters | None = None,
        now: Callable[[], Moment] = moment,
    ) -> None:
        self.on_put: Callable[[], object] = lambda: None
        self._path = path
        self._counters = counters
        self._now = now
        self._log_bytes = min(LOG_BYTES, min(max_bytes, _disk_bytes(path.parent, max_bytes)) // LOG_PART)
        self.most_at_once = self._log_bytes // 2
        self._most = max_bytes - self._log_bytes
        self._most_reads = int(self._most * (1 - RESERVE))
        self._lock = threading.RLock()
        self._result = _CallResult()
        self._connection: Connection | None = None
        self._rows = self._reads = self._last_id = self._taken = 0  # of the open file
        self._clock = RowClock(None, 0, now)
        self._was_open = False
        self._was_replaced = False  # a damaged file, whose number of reads is unknown
        self._waiting = _NOTHING

    @property
    def failure(self) -> Failure | None:
        """The failure of this thread's last call; None if it succeeded."""
        return self._result.failure

    @property
    def error(self) -> str:
        """The error text of SQLite or the system, if this thread's last call failed."""
        return self._result.error

    @property
    def most_in_flight(self) -> int:
        """The bytes of values that may be taken and not marked as done."""
        return self._most // IN_FLIGHT_PART

    def put(
        self, rows: Sequence[NewRow], meta: dict[str, bytes] | None = None, policy: SpoolPolicy = "drop-newest"
    ) -> Put:
        """Put rows at the end, up to the first one that has no room even without its reads.

        Reads without room are dropped and counted: those of the row, or with drop-oldest those of the oldest rows that wait.
        `meta`: entries that are stored in the same transaction.
        """
        with self._lock:
            written = self._run(lambda connection: self._write(connection, rows, meta or {}, policy), None, writes=True)
            if written is None:
                return Put(failure=self.failure)
            self._rows += written.rows
            self._reads += written.reads
            self._last_id = written.last_id
            self._count_dropped(DropReason.SPOOL_FULL, written.dropped)
        if written.rows:
            self.on_put()
        return Put(written.rows)

    def drop_old_reads(self, max_age_s: float) -> int:
        """Drop the reads of rows that have waited longer than this, of OLD_ROWS at most. Gives how many: `too_old`."""

        def work(connection: Connection) -> int:
            self._note_clock(connection)
            before = self._clock.seconds() - max_age_s
            oldest = connection.execute(
                "SELECT id, reads, put_s FROM whole WHERE id > ? ORDER BY id LIMIT ?", (self._taken, OLD_ROWS)
            ).fetchall()
            old = [(row_id, reads) for row_id, reads, put_s in oldest if put_s < before]
            connection.executemany("DELETE FROM whole WHERE id = ?", [(row_id,) for row_id, _ in old])
            return sum([reads for _, reads in old])

        with self._lock:
            dropped = self._run(work, 0, writes=True)
            self._reads -= dropped
            self._count_dropped(DropReason.TOO_OLD, dropped)
            if dropped:
                self._return_free_pages()
        return dropped

    def take(self, after: int, max_bytes: int) -> list[Row]:
        """The oldest rows with ids above `after`: at least one if there is one, then up to `max_bytes` of values.

        They stay in the file, with their reads, until `done`. Damaged rows are removed, and their reads counted as dropped.
        """
        rows: list[Row] = []
        damaged: list[int] = []
        with self._lock:
            rows, damaged = self._run(lambda connection: _read_rows(connection, after, max_bytes), (rows, damaged))
            if damaged:
                self.discard(damaged, DropReason.SPOOL_DAMAGED)
            if rows and rows[-1].id > self._taken:
                self._taken = rows[-1].id
                # On a disk that refuses this, rows can still be read.
                self._run_aside(lambda connection: connection.execute("UPDATE totals SET taken = ?", (self._taken,)))
        return rows

    def peek(self, after: int, max_bytes: int) -> list[Row]:
        """Read rows without taking them: they may still lose their reads."""
        return self._run(lambda connection: _read_rows(connection, after, max_bytes)[0], [])

    def done(self, ids: Sequence[int]) -> int:
        """Remove delivered rows and count their reads. Gives how many reads."""
        with self._lock:
            reads = self._remove(ids, delivered=True)
            if reads and self._counters:
                self._counters.delivered(reads)
        return reads

    def discard(self, ids: Sequence[int], reason: DropReason) -> int:
        """Remove rows that will never be delivered and drop their reads. Gives how many reads."""
        with self._lock:
            reads = self._remove(ids, delivered=False)
            self._count_dropped(reason, reads)
        return reads

    def count_lost(self, upstream: str | None, reason: NotCaptured) -> None:
        """Count a response that will have no record, since the row that holds all of its stream is discarded."""
        if self._counters:
            self._counters.responses.not_captured(upstream, reason)

    def get(self, key: str) -> bytes | None:
        """An entry of `meta`; None if there is none."""
        row = self._run(lambda c: c.execute("SELECT value FROM meta WHERE key = ?", (key,)).fetchone(), None)
        return row[0] if row and isinstance(row[0], bytes) else None

    def set(self, key: str, value: bytes) -> bool:
        """Store an entry in `meta`. False if the disk refused it."""
        return self.put((), {key: value}).failure is None

    def waiting(self) -> Waiting:
        """The contents of the spool; all zero if it cannot be read. Never waits for another thread that uses the spool:
        then it returns the result of the last call.
        """
        if self._lock.acquire(blocking=False):
            try:
                pages = self._run(lambda connection: _number(connection, "PRAGMA page_count"), 0)
                self._waiting = Waiting(self._rows, self._reads, pages * PAGE_BYTES) if pages else _NOTHING
            finally:
                self._lock.release()
        return self._waiting

    def sync(self) -> None:
        """Force all earlier writes to the disk: after this call they survive a power cut. A slow disk may take long."""
        # Without the lock, since it may take long. Not the database's own file: closing any descriptor of that would drop
        # SQLite's locks.
        with suppress(OSError):  # a disk that refuses this also refuses writes, which report it
            for path in (self._path.with_name(f"{self._path.name}-wal"), self._path.parent):
                opened = os.open(path, os.O_RDONLY)
                try:
                    os.fsync(opened)
                finally:
                    os.close(opened)

    def close(self) -> None:
        """Close the file. What was put stays."""
        with self._lock:
            if self._connection is not None:
                self._connection.close()
                self._connection = None

    def totals(self) -> Totals | None:
        """The totals of reads, to close the balance; None if the file cannot be read."""
        with self._lock:
            delivered = self._run(lambda connection: _number(connection, "SELECT delivered FROM totals"), None)
            return None if delivered is None else Totals(delivered, self._reads, self._was_replaced)

    def store_delivered(self, delivered: int) -> None:
        """Store the delivered total of a balance that was just closed."""
        with self._lock:
            self._was_replaced = False
            set_total = "UPDATE totals SET delivered = ?"
            self._run(lambda connection: connection.execute(set_total, (delivered,)), None, writes=True)

    # --- rows and reads ---------------------------------------------------------------------------------------------

    def _write(
        self, connection: Connection, rows: Sequence[NewRow], meta: dict[str, bytes], policy: SpoolPolicy
    ) -> _Written:
        """Insert the rows that have room, with or without their reads, and make room by the policy."""
        used, put_s = _used_bytes(connection), self._clock.seconds()
        stored = gained = dropped = 0
        for row in rows:
            reads, value, cost = row.reads, row.value, row.cost
            if reads and policy == "drop-oldest" and cost <= self.most_at_once:
                used, lost = self._drop_reads(connection, used, self._most_reads - cost, "ASC")
                gained, dropped = gained - lost, dropped + lost
            if reads and (cost > self.most_at_once or used + cost > self._most_reads):
                dropped += reads
                reads, value, cost = 0, row.light, _cost(row.light)
            if not reads:
                order = "ASC" if policy == "drop-oldest" else "DESC"
                used, lost = self._drop_reads(connection, used, self._most - cost, order)
                gained, dropped = gained - lost, dropped + lost
                if used + cost > self._most:
                    dropped -= row.reads  # the caller keeps them
                    break
            stored += 1
            row_id = self._last_id + stored
            insert(
                connection,
                (row_id, row.slot, reads, put_s, checksum(row_id, row.slot, reads, put_s, value), value),
                row.light,
            )
            used, gained = used + cost, gained + reads
        self._note_clock(connection)
        connection.executemany("INSERT OR REPLACE INTO meta VALUES (?, ?)", meta.items())
        return _Written(stored, self._last_id + stored, gained, dropped)

    def _drop_reads(self, connection: Connection, used: int, most: int, order: str) -> tuple[int, int]:
        """Drop the reads of waiting rows until at most `most` bytes are used. Gives the used bytes, and the reads dropped."""
        dropped = 0
        next_row = f"SELECT id, reads FROM whole WHERE id > ? ORDER BY id {order} LIMIT 1"
        while used > most and (row := connection.execute(next_row, (self._taken,)).fetchone()):
            connection.execute("DELETE FROM whole WHERE id = ?", (row[0],))
            dropped += row[1]
            used = _used_bytes(connection)
        return used, dropped

    def _remove(self, ids: Sequence[int], *, delivered: bool) -> int:
        """Remove rows. Gives how many reads they had."""

        def work(connection: Connection) -> tuple[int, int]:
            rows = reads = 0
            for start in range(0, len(ids), _IDS_AT_ONCE):
                batch = list(ids[start : start + _IDS_AT_ONCE])
                in_batch = f"WHERE id IN ({','.join('?' * len(batch))})"
                of_batch = connection.execute(f"SELECT coalesce(sum(reads), 0) FROM whole {in_batch}", batch).fetchone()
                connection.execute(f"DELETE FROM whole {in_batch}", batch)
                removed = connection.execute(f"DELETE FROM light {in_batch}", batch).rowcount
                if removed < len(batch) and set(batch) & _all_ids(connection):
                    raise DamagedError("a row is not where it should be")  # `take` would give it again and again
                rows, reads = rows + removed, reads + of_batch[0]
            reads = min(max(int(reads), 0), self._reads)  # the number of a damaged row may be wrong
            if delivered:
                connection.execute("UPDATE totals SET delivered = delivered + ?", (reads,))
            return rows, reads

        rows, reads = self._run(work, (0, 0), writes=True)
        self._rows -= rows
        self._reads -= reads
        if rows:
            self._return_free_pages()
        return reads

    def _count_dropped(self, reason: DropReason, reads: int) -> None:
        if reads and self._counters:
            self._counters.dropped(reason, reads)

    def _note_clock(self, connection: Connection) -> None:
        if (note := self._clock.due_note()) is not None:
            connection.execute("INSERT OR REPLACE INTO meta VALUES (?, ?)", (_CLOCK, note))

    def _return_free_pages(self) -> None:
        """Return free pages to the disk: all when the spool is empty, some when most of the file is free."""

        def work(connection: Connection) -> None:
            free = _number(connection, "PRAGMA freelist_count")
            if free < VACUUM_FROM_PAGES:
                return
            if not self._rows:
                with not_waiting(connection):
                    connection.execute("VACUUM")  # copies the remaining data, which is nearly nothing
                    connection.execute("PRAGMA wal_checkpoint(TRUNCATE)").fetchall()
            elif free * 2 > _number(connection, "PRAGMA page_count"):
                # A page is freed at each step of this statement; `execute` would stop after the first.
                connection.executescript(f"PRAGMA incremental_vacuum({VACUUM_PAGES})")

        self._run_aside(work)

    # --- the file ---------------------------------------------------------------------------------------------------

    def _run(self, work: Callable[[Connection], Result], otherwise: Result, *, writes: bool = False) -> Result:
        """Run `work` on the open file, with `writes` in one transaction. Gives `otherwise` if the disk refuses.

        A damaged file is replaced once, and `work` is run again.
        """
        result = self._result
        with self._lock:
            result.failure, result.error = None, ""
            may_replace = True
            while True:
                try:
                    connection = self._open()
                    if not writes:
                        return work(connection)
                    with transaction(connection):
                        return work(connection)
                except FAULTS as error:
                    result.failure, result.error = failure_of(error), _text_of(error)
                    if result.failure in (Failure.DISK_FULL, Failure.BUSY):
                        return otherwise
                    self.close()
                    if not (may_replace and is_damage(error) and self._replace()):
                        return otherwise
                    may_replace = False
                    result.failure, result.error = None, ""

    def _run_aside(self, work: Callable[[Connection], object]) -> None:
        """Run `work`, whose failure does not concern the caller."""
        self._run(work, None)
        self._result.failure, self._result.error = None, ""

    def _open(self) -> Connection:
        """The open connection. Raises what `open_spool` raises."""
        if self._connection is None:
            connection = open_spool(self._path)
            try:
                self._read_state(connection)
            except BaseException:
                connection.close()
                raise
            self._connection = connection
            self._was_open = True
        return self._connection

    def _read_state(self, connection: Connection) -> None:
        # A transaction may add half of the log's size, and some pages besides those of its rows.
        connection.execute(f"PRAGMA wal_autocheckpoint={max(self._log_bytes // 4 // PAGE_BYTES, 1)}").fetchall()
        connection.execute(f"PRAGMA journal_size_limit={self._log_bytes}").fetchall()
        if connection.execute("SELECT 1 FROM whole WHERE id NOT IN (SELECT id FROM light) LIMIT 1").fetchone():
            raise DamagedError("a row with reads has none without them")
        self._rows = _number(connection, "SELECT count(*) FROM light")
        self._reads = max(_number(connection, "SELECT coalesce(sum(reads), 0) FROM whole"), 0)
        largest_id = _number(connection, "SELECT coalesce(max(id), 0) FROM light")
        self._last_id = _number(connection, "SELECT seq FROM sqlite_sequence WHERE name = 'light'")
        if not largest_id <= self._last_id < MAX_ID:
            raise DamagedError("the spool's last row id is wrong")
        self._taken = min(max(_number(connection, "SELECT taken FROM totals"), self._taken), self._last_id)
        last_s = _number(connection, "SELECT coalesce((SELECT put_s FROM whole ORDER BY id DESC LIMIT 1), 0)")
        note = connection.execute("SELECT value FROM meta WHERE key = ?", (_CLOCK,)).fetchone()
        self._clock = RowClock(note[0] if note and isinstance(note[0], bytes) else None, last_s, self._now)

    def _replace(self) -> bool:
        """Replace a damaged file, and count what is lost. False if the disk refuses the new file."""
        was_open, reads_before = self._was_open, self._reads
        try:
            replace(self._path, self._counters.total_delivered() if self._counters else 0)
            self._open()
        except FAULTS as error:
            self._result.failure, self._result.error = failure_of(error), _text_of(error)
            return False
        self._was_replaced = not was_open
        if self._counters:
            self._counters.happened(Incident.SPOOL_DAMAGED)
        if was_open:
            self._count_dropped(DropReason.SPOOL_DAMAGED, max(reads_before - self._reads, 0))
        return True


def close_balance_after_crash(spool: Spool, counters_path: Path) -> Balance:
    """Close the balance of reads before any process of a tap runs. Gives the closed balance.

    Reads that were seen and are neither delivered, dropped nor waiting in the spool were lost: they are dropped by `crash`,
    or by `spool_damaged` if a damaged spool was replaced. If the spool cannot be read, the balance stays open.
    """
    totals = spool.totals()
    if totals is None:
        return read_balance(counters_path)
    balance = close_balance(counters_path, totals.delivered, totals.waiting, reason=_reason_of_loss(totals))
    spool.store_delivered(balance.delivered)
    return balance


def close_balance_at_restart(spool: Spool, counters_path: Path) -> None:
    """Close the balance of a recorder that has ended, before the next one puts or delivers rows; relays continue."""
    totals = spool.totals()
    if totals is not None:
        close_recorder_balance(counters_path, totals.delivered, totals.waiting, reason=_reason_of_loss(totals))
        spool.store_delivered(read_balance(counters_path).delivered)


def _reason_of_loss(totals: Totals) -> DropReason:
    return DropReason.SPOOL_DAMAGED if totals.was_replaced else DropReason.CRASH


def _read_rows(connection: Connection, after: int, max_bytes: int) -> tuple[list[Row], list[int]]:
    """Intact rows with ids above `after`: at least one, then up to `max_bytes` of values. And the ids of damaged ones."""
    rows: list[Row] = []
    damaged: list[int] = []
    size = 0
    with closing(connection.execute(f"SELECT {COLUMNS} FROM rows WHERE id > ? ORDER BY id", (after,))) as cursor:
        for row in cursor:
            if not is_intact(row):
                damaged.append(row[0])
                continue
            row_id, slot, reads, _, _, value = row
            if rows and size + len(value) > max_bytes:
                break
            rows.append(Row(row_id, slot, reads, value))
            size += len(value)
    return rows, damaged


def _all_ids(connection: Connection) -> set[int]:
    """The ids of all rows, read without a search by id."""
    return {row_id for (row_id,) in connection.execute("SELECT +id FROM light")}


def _used_bytes(connection: Connection) -> int:
    """The size of the file's used pages (bytes). Raises DamagedError if its header is impossible."""
    pages, free = _number(connection, "PRAGMA page_count"), _number(connection, "PRAGMA freelist_count")
    if not 0 <= free < pages:
        raise DamagedError("more pages are free than there are")
    return (pages - free) * PAGE_BYTES


def _number(connection: Connection, query: str) -> int:
    """The number that a query gives. Raises DamagedError if it gives something else."""
    row = connection.execute(query).fetchone()
    if row is None or not isinstance(row[0], int):
        raise DamagedError(f"no number: {query}")
    return row[0]


def _cost(value: bytes) -> int:
    return len(value) + VALUE_BYTES + min(len(value), PAGE_END_BYTES)


def _disk_bytes(folder: Path, otherwise: int) -> int:
    """The size of the disk that holds the folder (bytes); `otherwise` if the system cannot give it."""
    try:
        return shutil.disk_usage(folder).total
    except OSError:
        return otherwise


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


def _text_of(error: Exception) -> str:
    return (isinstance(error, OSError) and error.strerror) or str(error)
