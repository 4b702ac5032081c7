"""Worker without Kafka: spool -> assembler -> ledger, in one thread of one process. It imports neither Faust nor aiokafka.

The order of durable writes is the same as with Kafka: first the records (the ledger stores each stream once), and the texts
that are kept, then the changed state, then the removal of the spool's rows. After a crash in between, rows are read again:
the assembler skips rows that its state includes, and the ledger recognises the records that it has. The log's time is the
tap's own monotonic clock, since there is one tap: a step of the wall clock abandons no stream.
"""

import sqlite3
import threading
import time
from collections.abc import Callable
from pathlib import Path

from streamgauge.core.assembly.assembler import Assembler
from streamgauge.core.capture.bundles import UnreadableBundle, decode_bundle
from streamgauge.core.capture.segments import Bundle
from streamgauge.core.limits import Limits
from streamgauge.core.record import Record
from streamgauge.live.mailbox import WatchedThread
from streamgauge.metrics.prometheus import Metrics
from streamgauge.metrics.table import DEAD_LETTERS, SILENT_STREAMS
from streamgauge.runtime.faults import report_fault
from streamgauge.spool import Row, Spool
from streamgauge.spool.file import SQLITE_FAULTS
from streamgauge.spool.response_counters import NotCaptured, ResponseCounters
from streamgauge.spool.text_store import TextStore

# How long the loop waits for a row before it answers the page's requests again (seconds).
POLL_S = 0.05

# State is written at most this often (seconds), so that its bytes are a small part of the bytes that were read.
CHECKPOINT_S = 1.0

# How often silent streams are counted (seconds): a tap's clock arrives every 5 s at least.
SILENCE_EVERY_S = 5.0

# Rows that are taken from the spool at once (bytes): bounds memory, and how long a stop takes.
BATCH_BYTES = 4 * 1024 * 1024

# How long a write of the state waits for another program that has the file open (seconds).
BUSY_S = 10.0

# The state's file in the data directory.
STATE_FILE = "state.sqlite"

# The newest dead letters are kept for inspection, up to this size (bytes): a row is at most 192 KiB, rarely 8 MiB.
DEADLETTER_BYTES = 64 * 1024 * 1024

_SCHEMA = """
CREATE TABLE IF NOT EXISTS state(key INTEGER PRIMARY KEY, value BLOB NOT NULL);
CREATE TABLE IF NOT EXISTS deadletter(row INTEGER PRIMARY KEY, error_class TEXT NOT NULL, value BLOB NOT NULL);
"""
_TRIM = """
DELETE FROM deadletter WHERE row NOT IN (
    SELECT row FROM (SELECT row, sum(length(value)) OVER (ORDER BY row DESC) AS newer FROM deadletter) WHERE newer <= ?)
"""


class StateFile:
    """The assembler's state on disk, in the data directory.

    Each method raises one of SQLITE_FAULTS if the disk refuses, or the file is damaged; the constructor also raises OSError.
    """

    def __init__(self, path: Path) -> None:
        path.touch(mode=0o600)
        self._database = sqlite3.connect(path, isolation_level=None, check_same_thread=False, timeout=BUSY_S)
        try:
            self._database.execute("PRAGMA journal_mode=WAL")
            # The spool's rows are removed after a save: the state must be on the disk by then, not only in a cache.
            self._database.execute("PRAGMA synchronous=FULL")
            self._database.executescript(_SCHEMA)
        except SQLITE_FAULTS:
            self._database.close()
            raise
        self._unsaved: dict[int, bytes] = {}  # entries that the disk refused so far

    def load(self, assembler: Assembler) -> None:
        """Load the saved state into the assembler. Raises msgspec.DecodeError for an entry that it cannot decode."""
        for key, value in self._database.execute("SELECT key, value FROM state"):
            assembler.load(key, value)

    def save(self, assembler: Assembler) -> None:
        """Save the entries that changed since the last save, in one transaction."""
        changed = [(key, assembler.dump(key)) for key in assembler.changed()]
        self._unsaved.update(changed)
        if not self._unsaved:
            return
        with self._database:
            self._database.execute("BEGIN")
            self._database.executemany("INSERT OR REPLACE INTO state VALUES (?, ?)", list(self._unsaved.items()))
        self._unsaved = {}

    def keep_dead_letter(self, row: Row, error_class: str) -> None:
        """Keep a row as a dead letter, with the class of its error."""
        self._database.execute("INSERT OR REPLACE INTO deadletter VALUES (?, ?, ?)", (row.id, error_class, row.value))
        self._database.execute(_TRIM, (DEADLETTER_BYTES,))

    def close(self) -> None:
        """Close the file. What was written remains."""
        self._database.close()


class DeliveryFailed(Exception):
    """Records could not be stored now; the caller delivers them again. The text is one sentence for the operator."""


class SpoolFailed(DeliveryFailed):
    """The spool can be neither read nor emptied now."""


