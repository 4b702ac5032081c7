"""Streamgauge as a user runs it: the command as a process, its addresses, its records."""

import asyncio
import contextlib
import http.client
import io
import json
import os
import re
import signal
import subprocess
import sys
import time
import urllib.error
import urllib.request
from collections.abc import AsyncIterator, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple, TypeVar
from unittest import mock
from urllib.parse import urlsplit

from streamgauge.cli.main import main
from streamgauge.ledger import LedgerUnavailableError, open_ledger
from tests.forks import ForkedProcess, Process, fits_a_fork
from tests.processes import children

# The machine is shared: what takes a second alone may take this long (seconds).
PATIENCE_S = 60.0

_T = TypeVar("_T")

# A chat of the provider in tests/integration/provider.py.
CHAT_BODY = b'{"model":"small-1","stream":true,"messages":[]}'

# Flags that a test may omit; the environment of the test run must not reach the command.
CLEAN = {name: value for name, value in os.environ.items() if not name.startswith("STREAMGAUGE_")}

# Tests in which a command may be a fork of a process that has imported it (tests/forks.py): they are of what it does
# while it runs. In all others, and where its command line is looked at, it is started as a user starts it.
_OF_WHAT_RUNS = tuple(
    f"tests/{name}/"
    for name in (
        "blackbox",
        "chaos",
        "dashboards",
        "doctor",
        "faults",
        "integration",
        "live",
        "metrics",
        "spans",
        "taps",
    )
)
_OF_COMMAND_LINES = ("tests/faults/test_broker_security.py::test_s4_least_rights_suffice",)


class Running:
    """A running command. `url`: where clients connect; `admin`: the admin port's base URL."""

    def __init__(self, process: Process, log: Path, begins: int, data_dir: Path) -> None:
        self.process = process
        self.data_dir = data_dir
        self._log = log
        self._begins = begins  # log lines of an earlier run on this data directory do not belong to this one
        self.url = ""
        self.admin = ""

    @property
    def log(self) -> str:
        return self._log.read_bytes()[self._begins :].decode()

    def get(self, path: str) -> tuple[int, str]:
        """Requests a page of the admin port: status and body."""
        try:
            with urllib.request.urlopen(self.admin + path, timeout=10) as answer:
                return answer.status, answer.read().decode()
        except urllib.error.HTTPError as error:
            with error:
                return error.code, error.read().decode()

    @contextlib.contextmanager
    def post(
        self,
        body: bytes | str = CHAT_BODY,
        headers: Mapping[str, str] = {},
        path: str = "/small/v1/chat/completions",
    ) -> Iterator[http.client.HTTPResponse]:
        """Sends a request as a client of the tap: the response, whose head has come, on a connection of its own."""
        address = urlsplit(self.url)
        connection = http.client.HTTPConnection(address.hostname or "", address.port, timeout=PATIENCE_S)
        with contextlib.closing(connection):
            connection.request("POST", path, body, dict(headers))
            with connection.getresponse() as response:
                yield response

    def metrics(self) -> dict[str, float]:
        """Each series of /metrics by its line's beginning."""
        _, page = self.get("/metrics")
        lines = [line for line in page.splitlines() if line and not line.startswith("#")]
        return {name: float(value) for name, _, value in (line.rpartition(" ") for line in lines)}

    def reads(self) -> dict[str, float]:
        """The reads in the metrics: seen, delivered, waiting, and dropped by reason. Asserts that they are in balance."""
        page = self.metrics()
        reads = {state: page[f"streamgauge_tap_reads_{state}_total"] for state in ("seen", "delivered")}
        reads["waiting"] = page["streamgauge_tap_reads_waiting"]
        dropped = {
            name.split('"')[1]: value
            for name, value in page.items()
            if name.startswith("streamgauge_tap_reads_dropped_total") and value
        }
        assert reads["seen"] == reads["delivered"] + reads["waiting"] + sum(dropped.values()), (reads, dropped)
        return reads | dropped

    def settled(self) -> dict[str, float]:
        """As `reads`, once there are some and none waits."""
        return dict(
            wait_for(lambda: (reads := self.reads())["waiting"] == 0 < reads["seen"] and reads, "settled balance")
        )

    def memory(self) -> int:
        """The resident memory of the command and of each process that it started (bytes)."""
        return sum(map(resident_memory, (self.process.pid, *children(self.process.pid))))

    def peak_memory(self) -> int:
        """As `memory`, the largest so far of each."""
        return sum(map(_peak_memory, (self.process.pid, *children(self.process.pid))))

    def records(self) -> list[dict[str, Any]]:
        """The ledger's records. Not by `ledger query`, which has tests of its own: a process takes 0.2 s of CPU to start."""
        return [json.loads(line) for line in self._lines()]

    def recorded(self) -> int:
        """The number of records in the ledger; 0 if there is none yet."""
        with contextlib.suppress(LedgerUnavailableError):
            return len(self._lines())
        return 0

    def _lines(self) -> list[bytes]:
        with open_ledger(f"sqlite:///{self.data_dir / 'ledger.sqlite'}", create=False) as ledger:
            return list(ledger.query())

    def wait_for_records(self, count: int) -> list[dict[str, Any]]:
        """The records, once there are `count` of them."""
        wait_for(lambda: self.recorded() >= count, f"{count} records")
        return self.records()

    def stop(self, number: int = signal.SIGTERM) -> int:
        """Sends a signal and waits; gives the exit code."""
        self.process.send_signal(number)
        return self.process.wait(PATIENCE_S)


