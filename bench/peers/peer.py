"""A proxy that runs in front of an upstream, and the cost of its processes."""

import contextlib
import socket
import subprocess
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from tests.running import program

from bench.measure import cpu_seconds, peak_mib, tree

# How long a proxy may take until it listens (seconds).
_START_S = 30.0
_STOP_S = 20.0
# How long a proxy may take to become idle after an aborted load, how often that is checked (seconds), and the part of a
# core that counts as idle.
_IDLE_WAIT_S = 15.0
_CHECK_S = 0.2
_IDLE = 0.05


class MissingError(Exception):
    """A peer is not available on this machine; the message says why."""


@dataclass(frozen=True)
class Origin:
    """The upstream of a peer. `ca`: a PEM file with the authority of its certificate, if it uses TLS."""

    port: int
    ca: Path | None = None


def _return_at_once() -> None:
    """The `settle` of a peer that has no work left after the load's last byte."""


@dataclass
class Peer:
    """`pids`: its processes, with the names of its parts. `settle` returns when all work for the load is done."""

    port: int
    pids: dict[int, str]
    settle: Callable[[], None] = _return_at_once
    captured: bool = True
    faults: list[str] = field(default_factory=list)

    def cpu(self) -> dict[str, float]:
        """CPU seconds so far, by part."""
        seconds = dict.fromkeys(self.pids.values(), 0.0)
        for pid, part in self.pids.items():
            seconds[part] += cpu_seconds(pid)
        return seconds

    def wait_idle(self) -> None:
        """Waits until it is idle after an aborted load, at most _IDLE_WAIT_S."""
        deadline = time.monotonic() + _IDLE_WAIT_S
        before = sum(self.cpu().values())
        while time.monotonic() < deadline:
            time.sleep(_CHECK_S)
            after = sum(self.cpu().values())
            if after - before < _IDLE * _CHECK_S:
                return
            before = after

    def peak_mib(self) -> float:
        """The sum of its processes' peaks. Shared memory counts for each."""
        return sum(peak_mib(pid) for pid in self.pids)


@contextlib.contextmanager
def started(command: Sequence[str], port: int, log: Path, processes: int = 1) -> Iterator[Peer]:
    """Runs a command that listens on `port` with this many processes. Raises MissingError if they do not start."""
    with log.open("wb") as errors:
        process = subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=errors, stderr=errors)
    try:
        _wait(process, port, log, processes)
        yield Peer(port, dict.fromkeys(tree(process.pid), "proxy"))
    finally:
        process.terminate()
        try:
            process.wait(_STOP_S)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()


def _wait(process: "subprocess.Popen[bytes]", port: int, log: Path, processes: int) -> None:
    deadline = time.monotonic() + _START_S
    while True:
        with contextlib.suppress(OSError), socket.create_connection(("127.0.0.1", port), timeout=1):
            if len(tree(process.pid)) >= processes:
                return
        if process.poll() is not None or time.monotonic() > deadline:
            lines = log.read_text(errors="replace").strip().splitlines()
            raise MissingError(lines[-1] if lines else "it does not start")
        time.sleep(0.05)


@contextlib.contextmanager
def upstream(certificate: Path | None = None) -> Iterator[Peer]:
    """Runs the load's upstream, itself a peer for requests without a proxy. `certificate`: a PEM file, for TLS."""
    with program("bench.load.upstream", *([] if certificate is None else [str(certificate)])) as process:
        yield Peer(int(process.said), {process.pid: "upstream"})
