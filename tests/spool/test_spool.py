"""The spool keeps rows in order, each once, within its limit, and after SIGKILL; a failing disk raises nothing."""

import os
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from streamgauge.settings.declarations import SpoolPolicy
from streamgauge.spool import Failure, NewRow, Put, Spool, close_balance_after_crash
from streamgauge.spool.read_counters import Counters, DropReason, read_balance

pytestmark = pytest.mark.slow

MIB = 1024 * 1024


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "spool.sqlite"


@pytest.fixture
def spool(path: Path) -> Iterator[Spool]:
    opened = Spool(path)
    yield opened
    opened.close()


def rows(*values: bytes, reads: int = 1, slot: int = 0) -> list[NewRow]:
    return [NewRow(slot, reads, value) for value in values]


def test_rows_come_in_order_and_stay_until_done(spool: Spool) -> None:
    assert spool.put([NewRow(5, 3, b"a"), NewRow(6, 4, b"b", b"light")]).stored == 2
    first, second = spool.take(0, MIB)
    assert (first.slot, first.reads, first.value) == (5, 3, b"a")
    assert (second.slot, second.reads, second.value) == (6, 4, b"b")
    assert second.id > first.id
    assert spool.take(first.id, MIB) == [second]
    assert spool.done([first.id]) == 3
    assert spool.done([first.id]) == 0
    assert spool.take(0, MIB) == [second]


def test_take_gives_at_least_one_row_and_then_up_to_the_limit(spool: Spool) -> None:
    spool.put(rows(b"x" * 1000, b"y" * 10, b"z" * 10, b"w" * 10))
    assert [len(row.value) for row in spool.take(0, 20)] == [1000]
    after = spool.take(0, 1)[0].id
    assert [row.value[:1] for row in spool.take(after, 20)] == [b"y", b"z"]


def test_ids_are_never_given_again(spool: Spool) -> None:
    spool.put(rows(b"a", b"b"))
    ids = [row.id for row in spool.take(0, MIB)]
    spool.done(ids)
    spool.put(rows(b"c"))
    assert spool.take(0, MIB)[0].id > max(ids)


def test_the_file_is_private_and_holds_what_was_put(path: Path) -> None:
    spool = Spool(path)
    spool.put(rows(b"a", reads=7), {"instances": b"x"})
    files = ("spool.sqlite", "spool.sqlite-wal", "spool.sqlite-shm")
    assert {file.name: file.stat().st_mode & 0o777 for file in path.parent.iterdir()} == dict.fromkeys(files, 0o600)
    spool.close()
    again = Spool(path)
    assert [row.value for row in again.take(0, MIB)] == [b"a"]
    assert (again.get("instances"), again.get("other")) == (b"x", None)
    assert (again.waiting().rows, again.waiting().reads) == (1, 7)
    again.close()


def disk_bytes(path: Path) -> int:
    return sum(file.stat().st_size for file in path.parent.iterdir())


@pytest.mark.parametrize("light", [40, 900])
@pytest.mark.parametrize("size", [900, 3000, 48 * 1024, 300_000])
def test_it_is_bounded_on_disk_and_keeps_a_reserve_for_heads_and_ends(path: Path, size: int, light: int) -> None:
    counters_path = path.with_name("counters")
    with Counters(counters_path, "recorder") as counters:
        spool = Spool(path, 32 * MIB, counters)
        row = NewRow(0, 1, os.urandom(size), os.urandom(light))
        batch = 1_000_000 // (size + light)
        put = 0
        while not read_balance(counters_path).dropped["spool_full"]:
            assert spool.put([row] * batch) == Put(batch)
            put += batch
        whole = spool.waiting().reads
        assert whole == put - read_balance(counters_path).dropped["spool_full"]
        assert whole * (size + light) > 19 * MIB
        assert disk_bytes(path) <= 32 * MIB + counters_path.stat().st_size
        vital = 0
        while (put_now := spool.put([NewRow(0, 0, b"heartbeat")] * 20).stored) == 20 and spool.waiting().reads == whole:
            vital += put_now
        assert vital > 200
        assert disk_bytes(path) <= 32 * MIB + counters_path.stat().st_size
        assert spool.waiting().rows >= put + vital
        spool.close()


def test_row_without_room_loses_its_reads_and_keeps_its_place(path: Path) -> None:
    with Counters(path.with_name("counters"), "recorder") as counters:
        spool = Spool(path, MIB, counters)
        rows = [NewRow(0, 2, bytes([number]) * 20_000, b"light%d" % number) for number in range(100)]
        for row in rows:
            assert spool.put([row]).stored == 1
        taken = spool.take(0, 10 * MIB)
        whole = [row for row in taken if row.reads]
        assert [row.value for row in taken] == [
            row.value if number < len(whole) else row.light for number, row in enumerate(rows)
        ]
        assert 30 < len(whole) < 50
        assert spool.waiting().reads == 2 * len(whole)
        assert read_balance(path.with_name("counters")).dropped["spool_full"] == 2 * (100 - len(whole))
        spool.close()


