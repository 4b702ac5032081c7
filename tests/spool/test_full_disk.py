"""A real disk that is full: what was put stays readable, nothing is counted twice, and with room the spool goes on."""

import os
from contextlib import closing
from pathlib import Path

import pytest

from streamgauge.spool import Failure, NewRow, Spool, close_balance_after_crash
from streamgauge.spool.read_counters import Counters, read_balance
from tests.faults.small_disk import SmallDisk, small_disk

pytestmark = pytest.mark.slow

__all__ = ["small_disk"]
MIB = 1024 * 1024


def fill(path: Path) -> None:
    with path.open("wb", buffering=0) as file, pytest.raises(OSError, match="No space"):
        while True:
            file.write(os.urandom(4096))


@pytest.mark.parametrize("ends", [False, True])
def test_rows_stay_and_nothing_is_counted_twice(small_disk: SmallDisk, tmp_path: Path, ends: bool) -> None:
    books = tmp_path / "counters"
    with Counters(books, "recorder") as counters:
        path, other = small_disk.path / "spool.sqlite", small_disk.path / "other"
        spool = Spool(path, counters=counters)
        values = [b"%04d" % number + os.urandom(4000) for number in range(200)]
        assert spool.put([NewRow(0, 1, value, b"light") for value in values[:100]]).stored == 100
        fill(other)
        put = 100
        while (result := spool.put([NewRow(0, 1, values[put], b"light")])).stored:
            put += 1
        assert (result.failure, put < 200) == (Failure.DISK_FULL, True)
        counters.seen(put)
        if ends:  # a process that starts on the full disk
            spool.close()
            spool = Spool(path, counters=counters)
            assert close_balance_after_crash(spool, books).waiting == put
        assert spool.waiting().reads == put
        rows = spool.take(0, 100 * MIB)
        assert [row.value for row in rows] == values[:put]
        assert spool.failure is None
        done = spool.done([row.id for row in rows[:50]])  # needs some pages of the log, which it may have
        assert done == 50 or spool.failure is Failure.DISK_FULL
        other.unlink()
        assert done + spool.done([row.id for row in rows]) == put
        assert spool.put([NewRow(0, 1, values[put], b"light")]).stored == 1
        counters.seen()
        with closing(spool):
            assert [row.value for row in spool.take(0, MIB)] == [values[put]]
        balance = read_balance(books)
        assert (balance.delivered, balance.waiting) == (put, 1)
        assert sum(balance.dropped.values()) == 0


def test_a_spool_begins_when_the_disk_has_room(small_disk: SmallDisk) -> None:
    other = small_disk.path / "other"
    fill(other)
    spool = Spool(small_disk.path / "spool.sqlite")
    assert spool.put([NewRow(0, 1, b"a")]).failure is not None
    assert spool.take(0, MIB) == []
    other.unlink()
    assert spool.put([NewRow(0, 1, b"a")]).stored == 1
    assert not list(small_disk.path.glob("*.damaged-*"))
    spool.close()
