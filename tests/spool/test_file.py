"""A file that is damaged or no spool: it is moved aside, its intact rows are kept, and the balance is closed."""

import contextlib
import os
import random
import signal
import sqlite3
import subprocess
import sys
import zlib
from pathlib import Path
from types import SimpleNamespace

import pytest

from streamgauge.core.capture.bundles import encode_bundle, without_reads
from streamgauge.core.capture.segments import Bundle
from streamgauge.recorder.bundler import reads_of
from streamgauge.spool import NewRow, Spool, close_balance_after_crash
from streamgauge.spool.file import DAMAGED_KEPT
from streamgauge.spool.read_counters import Counters, read_balance, read_incidents
from streamgauge.spool.row_clock import Moment
from tests.spool.layout_2 import of_layout_2
from tests.streams import bundles_of, interleaved

pytestmark = pytest.mark.slow

MIB = 1024 * 1024


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "spool.sqlite"


@pytest.fixture(autouse=True)
def _same_ids(monkeypatch: pytest.MonkeyPatch) -> None:
    """The bytes of a file are the same in each run: its ids begin at the wall clock, which stands still."""
    monkeypatch.setattr("streamgauge.spool.file.time", SimpleNamespace(time_ns=lambda: 1_790_000_000 * 10**9))


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
    values = [b"%06d" % number + random.Random(number).randbytes(1500) for number in range(count)]
    new = [NewRow(number % 64, 1, value, b"%06d" % number) for number, value in enumerate(values)]
    assert spool.put(new).stored == count
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
        file.write(random.Random(seed).randbytes(4096))
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


def drained(spool: Spool) -> list[bytes]:
    """The values that it gives, reported done."""
    values: list[bytes] = []
    for _ in range(1000):
        taken = spool.take(0, 10_000)
        if not taken:
            return values
        values += [row.value for row in taken]
        spool.done([row.id for row in taken])
    raise AssertionError("it gives rows without end")


def balanced_after_damage(path: Path, values: list[bytes]) -> list[bytes]:
    """Use a damaged spool as a tap does. Gives what it has whole: nothing that was not put, and the balance is closed.

    A row of which only the value without reads is found is given as that. A row that is not found by its id when it is to
    be removed may come again; its reads count once.
    """
    counters_path = path.with_name("counters")
    with Counters(counters_path, "delivery") as counters:
        counters.seen(len(values) + 1)
        spool = Spool(path, counters=counters)
        assert spool.put(rows(b"new")).failure is None
        given = drained(spool)
        spool.close()
        fresh = Spool(path, counters=counters)
        close_balance_after_crash(fresh, counters_path)
        given += drained(fresh)
        fresh.close()
    balance = read_balance(counters_path)
    remaining = [value for value in dict.fromkeys(given) if len(value) != 6]
    assert set(remaining) <= {*values, b"new"}
    assert b"new" in remaining
    assert (balance.seen, balance.delivered, balance.waiting) == (len(values) + 1, len(remaining), 0)
    assert sum(balance.dropped.values()) == len(values) + 1 - len(remaining)
    return remaining


@pytest.mark.parametrize("seed", range(8))
def test_a_flipped_byte_anywhere_loses_little_and_closes_the_balance(path: Path, seed: int) -> None:
    """A bit in each of many places of a small file, in its header, its tables and its totals; one at a time."""
    chance = random.Random(seed)
    values = filled(path, 40)
    whole = path.read_bytes()
    # Byte 18 says that the file may not be written: the disk's owner gets the same report as of a read-only disk.
    places = [
        *(place for place in range(seed, 100, 8) if place != 18),
        *(chance.randrange(len(whole)) for _ in range(10)),
    ]
    places += [page * 4096 + chance.randrange(100) for page in range(1, 11)]  # of the books and the tree
    for place in places:
        for old in filter(Path.is_file, path.parent.iterdir()):
            old.unlink()
        content = bytearray(whole)
        content[place] ^= 1 << chance.randrange(8)
        path.write_bytes(content)
        remaining = balanced_after_damage(path, values)
        if place >= 10 * 4096:
            assert len(remaining) >= 35, f"byte {place} cost {41 - len(remaining)} of 41 rows"


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


BUNDLES = bundles_of(interleaved(4))


def old_rows() -> list[NewRow]:
    heartbeat = Bundle(BUNDLES[0].instance, 3, 99, 5)
    whole = [NewRow(one.slot, reads_of(one), encode_bundle(one)) for one in BUNDLES]
    return [*whole, NewRow(3, 0, encode_bundle(heartbeat)), NewRow(4, 6, b"a later version's")]


