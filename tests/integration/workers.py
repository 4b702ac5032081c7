"""Workers as processes that a test may kill: `python -m tests.integration.workers JSON` is such a process.

Its settings are those of `WorkerSettings`, and `ledger`.
"""

import gc
import json
import os
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from tests.forks import ForkedProcess, Process, fits_a_fork

# Time until a worker is ready, with room for a machine that runs other tests (seconds).
_READY_S = 60
_STOP_S = 60


class WorkerProcess:
    """A running worker. `log`: what it wrote to stderr; `metrics`: what it printed at its end.

    `fresh`: in a new interpreter, also where a fork would do (tests/forks.py).
    """

    def __init__(
        self,
        directory: Path,
        module: str = "tests.integration.workers",
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
        self.process: Process
        if not fresh and fits_a_fork(os.environ):
            self.process = ForkedProcess(module, [json.dumps(settings)], self._stdout, self._stderr, os.environ)
        else:
            words = [sys.executable, "-m", module, json.dumps(settings)]
            with self._stderr.open("ab") as errors, self._stdout.open("ab") as output:
                self.process = subprocess.Popen(words, stdout=output, stderr=errors)

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


def main() -> int:
    """The worker's own process. It prints `ready` once it has its partitions, and its metrics at the end."""
    from streamgauge.cli.worker import LedgerStore
    from streamgauge.ledger import open_ledger
    from streamgauge.metrics.prometheus import Metrics
    from streamgauge.worker import process
    from streamgauge.worker.settings import RecordStore, WorkerSettings

    gc.freeze()
    gc.enable()
    told = json.loads(sys.argv[1])
    ledger: RecordStore | None = LedgerStore(open_ledger(told.pop("ledger"))) if "ledger" in told else None
    settings = WorkerSettings(data_dir=Path(told.pop("data_dir")), **told)
    metrics = Metrics()
    made: list[process.Worker] = []

    class Announced(process.Worker):
        def __init__(self, *given: object) -> None:
            super().__init__(*given)  # type: ignore[arg-type]
            made.append(self)

    def announce() -> None:
        while not (made and made[0].unready is None):
            time.sleep(0.05)
        print("ready", flush=True)

    process.Worker = Announced  # type: ignore[assignment, misc]
    threading.Thread(target=announce, daemon=True).start()
    code = process.run_worker(settings, ledger, metrics)
    print(metrics.render().decode(), flush=True)
    return code


if __name__ == "__main__":
    sys.exit(main())
