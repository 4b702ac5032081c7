"""The bounded disk queue between a tap and what comes after: one SQLite file, two processes.

The recorder puts rows in, whoever delivers takes them in order and says when they are done; neither waits for the other
for longer than a transaction. A process that is killed loses nothing that was put (the file is in WAL mode), a power cut
what was put after the last `sync`. Nothing here raises for a disk that is full, read-only or broken: `put` says so.

Room is short: what may not use the reserve is refused. Whoever puts then gives up the reads of rows that wait, the oldest
or the newest (`give_up_room`), or of what it wanted to put; rows that are vital (heads, ends, heartbeats, markers) stay.
Rows that were handed out for delivery are never touched.
"""

import shutil
from collections.abc import Callable, Sequence
from pathlib import Path
from sqlite3 import Connection
from typing import Final

import msgspec

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
from streamgauge.spool.row_clock import Moment, age_now, moment
from streamgauge.spool.sql import (
    Failure,
    Lighter,
    Order,
    cost_of,
    give_back,
    insert,
    pragma_number,
    purge,
    remove,
    strip_reads,
    told_delivered,
    totals,
    used_bytes,
)

# A broker that is away for half an hour at 500 KB/s of compressed bundles (bytes): a busy tap.
MAX_BYTES = 1024**3
# The part of the spool that only vital rows may use: they are a few per cent of what a stream sends.
RESERVE = 0.05
# How long reads may wait (seconds): three days, as long as the segments topic keeps them; an outage over a weekend.
MAX_AGE_S = 3 * 24 * 3600.0
# What SQLite's log beside the file may take of it (bytes): it is emptied at a quarter of that; a transaction in flight, or
# a reader that defers the emptying for a moment, needs the rest.
LOG_BYTES = 16 * 1024**2
# The log is at most this part of the spool, and of the disk: on a small disk a log of 16 MiB would leave no room for rows.
LOG_PART = 8
# What deliverers may hold of it at once: more, and in a small spool no row would be left that may lose its reads.
IN_FLIGHT_PART = 4


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

    `counters`: where delivered, damaged and given up reads are counted; without it nobody but the file knows of them.
    `now`: the clock that rows age by. `most_at_once`: what one call of `put` may bring (bytes of `cost_of`), or SQLite's
    log outgrows its part of the room; a row with reads that is larger is refused. Raises nothing for the disk's faults:
    `put` says so, `take` gives nothing, `done` gives 0 and may be called again.
    """

    def __init__(
        self,
        path: Path,
        max_bytes: int = MAX_BYTES,
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

    @property
    def failure(self) -> Failure | None:
        """Of the last call; None if it went well."""
        return self._file.failure

    @property
    def error(self) -> str:
        """What SQLite or the system said to the last call, if it failed."""
        return self._file.error

    @property
    def most_in_flight(self) -> int:
        """How many bytes of values a deliverer may have taken and not reported done."""
        return self._most // IN_FLIGHT_PART

    def put(self, rows: Sequence[NewRow], meta: dict[str, bytes] | None = None) -> Put:
        """Put rows at the end, and with them (in the same transaction) entries of `meta`."""
        refused: list[int] = []

        def work(connection: Connection) -> None:
            refused.clear()
            taken, refused[:] = self._fitting(rows, used_bytes(connection))
            if taken:
                insert(
                    connection, [(row.slot, row.reads, row.value) for row in taken], age_now(connection, self._now())
                )
            entries = [(key, with_checksum(value)) for key, value in (meta or {}).items()]
            connection.executemany("INSERT OR REPLACE INTO meta VALUES (?, ?)", entries)

        failure = self._file.transact(work)
        return Put(failure=failure) if failure else Put(refused=refused)

    def room(self) -> Room:
        """What may still be put; nothing if the disk does not let us look."""
        used: list[int] = []
        self._file.run(lambda connection: used.append(used_bytes(connection)))
        return Room(self._most_reads - used[-1], self._most - used[-1]) if used else Room(0, 0)

    def drop_reads_for_space(self, want: int, lighter: Lighter, *, newest: bool) -> int:
        """Rows that wait lose their reads, the oldest first or the newest, until `want` bytes of room are won or none is
        left. Gives the reads, which are dropped by `spool_full`."""
        order: Order = "DESC" if newest else "ASC"
        return self._giving_up(DropReason.SPOOL_FULL, lambda c: strip_reads(c, lighter, order, want=want))

    def give_up_old(self, max_age_s: float, lighter: Lighter) -> int:
        """Rows that have waited longer than this lose their reads, a few at a time. Gives the reads: `too_old`."""
        return self._giving_up(
            DropReason.TOO_OLD,
            lambda c: strip_reads(c, lighter, "ASC", put_before=int(age_now(c, self._now()) - max_age_s)),
        )

    def take(self, after: int, max_bytes: int) -> list[Row]:
        """The oldest rows with ids above `after`: at least one if there is one, then up to `max_bytes` of values.

        They stay until `done`, as they are. Rows that are not what was put in are removed, and counted as damaged.
        """
        taken: list[Row] = []
        spoilt: list[int] = []

        def look(connection: Connection) -> None:
            taken.clear()
            spoilt.clear()
            size = 0
            cursor = connection.execute(f"SELECT {COLUMNS} FROM rows WHERE id > ? ORDER BY id", (after,))
            for row in cursor:
                if not is_intact(row):
                    spoilt.append(row[0])
                    continue
                if taken and size + len(row[5]) > max_bytes:
                    break
                taken.append(Row(row[0], row[1], row[2], row[5]))
                size += len(row[5])
            cursor.close()

        def hand_out(connection: Connection) -> None:
            look(connection)
            if taken:
                connection.execute("UPDATE totals SET taken = max(taken, ?)", (taken[-1].id,))

        if self._has_after(after) and self._file.transact(hand_out) is not None:
            self._file.run(look)  # a disk that takes nothing may still be read from
        if spoilt:
            self._giving_up(DropReason.SPOOL_DAMAGED, lambda connection: purge(connection)[0])
        return taken

    def done(self, ids: Sequence[int]) -> int:
        """These rows are delivered: remove them and count their reads, in one transaction. Gives the reads."""
        reads = self._remove(ids, delivered=True)
        if reads and self._counters:
            self._counters.delivered(reads)
        return reads

    def discard(self, ids: Sequence[int], reason: DropReason) -> int:
        """These rows will never be delivered: remove them, their reads are dropped. Gives the reads."""
        return self._dropping(reason, lambda: self._remove(ids, delivered=False))

    def get(self, key: str) -> bytes | None:
        """An entry of the spool's own memory; None if there is none, or it is not what was kept."""
        found: list[bytes | None] = []

        def work(connection: Connection) -> None:
            rows = connection.execute("SELECT value FROM meta WHERE key=?", (key,))
            found.extend(without_checksum(row[0]) for row in rows)

        self._file.run(work)
        return found[-1] if found else None

    def set(self, key: str, value: bytes) -> bool:
        """Keep an entry in the spool's own memory. False if the disk did not take it."""
        return self.put((), {key: value}).failure is None

    def waiting(self) -> Waiting:
        """What lies in the spool."""
        found: list[Waiting] = []

        def work(connection: Connection) -> None:
            _, _, rows, reads, size = totals(connection)
            file_bytes = pragma_number(connection, "page_count") * pragma_number(connection, "page_size")
            found.append(Waiting(rows, reads, size, file_bytes))

        self._file.run(work)
        return found[-1] if found else _NOTHING

    def sync(self) -> None:
        """What was put before this call outlives a power cut when it returns. It may take as long as a disk likes."""
        self._file.sync()

    def close(self) -> None:
        """Close the file. What was put stays."""
        self._file.close()

    def close_books(self) -> tuple[int | None, int, bool] | None:
        """Count again what the totals say; what is damaged is dropped. Gives reads delivered (None: that number is damaged),
        reads waiting, and whether a damaged file was replaced since this was last settled; None if the disk does not let us
        look."""
        found: list[tuple[int | None, int, bool]] = []

        def work(connection: Connection) -> int:
            lost, waiting = purge(connection)
            delivered, damaged = told_delivered(connection)
            found.append((delivered, waiting, damaged))
            return lost

        self._giving_up(DropReason.SPOOL_DAMAGED, work)
        return found[-1] if found and self.failure is None else None

    def settled(self, delivered: int) -> None:
        """The balance is closed: the delivered total is this."""

        def work(connection: Connection) -> None:
            connection.execute("UPDATE totals SET delivered=?, negative=?", (delivered, -delivered))
            connection.execute("DELETE FROM meta WHERE key='damaged'")

        self._file.transact(work)

    def close_balance_at_restart(self, counters_path: Path) -> None:
        """See the function of that name. Nobody else gives reads up meanwhile."""
        try:
            with self._file.lock:
                books = self.close_books()
                if books is not None:
                    delivered, waiting, damaged = books
                    if delivered is None:
                        delivered = read_balance(counters_path).delivered
                    reason = DropReason.SPOOL_DAMAGED if damaged else DropReason.CRASH
                    close_recorder_balance(counters_path, delivered, waiting, reason=reason)
        except OSError:
            return  # no lock: the disk does not let us look

    def _fitting(self, rows: Sequence[NewRow], used: int) -> tuple[list[NewRow], list[int]]:
        """The rows that there is room for, and the places of those there is none for."""
        taken: list[NewRow] = []
        refused: list[int] = []
        for place, row in enumerate(rows):
            cost = cost_of(row.value)
            too_large = not row.vital and cost > self.most_at_once
            if too_large or used + cost > (self._most if row.vital else self._most_reads):
                refused.append(place)
            else:
                used += cost
                taken.append(row)
        return taken, refused

    def _has_after(self, after: int) -> bool:
        found: list[bool] = []

        def work(connection: Connection) -> None:
            found.append(bool(connection.execute("SELECT 1 FROM rows WHERE id > ? LIMIT 1", (after,)).fetchall()))

        self._file.run(work)
        return bool(found and found[-1])

    def _remove(self, ids: Sequence[int], *, delivered: bool) -> int:
        removed: list[int] = []
        if self._file.transact(lambda connection: removed.append(remove(connection, ids, delivered=delivered))):
            return 0
        self._file.run(give_back)
        return removed[-1]

    def _giving_up(self, reason: DropReason, work: Callable[[Connection], int]) -> int:
        lost: list[int] = []

        def keep(connection: Connection) -> None:
            lost.append(work(connection))

        return self._dropping(reason, lambda: lost[-1] if self._transacted(keep) else 0)

    def _transacted(self, work: Work) -> bool:
        return self._file.transact(work) is None

    def _dropping(self, reason: DropReason, work: Callable[[], int]) -> int:
        """Give reads up and count them; under the lock, so that whoever settles sees both or neither."""
        try:
            with self._file.lock:
                reads = work()
                if reads and self._counters:
                    self._counters.dropped(reason, reads)
                return reads
        except OSError:
            return 0


def _disk_bytes(folder: Path, otherwise: int) -> int:
    """The size of the disk that the folder is on; where the system does not say it, the other number."""
    try:
        return shutil.disk_usage(folder).total
    except OSError:
        return otherwise


def close_balance_after_crash(spool: Spool, counters_path: Path) -> Balance:
    """Close the balance of reads before any process of a tap runs; gives what it then is.

    What was seen and is neither delivered, dropped nor waiting in the spool was lost: dropped by `crash`, or by
    `spool_damaged` if a spool whose books cannot be read was put aside. Where the spool cannot be opened nothing is
    settled.
    """
    books = spool.close_books()
    if books is None:
        return read_balance(counters_path)
    delivered, waiting, damaged = books
    reason = DropReason.SPOOL_DAMAGED if damaged else DropReason.CRASH
    balance = close_balance(counters_path, delivered or 0, waiting, reason=reason)
    spool.settled(balance.delivered)
    return balance


def close_balance_at_restart(spool: Spool, counters_path: Path) -> None:
    """Close the books of a recorder that died, before the next one begins; relays and delivery go on meanwhile."""
    spool.close_balance_at_restart(counters_path)
