"""`streamgauge assets`: what it writes equals the files of the repository."""

from pathlib import Path

import pytest

from streamgauge.cli import assets
from streamgauge.errors import DONE, UNAVAILABLE, USAGE
from tests.running import here

ROOT = Path(__file__).parents[2]


def files_below(root: Path) -> dict[str, bytes]:
    """The files of the directories that come with the package: path below `root` -> content."""
    return {str(path): (root / path).read_bytes() for path in assets.asset_files(root)}


def test_the_files_equal_those_of_the_repository(tmp_path: Path) -> None:
    directory = tmp_path / "made" / "here"
    done = here("assets", str(directory))
    written = files_below(directory)
    assert (done.returncode, done.stderr) == (DONE, "")
    assert done.stdout == f"{len(written)} files in {directory}: dashboards, schemas\n"
    assert written == files_below(ROOT)
    for name in (
        "dashboards/grafana/overview.json",
        "dashboards/prometheus/rules/streamgauge.yml",
        "dashboards/prometheus/prometheus.yml",
        "dashboards/prometheus/alertmanager.yml",
        "schemas/record.v1.json",
    ):
        assert name in written
    assert not [path for path in directory.rglob("*") if path.suffix == ".py"], "sources of dashboards are no assets"


def test_a_file_that_differs_is_kept_unless_overwriting_is_asked_for(tmp_path: Path) -> None:
    assert here("assets", str(tmp_path)).returncode == DONE
    assert here("assets", str(tmp_path)).returncode == DONE, "writing the same files again changes nothing"
    edited = tmp_path / "dashboards" / "prometheus" / "alertmanager.yml"
    edited.write_text("mine")
    (tmp_path / "schemas" / "record.v1.json").unlink()
    done = here("assets", str(tmp_path))
    says = f"{edited} exists with other content: name another directory, or give --overwrite\n"
    assert (done.returncode, done.stderr) == (USAGE, f"streamgauge assets: {says}")
    assert not (tmp_path / "schemas" / "record.v1.json").exists(), "nothing was written"
    assert here("assets", str(tmp_path), "--overwrite").returncode == DONE
    assert files_below(tmp_path) == files_below(ROOT)


def test_a_directory_that_cannot_be_written_is_one_sentence(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    done = here("assets", str(tmp_path / "file"))
    assert done.returncode == UNAVAILABLE
    assert done.stderr.startswith("streamgauge assets: ")
    assert "cannot be written: Not a directory" in done.stderr


def test_an_installation_without_them_says_so(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(assets, "__file__", str(tmp_path / "a" / "b" / "c" / "assets.py"))
    done = here("assets", str(tmp_path))
    assert (done.returncode, done.stdout) == (UNAVAILABLE, "")
    assert "has no dashboards and schemas" in done.stderr
