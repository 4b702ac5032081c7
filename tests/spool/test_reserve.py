"""The disk space that is kept for the last rows."""

import os
from pathlib import Path

import pytest

from streamgauge.spool.reserve import RESERVE_BYTES, RESERVE_PART, Reserve
from tests.faults.small_disk import SmallDisk, small_disk

pytestmark = pytest.mark.slow

__all__ = ["small_disk"]
MIB = 1024 * 1024


def test_the_space_is_kept_until_it_is_released(tmp_path: Path) -> None:
    path = tmp_path / "spool.reserve"
    reserve = Reserve(path, 1024 * MIB)
    assert not reserve.is_kept
    assert reserve.keep()
    assert path.stat().st_size == RESERVE_BYTES
    assert path.stat().st_blocks * 512 >= RESERVE_BYTES
    assert path.stat().st_mode & 0o777 == 0o600
    assert Reserve(path, 1024 * MIB).keep()
    reserve.release()
    reserve.release()
    assert not list(tmp_path.iterdir())


def test_a_small_spool_keeps_a_part_of_its_size(tmp_path: Path) -> None:
    Reserve(tmp_path / "spool.reserve", MIB).keep()
    assert (tmp_path / "spool.reserve").stat().st_size == MIB // RESERVE_PART


def test_a_small_disk_gives_a_part_of_its_size(small_disk: SmallDisk) -> None:
    Reserve(small_disk.path / "spool.reserve", 1024 * MIB).keep()
    assert (small_disk.path / "spool.reserve").stat().st_size == 2 * MIB // RESERVE_PART


def test_a_full_disk_keeps_nothing_and_nothing_is_left_of_the_attempt(small_disk: SmallDisk) -> None:
    fill(small_disk.path / "other")
    reserve = Reserve(small_disk.path / "spool.reserve", 1024 * MIB)
    assert not reserve.keep()
    assert [file.name for file in small_disk.path.iterdir()] == ["other"]
    (small_disk.path / "other").unlink()
    assert reserve.keep()


def test_a_link_in_its_place_is_not_followed(tmp_path: Path) -> None:
    target = tmp_path / "target"
    target.write_text("another's")
    (tmp_path / "spool.reserve.new").symlink_to(target)
    reserve = Reserve(tmp_path / "spool.reserve", MIB)
    assert reserve.keep()
    reserve.release()
    assert target.read_text() == "another's"


def fill(path: Path) -> None:
    with path.open("wb", buffering=0) as file, pytest.raises(OSError, match="No space"):
        while True:
            file.write(os.urandom(4096))
