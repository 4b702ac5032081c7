"""The data directory: its disk and modes, the key that is never made or shown, the share of responses with a record."""

import shutil
from pathlib import Path

import pytest

from streamgauge.doctor.data_directory import fingerprint
from streamgauge.recorder.installation_key import installation_key
from streamgauge.spool.read_counters import Counters
from streamgauge.spool.response_counters import NotCaptured
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


def test_a_missing_key_is_not_made(tmp_path: Path) -> None:
    (tmp_path / "data").mkdir(mode=0o700)
    seen = only("key", installation("tap", tmp_path))
    assert (seen.level, "the first start makes one" in seen.says) == (OK, True)
    assert list((tmp_path / "data").iterdir()) == []


def test_installations_with_one_key_have_one_fingerprint(tmp_path: Path) -> None:
    one, other, copy = (tmp_path / name for name in ("one", "other", "copy"))
    for folder in (one, other, copy):
        (folder / "data").mkdir(parents=True, mode=0o700)
    key = installation_key(one / "data")
    installation_key(other / "data")
    shutil.copy2(one / "data" / "key", copy / "data" / "key")
    says = [only("key", installation("up", folder)).says for folder in (one, other, copy)]
    assert says[0] == says[2] != says[1]
    assert fingerprint(key) in says[0]
    assert key.hex() not in says[0]


def test_a_key_that_others_can_read_is_a_failure(tmp_path: Path) -> None:
    (tmp_path / "data").mkdir(mode=0o700)
    installation_key(tmp_path / "data")
    (tmp_path / "data" / "key").chmod(0o644)
    seen = only("key", installation("up", tmp_path))
    assert (seen.level, "can read or change the key" in seen.says) == (FAIL, True)
    assert seen.cure.startswith("chmod 600 ")


def test_the_share_and_the_reasons(tmp_path: Path) -> None:
    seen = only("coverage", installation("up", tmp_path))
    assert (seen.level, "no response has passed" in seen.says) == (OK, True)
    assert not (tmp_path / "data").exists()
    (tmp_path / "data").mkdir()
    with Counters(tmp_path / "data" / "counters", "relay-0") as counters:
        for _ in range(5):
            counters.responses.seen("a")
        counters.responses.passed("a", NotCaptured.NOT_LLM, 2)
        counters.responses.passed("b", NotCaptured.REFUSED)
        seen = only("coverage", installation("tap", tmp_path))
        assert (seen.level, seen.says) == (
            OK,
            "5 of 8 responses have a record (62.5%); without: 2 not_llm, 1 refused",
        )
        counters.responses.not_captured("b", NotCaptured.SPOOL_LOST)
        seen = only("coverage", installation("tap", tmp_path))
        assert seen.level is WARN
        assert seen.says.startswith("4 of 8 responses have a record (50.0%); without: 2 not_llm, ")
