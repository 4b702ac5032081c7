"""A test waits while too many programs want the cores, and not for ever."""

import os
import shutil
import threading
import time
from pathlib import Path

from tests.cores import LOOK_S, MOST_IN_VAIN, RUNNABLE_PER_CORE, Cores, runnable

MOST = RUNNABLE_PER_CORE * (os.cpu_count() or 1)


def write(path: Path, count: int) -> None:
    new = path.with_suffix(".new")
    new.write_text(f"34.83 26.72 17.68 {count}/713 3620\n")
    new.replace(path)


def test_it_reads_what_the_kernel_says(tmp_path: Path) -> None:
    write(tmp_path / "loadavg", 36)
    assert runnable(tmp_path / "loadavg") == 36
    assert runnable() >= 1
    assert runnable(tmp_path / "none") == 0


def test_with_room_it_does_not_wait(tmp_path: Path) -> None:
    write(tmp_path / "loadavg", MOST)
    Cores(tmp_path / "loadavg", 60, tmp_path / "missing" / "lock").wait_for_room()


def test_it_waits_until_there_is_room(tmp_path: Path) -> None:
    path, began = tmp_path / "loadavg", threading.Event()
    write(path, MOST + 1)

    def wait() -> None:
        Cores(path, 60, tmp_path / "lock").wait_for_room()
        began.set()

    thread = threading.Thread(target=wait)
    thread.start()
    assert not began.wait(5 * LOOK_S)
    write(path, MOST)
    assert began.wait(60)
    thread.join()


def test_it_does_not_wait_for_ever(tmp_path: Path) -> None:
    write(tmp_path / "loadavg", MOST + 1)
    folder = tmp_path / "locks"
    folder.mkdir()
    cores = Cores(tmp_path / "loadavg", 3 * LOOK_S, folder / "lock")
    for _ in range(MOST_IN_VAIN):
        began = time.monotonic()
        cores.wait_for_room()
        assert time.monotonic() - began >= 2 * LOOK_S
    shutil.rmtree(folder)
    cores.wait_for_room()  # without the lock
