"""The script that runs the tests: a failure is red, unless all failed tests are listed as unsteady and pass when run
alone.
"""

import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent
# Fails in the first of two runs.
ONCE = """
from pathlib import Path

def test_once():
    seen = Path(__file__).with_name("seen")
    again = seen.exists()
    seen.touch()
    assert again
"""
STEADY = "def test_steady():\n    pass\n"
BROKEN = "def test_broken():\n    assert False\n"
LISTED = '["tests/test_once.py::test_once"]\nsince = 2026-11-26\nreason = "it fails once"\n'


@pytest.mark.parametrize(
    ("tests", "listed", "code", "says"),
    [
        ({"steady": STEADY}, "", 0, ""),
        ({"steady": STEADY, "once": ONCE}, "", 1, ""),
        ({"steady": STEADY, "once": ONCE}, LISTED, 0, "UNSTEADY"),
        ({"broken": BROKEN, "once": ONCE}, LISTED, 1, ""),
        ({"once": ONCE}, '["tests/test_once.py::test_once"]\nreason = "it fails once"\n', 4, "needs a date"),
    ],
    ids=["all pass", "one fails once", "one that is listed fails once", "another fails", "a list without a date"],
)
def test_a_failure_is_red(tmp_path: Path, tests: dict[str, str], listed: str, code: int, says: str) -> None:
    # In a new clone the script first collects the tests once, which one case shows.
    (tmp_path / "tests" / ("new" if code == 0 and not listed else "__pycache__")).mkdir(parents=True)
    done = run_tests(tmp_path, {f"test_{name}": content for name, content in tests.items()}, listed)
    assert done.returncode == code, done.stdout + done.stderr
    assert says in done.stdout + done.stderr
    assert (tmp_path / "build" / "tests.xml").exists()


@pytest.mark.parametrize(("part", "passed", "report"), [((), 1, "tests.xml"), (("long",), 3, "long.xml")])
def test_those_that_take_longest_run_apart(tmp_path: Path, part: tuple[str, ...], passed: int, report: str) -> None:
    tests = dict.fromkeys(["core/test_one", "bench/test_two", "chaos/test_three", "faults/test_four"], STEADY)
    done = run_tests(tmp_path, tests, "", *part)
    assert done.returncode == 0, done.stdout + done.stderr
    assert f" {passed} passed" in done.stdout
    assert [path.name for path in (tmp_path / "build").glob("*.xml")] == [report]


def run_tests(folder: Path, tests: dict[str, str], listed: str, *arguments: str) -> "subprocess.CompletedProcess[str]":
    """Runs the script in a repository with these tests (place -> content) and this list of unsteady ones."""
    (folder / "scripts").mkdir()
    shutil.copy(ROOT / "scripts" / "run_tests", folder / "scripts")
    for place, content in tests.items():
        path = folder / "tests" / f"{place}.py"
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(content)
    for name in ("kafka_broker", "ports.py"):
        (folder / "tests" / name).symlink_to(ROOT / "tests" / name)
    (folder / "tests" / "unsteady.toml").write_text(listed)
    (folder / ".venv" / "bin").mkdir(parents=True)
    for name in ("python", "pytest"):
        (folder / ".venv" / "bin" / name).symlink_to(Path(sys.executable).with_name(name))
    clean = {name: value for name, value in os.environ.items() if not name.startswith("PYTEST_")}
    clean |= {"TEST_PROCESSES": "1", "KAFKA_BOOTSTRAP": "127.0.0.1:1"}  # none of these tests needs a broker
    words = [str(folder / "scripts" / "run_tests"), *arguments]
    return subprocess.run(words, capture_output=True, text=True, env=clean, check=False, timeout=300)


@pytest.mark.parametrize("file", ["Makefile", "scripts/test_interpreters"])
def test_each_word_that_selects_tests_is_in_the_name_of_one(file: str) -> None:
    """A word that was left behind by a change of names would select no test, or leave none out."""
    selections = re.findall(r"""(?m)(?:-k '|LESS='|OTHERS=")(.*)['"]""", (ROOT / file).read_text())
    words = {word for selection in selections for word in re.findall(r"\b[a-z_]+\b", selection)} - {"and", "or", "not"}
    names = {path.stem for path in (ROOT / "tests" / "core").rglob("test_*.py")}
    for path in (ROOT / "tests" / "core").rglob("test_*.py"):
        names |= set(re.findall(r"def (test_\w+)", path.read_text(encoding="utf-8")))
    assert words
    assert {word for word in words if not any(word in name for name in names)} == set()


def test_the_variables_of_a_test_run_do_not_reach_the_command_line() -> None:
    """It would refuse those of tests as unknown, and read its own."""
    test = "tests/cli/test_audit.py::test_a1_an_invoice_that_was_issued_again_shows"
    environment = {**os.environ, "STREAMGAUGE_FAULTS": "full", "STREAMGAUGE_LEDGER": "nothing"}
    words = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", test]
    done = subprocess.run(words, check=False, cwd=ROOT, env=environment, capture_output=True, text=True)
    assert done.returncode == 0, done.stdout
