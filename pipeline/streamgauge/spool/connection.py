"""The spool's file while a process has it open: one connection, also when the file is damaged, deleted or replaced.

A damaged file is replaced by a new one with the rows that can be read; a deleted file by one with the rows that the open
connection still reads; a file that the other process replaced is opened again. An operation that the disk refuses gives
a `Failure`, and raises nothing.
"""

import os
import sqlite3
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from streamgauge.spool.file import PAGE_BYTES, DamagedError, FileLock, inode, is_damage, open_spool, replace, rescue
from streamgauge.spool.read_counters import Counters, DropReason, Incident
from streamgauge.spool.sql import Failure, failure_of

# If another program keeps replacing the file, the operation fails after so many attempts.
_ATTEMPTS = 4

Work = Callable[[sqlite3.Connection], None]


class _MovedError(Exception):
    """The open file is no longer the file at the path."""


class _CallResult(threading.local):
    """The failure of a thread's last call, if it failed."""

    failure: Failure | None = None
    error = ""


class SpoolFile:
    """Runs work on the spool's file. Safe to use from several threads. `log_bytes`: the size limit of SQLite's log."""

    def __init__(self, path: Path, log_bytes: int, counters: Counters | None) -> None:
        self._path = path
        self._counters = counters
        self._log_bytes = log_bytes
        self._threads = threading.RLock()
        self._connection: sqlite3.Connection | None = None
        self._inode: int | None = None
        self.lock = FileLock(path)
        self._result = _CallResult()

    @property
    def failure(self) -> Failure | None:
        """The failure of this thread's last call; None if it succeeded."""
        return self._result.failure

    @property
    def error(self) -> str:
        """The error text of SQLite or the system for `failure`."""
        return self._result.error

    @contextmanager
    def exclusive(self) -> Iterator[None]:
        """Excludes the other threads, then the other processes: always in this order. Raises OSError."""
        with self._threads, self.lock:
            yield

    def transact(self, work: Work) -> Failure | None:
        """Run `work` in one transaction. Gives the failure, or None."""

        def whole(connection: sqlite3.Connection) -> None:
            connection.execute("BEGIN IMMEDIATE")
            try:
                if inode(self._path) != self._inode:
                    raise _MovedError
                work(connection)
                connection.execute("COMMIT")
            finally:
                if connection.in_transaction:
                    connection.execute("ROLLBACK")

        return self.run(whole)

    def run(self, work: Work) -> Failure | None:
        """Run `work` on the open file; if the file is damaged, replace it once and run `work` again. Gives the failure."""
        replaced = False
        result = self._result
        with self._threads:
            result.failure, result.error = None, ""
            for _ in range(_ATTEMPTS):
                try:
                    work(self._open())
                    return None
                except _MovedError:
                    continue
                except (sqlite3.Error, DamagedError, OSError) as error:
                    self.close()
                    if replaced or not is_damage(error, self._path):
                        result.failure, result.error = failure_of(error), _text_of(error)
                        break
                    self._replace()
                    replaced = True
            else:
                self.close()
                result.failure, result.error = Failure.BUSY, "another process keeps replacing the file"
            return result.failure

    def run_if_free(self, work: Work) -> bool:
        """Run `work`, unless another thread uses the file. Returns whether it was run."""
        if not self._threads.acquire(blocking=False):
            return False
        try:
            self.run(work)
        finally:
            self._threads.release()
        return True

    def sync(self) -> None:
        """Force all earlier writes to the disk: after this call they survive a power cut."""
        # Not the database's own file: closing any descriptor of that would drop SQLite's locks in this process.
        with suppress(OSError):  # a disk that refuses this also refuses writes, which report it
            for path in (self._path.with_name(f"{self._path.name}-wal"), self._path.parent):
                opened = os.open(path, os.O_RDONLY)
                try:
                    os.fsync(opened)
                finally:
                    os.close(opened)

    def close(self) -> None:
        """Close the file. What was put stays."""
        with self._threads:
            if self._connection is not None:
                self._connection.close()
                self._connection = None

    def _open(self) -> sqlite3.Connection:
        if self._connection is not None and (present := inode(self._path)) != self._inode:
            if present is None:
                self._rescue(self._connection)
            self.close()
        if self._connection is None:
            with self.lock:
                self._inode = inode(self._path)
                self._connection = open_spool(self._path)
                self._inode = inode(self._path)
            # A transaction may add half of the log's size, and some pages besides those of its rows.
            self._connection.execute(f"PRAGMA wal_autocheckpoint={max(self._log_bytes // 4 // PAGE_BYTES, 1)}")
            self._connection.execute(f"PRAGMA journal_size_limit={self._log_bytes}")
        return self._connection

    def _rescue(self, old: sqlite3.Connection) -> None:
        """The file was deleted while this process has it open: make a new file with its rows."""
        with self.lock:
            if inode(self._path) is not None:
                return  # the other process has done it
            try:
                reads_before_and_after = rescue(self._path, old, self._delivered())
            except (sqlite3.Error, DamagedError, OSError):
                return  # the caller makes an empty file, or gets the disk's error
            self._count(Incident.SPOOL_DELETED, reads_before_and_after)

    def _replace(self) -> None:
        self.close()
        try:
            with self.lock:
                reads_before_and_after = replace(self._path, self._inode, self._delivered())
        except (sqlite3.Error, DamagedError, OSError):
            return  # the disk refuses the new file as well: the second attempt gives the error
        if reads_before_and_after is not None:
            self._count(Incident.SPOOL_DAMAGED, reads_before_and_after)

    def _count(self, incident: Incident, reads_before_and_after: tuple[int, int]) -> None:
        if self._counters is None:
            return
        self._counters.happened(incident)
        waited, carried = reads_before_and_after
        if waited >= 0:
            self._counters.dropped(DropReason.SPOOL_DAMAGED, max(waited - carried, 0))
            with suppress(sqlite3.Error, DamagedError, OSError):
                self._open().execute("DELETE FROM meta WHERE key='damaged'")

    def _delivered(self) -> int:
        return self._counters.total_delivered() if self._counters else 0


def _text_of(error: Exception) -> str:
    return (isinstance(error, OSError) and error.strerror) or str(error)
