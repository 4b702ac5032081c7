"""A worker's slot is locked as long as its process runs, and its id contains that of the data directory."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

from streamgauge.worker.faults import SlotsTakenError
from streamgauge.worker.slots import MAX_SLOTS, Slot

pytestmark = pytest.mark.slow

_HOLD = (
    "import sys, time; from pathlib import Path; from streamgauge.worker.slots import Slot;"
    "slot = Slot(Path(sys.argv[1])); print(slot.instance_id, flush=True); time.sleep(60)"
)


def held(directory: Path) -> tuple["subprocess.Popen[str]", str]:
    process = subprocess.Popen([sys.executable, "-c", _HOLD, str(directory)], stdout=subprocess.PIPE, text=True)
    assert process.stdout is not None
    return process, process.stdout.readline().strip()


def test_processes_take_slots_in_order_and_a_killed_one_is_free_again(tmp_path: Path) -> None:
    first, first_id = held(tmp_path)
    second, second_id = held(tmp_path)
    try:
        assert first_id[:-2] == second_id[:-2]
        assert (first_id[-2:], second_id[-2:]) == ("-0", "-1")
        first.kill()
        first.wait()
        with Slot(tmp_path) as again:
            assert again.instance_id == first_id
            with Slot(tmp_path) as third:
                assert third.number == 2
    finally:
        for process in (first, second):
            process.kill()
            process.wait()
            assert process.stdout is not None
            process.stdout.close()


def test_data_directories_have_ids_of_their_own(tmp_path: Path) -> None:
    with Slot(tmp_path / "a") as one, Slot(tmp_path / "b") as other:
        assert one.number == other.number == 0
        assert one.instance_id != other.instance_id


def test_an_empty_id_is_replaced_by_another_one(tmp_path: Path) -> None:
    """A power cut may leave it empty. Workers of two hosts would then have the same id."""
    for name in ("a", "b"):
        (tmp_path / name / "worker-slots").mkdir(parents=True)
        (tmp_path / name / "worker-slots" / "id").touch()
    with Slot(tmp_path / "a") as one, Slot(tmp_path / "b") as other:
        assert one.instance_id != other.instance_id
        made = one.instance_id
    with Slot(tmp_path / "a") as again:
        assert again.instance_id == made


def test_what_lies_there_is_private_and_no_link_is_followed(tmp_path: Path) -> None:
    slots = tmp_path / "worker-slots"
    before = os.umask(0)
    try:
        with Slot(tmp_path):
            assert slots.stat().st_mode & 0o777 == 0o700
            assert {path.stat().st_mode & 0o777 for path in slots.iterdir()} == {0o600}
    finally:
        os.umask(before)
    (slots / "0").unlink()
    (slots / "0").symlink_to(tmp_path / "made")
    with pytest.raises(OSError, match="symbolic links"):
        Slot(tmp_path)
    assert not (tmp_path / "made").exists()


def test_all_slots_locked_is_an_error(tmp_path: Path) -> None:
    slots = [Slot(tmp_path) for _ in range(MAX_SLOTS)]
    with pytest.raises(SlotsTakenError, match=f"{MAX_SLOTS} workers"):
        Slot(tmp_path)
    for slot in slots:
        slot.release()
