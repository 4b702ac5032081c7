"""Workers as processes, for tests."""

import json
import os
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from tests import kept_logs
from tests.starting import ForkedProcess, Process, fits_a_fork, run_fresh

# Time until a worker is ready, with room for a machine that runs other tests (seconds).
_READY_S = 60
_STOP_S = 60


class WorkerProcess:
    """A running worker. `log`: what it wrote to stderr; `metrics`: what it printed at its end.

    `fresh`: in a new interpreter, also where a fork would do (tests/starting.py).
    """

    def __init__(
        self,
        directory: Path,
        module: str = "tests.integration.worker_process",
        *,
        fresh: bool = False,
        **settings: Any,
    ) -> None:
        settings.setdefault("data_dir", str(directory / "data"))
        directory.mkdir(parents=True, exist_ok=True)
        self._stderr = directory / f"worker-{time.monotonic_ns()}.err"
        self._stdout = self._stderr.with_suffix(".out")
        self._stdout.touch()
        self._stderr.touch()
        kept_logs.add(self._stderr)
        given = (module, [json.dumps(settings)], self._stdout, self._stderr)
        may_fork = not fresh and fits_a_fork(os.environ)
        self.process: Process = ForkedProcess(*given, os.environ) if may_fork else run_fresh(*given)

    @property
    def log(self) -> str:
        return self._stderr.read_text()

    @property
    def metrics(self) -> str:
        return self._stdout.read_text()

    def wait_ready(self) -> "WorkerProcess":
        deadline = time.monotonic() + _READY_S
        while "ready" not in self.metrics:
            assert self.process.poll() is None, self.log
            assert time.monotonic() < deadline, self.log
            time.sleep(0.05)
        return self

    def metric(self, sample: str) -> float:
        """The value of one sample of the metrics that were printed at the end; 0 if there is none."""
        for line in self.metrics.splitlines():
            if line.startswith(sample + " "):
                return float(line.rsplit(" ", 1)[1])
        return 0.0

    def kill(self) -> None:
        self.process.kill()
        self.process.wait()

    def stop(self) -> int:
        """SIGTERM; gives the exit code."""
        self.process.terminate()
        return self.process.wait(_STOP_S)


@contextmanager
def worker(directory: Path, **settings: Any) -> Iterator[WorkerProcess]:
    """A worker that ends with the test at the latest."""
    process = WorkerProcess(directory, **settings)
    try:
        yield process
    finally:
        process.kill()
