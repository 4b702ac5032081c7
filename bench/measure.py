"""CPU seconds and memory of a process and its descendants, from the kernel. Linux only."""

import os
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from tests.processes import children

# CPUCLOCK_SCHED of a process, in a clock id made of a pid (the kernel's include/linux/posix-timers_types.h): the CPU time
# of all its threads, ended ones included, in ns. /proc/PID/stat has ticks of 10 ms.
_CPUCLOCK_SCHED = 2
# The cores that this process may use, read before it restricts itself to one of them.
_ALLOWED = sorted(os.sched_getaffinity(0))


def tree(pid: int) -> dict[int, str]:
    """A process and its descendants: pid -> command line, which is empty for the process itself."""
    processes, unvisited = {pid: ""}, [pid]
    while unvisited:
        for child, line in children(unvisited.pop()).items():
            processes[child] = line
            unvisited.append(child)
    return processes


def cpu_seconds(pid: int) -> float:
    """The CPU seconds of a process so far. Raises OSError if it has ended."""
    return time.clock_gettime((~pid << 3) | _CPUCLOCK_SCHED)


def busy_seconds() -> float:
    """CPU seconds that the machine's cores were busy so far, including those that its host took (steal)."""
    user, nice, system, _idle, _waiting, *rest = Path("/proc/stat").read_text().split("\n", 1)[0].split()[1:9]
    return sum(map(int, (user, nice, system, *rest))) / os.sysconf("SC_CLK_TCK")


class Others:
    """The share of the machine that other programs use from now on: those that are not descendants of this process."""

    def __init__(self) -> None:
        self._began, self._busy, self._ours = time.monotonic(), busy_seconds(), self._own()

    def share(self) -> float:
        """0 to 1, of all cores. It is wrong if a descendant has ended since."""
        passed = (time.monotonic() - self._began) * (os.cpu_count() or 1)
        others = busy_seconds() - self._busy - (self._own() - self._ours)
        return min(max(others / passed, 0.0), 1.0) if passed else 0.0

    @staticmethod
    def _own() -> float:
        return sum(cpu_seconds(pid) for pid in tree(os.getpid()))


def peak_mib(pid: int) -> float:
    """The peak of a process's resident memory so far. Raises OSError if it is ending."""
    for line in Path(f"/proc/{pid}/status").read_text().splitlines():
        if line.startswith("VmHWM:"):
            return int(line.split()[1]) / 1024
    raise OSError(f"process {pid} is ending")


def cores() -> tuple[set[int], set[int]]:
    """The cores for the load, and the core for what is measured. With a single core both use it."""
    if len(_ALLOWED) == 1:
        return set(_ALLOWED), set(_ALLOWED)
    return set(_ALLOWED[:-1]), {_ALLOWED[-1]}


@contextmanager
def started_on(where: set[int]) -> Iterator[None]:
    """Processes that are started within the context run on these cores."""
    before = os.sched_getaffinity(0)
    os.sched_setaffinity(0, where)
    try:
        yield
    finally:
        os.sched_setaffinity(0, before)
