"""A spool that is damaged, or no spool: put aside, what is intact goes on, the balance closes."""

import contextlib
import os
import sqlite3
from pathlib import Path

import pytest

from streamgauge.counters import Counters, read_balance, read_incidents
from streamgauge.spool import NewRow, Spool, settle_crash
from streamgauge.spool_file import DAMAGED_KEPT

MIB = 1024 * 1024


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "spool.sqlite"


def rows(*values: bytes, reads: int = 1, slot: int = 0) -> list[NewRow]:
    return [NewRow(slot, reads, value) for value in values]


@pytest.mark.parametrize("content", [b"", b"not a database at all" * 500, b"SQLite format 3\0" + os.urandom(9000)])
def test_a_file_that_is_no_spool_is_put_aside(path: Path, content: bytes) -> None:
    path.write_bytes(content)
    counters_path = path.with_name("counters")
    with Counters(counters_path, "recorder") as counters:
        counters.seen(50)
        spool = Spool(path, counters=counters)
        assert spool.put(rows(b"new", reads=6)).failure is None
        assert [row.value for row in spool.take(0, MIB)] == [b"new"]
        balance = settle_crash(spool, counters_path)
        spool.close()
    if content:
        assert path.with_name("spool.sqlite.damaged-1").read_bytes() == content
        assert balance.dropped["spool_damaged"] == 44
        assert read_incidents(counters_path)["spool_damaged"] == 1
    else:
        assert balance.dropped["crash"] == 44
    assert (balance.seen, balance.waiting) == (50, 6)


def test_another_programs_database_is_put_aside(path: Path) -> None:
    with contextlib.closing(sqlite3.connect(path)) as other:
        other.execute("CREATE TABLE rows(id INTEGER PRIMARY KEY, slot, reads, checksum, value)")
    spool = Spool(path)
    assert spool.put(rows(b"a")).failure is None
    assert path.with_name("spool.sqlite.damaged-1").exists()
    spool.close()


def test_damaged_files_do_not_pile_up(path: Path) -> None:
    spool = Spool(path)
    for number in range(1, 5):
        path.write_bytes(b"rubbish %d" % number * 1000)
        assert spool.put(rows(b"a")).failure is None
        assert [row.value for row in spool.take(0, MIB)] == [b"a"]
        spool.close()
        path.with_name("spool.sqlite-wal").unlink(missing_ok=True)
    kept = sorted(file.name for file in path.parent.glob("*.damaged-*"))
    assert kept == [f"spool.sqlite.damaged-{number}" for number in range(5 - DAMAGED_KEPT, 5)]
    spool.close()


def filled(path: Path, count: int) -> list[bytes]:
    spool = Spool(path)
    values = [b"%06d" % number + os.urandom(1500) for number in range(count)]
    assert spool.put([NewRow(number % 64, 1, value) for number, value in enumerate(values)]).failure is None
    spool.close()
    return values


@pytest.mark.parametrize("seed", range(12))
def test_damage_anywhere_loses_only_what_is_damaged(path: Path, seed: int) -> None:
    """A page overwritten, at a dozen places of the file: whatever it is, the rest works and the balance closes."""
    values = filled(path, 200)
    pages = path.stat().st_size // 4096
    page = 1 + seed * (pages - 1) // 12
    with path.open("r+b") as file:
        file.seek(page * 4096)
        file.write(os.urandom(4096))
    counters_path = path.with_name("counters")
    with Counters(counters_path, "delivery") as counters:
        counters.seen(200)
        spool = Spool(path, counters=counters)
        assert spool.put(rows(b"new")).failure is None
        counters.seen()
        got: list[bytes] = []
        after = 0
        while taken := spool.take(after, 10_000):
            got += [row.value for row in taken]
            after = taken[-1].id
            spool.done([row.id for row in taken])
        balance = settle_crash(spool, counters_path)
        spool.close()
    assert set(got) <= {*values, b"new"}
    assert len(got) == len(set(got))
    assert got == sorted(got, key=lambda value: (value == b"new", value))
    assert balance.waiting == 0
    assert (balance.seen, balance.delivered) == (201, len(got))
    if page > 5:  # a page that holds rows, not the tables' roots
        assert len(got) >= 150


def test_a_flipped_byte_in_a_value_loses_that_row(path: Path) -> None:
    values = filled(path, 50)
    content = bytearray(path.read_bytes())
    content[content.index(values[20]) + 700] ^= 1
    path.write_bytes(content)
    counters_path = path.with_name("counters")
    with Counters(counters_path, "delivery") as counters:
        counters.seen(50)
        spool = Spool(path, counters=counters)
        assert [row.value for row in spool.take(0, MIB)] == values[:20] + values[21:]
        spool.close()
    assert read_balance(counters_path).dropped["spool_damaged"] == 1


def test_a_file_that_is_replaced_under_another_process_is_noticed(path: Path) -> None:
    values = filled(path, 100)
    recorder, deliverer = Spool(path), Spool(path)
    assert recorder.put(rows(b"one")).failure is None
    last = deliverer.take(0, MIB)[-1].id
    recorder.close()
    deliverer.close()
    with path.open("r+b") as file:
        file.seek(20 * 4096)
        file.write(b"\xff" * 4096)
    recorder.put(rows(b"two"))  # opens it, sees nothing wrong
    taken = deliverer.take(0, MIB)  # reads the page and replaces the file
    assert recorder.put(rows(b"three")).failure is None
    assert [row.value for row in deliverer.take(taken[-1].id, MIB)] == [b"three"]
    assert {row.value for row in taken} <= {*values, b"one", b"two"}
    assert len(taken) >= 90
    assert [row.value for row in taken[-2:]] == [b"one", b"two"]
    assert deliverer.take(taken[-1].id, MIB)[0].id > last
    recorder.close()
    deliverer.close()
