"""The bounded disk queue between a recorder and Kafka or the ledger: one SQLite file, used by two processes.

The recorder puts rows in. The delivering process takes them in order and marks them as done. Neither waits for the other
for longer than a transaction. A killed process loses nothing that was put (the file is in WAL mode); a power cut loses what
was put after the last `sync`. No method raises if the disk is full, read-only or broken: `put` gives the failure.

When space is short, rows that may not use the reserve are refused. The recorder then drops the reads of waiting rows, the
oldest or the newest (`drop_reads_for_space`), or the reads that it wanted to put. Vital rows (heads, ends, heartbeats,
markers) stay. Rows that were taken for delivery are never changed.
"""

import shutil
from collections.abc import Callable, Sequence
from pathlib import Path
from sqlite3 import Connection
from typing import Final

import msgspec

from streamgauge.settings.declarations import SpoolSettings
from streamgauge.spool.connection import SpoolFile, Work
from streamgauge.spool.file import COLUMNS, is_intact, with_checksum, without_checksum
from streamgauge.spool.read_counters import (
    Balance,
    Counters,
    DropReason,
    close_balance,
    close_recorder_balance,
    read_balance,
)
from streamgauge.spool.response_counters import NotCaptured
from streamgauge.spool.row_clock import Moment, age_now, moment
from streamgauge.spool.sql import (
    Failure,
    Lighter,
    Order,
    cost_of,
    delivered_total,
    insert,
    pragma_number,
    purge,
    remove,
    return_free_pages,
    strip_reads,
    totals,
    used_bytes,
)

# The part of the spool that only vital rows may use: they are a few per cent of what a stream sends.
RESERVE = 0.05
# The part of the spool's size that SQLite's log beside the file may use (bytes). The log is emptied at a quarter of
# that; a transaction in flight, or a reader that defers the emptying for a moment, needs the rest.
LOG_BYTES = 16 * 1024**2
# The log is at most 1/LOG_PART of the spool, and of the disk: on a small disk 16 MiB would leave no space for rows.
LOG_PART = 8
# At most 1/IN_FLIGHT_PART of the spool may be taken and not yet done: with more, a small spool would have no row left
# that may lose its reads.
IN_FLIGHT_PART = 4


class NewRow(msgspec.Struct, frozen=True):
    """A row to put: an encoded bundle, its slot, and how many reads it holds. `vital`: it may use the reserve."""

    slot: int
    reads: int
    value: bytes
    vital: bool = False


class Row(msgspec.Struct, frozen=True):
    """A row that was taken. Ids grow in the order of putting and are never reused."""

    id: int
    slot: int
    reads: int
    value: bytes


class Put(msgspec.Struct, frozen=True):
    """The result of a put: the indexes of rows refused for lack of space, or the failure; with a failure none was put."""

    refused: Sequence[int] = ()
    failure: Failure | None = None


class Room(msgspec.Struct, frozen=True):
    """The space for further rows, in bytes of `cost_of`: for rows with reads, and for vital rows."""

    reads: int
    vital: int


class Waiting(msgspec.Struct, frozen=True):
    """The contents of the spool: rows, reads, the size of their values and of the file (bytes)."""

    rows: int
    reads: int
    value_bytes: int
    file_bytes: int


_NOTHING: Final = Waiting(0, 0, 0, 0)


