"""A power cut at any moment: what a copy of the files holds then, also without the writes that the disk did not have yet.

A process puts, delivers and syncs rows. It is stopped at random moments (SIGSTOP, so also inside a transaction), and its
files are copied. From some copies the end of SQLite's log is removed, from a random place after the last sync on.
"""

import os
import random
import shutil
import signal
import subprocess
import sys
import time
import zlib
from collections.abc import Iterator
from contextlib import closing, contextmanager
from pathlib import Path

import msgspec
import pytest

from streamgauge.spool import NewRow, Spool, close_balance_after_crash
from streamgauge.spool.read_counters import Counters

pytestmark = pytest.mark.slow

MIB = 1024 * 1024
MOST = 16 * MIB
COPIES = 30
# SQLite's log: its header, a frame, and where the index beside it has the number of valid frames.
WAL_HEADER, FRAME, FRAMES = 32, 24 + 4096, slice(16, 20)


class Synced(msgspec.Struct):
    """The state after a sync: rows that were put, the valid end of the log, and checksums of its header and the database."""

    put: int
    log_end: int
    log_header: int
    database: int


def use(path: Path, seed: int) -> None:
    """Put, deliver and sync rows for ever. The file `log` gets a line after each sync, and before each delivery."""
    chance = random.Random(seed)
    counters = Counters(path.with_name("counters"), "recorder")
    spool = Spool(path, MOST, counters)
    put = done = 0
    with path.with_name("log").open("ab", buffering=0) as log:
        while True:
            for _ in range(chance.randrange(1, 20)):
                reads, name = chance.randrange(5), b"%08d" % put
                counters.seen(reads)
                value = name + chance.randbytes(chance.choice([50, 300, 3000, 20_000]))
                assert spool.put([NewRow(0, reads, value, name)], policy="drop-oldest").stored == 1
                put += 1
            if chance.random() < 0.5:
                rows = spool.take(0, 30_000)
                done += len(rows)
                log.write(b"%d\n" % done)
                spool.done([row.id for row in rows])
            spool.sync()
            log.write(msgspec.json.encode(state_of(path, put)) + b"\n")


def state_of(path: Path, put: int) -> Synced:
    frames = int.from_bytes(path.with_name("spool.sqlite-shm").read_bytes()[FRAMES], sys.byteorder)
    with path.with_name("spool.sqlite-wal").open("rb") as wal:
        header = wal.read(WAL_HEADER)
    return Synced(put, WAL_HEADER + frames * FRAME, zlib.crc32(header), zlib.crc32(path.read_bytes()))


@contextmanager
def stopped(process: subprocess.Popen[bytes]) -> Iterator[None]:
    process.send_signal(signal.SIGSTOP)
    while "T" not in Path(f"/proc/{process.pid}/stat").read_text().rsplit(")", 1)[1].split()[0]:
        time.sleep(0.001)
    try:
        yield
    finally:
        process.send_signal(signal.SIGCONT)


def cut(path: Path, synced: Synced, chance: random.Random) -> bool:
    """Remove the end of the log, where the disk may not have had it. Whether something was removed."""
    wal = path.with_name("spool.sqlite-wal")
    with wal.open("r+b") as log:
        since = zlib.crc32(log.read(WAL_HEADER)), zlib.crc32(path.read_bytes())
        size = log.seek(0, os.SEEK_END)
        if since != (synced.log_header, synced.database) or size <= synced.log_end:
            return False  # a checkpoint has forced the log to the disk
        end = chance.randrange(synced.log_end, size)
        log.truncate(end)
        if chance.random() < 0.5:
            log.truncate(size)  # zeros: the disk had the file's size and not its content
    return True


@pytest.mark.parametrize("seed", range(2))
def test_a_copy_at_any_moment_opens_and_has_each_synced_row(tmp_path: Path, seed: int) -> None:
    chance = random.Random(seed)
    data = tmp_path / "data"
    data.mkdir()
    command = [sys.executable, "-c", f"from {__name__} import *; use(Path({str(data / 'spool.sqlite')!r}), {seed})"]
    cuts = 0
    with subprocess.Popen(command, cwd=Path(__file__).parents[2]) as process:
        try:
            while not (data / "log").exists() or (data / "log").read_bytes().count(b"{") < 3:
                assert process.poll() is None
                time.sleep(0.01)
            for number in range(COPIES):
                time.sleep(chance.random() * 0.06)
                copy = tmp_path / f"copy-{number}"
                with stopped(process):
                    shutil.copytree(data, copy)
                lines = [line for line in (copy / "log").read_bytes().splitlines(keepends=True) if line.endswith(b"\n")]
                synced = msgspec.json.decode([line for line in lines if line.startswith(b"{")][-1], type=Synced)
                (copy / "spool.sqlite-shm").unlink()
                cuts += cut(copy / "spool.sqlite", synced, chance)
                assert_whole(
                    copy / "spool.sqlite", synced.put, max((int(line) for line in lines if line[:1] != b"{"), default=0)
                )
                shutil.rmtree(copy)
        finally:
            process.kill()
    assert cuts > 2


def assert_whole(path: Path, put: int, done: int) -> None:
    """The rows from one that was not delivered, to one after the last sync: none is missing. The balance is closed."""
    books = path.with_name("counters")
    with Counters(books, "recorder") as counters, closing(Spool(path, MOST, counters)) as spool:
        balance = close_balance_after_crash(spool, books)
        rows = spool.peek(0, 2 * MOST)
        numbers = [int(row.value[:8]) for row in rows]
        assert spool.failure is None
        assert numbers == list(range(numbers[0], numbers[0] + len(numbers)))
        assert numbers[0] <= done
        assert put <= numbers[-1] + 1
        assert balance.waiting == sum(row.reads for row in rows) == spool.waiting().reads
        assert balance.seen == balance.delivered + balance.waiting + sum(balance.dropped.values())
        assert close_balance_after_crash(spool, books) == balance
        assert spool.put([NewRow(0, 1, b"after", b"")]).stored == 1
    assert not list(path.parent.glob("*.damaged-*"))
