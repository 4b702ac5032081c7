"""Lets a test wait before it begins while too many programs want the cores.

Eight test processes use two cores well, since most tests wait for programs. But if several of them start such programs at
the same time, more than sixty may be runnable, and each bound of time that a test or the product has is exceeded. The
cores are in use either way, so waiting costs no time.
"""

import fcntl
import os
import tempfile
import time
from pathlib import Path

# Runnable programs with which a test begins, for each core.
RUNNABLE_PER_CORE = 4
# Between two looks, and the longest wait (s): what else runs on the machine may use the cores for ever.
LOOK_S, LONGEST_S = 0.1, 10.0
# After so many waits without room, one after the other, no test of this process waits any more.
MOST_IN_VAIN = 6


def runnable(loadavg: Path = Path("/proc/loadavg")) -> int:
    """How many programs run or could run now, this one included; 0 where the system does not say it."""
    try:
        return int(loadavg.read_text().split()[3].partition("/")[0])
    except OSError:
        return 0


class Cores:
    """What one test process knows of them. `lock`: a file that all test processes share; `longest_s`: of one wait."""

    def __init__(
        self, loadavg: Path = Path("/proc/loadavg"), longest_s: float = LONGEST_S, lock: Path | None = None
    ) -> None:
        self._loadavg = loadavg
        self._longest_s = longest_s
        self._lock = lock or Path(tempfile.gettempdir()) / f"streamgauge-tests-{os.getuid()}.lock"
        self._in_vain = 0

    def wait_for_room(self) -> None:
        """Waits while more programs are runnable than RUNNABLE_PER_CORE allows. Of several test processes that wait, one
        looks at a time, so that they do not all begin at the same moment.
        """
        if self._in_vain >= MOST_IN_VAIN or self._have_room():
            return
        ends = time.monotonic() + self._longest_s
        with self._lock.open("w") as file:
            fcntl.flock(file, fcntl.LOCK_EX)
            while time.monotonic() < ends:
                time.sleep(LOOK_S)
                if self._have_room():
                    self._in_vain = 0
                    return
        self._in_vain += 1

    def _have_room(self) -> bool:
        return runnable(self._loadavg) <= RUNNABLE_PER_CORE * (os.cpu_count() or 1)
