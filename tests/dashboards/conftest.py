"""The real Prometheus: installed by the project's own script where it is missing and can be."""

import shutil
import subprocess
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]


@pytest.fixture(scope="session")
def prometheus_tools() -> None:
    """promtool and prometheus are on the PATH; skips with the script's own reason where they cannot be."""
    if shutil.which("promtool") and shutil.which("prometheus"):
        return
    script = subprocess.run([ROOT / "scripts" / "install_test_parts"], capture_output=True, text=True, check=False)
    if script.returncode != 0:
        pytest.skip(script.stderr.strip().splitlines()[-1])
