"""This process's slot in a data directory's counters file, claimed for the lifetime of the process."""

import fcntl
import os
from pathlib import Path

from streamgauge.runtime.data_directory import make_data_dir
from streamgauge.spool.read_counters import MAX_APPS, Counters, Incident, app_lock


class TooManyError(OSError):
    """All slots are taken: more processes capture on one data directory than its counters file has slots for."""


class CounterSlot:
    """A claimed slot. Claiming it counts the reads that an earlier process did not send to a recorder as dropped."""

    def __init__(self, data_dir: Path) -> None:
        """Creates the data directory if it is missing. Raises Unavailable if it cannot be used, TooManyError, or OSError."""
        make_data_dir(data_dir)
        path = data_dir / "counters"
        app_lock(path, 0).parent.mkdir(mode=0o700, exist_ok=True)
        index, self._lock = _claimed(path)
        self._lock_path = app_lock(path, index)
        try:
            self.counters = Counters(path, f"app-{index}")
            self.counters.drop_unsent_reads()
        except BaseException:
            os.close(self._lock)
            raise

    @property
    def is_current(self) -> bool:
        """Whether the data directory is still the one in which the slot was claimed."""
        try:
            return os.path.samestat(self._lock_path.stat(), os.fstat(self._lock))
        except OSError:
            return False

    def close(self) -> None:
        """Releases the slot. Its counts remain."""
        self.counters.close()
        os.close(self._lock)

    def after_fork(self) -> None:
        """Closes the lock in a forked child: the slot belongs to the parent."""
        os.close(self._lock)


def _claimed(path: Path) -> tuple[int, int]:
    for index in range(MAX_APPS):
        lock = _opened(app_lock(path, index))
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            os.close(lock)
        else:
            return index, lock
    _count_refusal(path)
    raise TooManyError(f"more than {MAX_APPS} application processes use the data directory {path.parent}")


def _count_refusal(path: Path) -> None:
    """Counts in the last slot an incident that its owner never counts. The lock is for the other refused processes."""
    lock = _opened(path.parent / "apps" / "refused.lock")
    try:
        fcntl.flock(lock, fcntl.LOCK_EX)
        with Counters(path, f"app-{MAX_APPS - 1}") as counters:
            counters.happened(Incident.APP_REFUSED)
    finally:
        os.close(lock)


def _opened(lock: Path) -> int:
    return os.open(lock, os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW | os.O_CLOEXEC, 0o600)
