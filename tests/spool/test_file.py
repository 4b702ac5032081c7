"""A file that is damaged or no spool: it is moved aside, its intact rows are kept, and the balance is closed."""

import contextlib
import os
import random
import signal
import sqlite3
import subprocess
import sys
from pathlib import Path

import pytest

from streamgauge.spool import NewRow, Spool, close_balance_after_crash
from streamgauge.spool.file import DAMAGED_KEPT
from streamgauge.spool.read_counters import Counters, read_balance, read_incidents

pytestmark = pytest.mark.slow

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
        balance = close_balance_after_crash(spool, counters_path)
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


def test_a_link_in_the_lock_s_place_is_not_followed(path: Path, tmp_path: Path) -> None:
    for target in (tmp_path / "victim", tmp_path / "nowhere"):
        path.with_name("spool.sqlite.lock").unlink(missing_ok=True)
        path.with_name("spool.sqlite.lock").symlink_to(target)
        (tmp_path / "victim").write_text("precious")
        spool = Spool(path)
        assert spool.put(rows(b"a")).failure is None
        spool.close()
        assert not path.with_name("spool.sqlite.lock").is_symlink()
    assert (tmp_path / "victim").read_text() == "precious"
    assert not (tmp_path / "nowhere").exists()


def test_a_copy_of_a_damaged_file_by_an_operator_is_not_removed(path: Path) -> None:
    """Its name may begin and end like one of ours."""
    kept = [
        path.with_name(f"spool.sqlite.damaged-{name}") for name in ("2026-01-02", "of-monday-1", "copy9", "1.old-2")
    ]
    for file in kept:
        file.write_text("precious")
    spool = Spool(path)
    for number in range(1, 4):
        path.write_bytes(b"rubbish %d" % number * 1000)
        assert spool.put(rows(b"a")).failure is None
        spool.close()
        path.with_name("spool.sqlite-wal").unlink(missing_ok=True)
    assert [file.read_text() for file in kept] == ["precious"] * len(kept)
    assert path.with_name("spool.sqlite.damaged-3").exists()


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
        taken_values: list[bytes] = []
        after = 0
        while taken := spool.take(after, 10_000):
            taken_values += [row.value for row in taken]
            after = taken[-1].id
            spool.done([row.id for row in taken])
        balance = close_balance_after_crash(spool, counters_path)
        spool.close()
    assert set(taken_values) <= {*values, b"new"}
    assert len(taken_values) == len(set(taken_values))
    assert taken_values == sorted(taken_values, key=lambda value: (value == b"new", value))
    assert balance.waiting == 0
    assert (balance.seen, balance.delivered) == (201, len(taken_values))
    if page > 7:  # a page that holds rows, not the tables' roots
        assert len(taken_values) >= 150


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


def drained(spool: Spool) -> list[bytes]:
    """Everything that it gives, reported done."""
    values: list[bytes] = []
    for _ in range(1000):
        taken = spool.take(0, 10_000)
        if not taken:
            return values
        values += [row.value for row in taken]
        spool.done([row.id for row in taken])
    raise AssertionError("it gives rows without end")


def balanced_after_damage(path: Path, values: list[bytes]) -> list[bytes]:
    """Use a damaged spool as a tap does. Gives what came out of it: nothing that was not put, and the balance is closed."""
    counters_path = path.with_name("counters")
    with Counters(counters_path, "delivery") as counters:
        counters.seen(len(values) + 1)
        spool = Spool(path, counters=counters)
        assert spool.put(rows(b"new")).failure is None
        remaining = drained(spool)
        assert spool.get("partitions") in (None, b"8")
        spool.close()
        fresh = Spool(path, counters=counters)
        balance = close_balance_after_crash(fresh, counters_path)
        assert drained(fresh) == []
        fresh.close()
    assert set(remaining) <= {*values, b"new"}
    assert b"new" in remaining
    assert len(remaining) == len(set(remaining))
    assert (balance.seen, balance.delivered, balance.waiting) == (len(values) + 1, len(remaining), 0)
    assert sum(balance.dropped.values()) == len(values) + 1 - len(remaining)
    return remaining