def test_with_drop_oldest_the_oldest_rows_lose_their_reads(path: Path) -> None:
    with Counters(path.with_name("counters"), "recorder") as counters:
        spool = Spool(path, MIB, counters)
        rows = [NewRow(0, 2, bytes([number]) * 20_000, b"light%d" % number) for number in range(100)]
        (first,) = rows[:1]
        spool.put([first])
        assert [row.value for row in spool.take(0, 1)] == [first.value]
        for row in rows[1:]:
            assert spool.put([row], policy="drop-oldest").stored == 1
        found = spool.peek(0, 10 * MIB)
        whole = [row for row in found if row.reads]
        lost = 100 - len(whole)
        assert [row.value for row in found] == [
            row.light if 0 < number <= lost else row.value for number, row in enumerate(rows)
        ]
        assert 30 < len(whole) < 50
        assert read_balance(path.with_name("counters")).dropped["spool_full"] == 2 * lost
        assert disk_bytes(path) <= MIB + path.with_name("counters").stat().st_size + 64 * 1024
        spool.close()


@pytest.mark.parametrize("policy", ["drop-newest", "drop-oldest"])
def test_rows_without_reads_take_the_place_of_reads_when_the_reserve_is_used(path: Path, policy: SpoolPolicy) -> None:
    """In the end the spool has nothing but rows without reads, and stores the first part of what it is given."""
    with Counters(path.with_name("counters"), "recorder") as counters:
        spool = Spool(path, MIB, counters)
        while spool.put([NewRow(0, 1, bytes(8000), b"light")], policy=policy).stored and not dropped(path):
            pass
        reads = spool.waiting().reads
        put = 0
        while (stored := spool.put([NewRow(0, 0, bytes(500))] * 10, policy=policy).stored) == 10:
            put += stored
        assert put > 800
        assert stored < 10
        while spool.put([NewRow(0, 0, bytes(500))], policy=policy).stored:
            pass
        assert spool.waiting().reads == 0
        assert dropped(path) == reads + 1
        assert spool.put([NewRow(0, 5, bytes(900), bytes(700))], policy=policy) == Put(0)
        assert dropped(path) == reads + 1, "the caller keeps the row with its reads"
        assert disk_bytes(path) <= MIB + path.with_name("counters").stat().st_size + 64 * 1024
        spool.close()


def dropped(path: Path) -> int:
    return read_balance(path.with_name("counters")).dropped["spool_full"]


def test_room_comes_back_when_rows_are_done_and_the_disk_gets_its_own(path: Path) -> None:
    spool = Spool(path, max_bytes=32 * MIB)
    value = os.urandom(48 * 1024)
    while (spool.put([NewRow(0, 1, value)] * 10), spool.waiting().reads == spool.waiting().rows)[1]:
        pass
    full = disk_bytes(path)
    everything = [row.id for row in spool.take(0, 64 * MIB)]
    for start in range(0, len(everything) - 20, 10):
        spool.done(everything[start : start + 10])
    assert disk_bytes(path) < full * 0.8  # most is given back although rows remain
    assert spool.put([NewRow(0, 1, value)]).stored == 1
    spool.done([row.id for row in spool.take(0, 64 * MIB)])
    assert spool.waiting().rows == 0
    assert disk_bytes(path) < 0.2 * MIB
    spool.close()


def test_done_counts_delivered_with_the_removal(path: Path) -> None:
    counters_path = path.with_name("counters")
    with Counters(counters_path, "delivery") as counters:
        spool = Spool(path, counters=counters)
        spool.put([NewRow(0, 5, b"a"), NewRow(0, 7, b"b"), NewRow(0, 9, b"c")])
        counters.seen(30)
        one, two, three = (row.id for row in spool.take(0, MIB))
        spool.done([one, two])
        spool.discard([three], DropReason.REFUSED)
        spool.close()
    balance = read_balance(counters_path)
    assert (balance.delivered, balance.dropped["refused"], balance.waiting) == (12, 9, 9)


def test_balance_is_closed_after_a_crash(path: Path) -> None:
    counters_path = path.with_name("counters")
    with Counters(counters_path, "relay-0") as counters:
        counters.seen(100)
        counters.dropped(DropReason.RECORDER_BEHIND, 10)
    spool = Spool(path)  # without counters: as if it had died between the transaction and the count
    spool.put(rows(b"a", b"b", reads=20))
    spool.done([spool.take(0, 1)[0].id])
    balance = close_balance_after_crash(spool, counters_path)
    assert (balance.seen, balance.delivered, balance.waiting) == (100, 20, 20)
    assert balance.dropped["crash"] == 50
    assert close_balance_after_crash(spool, counters_path) == balance
    spool.close()


