"""The spool keeps rows in order, each once, within its limit, and after SIGKILL; a failing disk raises nothing."""

import os
import signal
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from streamgauge.spool import RESERVE, Failure, NewRow, Spool, close_balance_after_crash
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
    assert spool.put([NewRow(5, 3, b"a"), NewRow(6, 4, b"b", vital=True)]).refused == []
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
    files = ("spool.sqlite", "spool.sqlite-wal", "spool.sqlite-shm", "spool.sqlite.lock")
    assert {file.name: file.stat().st_mode & 0o777 for file in path.parent.iterdir()} == dict.fromkeys(files, 0o600)
    spool.close()
    again = Spool(path)
    assert [row.value for row in again.take(0, MIB)] == [b"a"]
    assert (again.get("instances"), again.get("other")) == (b"x", None)
    assert (again.waiting().rows, again.waiting().reads, again.waiting().value_bytes) == (1, 7, 1)
    again.close()


def disk_bytes(path: Path) -> int:
    return sum(file.stat().st_size for file in path.parent.iterdir())


@pytest.mark.parametrize("size", [10, 3000, 48 * 1024, 300_000])
def test_it_is_bounded_on_disk_and_keeps_a_reserve_for_what_is_vital(path: Path, size: int) -> None:
    spool = Spool(path, max_bytes=32 * MIB)
    value = os.urandom(size)
    batch = 1_000_000 // (size + 100)
    taken = 0
    while len((outcome := spool.put([NewRow(0, 1, value)] * batch)).refused) < batch:
        assert outcome.failure is None
        taken += batch - len(outcome.refused)
    assert taken * (size + 100) > 19 * MIB
    assert disk_bytes(path) <= 32 * MIB
    outcome = spool.put([NewRow(0, 0, b"head", vital=True), NewRow(0, 1, value), NewRow(0, 0, b"end", vital=True)])
    assert list(outcome.refused) == [1]
    vital = 2
    while not (refused := spool.put([NewRow(0, 0, b"heartbeat", vital=True)] * 20).refused):
        vital += 20
    vital += 20 - len(refused)
    assert 200 <= vital <= 32 * MIB * RESERVE
    assert disk_bytes(path) <= 32 * MIB
    assert spool.waiting().rows == taken + vital
    spool.close()


def test_room_comes_back_when_rows_are_done_and_the_disk_gets_its_own(path: Path) -> None:
    spool = Spool(path, max_bytes=32 * MIB)
    value = os.urandom(48 * 1024)
    while not spool.put([NewRow(0, 1, value)] * 10).refused:
        pass
    full = disk_bytes(path)
    everything = [row.id for row in spool.take(0, 64 * MIB)]
    for start in range(0, len(everything) - 20, 10):
        spool.done(everything[start : start + 10])
    assert disk_bytes(path) < full * 0.8  # most is given back although rows remain
    assert spool.put([NewRow(0, 1, value)]).refused == []
    spool.done([row.id for row in spool.take(0, 64 * MIB)])
    assert spool.waiting().rows == 0
    assert disk_bytes(path) < 0.2 * MIB
    spool.close()


PUTTER = """
import sys, pathlib
from streamgauge.spool import NewRow, Spool
spool = Spool(pathlib.Path(sys.argv[1]))
number = 0
while True:
    outcome = spool.put([NewRow(number % 64, 1, b"%d" % number)])
    assert outcome.failure is None, outcome
    print(number, flush=True)
    number += 1
"""


def test_two_processes_at_once_and_sigkill_lose_nothing_that_was_put(path: Path) -> None:
    command = [sys.executable, "-c", PUTTER, str(path)]
    spool = Spool(path)
    values: list[bytes] = []
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as child:
        while len(values) < 500:
            taken = spool.take(0, 1000)
            values += [row.value for row in taken]
            assert spool.done([row.id for row in taken]) == len(taken)
        child.send_signal(signal.SIGKILL)
        assert child.stdout is not None
        words = child.stdout.read().split()
    while taken := spool.take(0, 1000):
        values += [row.value for row in taken]
        spool.done([row.id for row in taken])
    assert values == [b"%d" % number for number in range(len(values))]
    assert len(values) >= len(words)
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


def test_rows_that_cannot_be_read_do_not_keep_others_from_making_space(spool: Spool) -> None:
    """Rows of a later format may be the first ones after an older version was installed again."""
    assert spool.put([NewRow(0, 1, b"later")] * 200 + [NewRow(0, 5, b"known" * 100)] * 3).failure is None
    dropped = spool.drop_reads_for_space(10**6, lambda value: None if value == b"later" else b"-", newest=False)
    assert dropped == 15
