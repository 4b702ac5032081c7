"""Threads of a process use one spool: each gets its own failures, and a scrape waits for none."""

import sqlite3
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from streamgauge.spool import Failure, NewRow, Spool
from streamgauge.spool.file import BUSY_S, insert
from streamgauge.spool.read_counters import Counters, read_balance

WAIT_S = 20.0


@pytest.fixture
def spool(tmp_path: Path) -> Iterator[Spool]:
    with Counters(tmp_path / "counters", "recorder") as counters:
        spool = Spool(tmp_path / "spool.sqlite", counters=counters)
        assert spool.put([NewRow(0, 1, b"a"), NewRow(0, 1, b"b")]).stored == 2
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


def test_a_program_that_reads_the_file_does_not_delay_the_delivery(spool: Spool, tmp_path: Path) -> None:
    """Pages are returned to the disk when the last row was delivered. No other thread may read then."""
    assert spool.put([NewRow(0, 1, bytes(100_000))] * 100).stored == 100
    reads = sqlite3.connect(tmp_path / "spool.sqlite", isolation_level=None)
    reads.execute("BEGIN")
    reads.execute("SELECT count(*) FROM rows").fetchall()
    ids = [row.id for row in spool.take(0, 100_000_000)]
    began_s = time.monotonic()
    assert spool.done(ids) == 102
    assert time.monotonic() - began_s < BUSY_S / 2
    assert spool.failure is None
    reads.execute("COMMIT")
    reads.close()


def test_what_waits_is_read_without_waiting_for_another_thread(spool: Spool, monkeypatch: pytest.MonkeyPatch) -> None:
    assert spool.waiting().rows == 2
    working, go_on, told = threading.Event(), threading.Event(), list[bool]()

    def slowly(*arguments: Any) -> None:
        working.set()
        told.append(go_on.wait(WAIT_S))
        insert(*arguments)

    monkeypatch.setattr("streamgauge.spool.spool.insert", slowly)
    thread = threading.Thread(target=lambda: spool.put([NewRow(0, 1, b"c")]))
    thread.start()
    assert working.wait(WAIT_S)
    assert spool.waiting().rows == 2
    go_on.set()
    thread.join()
    assert told == [True]
    assert spool.waiting().rows == 3


def test_rows_are_put_and_delivered_by_two_threads_at_once(spool: Spool, tmp_path: Path) -> None:
    """Each row comes once, in order, while a third thread forces the log to the disk and a fourth reads what waits."""
    count, over = 2000, threading.Event()
    values: list[bytes] = []

    def deliver() -> None:
        while len(values) < count + 2:
            rows = spool.take(0, 1000)
            values.extend(row.value for row in rows)
            assert spool.done([row.id for row in rows]) == len(rows)
        over.set()

    def put() -> None:
        for number in range(count):
            assert spool.put([NewRow(0, 1, b"%d" % number)]).stored == 1

    def until_over(work: Callable[[], object]) -> Callable[[], None]:
        def repeat() -> None:
            while not over.wait(0.001):
                work()

        return repeat

    assert ended(put, deliver, until_over(spool.sync), until_over(spool.waiting))
    assert values == [b"a", b"b", *(b"%d" % number for number in range(count))]
    assert spool.waiting().reads == 0
    assert read_balance(tmp_path / "counters").delivered == count + 2


@pytest.mark.parametrize("attempt", range(10))
def test_connections_that_open_a_missing_file_at_once_open_the_same_file(attempt: int, tmp_path: Path) -> None:
    """Another connection may have the file locked for a moment; no connection takes a half-made file for a damaged one."""
    start = threading.Barrier(4)
    failures: list[Failure | None] = []

    def open_one() -> None:
        one = Spool(tmp_path / "spool.sqlite")
        start.wait()
        one.totals()
        failures.append(one.failure)
        one.close()

    assert ended(*[open_one] * 4)
    assert set(failures) <= {None, Failure.BUSY}
    assert not list(tmp_path.glob("*.damaged-*"))