def resident_memory(pid: int) -> int:
    """The resident memory of a process (bytes); 0 if it has ended, or if this is not Linux."""
    try:
        fields = Path(f"/proc/{pid}/statm").read_text().split()
    except OSError:
        return 0
    return int(fields[1]) * 4096


def _peak_memory(pid: int) -> int:
    lines = Path(f"/proc/{pid}/status").read_text().splitlines()
    return next(int(line.split()[1]) * 1024 for line in lines if line.startswith("VmHWM:"))


@contextlib.asynccontextmanager
async def off_loop(context: contextlib.AbstractContextManager[_T]) -> AsyncIterator[_T]:
    """A context whose beginning and end may take seconds, such as that of a command, for an event loop."""
    entered = await asyncio.to_thread(context.__enter__)
    try:
        yield entered
    finally:
        await asyncio.to_thread(context.__exit__, None, None, None)


def wait_for(what: Any, name: str, patience_s: float = PATIENCE_S) -> Any:
    """The first true value of `what()`. It may start a command or read a whole page: it takes a quarter of the time."""
    deadline = time.monotonic() + patience_s
    while True:
        asked_s = time.monotonic()
        value = what()
        if value:
            return value
        assert time.monotonic() < deadline, f"no {name} within {patience_s} s"
        time.sleep(max(0.05, 3 * (time.monotonic() - asked_s)))


def command(
    *arguments: str, environment: Mapping[str, str] | None = None, stdin: str | None = None
) -> "subprocess.CompletedProcess[str]":
    """Runs a command to its end. `stdin`: what it reads there."""
    return subprocess.run(
        [sys.executable, "-m", "streamgauge", *arguments],
        input=stdin,
        capture_output=True,
        text=True,
        timeout=PATIENCE_S * 2,
        env={**CLEAN, **(environment or {})},
        check=False,
    )


def here(*arguments: str, environment: Mapping[str, str] | None = None) -> "subprocess.CompletedProcess[str]":
    """Runs a command to its end in this process: what a test asks of its result is the same, and no process starts.

    What libraries log is not in its stderr.
    """
    given, output, errors = {**CLEAN, **(environment or {})}, io.StringIO(), io.StringIO()
    with (
        mock.patch.dict(os.environ, given, clear=True),
        contextlib.redirect_stdout(output),
        contextlib.redirect_stderr(errors),
    ):
        code = main(arguments)
    return subprocess.CompletedProcess(arguments, code, output.getvalue(), errors.getvalue())