def test_a_file_of_layout_2_is_converted_and_keeps_every_row(path: Path) -> None:
    old = old_rows()
    of_layout_2(path, old)
    counters_path = path.with_name("counters")
    reads = sum(row.reads for row in old)
    with Counters(counters_path, "recorder") as counters:
        counters.seen(reads + 70)
        spool = Spool(path, counters=counters, now=lambda: Moment("boot", 1000, 6000))
        balance = close_balance_after_crash(spool, counters_path)
        assert (balance.seen, balance.delivered, balance.waiting) == (reads + 70, 70, reads)
        assert spool.get("partitions") == b"8"
        found = spool.peek(0, 10 * MIB)
        assert [(row.id, row.slot, row.reads, row.value) for row in found] == [
            (row_id, row.slot, row.reads, row.value) for row_id, row in enumerate(old, 1001)
        ]
        assert spool.put(rows(b"new")).stored == 1
        assert spool.take(found[-1].id, MIB)[0].id == 2001, "an id of a row that was delivered is not used again"
        spool.close()
    assert not list(path.parent.glob("*.damaged-*"))


def test_rows_of_layout_2_lose_their_reads_by_age_and_for_space_as_others_do(path: Path) -> None:
    old = old_rows()
    of_layout_2(path, old)
    spool = Spool(path, now=lambda: Moment("boot", 1000, 6000))  # the clock shows 1100, the rows were put at 500
    assert spool.drop_old_reads(601) == 0
    assert spool.drop_old_reads(599) == sum(row.reads for row in old[1:]), "not those of the row that was taken"
    first, *others = spool.take(0, 10 * MIB)
    assert first.value == old[0].value
    light = [encode_bundle(without_reads(bundle)) for bundle in BUNDLES[1:]]
    assert [row.value for row in others] == [*light, old[-2].value, b""]
    assert {row.reads for row in others} == {0}
    spool.close()


def test_damaged_row_of_layout_2_is_lost_alone_and_counted(path: Path) -> None:
    old = old_rows()
    of_layout_2(path, old)
    with contextlib.closing(sqlite3.connect(path)) as file:
        file.execute("UPDATE rows SET value = value || x'00' WHERE id = 1002")
        file.commit()
    counters_path = path.with_name("counters")
    with Counters(counters_path, "recorder") as counters:
        counters.seen(70 + sum(row.reads for row in old))
        spool = Spool(path, counters=counters)
        close_balance_after_crash(spool, counters_path)
        assert [row.value for row in spool.take(0, 10 * MIB)] == [row.value for row in (old[0], *old[2:])]
        spool.close()
    balance = read_balance(counters_path)
    assert balance.dropped["spool_damaged"] == old[1].reads
    assert sum(balance.dropped.values()) == old[1].reads


def test_a_damaged_file_of_layout_2_gives_the_rows_that_can_be_read(path: Path) -> None:
    old = [row for row in old_rows() for _ in range(20)]
    of_layout_2(path, old)
    content = bytearray(path.read_bytes())
    page = content.index(old[50].value) // 4096  # a leaf of the table
    content[page * 4096 : page * 4096 + 40] = b"\xff" * 40
    path.write_bytes(content)
    spool = Spool(path)
    found = [row.value for row in spool.take(0, 100 * MIB)]
    assert len(old) * 0.5 < len(found) < len(old)
    assert set(found) <= {row.value for row in old}
    assert path.with_name("spool.sqlite.damaged-1").exists()
    assert spool.get("partitions") == b"8"
    spool.close()


def test_a_file_of_another_layout_is_moved_aside(path: Path) -> None:
    filled(path, 3)
    with contextlib.closing(sqlite3.connect(path)) as file:
        file.execute("PRAGMA user_version=1")
    spool = Spool(path)
    assert len(spool.take(0, MIB)) == 3, "rows that can be read are taken over"
    assert path.with_name("spool.sqlite.damaged-1").exists()
    spool.close()


def test_an_earlier_version_takes_over_the_rows_of_this_layout(path: Path) -> None:
    """It moves the file aside, and reads what its own table had, with its own checksums."""
    values = filled(path, 10)
    with contextlib.closing(sqlite3.connect(path)) as file:
        found = file.execute("SELECT id, slot, reads, put_s, checksum, value FROM rows").fetchall()
    assert [row[-1] for row in found] == values
    for row_id, slot, reads, put_s, stated, value in found:
        assert zlib.crc32(value, zlib.crc32(b"%d %d %d %d" % (row_id, slot, reads, put_s))) == stated
