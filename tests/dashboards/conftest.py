"""The real Prometheus, Alertmanager and npm packages: installed by the project's own scripts if they are missing."""

import shutil
import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]


@pytest.fixture(scope="session")
def prometheus_tools() -> None:
    """Puts promtool and prometheus on the PATH; skips with the script's reason if they cannot be installed."""
    _install("prometheus", "promtool", "prometheus")


@pytest.fixture(scope="session")
def alertmanager_tools(prometheus_tools: None) -> None:
    """The same for Alertmanager, with amtool."""
    _install("prometheus-alertmanager", "amtool", "prometheus-alertmanager")


@pytest.fixture(scope="session")
def node_packages() -> Callable[[Path], Path]:
    """Installs the npm packages that a folder pins; gives the folder with its node_modules. Skips if that fails."""

    def install(source: Path) -> Path:
        script = subprocess.run(
            [ROOT / "scripts" / "install_node_packages", source], capture_output=True, text=True, check=False
        )
        if script.returncode != 0:
            pytest.skip(script.stderr.strip().splitlines()[-1])
        return Path(script.stdout.strip())

    return install


def _install(package: str, *programs: str) -> None:
    if all(map(shutil.which, programs)):
        return
    script = subprocess.run(
        [ROOT / "scripts" / "install_packages", package, *programs],
        capture_output=True,
        text=True,
        check=False,
    )
    if script.returncode != 0:
        pytest.skip(script.stderr.strip().splitlines()[-1])
