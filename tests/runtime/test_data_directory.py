"""The data directory's locks: one owner at a time, and none while children of the last one still run."""

import contextlib
import grp
import os
import pwd
import shlex
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from streamgauge.errors import Unavailable, UsageFault
from streamgauge.runtime import data_directory
from streamgauge.runtime.data_directory import DataDirLock, default_data_dir, make_data_dir, warning_about


@pytest.fixture(autouse=True)
def impatient(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(data_directory, "OWNER_S", 0.2)
    monkeypatch.setattr(data_directory, "CHILDREN_S", 0.2)


def test_it_is_made_for_its_owner_alone(tmp_path: Path) -> None:
    make_data_dir(tmp_path / "a" / "b")
    assert (tmp_path / "a" / "b").stat().st_mode & 0o777 == 0o700
    with DataDirLock(tmp_path / "c"):
        assert (tmp_path / "c").stat().st_mode & 0o777 == 0o700
        assert {path.stat().st_mode & 0o777 for path in (tmp_path / "c").iterdir()} == {0o600}


@contextlib.contextmanager
def as_another_user() -> Iterator[None]:
    """Root alone can be another user for a while."""
    if os.geteuid() != 0:
        pytest.skip("only root can be another user for a while")
    os.seteuid(65_534)
    try:
        yield
    finally:
        os.seteuid(0)


def made_with(path: Path, mode: int, owner: int = -1, group: int = -1) -> Path:
    path.mkdir()
    os.chown(path, owner, group)
    path.chmod(mode)
    return path


@pytest.mark.parametrize("mode", [0o777, 0o707, 0o702, 0o2777])
def test_one_that_every_user_may_change_is_refused(tmp_path: Path, mode: int) -> None:
    path = made_with(tmp_path / "it's open", mode)
    with pytest.raises(Unavailable) as refused:
        make_data_dir(path)
    sentence = str(refused.value)
    assert sentence.startswith(f"every user of this host can change the data directory {path} (mode {mode:04o}), ")
    assert sentence.endswith(f": chmod 700 {shlex.quote(str(path))}")
    path.chmod(0o700)
    make_data_dir(path)
    assert warning_about(path) is None


@pytest.mark.parametrize("mode", [0o700, 0o750, 0o755, 0o711])
def test_one_that_others_may_read_or_list_is_used(tmp_path: Path, mode: int) -> None:
    """What lies in it has modes of its own."""
    path = made_with(tmp_path / "data", mode)
    make_data_dir(path)
    assert warning_about(path) is None


def test_one_with_the_sticky_bit_is_used_with_a_warning(tmp_path: Path) -> None:
    """As a tmpfs in a container has it: others cannot replace what is ours."""
    path = made_with(tmp_path / "data", 0o1777)
    make_data_dir(path)
    warning = warning_about(path)
    assert warning
    assert f"every user of this host can change the data directory {path} (mode 1777)" in warning
    assert "chmod" not in warning, "it may be /tmp itself"


def test_root_s_volume_is_used_with_a_warning(tmp_path: Path) -> None:
    """A volume of a container often belongs to root and has mode 0777, which its user cannot change."""
    with tempfile.TemporaryDirectory() as place:
        Path(place).chmod(0o755)
        path = made_with(Path(place) / "data", 0o777, 0, 0)
        with as_another_user():
            make_data_dir(path)
            warning = warning_about(path)
            make_data_dir(path / "inside")
            assert warning_about(path / "inside") is None
    assert warning
    assert warning.endswith("name a directory inside it with --data-dir, which is then created for this user only")


def test_a_group_s_directory_is_used_with_a_warning_unless_the_group_is_the_user_s_own(tmp_path: Path) -> None:
    if os.geteuid() != 0:
        pytest.skip("only root can give a directory to a group that it is not in")
    group = next(group for group in grp.getgrall() if group.gr_gid)
    for number, warns in ((group.gr_gid, True), (0, False), (3_999_999_999, False)):
        path = made_with(tmp_path / str(number), 0o775, 0, number)
        make_data_dir(path)
        assert bool(warning_about(path)) == warns
    warning = warning_about(tmp_path / str(group.gr_gid))
    assert warning
    assert warning.startswith(f"the members of the group {group.gr_name} can change the data directory ")
    assert "(mode 0775)" in warning


def test_another_user_s_directory_is_used_with_a_warning_or_refused(tmp_path: Path) -> None:
    if os.geteuid() != 0:
        pytest.skip("only root can give a directory away")
    path = made_with(tmp_path / "data", 0o700, 65_534)
    make_data_dir(path)
    warning = warning_about(path)
    assert warning
    assert warning.startswith("the owner ")
    assert f" can change the data directory {path} " in warning
    assert warning.endswith("choose another with --data-dir")
    path.chmod(0o777)
    with pytest.raises(Unavailable, match=r"choose another with --data-dir$"):
        make_data_dir(path)


@pytest.mark.parametrize("name", ["lock", "processes.lock"])
def test_a_symbolic_link_in_place_of_a_lock_is_not_followed(tmp_path: Path, name: str) -> None:
    (tmp_path / "data").mkdir()
    (tmp_path / "data" / name).symlink_to(tmp_path / "made")
    with pytest.raises(Unavailable, match=rf"cannot be used \({tmp_path}/data/{name} is a link\)"):
        DataDirLock(tmp_path / "data")
    assert not (tmp_path / "made").exists()


def test_one_owner_at_a_time(tmp_path: Path) -> None:
    with DataDirLock(tmp_path):
        with pytest.raises(Unavailable, match="another process uses the data directory"):
            DataDirLock(tmp_path)
        with DataDirLock(tmp_path / "other"):
            pass
    with DataDirLock(tmp_path):
        pass


@pytest.mark.slow
def test_children_that_inherited_it_keep_it(tmp_path: Path) -> None:
    with DataDirLock(tmp_path) as lock:
        child = subprocess.Popen(
            [sys.executable, "-c", "input()"], stdin=subprocess.PIPE, pass_fds=[lock.children_fd], close_fds=True
        )
    try:
        with pytest.raises(Unavailable, match="another process uses the data directory"):
            DataDirLock(tmp_path)
        assert child.poll() is None
    finally:
        child.communicate(b"\n")
    with DataDirLock(tmp_path):
        pass


def test_a_refusal_leaves_no_descriptor_open(tmp_path: Path) -> None:
    with DataDirLock(tmp_path):
        before = os.listdir("/dev/fd")  # noqa: PTH208 - what is open, not a directory on a disk
        for _ in range(3):
            with pytest.raises(Unavailable):
                DataDirLock(tmp_path)
        assert len(os.listdir("/dev/fd")) == len(before)  # noqa: PTH208


def test_what_the_system_refuses_is_one_sentence(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(
        Unavailable, match=r"file cannot be used \(it is not a directory\): choose another with --data-dir$"
    ):
        make_data_dir(tmp_path / "file")
    (tmp_path / "lock").mkdir()
    with pytest.raises(Unavailable, match=r"cannot be used \(Is a directory\): choose another with --data-dir$"):
        DataDirLock(tmp_path)


HOME_OF_USER = Path(pwd.getpwuid(os.getuid()).pw_dir)


@pytest.mark.parametrize(
    ("state", "home", "platform", "expected"),
    [
        ("/s", "/h", "linux", Path("/s/streamgauge")),
        ("/s", "/h", "darwin", Path("/s/streamgauge")),
        ("", "/h", "linux", Path("/h/.local/state/streamgauge")),
        ("relative", "/h", "linux", Path("/h/.local/state/streamgauge")),
        ("", "/h", "darwin", Path("/h/Library/Application Support/streamgauge")),
        ("", "relative", "linux", HOME_OF_USER / ".local/state/streamgauge"),
    ],
)
def test_the_directory_is_that_of_the_platform(
    state: str, home: str, platform: str, expected: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("XDG_STATE_HOME", state)
    monkeypatch.setenv("HOME", home)
    monkeypatch.setattr(sys, "platform", platform)
    assert default_data_dir() == expected


def test_a_user_without_a_home_gets_a_sentence(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_STATE_HOME", "")
    monkeypatch.setenv("HOME", "")
    monkeypatch.setattr(os, "getuid", lambda: 4_000_000_001)
    with pytest.raises(UsageFault, match="set HOME, or give --data-dir"):
        default_data_dir()
