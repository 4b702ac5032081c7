"""The processes that a process has started, by /proc on Linux and by ps elsewhere; and whether one still runs."""

import subprocess
from pathlib import Path

_PROC = Path("/proc")


def children(pid: int) -> dict[int, str]:
    """The children of a process: pid -> command line."""
    return {child: line for child, (parent, line) in _all().items() if parent == pid}


def runs(pid: int) -> bool:
    """Whether a process with this id exists and has not ended."""
    return pid in _all()


def _all() -> dict[int, tuple[int, str]]:
    return _from_proc() if (_PROC / "self" / "stat").exists() else _from_ps()


def _from_proc() -> dict[int, tuple[int, str]]:
    found = {}
    for place in _PROC.glob("[0-9]*"):
        try:
            state, parent = (place / "stat").read_text().rpartition(")")[2].split()[:2]
            line = (place / "cmdline").read_bytes().replace(b"\0", b" ").decode(errors="replace")
            if "multiprocessing.forkserver" in line:  # a fork has the command line of its server, and its own name
                line = f"python -m streamgauge.{(place / 'comm').read_text().strip()}"
        except (FileNotFoundError, ProcessLookupError):
            continue
        if state != "Z":
            found[int(place.name)] = (int(parent), line)
    return found


def _from_ps() -> dict[int, tuple[int, str]]:
    listed = subprocess.run(["ps", "-A", "-o", "pid=,ppid=,stat=,args="], capture_output=True, text=True, check=True)
    rows = (line.split(None, 3) for line in listed.stdout.splitlines())
    return {int(pid): (int(parent), line) for pid, parent, state, line in rows if not state.startswith("Z")}
