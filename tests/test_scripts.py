"""The scripts that install what tests need or select tests, and `make generated`: what they write and leave alone."""

import fcntl
import os
import re
import shutil
import subprocess
from collections.abc import Sequence
from pathlib import Path

import pytest

from tests.running import PATIENCE_S, wait_for

pytestmark = pytest.mark.slow

ROOT = Path(__file__).parent.parent

needs_flock = pytest.mark.skipif(shutil.which("flock") is None, reason="there is no flock here")


def program(path: Path, *lines: str) -> Path:
    """A program of the shell."""
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text("\n".join(["#!/bin/sh", *lines, ""]))
    path.chmod(0o755)
    return path


def run(words: Sequence[str | Path], **environment: str) -> "subprocess.CompletedProcess[str]":
    return subprocess.run(
        words, capture_output=True, text=True, env={**os.environ, **environment}, check=False, timeout=PATIENCE_S
    )


@pytest.mark.skipif(not Path("/run/lock").is_dir(), reason="there is no /run/lock here")
def test_the_lock_of_packages_empties_no_file(tmp_path: Path) -> None:
    """In a directory that everyone may write to, a link of the lock's name leads where another user wants."""
    theirs, programs = tmp_path / "theirs", tmp_path / "bin"
    theirs.write_text("theirs")
    (tmp_path / "streamgauge-install-packages.lock").symlink_to(theirs)
    program(programs / "apt-get", "exit 1")
    program(programs / "id", "echo 0")
    # Another process has installed it while this one waited: nothing is installed here.
    program(programs / "flock", f"cp {programs}/id {programs}/sg-wanted")
    environment = {"PATH": f"{programs}:{os.environ['PATH']}", "TMPDIR": str(tmp_path)}
    if os.geteuid() != 0 and not os.access("/run/lock", os.W_OK):
        pytest.skip("/run/lock cannot be written")
    done = run([ROOT / "scripts" / "install_packages", "sg-package", "sg-wanted"], **environment)
    assert (done.returncode, done.stderr) == (0, "")
    assert theirs.read_text() == "theirs"


@needs_flock
def test_a_second_run_of_the_deploy_tools_waits_for_the_first(tmp_path: Path) -> None:
    """Without the lock it removes what the first one installs."""
    tools, started = tmp_path / "streamgauge-tests" / "deploy-tools", tmp_path / "started"
    tools.mkdir(parents=True)
    python = program(tmp_path / "python", f"touch {started}", "exit 1")
    with (tools / "lock").open("a") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        process = subprocess.Popen(
            [ROOT / "scripts" / "install_deploy_tools"],
            env={**os.environ, "XDG_CACHE_HOME": str(tmp_path), "PYTHON": str(python)},
            stderr=subprocess.DEVNULL,
        )
        try:
            with pytest.raises(subprocess.TimeoutExpired):
                process.wait(2)
            assert not started.exists()
            fcntl.flock(lock, fcntl.LOCK_UN)
            wait_for(started.exists, "start after the first run has ended")
        finally:
            process.kill()
            process.wait()


@pytest.mark.skipif(shutil.which("make") is None, reason="there is no make here")
def test_a_file_is_generated_whole_or_not_at_all(tmp_path: Path) -> None:
    shutil.copy(ROOT / "Makefile", tmp_path)
    file = tmp_path / "schemas" / "record.v1.json"
    file.parent.mkdir()
    file.write_text("before")
    program(tmp_path / "bin" / "python", "echo half; exit 1")
    done = run(["make", "-C", tmp_path, "generated", "BIN=bin", "-o", ".venv/.installed"])
    assert done.returncode != 0
    assert file.read_text() == "before"
    assert [path.name for path in file.parent.iterdir()] == [file.name]


def test_clean_removes_every_cache() -> None:
    """What the tools of this repository write is what git ignores."""
    ignored = {line.strip("/") for line in (ROOT / ".gitignore").read_text().splitlines() if line.startswith(".")}
    (line,) = [line for line in (ROOT / "Makefile").read_text().splitlines() if line.startswith("\trm -rf")]
    caches = {name for name in ignored | {".cache"} if "cache" in name and "*" not in name}
    assert [name for name in sorted(caches) if name not in line.split()] == []


def test_each_word_that_selects_tests_is_in_the_name_of_one() -> None:
    """A word of an earlier name would select no test, or leave none out."""
    script = (ROOT / "scripts" / "test_interpreters").read_text()
    selections = re.findall(r"""^(?:LESS|OTHERS)=['"](.+)['"]$""", script, re.MULTILINE)
    assert len(selections) == 2
    words = set(re.findall(r"\b[a-z_]+\b", " ".join(selections))) - {"and", "or", "not"}
    modules = list((ROOT / "tests" / "core").rglob("test_*.py"))
    names = {path.stem for path in modules}.union(
        *(re.findall(r"def (test_\w+)", path.read_text()) for path in modules)
    )
    assert [word for word in sorted(words) if not any(word in name for name in names)] == []
