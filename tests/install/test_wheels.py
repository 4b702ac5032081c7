"""What `make wheels` builds: tags, content, types; and that a build needs no write access to the sources."""

import os
import re
import shutil
import subprocess
import sys
import tarfile
import venv
import zipfile
from pathlib import Path

import pytest

from tests.cli.test_assets import files_below

ROOT = Path(__file__).parents[2]
NATIVE = {"streamgauge/taps/proxy/native/_pump.abi3.so", "streamgauge/core/http1/_chunks.abi3.so"}
# The page's charts: a build needs npm for them.
_UPLOT_FILES = ("LICENSE", "VERSION", "uPlot.iife.min.js", "uPlot.min.css") if shutil.which("npm") else ()
UPLOT = {f"streamgauge/live/static/uplot/{name}" for name in _UPLOT_FILES}
PATIENCE_S = 150.0
# Root may write everywhere, so its right to do so is taken away.
READ_ONLY = ["setpriv", "--bounding-set=-dac_override,-dac_read_search", "--"] if os.geteuid() == 0 else []

pytestmark = pytest.mark.skipif(
    not sys.platform.startswith("linux") or shutil.which("cc") is None, reason="needs Linux and a C compiler"
)


def snapshot(folder: Path) -> dict[str, tuple[int, int]]:
    """Every path below a folder, with its size and the time of its last change (ns)."""
    found = ((path, path.lstat()) for path in sorted(folder.rglob("*")))
    return {str(path.relative_to(folder)): (status.st_size, status.st_mtime_ns) for path, status in found}


def listed(*places: str) -> list[str]:
    """The files below these places that belong to the repository."""
    command = ["git", "ls-files", "-z", "--cached", "--others", "--exclude-standard", *places]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=True)
    return [name for name in done.stdout.split("\0") if name and (ROOT / name).exists()]


@pytest.fixture(scope="module")
def source(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The files of the repository without what an installation or a test made, where no file may be written."""
    folder = tmp_path_factory.mktemp("clone") / "source"
    for name in listed("pipeline", "scripts", "dashboards", "schemas", "*.toml", "*.md", "LICENSE", ".gitignore"):
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        shutil.copy(ROOT / name, folder / name, follow_symlinks=False)
    for path in (folder, *folder.rglob("*")):
        if not path.is_symlink():
            path.chmod(path.stat().st_mode & ~0o222)
    return folder


@pytest.fixture(scope="module")
def built(source: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder with the sdist and both wheels, built from sources that cannot be written."""
    folder = tmp_path_factory.mktemp("dist")
    before = snapshot(source)
    build(source, folder)
    assert snapshot(source) == before
    return folder


def build(source: Path, folder: Path, **variables: str) -> Path:
    """Build into a folder, with these variables of the environment."""
    without = ("PYTHONDONTWRITEBYTECODE", "SOURCE_DATE_EPOCH")
    done = subprocess.run(
        [*READ_ONLY, sys.executable, str(source / "scripts" / "build_wheels.py"), str(folder)],
        capture_output=True,
        text=True,
        timeout=PATIENCE_S,
        env={name: value for name, value in os.environ.items() if name not in without} | variables,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    return folder


def wheels(built: Path) -> tuple[Path, Path]:
    """The wheel with the pump, and the one without it."""
    (native,) = built.glob("*-cp311-abi3-*.whl")
    (plain,) = built.glob("*-py3-none-any.whl")
    return native, plain


def test_the_sources_could_not_be_written(source: Path) -> None:
    done = subprocess.run([*READ_ONLY, "touch", str(source / "new")], capture_output=True, check=False)
    assert done.returncode != 0


def test_one_wheel_is_for_manylinux_and_one_for_every_platform(built: Path) -> None:
    native, plain = wheels(built)
    assert re.fullmatch(r"streamgauge-[\d.]+-cp311-abi3-manylinux_2_\d+_\w+\.whl", native.name)
    shown = subprocess.run(
        [sys.executable, "-m", "auditwheel", "show", str(native)], capture_output=True, text=True, check=True
    )
    platform = native.stem.rpartition("-")[2]
    assert f'is consistent with the following platform tag: "{platform}"' in " ".join(shown.stdout.split())
    assert set(zipfile.ZipFile(native).namelist()) >= NATIVE
    assert not [name for name in zipfile.ZipFile(plain).namelist() if name.endswith(".so")]


def test_the_same_sources_give_the_same_bytes(built: Path, source: Path, tmp_path: Path) -> None:
    again = build(source, tmp_path / "again")
    assert {path.name: path.read_bytes() for path in again.iterdir()} == {
        path.name: path.read_bytes() for path in built.iterdir()
    }
    for wheel in wheels(build(source, tmp_path / "dated", SOURCE_DATE_EPOCH="1700000000")):
        with zipfile.ZipFile(wheel) as archive:
            assert {info.date_time for info in archive.infolist()} == {(2023, 11, 14, 22, 13, 20)}


def test_both_wheels_have_all_modules_and_assets(built: Path, tmp_path: Path) -> None:
    sources = {name.removeprefix("pipeline/") for name in listed("pipeline")}
    for wheel in wheels(built):
        with zipfile.ZipFile(wheel) as archive:
            names = {name for name in archive.namelist() if not name.endswith("/")}
            assert sources <= names
            assert "streamgauge/py.typed" in names
            archive.extractall(tmp_path / wheel.stem)
        assert files_below(tmp_path / wheel.stem / "streamgauge" / "assets") == files_below(ROOT)
        assert not [name for name in names if name.startswith("streamgauge/assets/") and name.endswith(".py")]
        foreign = {name for name in names - sources if not name.startswith(("streamgauge/assets/", "streamgauge-"))}
        assert foreign - NATIVE == UPLOT


def test_the_sdist_builds_without_npm(built: Path) -> None:
    (sdist,) = built.glob("*.tar.gz")
    with tarfile.open(sdist) as archive:
        names = {name.partition("/")[2] for name in archive.getnames()}
    assert {"pyproject.toml", "scripts/build_hook.py", *(f"pipeline/{name}" for name in UPLOT)} <= names
    # What a build makes, or reaches by a link of scripts/site, has a path that git does not know.
    assert names - set(listed()) == {"PKG-INFO", *(f"pipeline/{name}" for name in UPLOT)}
    assert not [name for name in names if name.startswith(("docs/", "scripts/site", "tests/"))]


PROGRAM = """
from streamgauge.taps.httpx import TapTransport
from streamgauge.taps.asgi import TapMiddleware
from streamgauge.errors import Unavailable

reveal_type(Unavailable.exit_code)
TapMiddleware(nonsense=True)
"""


def test_a_type_checker_sees_the_types_of_an_installed_wheel(built: Path, tmp_path: Path) -> None:
    venv.create(tmp_path / "venv")
    (site,) = (tmp_path / "venv" / "lib").glob("python3.*/site-packages")
    with zipfile.ZipFile(wheels(built)[1]) as archive:
        archive.extractall(site)
    (tmp_path / "program.py").write_text(PROGRAM)
    done = subprocess.run(
        [sys.executable, "-m", "mypy", "--python-executable", str(tmp_path / "venv" / "bin" / "python"), "--no-incremental",
         "program.py"],
        cwd=tmp_path, capture_output=True, text=True, timeout=PATIENCE_S, check=False,
    )  # fmt: skip
    assert 'Revealed type is "int"' in done.stdout.replace("builtins.int", "int"), done.stdout
    assert 'Unexpected keyword argument "nonsense" for "TapMiddleware"' in done.stdout
    assert "py.typed" not in done.stdout
    assert "import-untyped" not in done.stdout
