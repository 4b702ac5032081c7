"""What `make demo` installs: few packages, of the versions that everything is tested with, and it says what it does."""

import os
import re
import shutil
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest
from packaging.requirements import Requirement
from scripts import build_native, fetch_uplot, missing_parts
from scripts.install_locked import names_in, progress
from scripts.installed_packages import ROOT, closure, project, requirements_of

from tests.running import CLEAN, PATIENCE_S

LOCK, DEVELOPERS = "requirements-demo.lock", "requirements-dev.lock"
MOST_PACKAGES = 50
# The extras whose commands README and tutorial use before anything else is installed.
EXTRAS = ("demo", "ledger", "audit", "rules", "top", "up")


def entries(lock: str) -> dict[str, tuple[str, frozenset[str]]]:
    """A lock's packages: name -> version, hashes."""
    text = (ROOT / lock).read_text(encoding="utf-8")
    packages = re.findall(r"^([^\s#=[]+)(?:\[.*\])?==([^\s;]+)(.*\n(?:    --hash.*\n)+)", text, re.MULTILINE)
    return {name: (version, frozenset(re.findall(r"sha256:\w{64}", rest))) for name, version, rest in packages}


def made(target: str, *words: str) -> str:
    """What `make` would run for a target in a fresh clone."""
    command = ["make", "--dry-run", "-C", str(ROOT), target, "VENV=build/no-such-environment", *words]
    return subprocess.run(command, capture_output=True, text=True, check=True, timeout=PATIENCE_S).stdout


def test_the_demo_needs_few_packages() -> None:
    packages = entries(LOCK)
    assert packages.keys() == names_in((ROOT / LOCK).read_text(encoding="utf-8"))
    assert 20 < len(packages) <= MOST_PACKAGES
    assert all(hashes for _, hashes in packages.values())


def test_it_has_the_versions_of_the_developers_lock() -> None:
    """So that `make test` after `make demo` changes none, and what is tested is what a newcomer gets."""
    packages, developers = entries(LOCK), entries(DEVELOPERS)
    assert {name: packages[name] for name in packages if packages[name] != developers.get(name)} == {}


def test_it_has_what_the_first_commands_and_the_build_need() -> None:
    build = project_of("build-system")["requires"]
    needed = closure([line for extra in EXTRAS for line in requirements_of(extra)] + build)
    assert needed - entries(LOCK).keys() == set()
    assert set(EXTRAS) <= project()["optional-dependencies"].keys()


def project_of(table: str) -> dict[str, list[str]]:
    content: dict[str, list[str]] = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))[table]
    return content


def test_the_environment_satisfies_what_pyproject_requires() -> None:
    packages = entries(LOCK)
    required = [Requirement(line) for extra in EXTRAS for line in requirements_of(extra)]
    assert [str(one) for one in required if not one.specifier.contains(packages[one.name.lower()][0])] == []


@pytest.mark.parametrize("document", ["README.md", "CONTRIBUTING.md", "docs/guides/install.md"])
def test_the_documents_say_how_many_they_are(document: str) -> None:
    said = set(re.findall(r"(\d+)\s+packages", (ROOT / document).read_text(encoding="utf-8")))
    assert str(len(entries(LOCK))) in said
    if document == "docs/guides/install.md":
        assert str(len(entries(DEVELOPERS))) in said


def test_make_demo_installs_the_demos_lock_alone() -> None:
    commands = made("demo")
    assert f"install_locked.py {LOCK}\n" in commands
    assert DEVELOPERS not in commands
    assert "--no-build-isolation -e ." in commands


def test_make_test_installs_the_rest_after_it() -> None:
    commands = made("test")
    assert 0 < commands.index(f"install_locked.py {LOCK}\n") < commands.index(f"install_locked.py {DEVELOPERS}\n")
    assert commands.count("-m venv") == 1, "the rest goes into the same environment"