@contextlib.contextmanager
def start_tap(
    name: str,
    upstreams: Mapping[str, str] | str,
    data_dir: Path,
    *options: str,
    environment: Mapping[str, str] = {},
    python: str = sys.executable,
) -> Iterator[Running]:
    """`up` or `tap` on free ports, once it is ready; killed at the end if it still runs.

    `upstreams`: name -> URL, or one URL alone for a single upstream without prefix. `python`: that of another installation.
    """
    given = [upstreams] if isinstance(upstreams, str) else [f"{key}={url}" for key, url in upstreams.items()]
    places = ["--listen", "127.0.0.1:0", "--admin", "127.0.0.1:0", "--data-dir", str(data_dir)]
    flags = [flag for one in given for flag in ("--upstream", one)]
    with start(name, [*flags, *places, *options], data_dir, environment, python=python) as running:
        wait_until_ready(running)
        address = re.search(r": (https?://[^/\s]+)\S* -> ", running.log)
        assert address, running.log
        running.url = address[1]
        yield running


def wait_until_ready(running: Running) -> None:
    """Waits until a command has printed where its admin port is, and is ready."""
    wait_for(lambda: "metrics at" in running.log or running.process.poll() is not None, "address")
    address = re.findall(r"metrics at (http://[^/\s]+)/metrics", running.log)
    assert address, running.log
    running.admin = address[-1]
    wait_for(lambda: running.get("/health/ready")[0] == 200, "readiness")


def _may_fork() -> bool:
    test = os.environ.get("PYTEST_CURRENT_TEST", "")
    return test.startswith(_OF_WHAT_RUNS) and not test.startswith(_OF_COMMAND_LINES)


@contextlib.contextmanager
def start(
    name: str,
    flags: Sequence[str],
    data_dir: Path,
    environment: Mapping[str, str] = {},
    around: Sequence[str] = (),
    python: str = sys.executable,
) -> Iterator[Running]:
    """Any command that stays, with its stderr in a log. `around`: a command that runs it, with its own arguments."""
    data_dir.mkdir(parents=True, exist_ok=True)
    log = data_dir.parent / f"{data_dir.name}.log"
    variables = {**CLEAN, **environment}
    with log.open("a") as errors:
        begins = log.stat().st_size
        process: Process
        if not around and python == sys.executable and _may_fork() and fits_a_fork(variables):
            process = ForkedProcess("streamgauge", [name, *flags], Path(os.devnull), log, variables)
        else:
            process = subprocess.Popen(
                [*around, python, "-m", "streamgauge", name, *flags],
                stdin=subprocess.DEVNULL,
                stdout=subprocess.DEVNULL,
                stderr=errors,
                env=variables,
            )
    try:
        yield Running(process, log, begins, data_dir)
    finally:
        if process.poll() is None:
            process.send_signal(signal.SIGTERM)
            try:
                process.wait(PATIENCE_S)
            except subprocess.TimeoutExpired:
                process.kill()
                process.wait()


def start_worker(
    bootstrap: str, prefix: str, data_dir: Path, *options: str, environment: Mapping[str, str] = {}
) -> contextlib.AbstractContextManager[Running]:
    """`streamgauge worker` on any admin port. It is ready (`wait_until_ready`) once it has its partitions."""
    flags = ["--kafka", bootstrap, "--topic-prefix", prefix, "--admin", "127.0.0.1:0", "--data-dir", str(data_dir)]
    return start("worker", [*flags, *options], data_dir, environment)


class Program(NamedTuple):
    """`said`: its first line."""

    said: str
    pid: int


@contextlib.contextmanager
def program(module: str, *arguments: str) -> Iterator[Program]:
    """Runs a module of ours that says on its first line where it serves, and ends when its stdin does."""
    command = [sys.executable, "-m", module, *arguments]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdin is not None
        assert process.stdout is not None
        said = process.stdout.readline().strip()
        assert said, f"{module} did not start: see its output above"
        try:
            yield Program(said, process.pid)
        finally:
            process.stdin.close()
            process.wait(PATIENCE_S)


def start_up(
    upstreams: Mapping[str, str] | str, data_dir: Path, *options: str, environment: Mapping[str, str] = {}
) -> contextlib.AbstractContextManager[Running]:
    """`streamgauge up`, ready."""
    return start_tap("up", upstreams, data_dir, *options, environment=environment)
