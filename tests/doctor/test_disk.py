"""The data directory: absent, open to others, on a full, a small and a read-only disk."""

from pathlib import Path

import pytest

from tests.doctor.examined import FAIL, OK, WARN, found, installation, only
from tests.faults.small_disk import SmallDisk, small_disk

__all__ = ["small_disk"]


def test_a_directory_that_does_not_exist_can_be_created_and_is_not(tmp_path: Path) -> None:
    seen = only("disk", installation("up", tmp_path))
    assert (seen.level, "can be created" in seen.says) == (OK, True)
    assert list(tmp_path.iterdir()) == []
    (tmp_path / "file").touch()
    seen = only("disk", installation("up", tmp_path, data_dir=str(tmp_path / "file" / "data")))
    assert (seen.level, "cannot be created" in seen.says) == (FAIL, True)


def test_a_usable_directory_is_unchanged(tmp_path: Path) -> None:
    folder = tmp_path / "data"
    folder.mkdir(mode=0o700)
    seen = only("disk", installation("up", tmp_path, spool_bytes=str(1024**2)))
    assert (seen.level, " can be written, and has " in seen.says) == (OK, True)
    assert list(folder.iterdir()) == []


def test_a_directory_or_file_that_others_may_change(tmp_path: Path) -> None:
    folder = tmp_path / "data"
    folder.mkdir()
    folder.chmod(0o777)
    seen = only("disk", installation("worker", tmp_path))
    assert (seen.level, "every user of this host can change" in seen.says) == (FAIL, True)
    assert seen.cure == f"chmod 700 {folder}"
    folder.chmod(0o700)
    (folder / "ledger.sqlite").touch()
    (folder / "ledger.sqlite").chmod(0o644)
    seen = only("disk", installation("worker", tmp_path))
    assert (seen.level, seen.cure) == (WARN, f"chmod 600 {folder}/ledger.sqlite")


def test_a_disk_that_is_too_small_for_the_spool_or_full(small_disk: SmallDisk, tmp_path: Path) -> None:
    folder = small_disk.path / "data"
    folder.mkdir(mode=0o700)
    seen = only("disk", installation("tap", small_disk.path))
    assert (seen.level, "but the spool may take 1.0 GiB more" in seen.says) == (WARN, True)
    assert "--spool-bytes" in seen.cure
    assert only("disk", installation("worker", small_disk.path)).level is OK
    with (folder / "filling").open("wb") as file, pytest.raises(OSError, match="No space left"):
        while True:
            file.write(b"x" * 65536)
            file.flush()
    seen = only("disk", installation("worker", small_disk.path))
    assert (seen.level, "cannot be written (No space left on device)" in seen.says) == (FAIL, True)
    (folder / "filling").unlink()
    small_disk.read_only()
    seen = only("disk", installation("worker", small_disk.path))
    assert (seen.level, "Read-only file system" in seen.says) == (FAIL, True)


def test_a_directory_that_is_a_file(tmp_path: Path) -> None:
    (tmp_path / "data").touch()
    assert only("disk", installation("up", tmp_path)).level is FAIL
    (tmp_path / "data").unlink()
    (tmp_path / "data").symlink_to(tmp_path / "nowhere")
    assert [one.level for one in found("disk", installation("up", tmp_path))] == [FAIL]
