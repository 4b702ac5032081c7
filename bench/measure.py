"""What a program costs, read from the kernel: CPU seconds and memory of a process and of all that it started. Linux only."""

import os
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from tests.processes import children

# CPUCLOCK_SCHED of a process, in a clock id made of a pid (the kernel's include/linux/posix-timers_types.h): what all its
# threads ran, those that ended too, in ns. /proc/PID/stat has ticks of 10 ms.
_CPUCLOCK_SCHED = 2
# What this process may use: looked at before it takes a core for itself.
_MINE = sorted(os.sched_getaffinity(0))


def tree(pid: int) -> dict[int, str]:
    """A process and its descendants: pid -> command line; its own is empty."""
    found, left = {pid: ""}, [pid]
    while left:
        for child, line in children(left.pop()).items():
            found[child] = line
            left.append(child)
    return found


def cpu_seconds(pid: int) -> float:
    """What a process has run so far. Raises OSError if it is gone."""
    return time.clock_gettime((~pid << 3) | _CPUCLOCK_SCHED)


def busy_seconds() -> float:
    """CPU seconds that the machine's cores were busy so far, or were taken from it by its host."""
    user, nice, system, _idle, _waiting, *rest = Path("/proc/stat").read_text().split("\n", 1)[0].split()[1:9]
    return sum(map(int, (user, nice, system, *rest))) / os.sysconf("SC_CLK_TCK")


class Others:
    """What part of the machine others use, from here on: programs that are no descendants of this process."""

    def __init__(self) -> None:
        self._began, self._busy, self._ours = time.monotonic(), busy_seconds(), self._own()

    def share(self) -> float:
        """0 to 1, of all cores. Descendants must not have ended meanwhile."""
        passed = (time.monotonic() - self._began) * (os.cpu_count() or 1)
        others = busy_seconds() - self._busy - (self._own() - self._ours)
        return min(max(others / passed, 0.0), 1.0) if passed else 0.0

    @staticmethod
    def _own() -> float:
        return sum(cpu_seconds(pid) for pid in tree(os.getpid()))


def peak_mib(pid: int) -> float:
    """The most memory that a process had resident so far."""
    for line in Path(f"/proc/{pid}/status").read_text().splitlines():
        if line.startswith("VmHWM:"):
            return int(line.split()[1]) / 1024
    raise OSError(f"process {pid} is ending")


def cores() -> tuple[set[int], set[int]]:
    """Which cores are for the load, and which one for what is measured; all for both if there is one alone."""
    mine = _MINE
    return (set(mine[:-1]), {mine[-1]}) if len(mine) > 1 else (set(mine), set(mine))


@contextmanager
def started_on(where: set[int]) -> Iterator[None]:
    """What is started within runs on these cores."""
    before = os.sched_getaffinity(0)
    os.sched_setaffinity(0, where)
    try:
        yield
    finally:
        os.sched_setaffinity(0, before)
