"""What tests/conftest.py does for every test run, seen in runs of a few tests."""

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

from tests.conftest import BATCH, LOG_TAIL

pytestmark = pytest.mark.slow

ROOT = Path(__file__).parent.parent
TESTS = """
import os
from pathlib import Path

WHILE_IMPORTED = os.environ.get("STREAMGAUGE_FAULTS")

def test_variables() -> None:
    assert WHILE_IMPORTED == "full"
    assert [name for name in os.environ if name.startswith("STREAMGAUGE_")] == []

def test_that_fails(tmp_path: Path) -> None:
    (tmp_path / "data").mkdir()
    (tmp_path / "data" / "worker.log").write_text("x" * 10_000 + "the end of it")
    (tmp_path / "other.txt").write_text("this is no log")
    assert False
"""
# Eight tests of one group: two processes that shared them would be two different ones.
GROUP = """
import os
import pytest

@pytest.mark.xdist_group("costly")
@pytest.mark.parametrize("number", range(8))
def test_process(number: int) -> None:
    print("run by", os.environ["PYTEST_XDIST_WORKER"])
"""
# Short tests of a module, enough for four batches.
MANY = f"""
import os
import time
import pytest

@pytest.mark.parametrize("number", range({4 * BATCH}))
def test_number(number: int) -> None:
    time.sleep(0.01)
    print("run", number, "by", os.environ["PYTEST_XDIST_WORKER"])
"""


def _run(folder: Path, tests: str, *options: str) -> "subprocess.CompletedProcess[str]":
    """A run of these tests, with variables for tests and for the command line in its environment."""
    (folder / "test_made.py").write_text(tests)
    environment = {name: value for name, value in os.environ.items() if not name.startswith("PYTEST_")}
    usual = ["-q", "-rA", "-p", "no:cacheprovider", "-p", "tests.conftest", "-c", str(ROOT / "pyproject.toml")]
    return subprocess.run(
        [
            sys.executable,
            "-m",
            "pytest",
            *usual,
            *options,
            f"--basetemp={folder / 'base'}",
            str(folder / "test_made.py"),
        ],
        cwd=ROOT,
        env=environment | {"STREAMGAUGE_FAULTS": "full", "STREAMGAUGE_LEDGER": "nothing"},
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> "subprocess.CompletedProcess[str]":
    """A run of the two tests."""
    return _run(tmp_path_factory.mktemp("run"), TESTS)


def test_modules_read_the_variables_of_a_run_and_commands_do_not(run: "subprocess.CompletedProcess[str]") -> None:
    """The command line would refuse those of tests as unknown, and read its own."""
    assert "1 failed, 1 passed" in run.stdout, run.stdout + run.stderr
    assert re.search(r"^PASSED .*::test_variables$", run.stdout, re.MULTILINE)


def test_a_failed_test_shows_the_end_of_its_logs(run: "subprocess.CompletedProcess[str]") -> None:
    assert "end of " in run.stdout, run.stdout + run.stderr
    assert "worker.log" in run.stdout
    assert "x" * 1_000 + "the end of it" in run.stdout
    assert "x" * (LOG_TAIL + 1) not in run.stdout
    assert "this is no log" not in run.stdout.replace('write_text("this is no log")', "")


def test_tests_of_a_group_are_run_by_one_process(tmp_path: Path) -> None:
    """Else each process of `make test` makes what a module, or the whole run, shares: brokers, databases, folders."""
    run = _run(tmp_path, GROUP, "-n", "2", "--dist", "loadgroup", "--no-loadscope-reorder")
    assert "8 passed" in run.stdout, run.stdout + run.stderr
    assert re.search(r"^PASSED .*::test_process\[7\]$", run.stdout, re.MULTILINE), "it is named with its group"
    assert len(re.findall("^run by (gw[0-9]+)", run.stdout, re.MULTILINE)) == 8
    assert len(set(re.findall("^run by (gw[0-9]+)", run.stdout, re.MULTILINE))) == 1


def test_short_tests_of_a_module_are_given_out_in_batches(tmp_path: Path) -> None:
    run = _run(tmp_path, MANY, "-n", "2", "--dist", "loadgroup", "--no-loadscope-reorder")
    assert f"{4 * BATCH} passed" in run.stdout, run.stdout + run.stderr
    processes = re.findall("^run ([0-9]+) by (gw[0-9]+)", run.stdout, re.MULTILINE)
    by_batch = [{process for number, process in processes if int(number) // BATCH == batch} for batch in range(4)]
    assert [len(found) for found in by_batch] == [1] * 4
    assert len(set.union(*by_batch)) == 2