def test_the_lock_is_made_from_the_developers_lock() -> None:
    line = next(line for line in made("lock").splitlines() if line.endswith(f"-o {LOCK}"))
    assert f"--constraint {DEVELOPERS} " in line
    assert set(re.findall(r"--extra (\w+)", line)) == {"demo", "rules", "top", "up"}, (
        "which bring those of ledger and audit"
    )


def test_a_lock_is_installed_and_says_how_far_it_is() -> None:
    """Here all is installed already; pip looks at each package nevertheless."""
    done = install(LOCK)
    assert done.returncode == 0, done.stderr
    count = len(entries(LOCK))
    told = [f"  {number} of {count} packages" for number in range(10, count + 1, 10)]
    assert done.stdout.splitlines()[:-1] == told
    assert re.fullmatch(rf"  {count} packages in \d+ s", done.stdout.splitlines()[-1])


def test_what_pip_refuses_is_said(tmp_path: Path) -> None:
    lock = tmp_path / "a.lock"
    lock.write_text(f"no-such-package==1.0 \\\n    --hash=sha256:{64 * '0'}\n")
    done = install(str(lock))
    assert done.returncode == 1
    assert "No matching distribution found for no-such-package==1.0" in done.stderr
    assert "packages in" not in done.stdout


def install(lock: str) -> "subprocess.CompletedProcess[str]":
    command = [sys.executable, "scripts/install_locked.py", lock]
    environment = {**CLEAN, "PIP_NO_INDEX": "1"}
    return subprocess.run(
        command, cwd=ROOT, capture_output=True, text=True, check=False, timeout=2 * PATIENCE_S, env=environment
    )


def test_a_terminal_has_a_line_that_changes() -> None:
    lines = [
        "Collecting a_b==1\n",
        "  Downloading a_b.whl\n",
        "Collecting a-b>=1\n",
        "Ignoring c: markers do not match\n",
    ]
    texts = list(progress([*lines, "Installing collected packages: a-b\n"], {"a-b", "c"}, changes=True))
    assert [text.removeprefix("\r\033[K  ") for text in texts] == [
        "1 of 2 packages: a-b",
        "2 of 2 packages: c",
        "2 of 2 packages are here; unpacking the new ones",
    ]


def test_a_python_without_venv_is_said_in_one_sentence(tmp_path: Path) -> None:
    """As Debian's, whose package python3-venv has ensurepip."""
    (tmp_path / "ensurepip.py").write_text("raise ModuleNotFoundError\n")
    venv = tmp_path / "environment"
    done = subprocess.run(
        ["make", "-C", str(ROOT), "demo", f"VENV={venv}", f"PYTHON={sys.executable}"],
        capture_output=True,
        text=True,
        check=False,
        timeout=PATIENCE_S,
        env={**os.environ, "PYTHONPATH": str(tmp_path)},
    )
    assert done.returncode == 2
    sentences = [line for line in done.stdout.splitlines() if not line.startswith("make")]
    assert len(sentences) == 1
    assert "apt-get install python3-venv" in sentences[0]
    assert not venv.exists()


def test_a_missing_compiler_is_said_in_one_sentence(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    uplot, source = tmp_path / "uplot", tmp_path / "_made.c"
    source.touch()
    monkeypatch.setenv("CC", str(tmp_path / "no-compiler"))
    native, charts = missing_parts.missing([source], uplot)
    assert "no-compiler" in native
    assert "apt-get install gcc" in native
    assert "no charts" in charts
    build_native.module_of(source).touch()
    uplot.mkdir()
    for name in fetch_uplot.FILES:
        (uplot / name).touch()
    (uplot / "VERSION").write_text(fetch_uplot.VERSION)
    assert list(missing_parts.missing([source], uplot)) == []


@pytest.mark.skipif(
    not sys.platform.startswith("linux") or shutil.which("cc") is None, reason="no Linux, or no C compiler"
)
def test_a_part_that_can_be_built_is_not_missing(tmp_path: Path) -> None:
    source = Path(shutil.copy(build_native.CHUNKS, tmp_path))
    assert not any("not built" in sentence for sentence in missing_parts.missing([source]))
    assert build_native.module_of(source).exists()
