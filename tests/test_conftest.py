"""What tests/conftest.py does for every test run, seen in a run of two tests."""

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

from tests.conftest import LOG_TAIL

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


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> "subprocess.CompletedProcess[str]":
    """A run of the two tests, with variables for tests and for the command line in its environment."""
    folder = tmp_path_factory.mktemp("run")
    (folder / "test_made.py").write_text(TESTS)
    environment = {name: value for name, value in os.environ.items() if not name.startswith("PYTEST_")}
    options = ["-q", "-rA", "-p", "no:cacheprovider", "-p", "tests.conftest", "-c", str(ROOT / "pyproject.toml")]
    return subprocess.run(
        [sys.executable, "-m", "pytest", *options, f"--basetemp={folder / 'base'}", str(folder / "test_made.py")],
        cwd=ROOT,
        env=environment | {"STREAMGAUGE_FAULTS": "full", "STREAMGAUGE_LEDGER": "nothing"},
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )


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
