"""Runs a command as a container or a unit of systemd does: nothing can be written but its data directory and /tmp."""

import os
import re
import signal
import subprocess
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

import pytest

from tests.deploy.tools import ROOT, tool
from tests.processes import children
from tests.running import PATIENCE_S, Running, start, wait_until_ready

UID = "10001"
# Those of the demo's scenarios.
UPSTREAMS = ("nanogpt", "nimbus", "sansa", "gateway", "local")
# Where the data directory is inside: a directory that every Linux has.
DATA = "/srv"
# PR_SET_MDWE, PR_MDWE_REFUSE_EXEC_GAIN (linux/prctl.h, Linux 6.3). systemd's MemoryDenyWriteExecute does the same by seccomp.
_NO_NEW_CODE = """
import ctypes, os, sys
if ctypes.CDLL(None).prctl(65, 1, 0, 0, 0):
    sys.exit("this kernel does not have it")
os.execvp(sys.argv[1], sys.argv[1:])
"""


def contained(data_dir: Path) -> list[str]:
    """The beginning of a command line: another user without capabilities, a root file system that is read-only."""
    seen = dict.fromkeys([str(ROOT), sys.prefix, sys.base_prefix])
    return _possible(
        [
            *(tool("bwrap"), "--die-with-parent", "--unshare-user", "--uid", UID, "--gid", UID, "--cap-drop", "ALL"),
            *("--ro-bind", "/", "/", "--dev", "/dev", "--proc", "/proc", "--tmpfs", "/tmp"),
            *(word for path in seen for word in ("--ro-bind", path, path)),
            *("--bind", str(data_dir), DATA),
            *("--setenv", "HOME", "/nonexistent", "--chdir", "/"),
        ]
    )


def without_new_code() -> list[str]:
    """The beginning of a command line: no memory becomes executable that was written."""
    return _possible([sys.executable, "-c", _NO_NEW_CODE])


def _possible(around: list[str]) -> list[str]:
    """The same. Skips the test if this system does not allow it."""
    done = subprocess.run([*around, "true"], capture_output=True, text=True, check=False, timeout=60)
    if done.returncode != 0:
        pytest.skip(f"{around[0]}: {done.stderr.strip()}")
    return around


@contextmanager
def serving(command: str, place: Path, around: Sequence[str], where: str, url: str, *more: str) -> Iterator[Running]:
    """`up` or `tap`, ready, with its data directory at `where` inside of what is around it."""
    flags = [flag for name in UPSTREAMS for flag in ("--upstream", f"{name}={url}")]
    places = ["--listen", "127.0.0.1:0", "--admin", "127.0.0.1:0", "--data-dir", where]
    with start(command, [*flags, *places, *more], place, around=around) as running:
        wait_until_ready(running)
        found = re.search(r": http://([^/\s]+)\S* -> ", running.log)
        assert found, running.log
        running.url = f"http://{found[1]}"
        yield running


@contextmanager
def stopped(running: Running) -> Iterator[None]:
    """Asks the command to stop at the end, and not what is around it, which would leave it alone. It has to end in order."""
    try:
        yield
    finally:
        os.kill(_inside(running.process.pid), signal.SIGTERM)
        code = running.process.wait(PATIENCE_S)
    assert code == 0, running.log
    assert "Traceback" not in running.log


def _inside(pid: int) -> int:
    """The process of the command itself, in what is around it."""
    for child, line in children(pid).items():
        if Path(line.split()[0]).name in ("bwrap", "strace"):
            return _inside(child)
        if " -m streamgauge " in line:
            return child
    return pid
