"""A failed test shows the ends of its processes' logs, and keeps the files: with a separate test session."""

import subprocess
import sys
from pathlib import Path

from tests import kept_logs

_ROOT = Path(__file__).parent.parent
_FAILING = """
import subprocess, sys
from pathlib import Path
from tests import kept_logs
from tests.running import start

def test_it_fails(tmp_path: Path) -> None:
    with start("worker", ["--kafka", "127.0.0.1:1", "--admin", "none"], tmp_path / "data") as running:
        running.process.wait(60)
    (tmp_path / "own.log").write_text("x" * 10_000 + "the end of it")
    assert False
"""


def test_the_logs_of_a_failed_test_are_shown_and_kept(tmp_path: Path) -> None:
    test = _ROOT / "tests" / "test_made_for_kept_logs.py"
    test.write_text(_FAILING)
    try:
        done = subprocess.run(
            [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", str(test)],
            cwd=_ROOT,
            capture_output=True,
            text=True,
            timeout=120,
            check=False,
        )
    finally:
        test.unlink()
    assert done.returncode == 1, done.stdout + done.stderr
    folder = kept_logs.FOLDER / "tests-test_made_for_kept_logs.py-test_it_fails-call"
    kept = sorted(path.name.partition("-")[2] for path in folder.iterdir())
    assert kept == ["data.log", "own.log"]
    assert "the end of it" in done.stdout
    assert str(folder) in done.stdout
    assert "--admin" in done.stdout  # what the command wrote about it
    assert "x" * (kept_logs.TAIL + 1) not in done.stdout
