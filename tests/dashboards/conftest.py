"""The real Prometheus: installed by the project's own script if it is missing and can be installed."""

import shutil
import subprocess
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]


@pytest.fixture(scope="session")
def prometheus_tools() -> None:
    """Puts promtool and prometheus on the PATH; skips with the script's reason if they cannot be installed."""
    if shutil.which("promtool") and shutil.which("prometheus"):
        return
    script = subprocess.run(
        [ROOT / "scripts" / "install_packages", "prometheus", "promtool", "prometheus"],
        capture_output=True,
        text=True,
        check=False,
    )
    if script.returncode != 0:
        pytest.skip(script.stderr.strip().splitlines()[-1])
