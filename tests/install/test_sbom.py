"""The software bill of materials names each locked package with its hashes, and the script of the built-in page."""

import json
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from scripts import fetch_uplot

ROOT = Path(__file__).parents[2]
# The first run in a clone installs the script's tool (seconds).
PATIENCE_S = 400.0
# The script's exit code if its tool cannot be installed.
NOT_INSTALLED = 3


def made(folder: Path) -> bytes:
    done = subprocess.run(
        [ROOT / "scripts" / "make_sbom", str(folder)],
        capture_output=True,
        text=True,
        timeout=PATIENCE_S,
        check=False,
        env={"PATH": "/usr/bin:/bin", "PYTHON": sys.executable},
    )
    if done.returncode == NOT_INSTALLED:
        pytest.skip(done.stderr.strip().splitlines()[-1])
    assert done.returncode == 0, done.stderr
    (file,) = folder.iterdir()
    return file.read_bytes()


def locked() -> dict[str, tuple[str, set[str]]]:
    """The version and the hashes of each package in the lock."""
    text = (ROOT / "requirements.lock").read_text().replace("\\\n", " ")
    found = {}
    for line in text.splitlines():
        if name := re.match(r"([A-Za-z0-9._-]+)(?:\[[^\]]*\])?==([^ ;]+)", line):
            found[name[1]] = name[2], set(re.findall(r"sha256:([0-9a-f]{64})", line))
    return found


@pytest.mark.timeout(2 * PATIENCE_S)
def test_the_bill_names_each_locked_package(tmp_path: Path) -> None:
    text = made(tmp_path / "first")
    bill: dict[str, Any] = json.loads(text)
    components = {one["name"]: one for one in bill["components"]}
    assert components["uplot"]["version"] == fetch_uplot.VERSION
    packages = locked()
    assert len(packages) > 50
    assert components.keys() == packages.keys() | {"uplot"}
    for name, (version, hashes) in packages.items():
        assert components[name]["version"] == version
        listed = {found["content"] for one in components[name]["externalReferences"] for found in one.get("hashes", ())}
        assert listed == hashes, name
    assert bill["metadata"]["component"]["name"] == "streamgauge"
    assert made(tmp_path / "second") == text
