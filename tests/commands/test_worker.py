"""`streamgauge worker` while its broker is away: it waits, says so, and ends when it is asked to."""

import signal
from pathlib import Path

import pytest

from tests.running import start, wait_for

# Nobody may listen there.
NOBODY = "127.0.0.1:1"


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_it_waits_for_a_broker_and_is_not_ready(tmp_path: Path, number: int) -> None:
    data_dir = tmp_path / "data"
    flags = ["--kafka", NOBODY, "--admin", "127.0.0.1:0", "--data-dir", str(data_dir)]
    with start("worker", flags, data_dir) as worker:
        wait_for(lambda: "metrics at" in worker.log, "address")
        worker.admin = worker.log.partition("metrics at ")[2].partition("/metrics")[0]
        wait_for(lambda: NOBODY in worker.log.replace(worker.admin, ""), "a word on the broker")
        assert worker.get("/health/ready")[0] == 503
        assert worker.get("/health/live")[0] == 200
        assert worker.stop(number) == 0
        assert "Traceback" not in worker.log
    assert (data_dir / "ledger.sqlite").exists()
