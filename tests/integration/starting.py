"""Starts a worker's module as a process of its own: as `python -m MODULE JSON` does, or as a fork of a process that has
imported Faust.

To import Faust takes half a second of CPU, and a whole run starts more than 200 workers.

`python -m tests.integration.starting MODULE JSON` runs a module without collecting garbage during the imports, as
`streamgauge worker` does: that would take a tenth of a second, each time.
"""

import gc
import multiprocessing
import os
import runpy
import signal
import subprocess
import sys
from pathlib import Path
from typing import Protocol

_FORK_SERVER = multiprocessing.get_context("forkserver")
_FORK_SERVER.set_forkserver_preload(["tests.integration.imported_by_workers"])


class Process(Protocol):
    """The part of `subprocess.Popen` that tests use."""

    @property
    def pid(self) -> int: ...

    def poll(self) -> int | None: ...

    def wait(self, timeout: float | None = None) -> int: ...

    def send_signal(self, sig: int) -> None: ...

    def terminate(self) -> None: ...

    def kill(self) -> None: ...


class ForkedProcess:
    """A module that runs in a fork of the process that has imported Faust, with the environment and folder of now."""

    def __init__(self, module: str, argument: str, stdout: Path, stderr: Path) -> None:
        self._module = module
        given = (module, argument, stdout, stderr, dict(os.environ), Path.cwd())
        self._process = _FORK_SERVER.Process(target=_run_with, args=given, daemon=True)
        self._process.start()
        assert self._process.pid is not None
        self.pid = self._process.pid

    def poll(self) -> int | None:
        return self._process.exitcode

    def wait(self, timeout: float | None = None) -> int:
        self._process.join(timeout)
        code = self.poll()
        if code is None:
            raise subprocess.TimeoutExpired(self._module, timeout or 0.0)
        return code

    def send_signal(self, sig: int) -> None:
        if self.poll() is None:
            os.kill(self.pid, sig)

    def terminate(self) -> None:
        self.send_signal(signal.SIGTERM)

    def kill(self) -> None:
        self.send_signal(signal.SIGKILL)


def run_fresh(module: str, argument: str, stdout: Path, stderr: Path) -> Process:
    """A module in a new interpreter: its CPU time and memory are those that a user sees."""
    with stderr.open("wb") as errors, stdout.open("wb") as output:
        return subprocess.Popen(
            [sys.executable, "-m", "tests.integration.starting", module, argument], stdout=output, stderr=errors
        )


def _run_with(
    module: str, argument: str, stdout: Path, stderr: Path, environment: dict[str, str], folder: Path
) -> None:
    for path, descriptor in ((stdout, 1), (stderr, 2)):
        with path.open("wb") as file:
            os.dup2(file.fileno(), descriptor)
    os.environ.clear()
    os.environ.update(environment)
    os.chdir(folder)
    _run(module, argument)


def _run(module: str, argument: str) -> None:
    sys.argv = [module, argument]
    runpy.run_module(module, run_name="__main__", alter_sys=True)


if __name__ == "__main__":
    gc.disable()
    _run(*sys.argv[1:])
