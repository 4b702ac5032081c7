"""The bounded disk queue between a tap and what comes after: one SQLite file, two processes.

The recorder puts rows in, whoever delivers takes them in order and says when they are done; neither waits for the other
for longer than a transaction. A process that is killed loses nothing that was put (the file is in WAL mode; only a
power cut may take the last moments). Nothing here raises for a disk that is full, read-only or broken: `put` says so.

Policy when room is short: what is newest is refused. Rows that are vital (heads, ends, heartbeats, markers) may use a
reserve that reads may not.
"""

import sqlite3
import threading
from collections.abc import Callable, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Final

import msgspec

from streamgauge.counters import Balance, Counters, DropReason, Incident, read_balance, settle, settle_recorder
from streamgauge.spool_file import PAGE_BYTES, DamagedError, checksum, inode, is_damage, is_intact, open_spool, replace
from streamgauge.spool_sql import Failure, add_waiting, cost_of, failure_of, give_back, pragma_number, used_bytes

# A broker that is away for half an hour at 500 KB/s of compressed bundles (bytes): a busy tap.
MAX_BYTES = 1024**3
# The part of the spool that only vital rows may use: they are a few per cent of what a stream sends.
RESERVE = 0.05
# What SQLite's log beside the file may take of it (bytes): it is emptied at half of that; a transaction in flight, or a
# reader that defers the emptying for a moment, needs the rest.
LOG_BYTES = 16 * 1024**2
# SQLite's own limit on parameters in one statement is 999 in old builds.
_IDS_AT_ONCE = 500


class NewRow(msgspec.Struct, frozen=True):
    """What is put: an encoded bundle, its slot, how many reads it holds. `vital`: it may use the reserve."""

    slot: int
    reads: int
    value: bytes
    vital: bool = False


class Row(msgspec.Struct, frozen=True):
    """What is taken. Ids grow in the order of putting and are never given again."""

    id: int
    slot: int
    reads: int
    value: bytes


class Put(msgspec.Struct, frozen=True):
    """What became of the rows: the places of those refused for lack of room, or the failure that took none of them."""

    refused: Sequence[int] = ()
    failure: Failure | None = None


class Room(msgspec.Struct, frozen=True):
    """What may still be put, in bytes of `cost_of`: rows with reads, and rows that are vital."""

    reads: int
    vital: int


class Waiting(msgspec.Struct, frozen=True):
    """What lies in the spool, and what it takes on disk (bytes)."""

    rows: int
    reads: int
    value_bytes: int
    file_bytes: int


_NOTHING: Final = Waiting(0, 0, 0, 0)


