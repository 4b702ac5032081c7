"""The part of a data directory's counters that is this process's, for as long as it lives."""

import fcntl
import os
from pathlib import Path

from streamgauge.runtime.data_directory import make_data_dir
from streamgauge.spool.read_counters import MAX_APPS, Counters, app_lock


class TooManyError(OSError):
    """All roles are taken: more processes capture for themselves on one data directory than it has counters for."""


class CounterSlot:
    """A claimed role. Reads that an earlier holder did not hand over are counted as lost when it is claimed."""

    def __init__(self, data_dir: Path) -> None:
        """Makes the directory where it is missing. Raises Unavailable where it cannot be used, TooManyError, OSError."""
        make_data_dir(data_dir)
        path = data_dir / "counters"
        app_lock(path, 0).parent.mkdir(mode=0o700, exist_ok=True)
        index, self._lock = _claimed(path)
        self._lock_path = app_lock(path, index)
        try:
            self.counters = Counters(path, f"app-{index}")
            self.counters.settle_relay()
        except BaseException:
            os.close(self._lock)
            raise

    @property
    def is_current(self) -> bool:
        """Whether the data directory is still the one in which the role was claimed."""
        try:
            return os.path.samestat(self._lock_path.stat(), os.fstat(self._lock))
        except OSError:
            return False

    def close(self) -> None:
        """Give it back. What was counted stays."""
        self.counters.close()
        os.close(self._lock)

    def forget(self) -> None:
        """In a forked child: the role is the parent's."""
        os.close(self._lock)


def _claimed(path: Path) -> tuple[int, int]:
    for index in range(MAX_APPS):
        lock = os.open(app_lock(path, index), os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW | os.O_CLOEXEC, 0o600)
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            os.close(lock)
        else:
            return index, lock
    raise TooManyError(f"more than {MAX_APPS} application processes use the data directory {path.parent}")
