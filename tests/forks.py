"""Processes that run a module as `python -m MODULE ARGUMENT...` does, as forks of a process that has imported what they need.

To import what `up` needs takes 0.3 s of CPU, its collector 0.6 s, its relay 0.2 s, and Faust takes 0.6 s; a whole run starts
more than 600 commands. A fork that starts `python -m MODULE` by asyncio, as a supervisor does, gets a fork as well.
"""

import gc
import logging
import multiprocessing.connection
import os
import runpy
import signal
import subprocess
import sys
import threading
import traceback
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, NoReturn, Protocol

_FORK_SERVER = multiprocessing.get_context("forkserver")
_FORK_SERVER.set_forkserver_preload(
    [
        "streamgauge.cli.assembling",
        "streamgauge.cli.collector",
        "streamgauge.cli.shipping",
        "streamgauge.cli.tap",
        "streamgauge.cli.up",
        "streamgauge.cli.worker",
        "streamgauge.taps.proxy.__main__",
        "streamgauge.worker.faust.app",
        "streamgauge.worker.process",
    ]
)
# How often Python collects garbage by itself.
_GARBAGE = 700, 10, 10
# The longest name of a process that Linux keeps (characters). A module with a longer name is executed.
_LONGEST_NAME = 15


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
    subprocess.Popen = ChildPopen  # type: ignore[assignment, misc] # asyncio starts processes by it
    _run(module, arguments)


def _run(module: str, arguments: Sequence[str]) -> None:
    sys.argv = [module, *arguments]
    for name in (module, f"{module}.__main__"):
        sys.modules.pop(name, None)  # runpy warns of a module that was imported before
    runpy.run_module(module, run_name="__main__", alter_sys=True)


def _name(module: str) -> str:
    return module.removeprefix("streamgauge.")


class ChildPopen(subprocess.Popen[bytes]):
    """A process that asyncio starts. `python -m MODULE`, with pipes for stdin and stdout and a process group of its own, is
    a fork of this process.
    """

    _is_fork = False

    def __init__(self, args: Sequence[str], *, pass_fds: Sequence[int] = (), **options: Any) -> None:
        chosen = tuple(map(options.get, ("stdin", "stdout", "stderr", "process_group")))
        is_module = [*args[:2]] == [sys.executable, "-m"] and len(_name(args[2])) <= _LONGEST_NAME
        if not is_module or chosen != (subprocess.PIPE, subprocess.PIPE, None, 0):
            super().__init__(args, pass_fds=pass_fds, **options)
            return
        sys.audit("tests.forks.start", args[2])
        (stdin, to_child), (from_child, stdout) = os.pipe(), os.pipe()
        self._is_fork, self.args, self.returncode, self.stderr = True, args, None, None
        self.pid = os.fork()
        if not self.pid:
            _end_as_program(lambda: _become(args[2:], stdin, stdout, pass_fds))
        os.close(stdin)
        os.close(stdout)
        self.stdin, self.stdout = open(to_child, "wb", 0), open(from_child, "rb", 0)  # noqa: SIM115, PTH123 - as in Popen

    def poll(self) -> int | None:
        """The exit code. That of a fork was set by asyncio, whose watcher waits for the process."""
        return self.returncode if self._is_fork else super().poll()

    def send_signal(self, sig: int) -> None:
        if self.poll() is None:
            os.kill(self.pid, sig)


def _become(words: Sequence[str], stdin: int, stdout: int, kept: Sequence[int]) -> None:
    """Runs a module with what a program has that is executed: the given descriptors and no other, a process group of its
    own, no handler of a signal, no log, and no object of its parent that could be collected and would close a descriptor.
    """
    gc.freeze()
    os.setpgid(0, 0)
    for number in signal.valid_signals() - {signal.SIGINT}:
        if callable(signal.getsignal(number)):
            signal.signal(number, signal.SIG_DFL)
    if signal.getsignal(signal.SIGINT) is not signal.SIG_IGN:
        signal.signal(signal.SIGINT, signal.default_int_handler)
    signal.set_wakeup_fd(-1)
    os.dup2(stdin, 0)
    os.dup2(stdout, 1)
    first = 3
    for descriptor in sorted(kept):
        os.closerange(first, descriptor)
        first = descriptor + 1
    os.closerange(first, os.sysconf("SC_OPEN_MAX"))
    sys.stdin, sys.stdout = open(0, closefd=False), open(1, "w", closefd=False)  # noqa: SIM115 - as at a start
    sys.stderr = open(2, "w", 1, errors="backslashreplace", closefd=False)  # noqa: SIM115 - as at a start
    logging.getLogger().handlers.clear()
    logging.getLogger().setLevel(logging.WARNING)
    gc.enable()
    gc.set_threshold(*_GARBAGE)
    Path("/proc/self/comm").write_text(_name(words[0]))  # see tests.processes.children
    _run(words[0], words[1:])


def _end_as_program(run: Callable[[], None]) -> NoReturn:
    """Runs a function, and ends the process with the exit code of a program. What called this never goes on."""
    code: object = 1
    try:
        run()
        code = 0
    except SystemExit as ended:
        code = 0 if ended.code is None else ended.code
    except BaseException:  # noqa: BLE001 - as Python prints what ends a program
        traceback.print_exc()
    finally:
        sys.stdout.flush()
        os._exit(code if isinstance(code, int) else 1)
