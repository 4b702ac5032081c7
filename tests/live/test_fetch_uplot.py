"""The download of uPlot at the installation: by version and hash, and without it the installation goes on."""

import base64
import hashlib
import io
import runpy
import tarfile
from pathlib import Path

import pytest

pytestmark = pytest.mark.slow

SCRIPT = Path(__file__).parents[2] / "scripts" / "fetch_uplot.py"


def archive(folder: Path) -> bytes:
    packed = folder / "packed.tar.gz"
    with tarfile.open(packed, "w:gz") as made:
        for member in ("package/dist/uPlot.iife.min.js", "package/dist/uPlot.min.css", "package/LICENSE"):
            entry = tarfile.TarInfo(member)
            entry.size = len(member)
            made.addfile(entry, io.BytesIO(member.encode()))
    return packed.read_bytes()


def npm_that(folder: Path, body: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Puts a program on the PATH that stands for npm."""
    folder.mkdir()
    program = folder / "npm"
    program.write_text(f"#!/bin/sh\n{body}\n")
    program.chmod(0o755)
    monkeypatch.setenv("PATH", f"{folder}:/usr/bin:/bin")


def test_another_file_than_the_expected_one_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "given.tgz").write_bytes(archive(tmp_path))
    npm_that(tmp_path / "bin", f'cp {tmp_path}/given.tgz "$6/uplot.tgz"', monkeypatch)
    place = tmp_path / "uplot"
    assert runpy.run_path(str(SCRIPT))["fetch"](place) == "the downloaded uPlot 1.6.32 is not the expected file"
    assert not place.exists()


def test_the_expected_file_is_unpacked_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    content = archive(tmp_path)
    (tmp_path / "given.tgz").write_bytes(content)
    npm_that(tmp_path / "bin", f'cp {tmp_path}/given.tgz "$6/uplot.tgz"', monkeypatch)
    script = runpy.run_path(str(SCRIPT))
    package = script["UPLOT"]._replace(sha512=base64.b64encode(hashlib.sha512(content).digest()).decode())
    place = tmp_path / "uplot"
    assert script["fetch"](place, package) is None
    assert (place / "LICENSE").read_text() == "package/LICENSE"
    (tmp_path / "given.tgz").unlink()
    assert script["fetch"](place, package) is None, "it is there"
    (place / "uPlot.min.css").unlink()
    assert script["fetch"](place) == "npm could not download uPlot 1.6.32"


@pytest.mark.parametrize("body", ["exit 1", "exit 0"])
def test_without_a_download_there_is_a_sentence(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, body: str) -> None:
    npm_that(tmp_path / "bin", body, monkeypatch)
    assert runpy.run_path(str(SCRIPT))["fetch"](tmp_path / "uplot") == "npm could not download uPlot 1.6.32"


def test_without_npm_there_is_a_sentence(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    assert runpy.run_path(str(SCRIPT))["fetch"](tmp_path / "uplot") == "there is no npm to download uPlot"