class Spool:
    """One process's view of the spool. Safe to use from several threads.

    `counters`: counts delivered, damaged and dropped reads; without it only the file's totals change. `now`: the clock that
    gives rows their age. `most_at_once`: the limit of one `put` (bytes of `cost_of`), so that SQLite's log keeps to its part
    of the space; a larger row with reads is refused. Raises nothing if the disk fails: `put` gives the failure, `take` gives
    no rows, `done` gives 0 and may be called again.
    """

    def __init__(
        self,
        path: Path,
        max_bytes: int = SpoolSettings.spool_bytes,
        counters: Counters | None = None,
        now: Callable[[], Moment] = moment,
    ) -> None:
        self._counters = counters
        self._now = now
        log = min(LOG_BYTES, min(max_bytes, _disk_bytes(path.parent, max_bytes)) // LOG_PART)
        self.most_at_once = log // 2
        self._most = max_bytes - log
        self._most_reads = int(self._most * (1 - RESERVE))
        self._file = SpoolFile(path, log, counters)
        self._waiting = _NOTHING

    @property
    def failure(self) -> Failure | None:
        """The failure of this thread's last call; None if it succeeded."""
        return self._file.failure

    @property
    def error(self) -> str:
        """The error text of SQLite or the system, if this thread's last call failed."""
        return self._file.error

    @property
    def most_in_flight(self) -> int:
        """The bytes of values that the delivering process may have taken and not marked as done."""
        return self._most // IN_FLIGHT_PART

    def put(self, rows: Sequence[NewRow], meta: dict[str, bytes] | None = None) -> Put:
        """Put rows at the end, and entries of `meta` in the same transaction, unless a row is refused."""
        refused: list[int] = []

        def work(connection: Connection) -> None:
            refused.clear()
            taken, refused[:] = self._fitting(rows, used_bytes(connection))
            if taken:
                insert(
                    connection, [(row.slot, row.reads, row.value) for row in taken], age_now(connection, self._now())
                )
            entries = [] if refused else [(key, with_checksum(value)) for key, value in (meta or {}).items()]
            connection.executemany("INSERT OR REPLACE INTO meta VALUES (?, ?)", entries)

        failure = self._file.transact(work)
        return Put(failure=failure) if failure else Put(refused=refused)

    def room(self) -> Room:
        """The space for further rows; zero if the file cannot be read."""
        used: list[int] = []
        self._file.run(lambda connection: used.append(used_bytes(connection)))
        return Room(self._most_reads - used[-1], self._most - used[-1]) if used else Room(0, 0)

    def drop_reads_for_space(self, want: int, lighter: Lighter, *, newest: bool) -> int:
        """Drop the reads of waiting rows, the oldest or the newest first, until `want` bytes were freed or no row is left.

        One call changes at most STRIP_ROWS rows. Gives how many reads were dropped, by `spool_full`.
        """
        order: Order = "DESC" if newest else "ASC"
        return self._drop_reads(DropReason.SPOOL_FULL, lambda c: strip_reads(c, lighter, order, want=want))

    def drop_old_reads(self, max_age_s: float, lighter: Lighter) -> int:
        """Drop the reads of rows that have waited longer than this, a few rows in each call. Gives how many: `too_old`."""
        return self._drop_reads(
            DropReason.TOO_OLD,
            lambda c: strip_reads(c, lighter, "ASC", put_before=int(age_now(c, self._now()) - max_age_s)),
        )

    def take(self, after: int, max_bytes: int) -> list[Row]:
        """The oldest rows with ids above `after`: at least one if there is one, then up to `max_bytes` of values.

        They stay in the file, unchanged, until `done`. Damaged rows are removed, and their reads counted as dropped.
        """
        taken: list[Row] = []
        damaged_ids: list[int] = []

        def read_rows(connection: Connection) -> None:
            taken[:], damaged_ids[:] = _read_rows(connection, after, max_bytes)

        def read_and_mark(connection: Connection) -> None:
            read_rows(connection)
            if taken:
                connection.execute("UPDATE totals SET taken = max(taken, ?)", (taken[-1].id,))

        if self._has_after(after) and self._file.transact(read_and_mark) is not None:
            self._file.run(read_rows)  # a disk that refuses writes may still be readable
        if damaged_ids:
            self._drop_reads(DropReason.SPOOL_DAMAGED, lambda connection: purge(connection)[0])
        return taken

    def peek(self, after: int, max_bytes: int) -> list[Row]:
        """Read rows without claiming them: their reads may still be dropped for space."""
        rows: list[Row] = []

        def work(connection: Connection) -> None:
            rows[:] = _read_rows(connection, after, max_bytes)[0]

        self._file.run(work)
        return rows

    def done(self, ids: Sequence[int]) -> int:
        """Remove delivered rows and count their reads, in one transaction. Gives how many reads."""
        reads = self._remove(ids, delivered=True)
        if reads and self._counters:
            self._counters.delivered(reads)
        return reads

    def discard(self, ids: Sequence[int], reason: DropReason) -> int:
        """Remove rows that will never be delivered and drop their reads. Gives how many reads."""
        return self._counting_dropped(reason, lambda: self._remove(ids, delivered=False))

    def count_lost(self, upstream: str | None, reason: NotCaptured) -> None:
        """Count a response that will have no record, since the row that holds all of its stream is discarded."""
        if self._counters:
            self._counters.responses.not_captured(upstream, reason)

    def get(self, key: str) -> bytes | None:
        """An entry of `meta`; None if there is none, or it is damaged."""
        values: list[bytes | None] = []

        def work(connection: Connection) -> None:
            rows = connection.execute("SELECT value FROM meta WHERE key=?", (key,))
            values.extend(without_checksum(row[0]) for row in rows)

        self._file.run(work)
        return values[-1] if values else None

    def set(self, key: str, value: bytes) -> bool:
        """Store an entry in `meta`. False if the disk refused it."""
        return self.put((), {key: value}).failure is None

    def waiting(self) -> Waiting:
        """The contents of the spool; all zero if it cannot be read. Never waits for another thread that uses the spool:
        then it returns the result of the last call.
        """
        results: list[Waiting] = []

        def work(connection: Connection) -> None:
            _, _, rows, reads, size = totals(connection)
            file_bytes = pragma_number(connection, "page_count") * pragma_number(connection, "page_size")
            results.append(Waiting(rows, reads, size, file_bytes))

        if self._file.run_if_free(work):
            self._waiting = results[-1] if results else _NOTHING
        return self._waiting

    def sync(self) -> None:
        """Force all earlier writes to the disk: after this call they survive a power cut. A slow disk may take long."""
        self._file.sync()

    def close(self) -> None:
        """Close the file. What was put stays."""
        self._file.close()

    def recompute_totals(self) -> tuple[int | None, int, bool] | None:
        """Recompute the totals from the rows; damaged rows are removed and their reads dropped.

        Gives the reads delivered (None: that number is damaged), the reads waiting, and whether a damaged file was replaced
        since the last call of `store_delivered`; None if the file cannot be read.
        """
        results: list[tuple[int | None, int, bool]] = []

        def work(connection: Connection) -> int:
            lost, waiting = purge(connection)
            delivered, damaged = delivered_total(connection)
            results.append((delivered, waiting, damaged))
            return lost

        self._drop_reads(DropReason.SPOOL_DAMAGED, work)
        return results[-1] if results and self.failure is None else None

    def store_delivered(self, delivered: int) -> None:
        """Store the delivered total of a balance that was just closed, and clear the mark of a replaced file."""

        def work(connection: Connection) -> None:
            connection.execute("UPDATE totals SET delivered=?, negative=?", (delivered, -delivered))
            connection.execute("DELETE FROM meta WHERE key='damaged'")

        self._file.transact(work)

    def close_balance_at_restart(self, counters_path: Path) -> None:
        """See the function of that name. It holds the lock, so that no other process drops reads at the same time."""
        try:
            with self._file.exclusive():
                recomputed = self.recompute_totals()
                if recomputed is not None:
                    delivered, waiting, damaged = recomputed
                    if delivered is None:
                        delivered = read_balance(counters_path).delivered
                    reason = DropReason.SPOOL_DAMAGED if damaged else DropReason.CRASH
                    close_recorder_balance(counters_path, delivered, waiting, reason=reason)
        except OSError:
            return  # the lock file cannot be opened

    def _fitting(self, rows: Sequence[NewRow], used: int) -> tuple[list[NewRow], list[int]]:
        """The rows that fit, and the indexes of those that do not."""
        taken: list[NewRow] = []
        refused: list[int] = []
        for index, row in enumerate(rows):
            cost = cost_of(row.value)
            too_large = not row.vital and cost > self.most_at_once
            if too_large or used + cost > (self._most if row.vital else self._most_reads):
                refused.append(index)
            else:
                used += cost
                taken.append(row)
        return taken, refused

    def _has_after(self, after: int) -> bool:
        results: list[bool] = []

        def work(connection: Connection) -> None:
            results.append(bool(connection.execute("SELECT 1 FROM rows WHERE id > ? LIMIT 1", (after,)).fetchall()))

        self._file.run(work)
        return bool(results and results[-1])

    def _remove(self, ids: Sequence[int], *, delivered: bool) -> int:
        removed: list[int] = []
        if self._file.transact(lambda connection: removed.append(remove(connection, ids, delivered=delivered))):
            return 0
        self._file.run(return_free_pages)
        return removed[-1]

    def _drop_reads(self, reason: DropReason, work: Callable[[Connection], int]) -> int:
        lost: list[int] = []

        def keep(connection: Connection) -> None:
            lost.append(work(connection))

        return self._counting_dropped(reason, lambda: lost[-1] if self._transacted(keep) else 0)

    def _transacted(self, work: Work) -> bool:
        return self._file.transact(work) is None

    def _counting_dropped(self, reason: DropReason, work: Callable[[], int]) -> int:
        """Drop reads and count them, under the lock: a process that closes the balance sees both changes or neither."""
        try:
            with self._file.exclusive():
                reads = work()
                if reads and self._counters:
                    self._counters.dropped(reason, reads)
                return reads
        except OSError:
            return 0


def _disk_bytes(folder: Path, otherwise: int) -> int:
    """The size of the disk that holds the folder (bytes); `otherwise` if the system cannot give it."""
    try:
        return shutil.disk_usage(folder).total
    except OSError:
        return otherwise


def close_balance_after_crash(spool: Spool, counters_path: Path) -> Balance:
    """Close the balance of reads before any process of a tap runs. Gives the closed balance.

    Reads that were seen and are neither delivered, dropped nor waiting in the spool were lost: they are dropped by `crash`,
    or by `spool_damaged` if a damaged spool was replaced. If the spool cannot be read, the balance stays open.
    """
    recomputed = spool.recompute_totals()
    if recomputed is None:
        return read_balance(counters_path)
    delivered, waiting, damaged = recomputed
    reason = DropReason.SPOOL_DAMAGED if damaged else DropReason.CRASH
    balance = close_balance(counters_path, delivered or 0, waiting, reason=reason)
    spool.store_delivered(balance.delivered)
    return balance


def close_balance_at_restart(spool: Spool, counters_path: Path) -> None:
    """Close the balance of a recorder that has ended, before the next one starts; relays and delivery continue."""
    spool.close_balance_at_restart(counters_path)


def _read_rows(connection: Connection, after: int, max_bytes: int) -> tuple[list[Row], list[int]]:
    """Intact rows with ids above `after`: at least one, then up to `max_bytes` of values. And the ids of damaged ones."""
    rows: list[Row] = []
    damaged_ids: list[int] = []
    size = 0
    cursor = connection.execute(f"SELECT {COLUMNS} FROM rows WHERE id > ? ORDER BY id", (after,))
    for row in cursor:
        if not is_intact(row):
            damaged_ids.append(row[0])
            continue
        if rows and size + len(row[5]) > max_bytes:
            break
        rows.append(Row(row[0], row[1], row[2], row[5]))
        size += len(row[5])
    cursor.close()
    return rows, damaged_ids
