"""The built wheels in clean virtual environments, a tap only, on each interpreter that STREAMGAUGE_INTERPRETERS names.

`make interpreters` runs this with all that it finds. pip downloads the packages, in the versions of requirements.lock.
"""

import json
import os
import re
import subprocess
import sys
from pathlib import Path

import pytest
from scripts.build_wheels import build
from scripts.installed_packages import ROOT, documented

from streamgauge import __version__
from tests.cli.test_assets import files_below
from tests.cli.test_tap import UNREACHABLE, ask
from tests.integration.provider import BEGIN, REST, provider
from tests.running import CLEAN, start_tap, wait_for

INTERPRETERS = [path for path in os.environ.get("STREAMGAUGE_INTERPRETERS", "").split(os.pathsep) if path]
PATIENCE_S = 170.0
# The packages of an environment, and the bytes of their files without bytecode.
MEASURE = """
import importlib.metadata, json, pathlib
files = [pathlib.Path(file.locate()) for one in importlib.metadata.distributions() for file in one.files or ()]
names = [one.name for one in importlib.metadata.distributions()]
print(json.dumps([names, sum(one.stat().st_size for one in files if one.suffix != ".pyc" and one.is_file())]))
"""

pytestmark = pytest.mark.skipif(
    not INTERPRETERS, reason="`make interpreters` runs it: it downloads packages for each one"
)


@pytest.fixture(scope="module")
def dist(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("dist")
    build(folder)
    return folder


@pytest.fixture(scope="module")
def versions(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The versions of requirements.lock, as constraints for pip."""
    lock = (ROOT / "requirements.lock").read_text(encoding="utf-8")
    constraints = tmp_path_factory.mktemp("lock") / "constraints.txt"
    pins = re.findall(r"^([\w.-]+)(?:\[\w+\])?(==[^\s;\\]+)(.*?)\s*\\?$", lock, re.MULTILINE)
    constraints.write_text("".join(f"{name}{version}{marker}\n" for name, version, marker in pins))
    return constraints


def run(*command: str) -> str:
    done = subprocess.run(command, capture_output=True, text=True, timeout=PATIENCE_S, env=CLEAN, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


def installed(interpreter: str, what: str, versions: Path, folder: Path) -> str:
    """A new environment with this, and nothing else. Returns its interpreter."""
    run(interpreter, "-m", "venv", "--without-pip", str(folder / "environment"))
    python = str(folder / "environment" / "bin" / "python")
    pip = [sys.executable, "-m", "pip", "--python", python, "--quiet", "--disable-pip-version-check", "install"]
    run(*pip, "--no-compile", "--only-binary=:all:", "--constraint", str(versions), what)
    return python


@pytest.mark.parametrize("kind", ["manylinux", "none-any"])
@pytest.mark.parametrize("interpreter", INTERPRETERS)
def test_a_tap_alone_is_small_and_works(
    interpreter: str, kind: str, dist: Path, versions: Path, tmp_path: Path
) -> None:
    if kind == "none-any" and interpreter != INTERPRETERS[0]:
        pytest.skip("the wheel for every platform differs by one file: one interpreter is enough")
    (wheel,) = dist.glob(f"*{kind}*.whl")
    python = installed(interpreter, str(wheel), versions, tmp_path)
    program = str(Path(python).parent / "streamgauge")

    names, size = json.loads(run(python, "-c", MEASURE))
    print(f"{interpreter}, {kind}: {len(names)} packages, {size / 1e6:.1f} MB: {', '.join(sorted(names))}")
    packages, megabytes = documented()[""]
    assert len(names) == packages
    assert size / 1e6 == pytest.approx(megabytes, rel=0.1)

    assert run(program, "--version") == f"streamgauge {__version__}\n"
    assert "Usage: streamgauge tap [OPTIONS]" in run(program, "tap", "--help")
    assert "_streamgauge_completion" in run(program, "--show-completion", "bash")
    run(program, "assets", str(tmp_path / "assets"))
    assert files_below(tmp_path / "assets") == files_below(ROOT)
    done = subprocess.run([program, "up"], capture_output=True, text=True, timeout=PATIENCE_S, env=CLEAN, check=False)
    says = "streamgauge up: this command requires the extra `up`: run pip install 'streamgauge[up]'\n"
    assert (done.returncode, done.stderr) == (3, says)

    data_dir = tmp_path / "data"
    options = ("--kafka", UNREACHABLE, "--drain-timeout", "4")
    with provider() as small, start_tap("tap", {"small": small.url}, data_dir, *options, python=python) as tap:
        assert ask(tap) == BEGIN + REST
        wait_for(lambda: tap.metrics()["streamgauge_spool_rows"], "rows in the spool")
        assert ("was not built at installation" in tap.log) == (kind == "none-any"), tap.log
        assert tap.stop() == 0
    record = json.loads(run(program, "replay", "--output", "jsonl", str(data_dir / "spool.sqlite")))
    assert record["outcome"] == "completed"


def test_the_extra_up_is_what_up_needs(dist: Path, versions: Path, tmp_path: Path) -> None:
    (wheel,) = dist.glob("*manylinux*.whl")
    python = installed(INTERPRETERS[0], f"{wheel}[up]", versions, tmp_path)
    names, _ = json.loads(run(python, "-c", MEASURE))
    assert len(names) == documented()["up"][0]
    data_dir = tmp_path / "data"
    with provider() as small, start_tap("up", {"small": small.url}, data_dir, python=python) as up:
        assert ask(up) == BEGIN + REST
        [record] = up.wait_for_records(1)
        assert up.stop() == 0
    assert record["outcome"] == "completed"
    printed = run(python, "-m", "streamgauge", "ledger", "query", "--output", "jsonl", "--data-dir", str(data_dir))
    assert json.loads(printed) == record
