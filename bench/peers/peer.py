"""A proxy that runs in front of an upstream, and what its processes cost."""

import contextlib
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from bench.measure import cpu_seconds, peak_mib, tree

# A proxy that does not listen by then does not start (seconds).
_START_S = 30.0
_STOP_S = 20.0
# How long a proxy may go on with what nobody waits for; how often one looks (seconds), and the part of a core that is rest.
_REST_S = 15.0
_LOOK_S = 0.2
_IDLE = 0.05


class MissingError(Exception):
    """A peer cannot be had on this machine; the message says why."""


@dataclass(frozen=True)
class Origin:
    """The upstream that a peer passes requests on to. `ca`: it speaks TLS; the authority of its certificate, a PEM file."""

    port: int
    ca: Path | None = None


def _at_once() -> None:
    """Nothing is still to be done when the load's last byte has come."""


@dataclass
class Peer:
    """`pids`: its processes, each with the name of its part. `settle` returns when the load's work is done to the end."""

    port: int
    pids: dict[int, str]
    settle: Callable[[], None] = _at_once
    captured: bool = True
    faults: list[str] = field(default_factory=list)

    def cpu(self) -> dict[str, float]:
        """CPU seconds so far, by part."""
        found: dict[str, float] = {}
        for pid, part in self.pids.items():
            found[part] = found.get(part, 0.0) + cpu_seconds(pid)
        return found

    def rest(self) -> None:
        """Until it does nothing any more, after a load that was taken from it; for a while."""
        deadline = time.monotonic() + _REST_S
        before = sum(self.cpu().values())
        while time.monotonic() < deadline:
            time.sleep(_LOOK_S)
            after = sum(self.cpu().values())
            if after - before < _IDLE * _LOOK_S:
                return
            before = after

    def peak_mib(self) -> float:
        """The sum of its processes' peaks: what they share counts for each."""
        return sum(peak_mib(pid) for pid in self.pids)


def free_port() -> int:
    """A port that nobody listens on."""
    with socket.create_server(("127.0.0.1", 0)) as probe:
        return int(probe.getsockname()[1])


@contextlib.contextmanager
def started(command: Sequence[str], port: int, log: Path, processes: int = 1) -> Iterator[Peer]:
    """A command that listens on `port` and has so many processes. Raises MissingError if it does not start them."""
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
            said = log.read_text(errors="replace").strip().splitlines()
            raise MissingError(said[-1] if said else "it does not start")
        time.sleep(0.05)


@contextlib.contextmanager
def upstream(certificate: Path | None = None) -> Iterator[Peer]:
    """The load's upstream, which can be asked directly as well. `certificate`: with TLS, by this PEM file."""
    command = [sys.executable, "-m", "bench.load.upstream", *([] if certificate is None else [str(certificate)])]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdin is not None
        assert process.stdout is not None
        try:
            yield Peer(int(process.stdout.readline()), {process.pid: "upstream"})
        finally:
            process.stdin.close()