def test_balance_without_a_counters_file_uses_the_totals_of_the_spool(path: Path) -> None:
    spool = Spool(path)
    spool.put(rows(b"a", b"b", reads=20))
    spool.done([spool.take(0, 1)[0].id])
    balance = close_balance_after_crash(spool, path.with_name("counters"))
    assert (balance.seen, balance.delivered, balance.waiting) == (40, 20, 20)
    assert sum(balance.dropped.values()) == 0
    spool.close()


WITHOUT_ROOM = """
import pathlib, resource, sys
from streamgauge.spool import NewRow, Spool
spool = Spool(pathlib.Path(sys.argv[1]))
resource.setrlimit(resource.RLIMIT_FSIZE, (2_000_000, resource.RLIM_INFINITY))
outcomes = [spool.put([NewRow(0, 1, bytes(100_000))]) for _ in range(40)]
taken = spool.take(0, 10**9)
print(sum(o.failure is None for o in outcomes), len(taken), sorted({str(o.failure) for o in outcomes if o.failure}))
resource.setrlimit(resource.RLIMIT_FSIZE, (resource.RLIM_INFINITY, resource.RLIM_INFINITY))
print(spool.put([NewRow(0, 1, bytes(100_000))]).failure, len(spool.take(0, 10**9)))
"""


def test_full_disk_is_reported_and_the_spool_recovers(path: Path) -> None:
    command = [sys.executable, "-c", WITHOUT_ROOM, str(path)]
    first, second = subprocess.run(command, capture_output=True, text=True, check=True).stdout.splitlines()
    put, taken, failures = first.split(maxsplit=2)
    assert 3 <= int(put) < 40
    assert put == taken
    assert set(eval(failures)) <= {"broken", "disk_full"}
    assert second == f"None {int(put) + 1}"


READ_ONLY = """
import os, pathlib, sys
from streamgauge.spool import NewRow, Spool
if os.getuid() == 0:
    os.setgroups([]); os.setgid(65534); os.setuid(65534)
spool = Spool(pathlib.Path(sys.argv[1]))
print(spool.put([NewRow(0, 1, b"x")]).failure, spool.take(0, 100), spool.waiting().rows, spool.done([1]), spool.get("x"))
"""


def test_a_folder_that_cannot_be_written_is_said_and_survived() -> None:
    folder = Path(tempfile.mkdtemp())
    try:
        folder.chmod(0o555)
        command = [sys.executable, "-c", READ_ONLY, str(folder / "spool.sqlite")]
        output = subprocess.run(command, capture_output=True, text=True, check=True).stdout
        assert output == "read_only [] 0 0 None\n"
    finally:
        folder.chmod(0o755)
        folder.rmdir()


def test_no_folder_at_all_is_said_and_survived(tmp_path: Path) -> None:
    spool = Spool(tmp_path / "missing" / "spool.sqlite")
    assert spool.put(rows(b"x")).failure is Failure.BROKEN
    assert spool.take(0, 10) == []
    assert close_balance_after_crash(spool, tmp_path / "counters").seen == 0
    (tmp_path / "missing").mkdir()
    assert spool.put(rows(b"x")).failure is None
    spool.close()


def test_sync_forces_the_log_to_the_disk(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    synced: list[str] = []
    real = os.fsync

    def fsync(opened: int) -> None:
        synced.append(Path(f"/dev/fd/{opened}").resolve().name)
        real(opened)

    spool = Spool(path)
    spool.sync()  # nothing there yet: nothing to do
    spool.put(rows(b"a"))
    monkeypatch.setattr(os, "fsync", fsync)
    spool.sync()
    assert synced == ["spool.sqlite-wal", path.parent.name]
    spool.close()


def test_small_spool_limits_the_rows_in_flight(path: Path) -> None:
    assert Spool(path, max_bytes=MIB).most_in_flight < MIB / 4
    assert Spool(path, max_bytes=MIB).most_at_once < MIB / 8


def test_file_that_is_deleted_while_it_is_open_is_used_to_its_end(path: Path) -> None:
    """The next start makes a new one; what waited then counts as lost in the crash."""
    counters_path = path.with_name("counters")
    with Counters(counters_path, "recorder") as counters:
        counters.seen(15)
        spool = Spool(path, counters=counters)
        spool.put(rows(b"one", b"two", reads=5))
        for file in path.parent.glob("spool.sqlite*"):
            file.unlink()
        spool.sync()
        assert spool.put(rows(b"three", reads=5)).failure is None
        assert [row.value for row in spool.take(0, MIB)] == [b"one", b"two", b"three"]
        spool.done([spool.take(0, 1)[0].id])
        spool.close()
        spool = Spool(path, counters=counters)
        balance = close_balance_after_crash(spool, counters_path)
        assert spool.put(rows(b"four")).failure is None
        assert [row.value for row in spool.take(0, MIB)] == [b"four"]
        spool.close()
    assert (balance.seen, balance.delivered, balance.waiting, balance.dropped["crash"]) == (15, 5, 0, 10)
