"""The socket's directory is made, found by its link, and made again; no other directory, and none in use, is removed."""

import os
import shutil
import socket
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from streamgauge.errors import Unavailable
from streamgauge.runtime.socket_directory import SOCKET, RuntimeDir


@pytest.fixture
def temporary(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """A temporary directory of the test's own, with a short path. `tmp_path` is made before, where pytest makes all."""
    with tempfile.TemporaryDirectory(prefix="sg") as made:
        monkeypatch.setattr(tempfile, "tempdir", made)
        yield Path(made)


@pytest.fixture
def data_dir(tmp_path: Path) -> Path:
    (tmp_path / "data").mkdir(mode=0o700)
    return tmp_path / "data"


def stale_directory(place: Path, name: str = "streamgauge-left") -> Path:
    """What a tap leaves that is killed: its directory, with the socket of a recorder that is gone."""
    directory = place / name
    directory.mkdir(mode=0o700)
    with socket.socket(socket.AF_UNIX) as recorder:
        recorder.bind(str(directory / SOCKET))
    return directory


def replaced(data_dir: Path, target: Path | str) -> None:
    """Start and stop a tap on a data directory whose link leads to `target`."""
    (data_dir / "run").symlink_to(target)
    with RuntimeDir(data_dir, to_be_found=True) as runtime:
        assert (data_dir / "run").readlink() == runtime.path
        assert runtime.path.stat().st_mode & 0o777 == 0o700
    assert not runtime.path.exists()
    assert not (data_dir / "run").is_symlink()


def test_it_is_private_and_found_by_its_link(temporary: Path, data_dir: Path) -> None:
    with RuntimeDir(data_dir, to_be_found=True) as runtime:
        assert runtime.path.parent == temporary
        assert runtime.path.stat().st_mode & 0o777 == 0o700
        assert (data_dir / "run" / SOCKET).parent.samefile(runtime.socket.parent)
        runtime.socket.touch()  # no socket: not ours
    assert runtime.socket.exists()
    assert not (data_dir / "run").is_symlink()


def test_what_a_killed_tap_left_is_removed(temporary: Path, data_dir: Path) -> None:
    with_socket, empty = stale_directory(temporary), temporary / "streamgauge-empty"
    empty.mkdir(mode=0o700)
    for left in (with_socket, empty):
        replaced(data_dir, left)
        assert not left.exists()


def test_a_directory_elsewhere_is_left_alone(temporary: Path, data_dir: Path, tmp_path: Path) -> None:
    """Whatever its name is, and whatever it holds: a link in a data directory may lead anywhere."""
    precious = tmp_path / "streamgauge-ledgers"
    precious.mkdir(mode=0o700)
    (precious / "ledger.sqlite").write_text("precious")
    replaced(data_dir, precious)
    assert (precious / "ledger.sqlite").read_text() == "precious"
    (precious / "ledger.sqlite").unlink()
    replaced(data_dir, precious)
    assert precious.is_dir(), "not below the temporary directory"


def test_a_directory_that_holds_anything_else_is_left_alone(temporary: Path, data_dir: Path) -> None:
    left = stale_directory(temporary)
    (left / "file").write_text("precious")
    replaced(data_dir, left)
    assert (left / "file").read_text() == "precious"
    assert (left / SOCKET).exists()


def test_a_directory_of_another_mode_name_or_kind_is_left_alone(temporary: Path, data_dir: Path) -> None:
    open_to_others = stale_directory(temporary, "streamgauge-open")
    open_to_others.chmod(0o755)
    named_otherwise = stale_directory(temporary, "other-name")
    deeper = temporary / "deeper"
    deeper.mkdir()
    deeper = stale_directory(deeper)
    link = temporary / "streamgauge-link"
    link.symlink_to(named_otherwise)
    file = temporary / "streamgauge-file"
    file.write_text("precious")
    no_socket = temporary / "streamgauge-no-socket"
    no_socket.mkdir(mode=0o700)
    (no_socket / SOCKET).write_text("precious")
    for target in (open_to_others, named_otherwise, deeper, link, file, no_socket, temporary, "nowhere", "../.."):
        before = sorted(str(path) for path in temporary.rglob("*"))
        replaced(data_dir, target)
        assert sorted(str(path) for path in temporary.rglob("*")) == before, target


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can give a directory away")
def test_a_directory_of_another_user_is_left_alone(temporary: Path, data_dir: Path) -> None:
    left = stale_directory(temporary)
    os.chown(left, 65_534, 65_534)
    replaced(data_dir, left)
    assert (left / SOCKET).exists()


def test_a_directory_in_which_a_recorder_listens_is_left_alone(temporary: Path, data_dir: Path) -> None:
    """That of a running tap, whose data directory was copied with its link."""
    running = temporary / "streamgauge-running"
    running.mkdir(mode=0o700)
    with socket.socket(socket.AF_UNIX) as recorder:
        recorder.bind(str(running / SOCKET))
        recorder.listen(0)
        for _ in range(3):  # more than its backlog takes
            replaced(data_dir, running)
            assert (running / SOCKET).exists()
    replaced(data_dir, running)
    assert not running.exists()


def test_a_missing_directory_is_created_again_with_its_link(temporary: Path, data_dir: Path) -> None:
    with RuntimeDir(data_dir, to_be_found=True) as runtime:
        runtime.restore()  # nothing is amiss
        shutil.rmtree(runtime.path)
        (data_dir / "run").unlink()
        runtime.restore()
        assert runtime.path.stat().st_mode & 0o777 == 0o700
        assert (data_dir / "run").readlink() == runtime.path
    assert not runtime.path.exists()


@pytest.mark.parametrize("kind", ["open to others", "a file", "a link"])
def test_a_directory_that_another_made_in_its_place_is_not_used(temporary: Path, data_dir: Path, kind: str) -> None:
    with RuntimeDir(data_dir, to_be_found=True) as runtime:
        runtime.path.rmdir()
        if kind == "open to others":
            runtime.path.mkdir()
            runtime.path.chmod(0o777)
        elif kind == "a file":
            runtime.path.write_text("x")
        else:
            runtime.path.symlink_to(data_dir)
        with pytest.raises(Unavailable, match="is no longer the directory of this tap"):
            runtime.restore()
    assert os.path.lexists(runtime.path)


def test_another_tap_s_link_stays(temporary: Path, data_dir: Path) -> None:
    with RuntimeDir(data_dir, to_be_found=True):
        (data_dir / "run").unlink()
        (data_dir / "run").symlink_to("elsewhere")
    assert (data_dir / "run").readlink() == Path("elsewhere")


def test_something_else_in_the_link_s_place_stays(temporary: Path, data_dir: Path) -> None:
    (data_dir / "run").mkdir()
    (data_dir / "run" / "file").write_text("precious")
    with pytest.raises(Unavailable, match="run is not a symbolic link"):
        RuntimeDir(data_dir, to_be_found=True)
    assert list(temporary.iterdir()) == []
    with RuntimeDir(data_dir, to_be_found=False) as runtime:  # relays get its path
        runtime.restore()
        assert runtime.path.is_dir()
    assert (data_dir / "run" / "file").read_text() == "precious"