class Spool:
    """One process's view of the spool. Safe to use from several threads.

    `counters`: where delivered and damaged reads are counted; without it nobody but the file knows of them.
    Raises nothing for the disk's faults: `put` says so, `take` gives nothing, `done` gives 0 and may be called again.
    """

    def __init__(self, path: Path, max_bytes: int = MAX_BYTES, counters: Counters | None = None) -> None:
        self._path = path
        self._counters = counters
        self._log = min(LOG_BYTES, max_bytes // 8)
        self._most = max_bytes - self._log
        self._most_reads = int(self._most * (1 - RESERVE))
        self._lock = threading.RLock()
        self._connection: sqlite3.Connection | None = None
        self._inode: int | None = None
        self.failure: Failure | None = None  # of the last call; None if it went well

    def put(self, rows: Sequence[NewRow], meta: dict[str, bytes] | None = None) -> Put:
        """Put rows at the end, and with them (in the same transaction) entries of `meta`. A few MiB at a time."""
        refused: list[int] = []

        def work(connection: sqlite3.Connection) -> None:
            refused.clear()
            taken, refused[:] = self._fitting(rows, used_bytes(connection))
            connection.executemany(
                "INSERT INTO rows(slot, reads, checksum, value) VALUES (?, ?, ?, ?)",
                [(row.slot, row.reads, checksum(row.slot, row.reads, row.value), row.value) for row in taken],
            )
            add_waiting(connection, 1, [(row.reads, len(row.value)) for row in taken])
            connection.executemany("INSERT OR REPLACE INTO meta VALUES (?, ?)", (meta or {}).items())

        failure = self._in_transaction(work)
        return Put(failure=failure) if failure else Put(refused=refused)

    def room(self) -> Room:
        """What may still be put; nothing if the disk does not let us look."""
        used: list[int] = []
        self._run(lambda connection: used.append(used_bytes(connection)))
        return Room(self._most_reads - used[-1], self._most - used[-1]) if used else Room(0, 0)

    def take(self, after: int, max_bytes: int) -> list[Row]:
        """The oldest rows with ids above `after`: at least one if there is one, then up to `max_bytes` of values.

        They stay until `done`. Rows that are not what was put in are removed, and counted as damaged.
        """
        taken: list[Row] = []
        spoilt: list[int] = []

        def work(connection: sqlite3.Connection) -> None:
            taken.clear()
            spoilt.clear()
            size = 0
            cursor = connection.execute(
                "SELECT id, slot, reads, checksum, value FROM rows WHERE id > ? ORDER BY id", (after,)
            )
            for row in cursor:
                if not is_intact(row):
                    spoilt.append(row[0])
                    continue
                if taken and size + len(row[4]) > max_bytes:
                    break
                taken.append(Row(row[0], row[1], row[2], row[4]))
                size += len(row[4])
            cursor.close()

        self._run(work)
        if spoilt:
            self.discard(spoilt, DropReason.SPOOL_DAMAGED)
        return taken

    def done(self, ids: Sequence[int]) -> int:
        """These rows are delivered: remove them and count their reads, in one transaction. Gives the reads."""
        reads = self._remove(ids, "UPDATE totals SET delivered = delivered + ?")
        if reads and self._counters:
            self._counters.delivered(reads)
        return reads

    def discard(self, ids: Sequence[int], reason: DropReason) -> int:
        """These rows will never be delivered: remove them, their reads are dropped. Gives the reads."""
        reads = self._remove(ids, None)
        if reads and self._counters:
            self._counters.dropped(reason, reads)
        return reads

    def get(self, key: str) -> bytes | None:
        """An entry of the spool's own memory; None if there is none."""
        found: list[bytes] = []
        self._run(lambda c: found.extend(row[0] for row in c.execute("SELECT value FROM meta WHERE key=?", (key,))))
        return found[-1] if found else None

    def set(self, key: str, value: bytes) -> bool:
        """Keep an entry in the spool's own memory. False if the disk did not take it."""
        return self.put((), {key: value}).failure is None

    def waiting(self) -> Waiting:
        """What lies in the spool."""
        found: list[Waiting] = []

        def work(connection: sqlite3.Connection) -> None:
            books = connection.execute("SELECT waiting_rows, waiting_reads, waiting_bytes FROM totals").fetchone()
            file_bytes = pragma_number(connection, "page_count") * pragma_number(connection, "page_size")
            found.append(Waiting(books[0], books[1], books[2], file_bytes))

        self._run(work)
        return found[-1] if found else _NOTHING

    def close(self) -> None:
        """Close the file. What was put stays."""
        with self._lock:
            if self._connection is not None:
                self._connection.close()
                self._connection = None

    def settle_books(self) -> tuple[int, int, bool] | None:
        """Count again what the totals say. Gives reads delivered, reads waiting, and whether a damaged file was
        replaced since the books were last settled; None if the disk does not let us look."""
        found: list[tuple[int, int, bool]] = []

        def work(connection: sqlite3.Connection) -> None:
            counted = "SELECT count(*), coalesce(sum(reads), 0), coalesce(sum(length(value)), 0) FROM rows"
            rows, reads, size = connection.execute(counted).fetchone()
            books = "UPDATE totals SET waiting_rows=?, waiting_reads=?, waiting_bytes=?"
            connection.execute(books, (rows, reads, size))
            damaged = connection.execute("SELECT 1 FROM meta WHERE key='damaged'").fetchone() is not None
            found.append((connection.execute("SELECT delivered FROM totals").fetchone()[0], reads, damaged))

        return found[-1] if self._in_transaction(work) is None else None

    def settled(self, delivered: int) -> None:
        """The balance is closed: the delivered total is this."""

        def work(connection: sqlite3.Connection) -> None:
            connection.execute("UPDATE totals SET delivered=?", (delivered,))
            connection.execute("DELETE FROM meta WHERE key='damaged'")

        self._in_transaction(work)

    def _fitting(self, rows: Sequence[NewRow], used: int) -> tuple[list[NewRow], list[int]]:
        """The rows that there is room for, and the places of those there is none for."""
        taken: list[NewRow] = []
        refused: list[int] = []
        for place, row in enumerate(rows):
            cost = cost_of(row.value)
            if used + cost > (self._most if row.vital else self._most_reads):
                refused.append(place)
            else:
                used += cost
                taken.append(row)
        return taken, refused

    def _remove(self, ids: Sequence[int], and_then: str | None) -> int:
        removed: list[tuple[int, int]] = []

        def work(connection: sqlite3.Connection) -> None:
            removed.clear()
            for start in range(0, len(ids), _IDS_AT_ONCE):
                some = list(ids[start : start + _IDS_AT_ONCE])
                these = f"FROM rows WHERE id IN ({','.join('?' * len(some))})"
                removed.extend(connection.execute(f"SELECT reads, length(value) {these}", some))
                connection.execute(f"DELETE {these}", some)
            add_waiting(connection, -1, removed)
            if and_then:
                connection.execute(and_then, (sum(reads for reads, _ in removed),))

        if self._in_transaction(work) is not None:
            return 0
        self._run(give_back)
        return sum(reads for reads, _ in removed)

    def _in_transaction(self, work: Callable[[sqlite3.Connection], None]) -> Failure | None:
        def whole(connection: sqlite3.Connection) -> None:
            connection.execute("BEGIN IMMEDIATE")
            try:
                work(connection)
                connection.execute("COMMIT")
            finally:
                if connection.in_transaction:
                    connection.execute("ROLLBACK")

        return self._run(whole)

    def _run(self, work: Callable[[sqlite3.Connection], None]) -> Failure | None:
        """Do it on the open file. A damaged one is replaced, once, and it is done again."""
        with self._lock:
            self.failure = None
            for attempt in range(2):
                try:
                    work(self._open())
                    return None
                except (sqlite3.Error, DamagedError, OSError) as error:
                    damaged = isinstance(error, DamagedError) or (isinstance(error, sqlite3.Error) and is_damage(error))
                    if not damaged or attempt:
                        self.failure = failure_of(error)
                        break
                    self._replace_file()
            self.close()
            return self.failure

    def _open(self) -> sqlite3.Connection:
        if self._connection is not None and inode(self._path) != self._inode:
            self.close()
        if self._connection is None:
            self._inode = inode(self._path)
            self._connection = open_spool(self._path)
            self._inode = inode(self._path)
            self._connection.execute(f"PRAGMA wal_autocheckpoint={max(self._log // 2 // PAGE_BYTES, 1)}")
            self._connection.execute(f"PRAGMA journal_size_limit={self._log}")
        return self._connection

    def _replace_file(self) -> None:
        self.close()
        delivered = self._counters.total_delivered() if self._counters else 0
        try:
            books = replace(self._path, self._inode, delivered)
        except (sqlite3.Error, DamagedError, OSError):
            return  # the disk refuses the new file as well: the second attempt says how
        if books is None or self._counters is None:
            return
        self._counters.happened(Incident.SPOOL_DAMAGED)
        waited, carried = books
        if waited >= 0:
            self._counters.dropped(DropReason.SPOOL_DAMAGED, max(waited - carried, 0))
            with suppress(sqlite3.Error, DamagedError, OSError):
                self._open().execute("DELETE FROM meta WHERE key='damaged'")


def settle_crash(spool: Spool, counters_path: Path) -> Balance:
    """Close the balance of reads before any process of a tap runs; gives what it then is.

    What was seen and is neither delivered, dropped nor waiting in the spool was lost: dropped by `crash`, or by
    `spool_damaged` if a spool whose books cannot be read was put aside. Where the spool cannot be opened nothing is
    settled.
    """
    books = spool.settle_books()
    if books is None:
        return read_balance(counters_path)
    delivered, waiting, damaged = books
    reason = DropReason.SPOOL_DAMAGED if damaged else DropReason.CRASH
    balance = settle(counters_path, delivered, waiting, reason=reason)
    spool.settled(balance.delivered)
    return balance


def settle_restart(spool: Spool, counters_path: Path) -> None:
    """Close the books of a recorder that died, before the next one begins; relays and delivery go on meanwhile."""
    books = spool.settle_books()
    if books is not None:
        delivered, waiting, damaged = books
        reason = DropReason.SPOOL_DAMAGED if damaged else DropReason.CRASH
        settle_recorder(counters_path, delivered, waiting, reason=reason)


__all__ = ["MAX_BYTES", "Failure", "NewRow", "Put", "Room", "Row", "Spool", "Waiting", "cost_of", "settle_crash"]