@pytest.mark.parametrize("seed", range(8))
def test_a_flipped_byte_anywhere_loses_little_and_closes_the_balance(path: Path, seed: int) -> None:
    """A bit in each of many places of a small file, its beginning, its books and its indexes among them; one at a time."""
    chance = random.Random(seed)
    values = filled(path, 40)
    spool = Spool(path)
    spool.set("partitions", b"8")
    spool.close()
    whole = path.read_bytes()
    places = [*range(seed, 100, 8), *(chance.randrange(len(whole)) for _ in range(10))]
    places += [page * 4096 + chance.randrange(100) for page in range(1, 11)]  # of the books and the tree
    for place in places:
        for old in filter(Path.is_file, path.parent.iterdir()):
            old.unlink()
        content = bytearray(whole)
        content[place] ^= 1 << chance.randrange(8)
        path.write_bytes(content)
        remaining = balanced_after_damage(path, values)
        if place >= 10 * 4096:
            assert len(remaining) >= 38, f"byte {place} cost {41 - len(remaining)} of 41 rows"


KILLED = """
import os, pathlib, signal, sys
from streamgauge.spool import NewRow, Spool
spool = Spool(pathlib.Path(sys.argv[1]))
for number in range(40):
    spool.put([NewRow(number % 64, 1, b"%06d" % number + bytes(1500))])
os.kill(os.getpid(), signal.SIGKILL)
"""


@pytest.mark.parametrize("seed", range(6))
def test_a_flipped_byte_in_the_log_costs_what_was_put_from_there_on(path: Path, seed: int) -> None:
    done = subprocess.run([sys.executable, "-c", KILLED, str(path)], check=False)
    assert done.returncode == -signal.SIGKILL
    values = [b"%06d" % number + bytes(1500) for number in range(40)]
    log = path.with_name("spool.sqlite-wal")
    content = bytearray(log.read_bytes())
    place = random.Random(seed).randrange(32, len(content))
    content[place] ^= 4
    log.write_bytes(content)
    remaining = [value for value in balanced_after_damage(path, values) if value != b"new"]
    assert remaining == values[: len(remaining)]
    assert len(remaining) >= 40 * place / len(content) - 3


def test_a_file_that_is_deleted_while_it_is_open_costs_nothing(path: Path) -> None:
    counters_path = path.with_name("counters")
    with Counters(counters_path, "recorder") as recorder, Counters(counters_path, "delivery") as delivery:
        writer, reader = Spool(path, counters=recorder), Spool(path, counters=delivery)
        writer.put(rows(b"one", b"two", reads=5), {"instances": b"x"})
        recorder.seen(15)
        first = reader.take(0, 3)
        reader.done([first[0].id])
        for file in path.parent.glob("spool.sqlite*"):
            file.unlink()
        assert writer.put(rows(b"three", reads=5)).failure is None
        assert [row.value for row in reader.take(first[0].id, MIB)] == [b"two", b"three"]
        assert reader.get("instances") == b"x"
        writer.close()
        reader.close()
        last = Spool(path, counters=delivery)
        balance = close_balance_after_crash(last, counters_path)
        assert drained(last) == [b"two", b"three"]
        last.close()
    assert (balance.seen, balance.delivered, balance.waiting) == (15, 5, 10)
    assert read_incidents(counters_path)["spool_deleted"] == 1


def test_file_that_is_deleted_while_it_is_closed_is_counted(path: Path) -> None:
    filled(path, 10)
    counters_path = path.with_name("counters")
    with Counters(counters_path, "recorder") as counters:
        counters.seen(10)
        for file in path.parent.glob("spool.sqlite*"):
            file.unlink()
        spool = Spool(path, counters=counters)
        balance = close_balance_after_crash(spool, counters_path)
        spool.close()
    assert (balance.seen, balance.waiting, balance.dropped["crash"]) == (10, 0, 10)


def test_process_that_waits_during_a_replacement_opens_the_new_file(path: Path) -> None:
    """Somebody's transaction that began before the file was deleted ends in the new one."""
    writer, reader = Spool(path), Spool(path)
    writer.put(rows(b"one"))
    assert len(reader.take(0, MIB)) == 1
    path.unlink()
    assert [row.value for row in reader.take(0, MIB)] == [b"one"]  # it is quicker, and makes the new one
    assert writer.put(rows(b"two")).failure is None
    assert [row.value for row in reader.take(0, MIB)] == [b"one", b"two"]
    writer.close()
    reader.close()
