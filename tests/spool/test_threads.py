"""Two threads of a process use one spool: each gets its own failures, neither waits for ever, and a scrape waits for none."""

import sqlite3
import threading
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from streamgauge.spool import NewRow, Spool
from streamgauge.spool.file import FileLock
from streamgauge.spool.read_counters import Counters, DropReason

WAIT_S = 20.0


@pytest.fixture
def spool(tmp_path: Path) -> Iterator[Spool]:
    with Counters(tmp_path / "counters", "recorder") as counters:
        spool = Spool(tmp_path / "spool.sqlite", counters=counters)
        assert spool.put([NewRow(0, 1, b"a"), NewRow(0, 1, b"b")]).failure is None
        yield spool
        spool.close()


def ended(*tasks: Callable[[], object]) -> bool:
    """Whether all of these end, each in its own thread."""
    threads = [threading.Thread(target=task, daemon=True) for task in tasks]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(WAIT_S)
    return not any(thread.is_alive() for thread in threads)


def test_a_failure_is_that_of_the_threads_own_call(
    spool: Spool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("streamgauge.spool.file.BUSY_S", 0.0)
    spool.close()  # it is opened again
    [first, _] = spool.take(0, 1000)
    locks = sqlite3.connect(tmp_path / "spool.sqlite", isolation_level=None)
    locks.execute("BEGIN IMMEDIATE")
    assert spool.done([first.id]) == 0
    assert ended(spool.waiting)
    assert spool.failure is not None and spool.error
    locks.execute("ROLLBACK")
    locks.close()
    assert spool.done([first.id]) == 1
    assert spool.failure is None


def test_rows_are_removed_while_another_thread_opens_the_file(spool: Spool, monkeypatch: pytest.MonkeyPatch) -> None:
    """One has a lock that the other waits for, in whichever order: both end."""
    [first, _] = spool.take(0, 1000)
    opening, removing = threading.Event(), threading.Event()
    usual = FileLock.__enter__

    def lock_slowly(lock: FileLock) -> None:
        if threading.current_thread().name == "opens":
            opening.set()
            removing.wait(0.5)
        else:
            removing.set()
        usual(lock)

    monkeypatch.setattr(FileLock, "__enter__", lock_slowly)
    spool.close()

    def opens() -> None:
        threading.current_thread().name = "opens"
        spool.room()

    def removes() -> None:
        assert opening.wait(WAIT_S)
        spool.discard([first.id], DropReason.REFUSED)

    assert ended(opens, removes)
    assert spool.waiting().rows == 1


def test_what_waits_is_read_without_waiting_for_another_thread(spool: Spool) -> None:
    assert spool.waiting().rows == 2
    working, go_on, told = threading.Event(), threading.Event(), list[bool]()

    def keep(_: bytes) -> None:
        working.set()
        told.append(go_on.wait(WAIT_S))

    def works() -> None:
        spool.drop_reads_for_space(1, keep, newest=True)

    thread = threading.Thread(target=works)
    thread.start()
    assert working.wait(WAIT_S)
    assert spool.waiting().rows == 2
    go_on.set()
    thread.join()
    assert all(told)
