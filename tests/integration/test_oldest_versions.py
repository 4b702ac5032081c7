"""V1: workers with the oldest versions of Faust, mode and aiokafka that pyproject.toml allows make the same records.

The other tests run with the locked versions, which are the newest ones that it allows. `make interpreters` compares the
records of all vectors on each interpreter.
"""

import itertools
import os
import shutil
import subprocess
import sys
import time
import tomllib
from pathlib import Path

import pytest
from packaging.requirements import Requirement
from packaging.version import Version

from tests.integration.synthetic import SyntheticTap, assembled
from tests.integration.test_worker import log_of, records_of, same, write
from tests.integration.workers import worker

pytestmark = pytest.mark.kafka

ROOT = Path(__file__).parents[2]
NAMES = ("faust-streaming", "mode-streaming", "aiokafka")
# What the oldest Faust needs, and the locked one does not.
ALSO = ("opentracing==2.4.0",)
FOLDER = ROOT / "build" / "oldest"
SHOW = "import importlib.metadata as m, sys; print(*(f'{name}=={m.version(name)}' for name in sys.argv[1:]))"


def oldest_allowed() -> dict[str, Version]:
    """The oldest version of each, by the lower bounds of the pins."""
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    declared = [*project["dependencies"], *itertools.chain(*project["optional-dependencies"].values())]
    pins = {one.name: one.specifier for one in map(Requirement, declared)}
    return {name: Version(one.version) for name in NAMES for one in pins[name] if one.operator == ">="}


@pytest.fixture(scope="module")
def oldest() -> str:
    """A PYTHONPATH on which the oldest versions come first."""
    wanted = [f"{name}=={version}" for name, version in oldest_allowed().items()]
    installed = FOLDER / ".installed"
    if not installed.exists() or installed.read_text().split() != wanted:
        shutil.rmtree(FOLDER, ignore_errors=True)
        pip = [sys.executable, "-m", "pip", "install", "--quiet", "--disable-pip-version-check", "--no-deps"]
        done = subprocess.run(
            [*pip, "--target", str(FOLDER), *wanted, *ALSO], capture_output=True, text=True, check=False
        )
        if done.returncode:
            pytest.skip(f"the oldest versions cannot be installed: {done.stderr.strip()[-200:]}")
        installed.write_text("\n".join(wanted))
    return os.pathsep.join(filter(None, [str(FOLDER), os.environ.get("PYTHONPATH", "")]))


def test_v1_workers_with_the_oldest_versions_make_the_same_records(
    oldest: str, kafka: str, prefix: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Old and new ones take turns on the same state, each killed in the middle of streams."""
    newest = os.environ.get("PYTHONPATH")
    tap = SyntheticTap(71)
    bundles = list(tap.bundles(200, segments=10))
    edges = [len(bundles) * place // 4 for place in range(5)]
    for turn, (start, end) in enumerate(itertools.pairwise(edges)):
        if turn % 2:
            monkeypatch.setenv("PYTHONPATH", oldest)
            shown = subprocess.run([sys.executable, "-c", SHOW, *NAMES], capture_output=True, text=True, check=True)
            assert [Version(one.partition("==")[2]) for one in shown.stdout.split()] == [*oldest_allowed().values()]
        elif newest is None:
            monkeypatch.delenv("PYTHONPATH", raising=False)
        else:
            monkeypatch.setenv("PYTHONPATH", newest)
        with worker(tmp_path, bootstrap=kafka, prefix=prefix, checkpoint_s=0.2) as process:
            process.wait_ready()
            loaded = Path(f"/proc/{process.process.pid}/maps").read_text()
            assert (str(FOLDER) in loaded) is bool(turn % 2)
            write(kafka, prefix, bundles[start:end])
            if turn < len(edges) - 2:
                time.sleep(1)
                process.kill()
                continue
            found = records_of(kafka, prefix, 200)
            assert process.stop() == 0, process.log
    assert same(found, assembled(log_of(kafka, f"{prefix}.segments")))
    assert sorted(found) == sorted(tap.ids)
