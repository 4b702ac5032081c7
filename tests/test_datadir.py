"""The data directory's locks: one owner at a time, and none while children of the last one still run."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

from streamgauge import datadir
from streamgauge.datadir import DataDirLock, make_data_dir
from streamgauge.errors import Unavailable


@pytest.fixture(autouse=True)
def impatient(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(datadir, "OWNER_S", 0.2)
    monkeypatch.setattr(datadir, "CHILDREN_S", 0.2)


def test_it_is_made_for_its_owner_alone(tmp_path: Path) -> None:
    make_data_dir(tmp_path / "a" / "b")
    assert (tmp_path / "a" / "b").stat().st_mode & 0o777 == 0o700
    with DataDirLock(tmp_path / "c"):
        assert (tmp_path / "c").stat().st_mode & 0o777 == 0o700
        assert {path.stat().st_mode & 0o777 for path in (tmp_path / "c").iterdir()} == {0o600}


def test_one_owner_at_a_time(tmp_path: Path) -> None:
    with DataDirLock(tmp_path):
        with pytest.raises(Unavailable, match="another process uses the data directory"):
            DataDirLock(tmp_path)
        with DataDirLock(tmp_path / "other"):
            pass
    with DataDirLock(tmp_path):
        pass


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
    with pytest.raises(Unavailable, match=r"file cannot be used \(it is a file\): choose another with --data-dir$"):
        make_data_dir(tmp_path / "file")
    (tmp_path / "lock").mkdir()
    with pytest.raises(Unavailable, match=r"cannot be used \(Is a directory\): choose another with --data-dir$"):
        DataDirLock(tmp_path)
