"""Processes that run a module as `python -m MODULE ARGUMENT...` does, as forks of a process that has imported what they need.

To import what `up` needs takes 0.3 s of CPU, and Faust takes 0.6 s; a whole run starts more than 600 such processes.
"""

import multiprocessing.connection
import os
import runpy
import signal
import subprocess
import sys
import threading
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Protocol

_FORK_SERVER = multiprocessing.get_context("forkserver")
_FORK_SERVER.set_forkserver_preload(
    [
        "streamgauge.cli.tap",
        "streamgauge.cli.up",
        "streamgauge.cli.worker",
        "streamgauge.worker.faust.app",
        "streamgauge.worker.process",
    ]
)


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
    """A module in a fork, with the working directory of this process. What it writes is appended to two files."""

    def __init__(
        self, module: str, arguments: Sequence[str], stdout: Path, stderr: Path, environment: Mapping[str, str]
    ) -> None:
        self._module = module
        given = (module, list(arguments), stdout, stderr, dict(environment), Path.cwd())
        self._process = _FORK_SERVER.Process(target=_run_with, args=given, daemon=True)
        self._one_reader = threading.Lock()  # the fork server sends the exit code once: a second reader would get 255
        sys.audit("tests.forks.start", module)
        self._process.start()
        assert self._process.pid is not None
        self.pid = self._process.pid

    def poll(self) -> int | None:
        with self._one_reader:
            return self._process.exitcode

    def wait(self, timeout: float | None = None) -> int:
        multiprocessing.connection.wait([self._process.sentinel], timeout)
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


def _of_interpreter(environment: Mapping[str, str]) -> dict[str, str]:
    """The variables that decide what an interpreter is, and imports. A fork already has those of its server."""
    return {name: value for name, value in environment.items() if name.startswith(("PYTHON", "LD_", "MALLOC_"))}


_OF_THIS_INTERPRETER = _of_interpreter(os.environ)


def fits_a_fork(environment: Mapping[str, str]) -> bool:
    """Whether a process with these variables may be a fork."""
    return _of_interpreter(environment) == _OF_THIS_INTERPRETER


def _run_with(
    module: str, arguments: list[str], stdout: Path, stderr: Path, environment: dict[str, str], folder: Path
) -> None:
    for path, descriptor in ((stdout, 1), (stderr, 2)):
        with path.open("ab") as file:
            os.dup2(file.fileno(), descriptor)
    os.environ.clear()
    os.environ.update(environment)
    os.chdir(folder)
    sys.argv = [module, *arguments]
    runpy.run_module(module, run_name="__main__", alter_sys=True)
