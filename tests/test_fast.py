"""The list of slow tests is correct, and a fast test that starts a process is found."""

import subprocess
import sys
from pathlib import Path

import pytest

from tests import fast
from tests.each import each

ROOT = Path(__file__).parent.parent


@each(fast.SLOW)
def test_what_is_listed_exists(entry: str) -> None:
    path, _, name = entry.partition("::")
    assert (ROOT / path).exists()
    assert f"def {name}" in (ROOT / path).read_text() if name else True


def test_a_process_that_starts_is_found() -> None:
    processes, caught = fast.NoProcesses(), False
    with pytest.raises(fast.ProcessStartedError, match="a fast test starts processes"), processes.refused():
        try:
            subprocess.run([sys.executable, "-c", "pass"], check=True)
        except fast.ProcessStartedError:
            caught = True
    assert caught
    subprocess.run([sys.executable, "-c", "pass"], check=True)


def test_what_uses_a_broker_is_slow() -> None:
    assert fast.is_slow("tests/kafka/test_producer.py::test_a", ["tmp_path", "kafka"])
    assert not fast.is_slow("tests/kafka/test_producer.py::test_a", ["tmp_path"])


def test_what_runs_on_a_database_server_is_slow() -> None:
    assert fast.is_slow("tests/ledger/test_contract.py::test_a[day-postgresql]")
    assert not fast.is_slow("tests/ledger/test_contract.py::test_a[day-sqlite]")