class LocalLoop:
    """Takes bundles from the spool until it is stopped. `deliver` stores records, or raises DeliveryFailed.

    Raises one of SQLITE_FAULTS or msgspec.DecodeError if the state cannot be read.
    `say` takes a sentence for the operator, once when something begins to fail and once when it works again. `watch` is
    called on the loop's thread. `responses`: counts the streams that get no record. `texts`: keeps the text of streams.
    """

    def __init__(
        self,
        spool: Spool,
        state: StateFile,
        deliver: Callable[[list[Record]], None],
        metrics: Metrics,
        limits: Limits,
        say: Callable[[str], None],
        watch: WatchedThread | None = None,
        responses: ResponseCounters | None = None,
        texts: TextStore | None = None,
    ) -> None:
        self._texts = texts
        self._watch = watch
        self._responses = responses
        self._spool = spool
        self._state = state
        self._deliver = deliver
        self._metrics = metrics
        self._say = say
        self._assembler = Assembler(limits)
        state.load(self._assembler)
        self._undelivered: list[Record] = []
        self._after = 0
        self._held: list[int] = []
        self._saved_at = 0.0
        self._silence_at = float("-inf")  # when silent streams were last counted
        self._failing = False
        self._stopping, self._wake = threading.Event(), threading.Event()
        spool.on_put = self._wake.set
        if watch is not None:
            watch.wake = self._wake.set
        self._finish_s = 0.0

    @property
    def open_streams(self) -> int:
        """The number of streams that have begun and have no record yet."""
        return self._assembler.open_streams

    @property
    def assembler(self) -> Assembler:
        """The open streams, for `watch` on the loop's thread."""
        return self._assembler

    def stop(self, finish_s: float) -> None:
        """End `run` once the spool is empty, or after `finish_s` seconds: the next start processes the remaining rows."""
        self._finish_s = finish_s
        self._stopping.set()
        self._wake.set()

    def run(self, clock: Callable[[], float]) -> None:
        """Work until `stop`. `clock`: monotonic seconds."""
        deadline: float | None = None
        while True:
            if self._stopping.is_set() and deadline is None:
                deadline = clock() + self._finish_s
            worked = self._attempt(clock())
            if self._watch is not None:
                self._watch.answer()
            if deadline is not None and (clock() > deadline or not (worked or self._failing)):
                break
            if not worked and deadline is None:
                self._wake.wait(POLL_S)
                self._wake.clear()
            elif not worked:
                time.sleep(POLL_S)
        self._attempt(clock(), last=True)

    def _attempt(self, now: float, *, last: bool = False) -> bool:
        """Do a step, or the last checkpoint. If the ledger or the disk refuses, the next call tries again.

        Whether rows were processed, or the checkpoint was made.
        """
        if self._texts is not None:
            self._texts.expire(now)
        try:
            worked = self.checkpoint(now) if last else self.step(now)
        except (DeliveryFailed, *SQLITE_FAULTS) as error:
            if not self._failing:
                self._say(_what_failed(error))
            self._failing = True
            return False
        if self._failing:
            self._say("records are stored again")
        self._failing = False
        return worked

    def step(self, now: float) -> bool:
        """Process waiting rows; False if there were none.

        Raises DeliveryFailed or one of SQLITE_FAULTS; it may be called again.
        """
        self._store()
        rows = self._spool.take(self._after, BATCH_BYTES)
        self._check_spool()
        for row in rows:
            self._undelivered += self._apply(row)
            self._after = row.id
            self._held.append(row.id)
        self._store()
        if now - self._silence_at >= SILENCE_EVERY_S:
            self._silence_at = now
            self._metrics.set_all(SILENT_STREAMS.name, self._assembler.silent_streams())
        if self._held and now - self._saved_at >= CHECKPOINT_S:
            self.checkpoint(now)
        return bool(rows)

    def checkpoint(self, now: float) -> bool:
        """Store records that are not yet delivered, and texts, save the state, then remove the rows from the spool.

        Raises DeliveryFailed or one of SQLITE_FAULTS; it may be called again.
        """
        self._store()
        if self._texts is not None:
            self._texts.commit()
        self._state.save(self._assembler)
        if self._held:
            self._spool.done(self._held)
            self._check_spool()
        self._held = []
        self._saved_at = now
        if self._responses is not None:  # not before the state is saved: a crash may lose a count, and repeats none
            for (upstream, reason), streams in self._assembler.ignored.items():
                self._responses.not_captured(upstream, NotCaptured(reason), streams)
        self._assembler.ignored.clear()
        return True

    def _store(self) -> None:
        if self._undelivered:
            self._deliver(self._undelivered)
            self._undelivered = []

    def _check_spool(self) -> None:
        failure = self._spool.failure
        if failure is not None:
            raise SpoolFailed(f"the spool cannot be used ({failure.value.replace('_', ' ')})")

    def _apply(self, row: Row) -> list[Record]:
        stage = "decode"
        try:
            bundle = decode_bundle(row.value)
            stage = "assemble"
            records = self._assembler.apply(row.id, bundle.tap_ns // 1_000_000, bundle)
            if self._watch is not None:
                self._watch.applied(bundle, self._assembler, records)
        except UnreadableBundle as error:
            self._dead_letter(row, stage, error.error_class)
            return []
        except Exception as error:  # noqa: BLE001 - a row that triggers a bug of ours must not stop all others
            report_fault("the assembler", error)
            self._dead_letter(row, stage, type(error).__name__)
            return self._assembler.take_finished()
        self._metrics.add_counts(self._assembler.counts)
        self._assembler.counts.clear()
        self._keep_text(bundle, records)
        return records

    def _keep_text(self, bundle: Bundle, records: list[Record]) -> None:
        if self._texts is None:
            return
        try:
            self._texts.take(bundle, records, lambda stream: self._assembler.state_of(stream, whole=False) is not None)
        except Exception as error:  # noqa: BLE001 - records come first
            report_fault("the store of texts", error)

    def _dead_letter(self, row: Row, stage: str, error_class: str) -> None:
        self._state.keep_dead_letter(row, error_class)
        self._metrics.add(DEAD_LETTERS.name, stage=stage, error_class=error_class)


def _what_failed(error: Exception) -> str:
    fault = str(error) if isinstance(error, DeliveryFailed) else f"{STATE_FILE} cannot be written ({error})"
    return f"{fault}; no records are stored until this works again, and captured data stays in the spool"
