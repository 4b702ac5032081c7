"""Programs that check what is deployed: those of scripts/install_deploy_tools, and Debian's.

A test whose program is missing is skipped.
"""

import os
import shutil
import subprocess
from collections.abc import Sequence
from pathlib import Path

import pytest

from tests.kafka_broker.jars import CACHE

ROOT = Path(__file__).parents[2]
# Where scripts/install_deploy_tools puts them.
TOOLS = CACHE / "deploy-tools"
_PATH = os.pathsep.join([str(TOOLS / "bin"), str(TOOLS / "venv" / "bin"), os.environ["PATH"], "/usr/sbin", "/sbin"])


def tool(name: str) -> str:
    """The path of a program. Skips the test that needs it if it is missing."""
    found = shutil.which(name, path=_PATH)
    if found is None:
        pytest.skip(f"{name} is not installed")
    return found


def run(name: str, *arguments: str | Path, given: str | None = None) -> "subprocess.CompletedProcess[str]":
    """Runs a program to its end."""
    command: Sequence[str | Path] = (tool(name), *arguments)
    return subprocess.run(command, input=given, capture_output=True, text=True, check=False, timeout=120)
