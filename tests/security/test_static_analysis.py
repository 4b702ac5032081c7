"""The scripts of `make check`: they find a planted fault, and say so where they cannot run."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

pytestmark = pytest.mark.slow

ROOT = Path(__file__).parents[2]
DOUBLE_FREE = """
#include <stdlib.h>
int f(void) { char *p = malloc(9); free(p); free(p); return 0; }
"""


def run(script: str, *arguments: str, **variables: str) -> "subprocess.CompletedProcess[str]":
    environment = {**os.environ, "PYTHON": sys.executable, **variables}
    return subprocess.run(
        [ROOT / "scripts" / script, *arguments], capture_output=True, text=True, env=environment, check=False
    )


def test_the_c_code_has_no_fault_that_the_analyser_finds(tmp_path: Path) -> None:
    done = run("analyze_c")
    assert done.returncode == 0, done.stderr
    if "not analysed" in done.stderr:
        pytest.skip(done.stderr)
    (tmp_path / "faulty.c").write_text(DOUBLE_FREE)
    faulty = run("analyze_c", str(tmp_path / "faulty.c"))
    assert faulty.returncode == 1
    assert "double-" in faulty.stderr


def test_an_audit_that_cannot_reach_its_database_says_so() -> None:
    done = run("audit_dependencies", OSV_URL="http://127.0.0.1:1/v1/query")
    assert (done.returncode, done.stdout) == (0, "")
    assert "cannot be reached from here: nothing was audited" in done.stderr
    assert run("audit_dependencies", "--required", OSV_URL="http://127.0.0.1:1/v1/query").returncode == 3


def test_make_check_runs_them() -> None:
    makefile = (ROOT / "Makefile").read_text()
    recipe = makefile.partition("\ncheck: ")[2].partition("\n\n")[0]
    assert {"./scripts/analyze_c", "./scripts/audit_dependencies"} <= set(recipe.split())


def test_ruff_looks_for_security_faults_in_the_package() -> None:
    """Its rules S are those of bandit."""
    faulty = "import subprocess\nsubprocess.run(input(), shell=True, check=False)\n"
    done = subprocess.run(
        [sys.executable, "-m", "ruff", "check", "--stdin-filename", "pipeline/streamgauge/cli/x.py", "-"],
        input=faulty, capture_output=True, text=True, cwd=ROOT, check=False,
    )  # fmt: skip
    assert "S602" in done.stdout
