"""The way of a bundle without Kafka: spool -> assembler -> ledger, in one thread of one process.

The same rules as with Kafka: records first (the ledger knows each stream once), then the changed state, then the spool's
rows. A crash in between repeats rows, which the state skips, or a record, which the ledger has. The log's time is the
tap's own monotonic clock, since there is one tap: a step of the wall clock gives up nobody.
"""

import sqlite3
import threading
from collections.abc import Callable
from pathlib import Path

from streamgauge.bundles import UnreadableBundle, decode_bundle
from streamgauge.core.assembler import Assembler, Limits
from streamgauge.core.record import Record
from streamgauge.spool import Row, Spool

# How long the loop rests when the spool is empty (seconds): a record is in the ledger within about this and a bundle's age.
POLL_S = 0.05

# State is written at most this often (seconds): its bytes stay a small part of what was read.
CHECKPOINT_S = 1.0

# What is taken from the spool at once (bytes): bounds memory, and how long a stop waits.
BATCH_BYTES = 4 * 1024 * 1024

_SCHEMA = """
CREATE TABLE IF NOT EXISTS state(key INTEGER PRIMARY KEY, value BLOB NOT NULL);
CREATE TABLE IF NOT EXISTS deadletter(row INTEGER PRIMARY KEY, error_class TEXT NOT NULL, value BLOB NOT NULL);
"""


class StateFile:
    """The assembler's state on disk, in the data directory. Raises sqlite3.Error if the disk refuses."""

    def __init__(self, path: Path) -> None:
        path.touch(mode=0o600)
        self._database = sqlite3.connect(path, isolation_level=None, check_same_thread=False, timeout=10)
        self._database.execute("PRAGMA journal_mode=WAL")
        self._database.execute("PRAGMA synchronous=NORMAL")
        self._database.executescript(_SCHEMA)

    def load(self, assembler: Assembler) -> None:
        """Give the assembler what was saved."""
        for key, value in self._database.execute("SELECT key, value FROM state"):
            assembler.load(key, value)

    def save(self, assembler: Assembler) -> None:
        """Save what changed since the last time, in one transaction."""
        changed = assembler.changed()
        if not changed:
            return
        with self._database:
            self._database.execute("BEGIN")
            for key in changed:
                self._database.execute("INSERT OR REPLACE INTO state VALUES (?, ?)", (key, assembler.dump(key)))

    def bury(self, row: Row, error_class: str) -> None:
        """Keep a row that is no bundle, and why it is none."""
        self._database.execute("INSERT OR REPLACE INTO deadletter VALUES (?, ?, ?)", (row.id, error_class, row.value))

    def close(self) -> None:
        self._database.close()


class LocalLoop:
    """Takes bundles from the spool until it is stopped. `deliver` puts records into the ledger and observes them."""

    def __init__(
        self,
        spool: Spool,
        state: StateFile,
        deliver: Callable[[list[Record]], None],
        count: Callable[[str, int], None],
        limits: Limits,
    ) -> None:
        self._spool = spool
        self._state = state
        self._deliver = deliver
        self._count = count
        self._assembler = Assembler(limits)
        state.load(self._assembler)
        self._after = 0
        self._held: list[int] = []
        self._saved_at = 0.0
        self._stop = threading.Event()

    @property
    def open_streams(self) -> int:
        return self._assembler.open_streams

    def run(self, clock: Callable[[], float]) -> None:
        """Work until `stop`; then what lies in the spool is finished first. `clock`: monotonic seconds."""
        while True:
            stopping = self._stop.is_set()
            if self.step(clock()):
                continue
            if stopping:
                break
            self._stop.wait(POLL_S)
        self.checkpoint(clock())

    def stop(self) -> None:
        self._stop.set()

    def step(self, now: float) -> bool:
        """Take what waits; False if nothing did."""
        rows = self._spool.take(self._after, BATCH_BYTES)
        records: list[Record] = []
        for row in rows:
            records += self._apply(row)
        if records:
            self._deliver(records)
        if rows:
            self._after = rows[-1].id
            self._held += [row.id for row in rows]
        if self._held and now - self._saved_at >= CHECKPOINT_S:
            self.checkpoint(now)
        return bool(rows)

    def checkpoint(self, now: float) -> None:
        """State, then the spool's rows: the records of these rows are in the ledger already."""
        self._state.save(self._assembler)
        if self._held:
            self._spool.done(self._held)
        self._held = []
        self._saved_at = now

    def _apply(self, row: Row) -> list[Record]:
        try:
            bundle = decode_bundle(row.value)
        except UnreadableBundle as error:
            self._state.bury(row, error.error_class)
            self._count("dead_letters", 1)
            return []
        records = self._assembler.apply(row.id, bundle.tap_ns // 1_000_000, bundle)
        for name, number in self._assembler.counts.items():
            self._count(name, number)
        self._assembler.counts.clear()
        return records


