"""Downloads uPlot, which draws the charts of the built-in page, into the package: its script, its styles and its licence.

npm downloads it, from the registry that is set up for npm here; the hash below decides whether it is accepted. An
editable installation runs this; wheels get it by `build_hook.py`. Where it fails, the page has tables and no charts, and
says so.

    python scripts/fetch_uplot.py
"""

import base64
import hashlib
import shutil
import subprocess
import sys
import tarfile
import tempfile
from collections.abc import Mapping
from pathlib import Path
from typing import NamedTuple

VERSION = "1.6.32"
# Of the package's file, as npm's lock files write it.
SHA512 = "KIMVnG68zvu5XXUbC4LQEPnhwOxBuLyW1AHtpm6IKTXImkbLgkMy+jabjLgSLMasNuGGzQm/ep3tOkyTxpiQIw=="

PLACE = Path(__file__).parent.parent / "pipeline" / "streamgauge" / "live" / "static" / "uplot"
# Members of the package, by the names that they get.
FILES = {
    "uPlot.iife.min.js": "package/dist/uPlot.iife.min.js",
    "uPlot.min.css": "package/dist/uPlot.min.css",
    "LICENSE": "package/LICENSE",
}
# Present if all files are there, of this version.
_MARK = "VERSION"
# A slow line or registry must not stop an installation for longer (seconds).
_TIMEOUT_S = 120


class Package(NamedTuple):
    """A package of npm. `sha512`: of its file, in base64; `files`: its members, by the names that they get."""

    name: str
    version: str
    sha512: str
    files: Mapping[str, str]


UPLOT = Package("uPlot", VERSION, SHA512, FILES)


def fetch(place: Path = PLACE, package: Package = UPLOT) -> str | None:
    """Puts the files into the folder `place`, unless they are there. Returns the error as one sentence, or None."""
    if is_there(place, package):
        return None
    name, version = package.name, package.version
    npm = shutil.which("npm")
    if npm is None:
        return f"there is no npm to download {name}"
    with tempfile.TemporaryDirectory() as folder:
        wanted = f"{name.lower()}@{version}"
        command = [npm, "pack", wanted, "--silent", "--ignore-scripts", "--pack-destination", folder]
        try:
            done = subprocess.run(command, cwd=folder, capture_output=True, text=True, check=False, timeout=_TIMEOUT_S)
        except (OSError, subprocess.TimeoutExpired) as why:
            return f"npm did not download {name} ({type(why).__name__})"
        packed = list(Path(folder).glob("*.tgz"))
        if done.returncode != 0 or len(packed) != 1:
            return f"npm could not download {name} {version}"
        if base64.b64encode(hashlib.sha512(packed[0].read_bytes()).digest()).decode() != package.sha512:
            return f"the downloaded {name} {version} is not the expected file"
        _unpack(packed[0], place, package)
    return None


def is_there(place: Path = PLACE, package: Package = UPLOT) -> bool:
    """Whether all files of this version are in the folder `place`."""
    mark = place / _MARK
    return (
        mark.is_file()
        and mark.read_text() == package.version
        and all((place / name).is_file() for name in package.files)
    )


def _unpack(packed: Path, place: Path, package: Package) -> None:
    shutil.rmtree(place, ignore_errors=True)
    place.mkdir(parents=True)
    with tarfile.open(packed) as archive:
        for name, member in package.files.items():
            content = archive.extractfile(member)
            assert content is not None
            (place / name).write_bytes(content.read())
    (place / _MARK).write_text(package.version)


if __name__ == "__main__":
    sys.exit(fetch())
