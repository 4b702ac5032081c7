"""`python -m tests.integration.worker_process JSON`: a worker in a separate process that a test may kill.

Prints `ready` once it has its partitions, and its metrics at the end, on stdout; logs to stderr.
"""

import gc
import json
import sys
import threading
import time
from pathlib import Path

from streamgauge.cli.worker import LedgerStore
from streamgauge.ledger import open_ledger
from streamgauge.metrics.prometheus import Metrics
from streamgauge.worker import process
from streamgauge.worker.settings import RecordStore, WorkerSettings


def main() -> int:
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
