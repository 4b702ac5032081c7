"""SIGKILL at any moment: rows that were put stay, none is counted twice, and the balance is conserved over many lives."""

import random
import signal
import subprocess
import sys
import time
from contextlib import closing
from pathlib import Path

import pytest

from streamgauge.spool import NewRow, Spool, close_balance_after_crash, close_balance_at_restart
from streamgauge.spool.read_counters import Counters, read_balance

pytestmark = pytest.mark.slow

LIVES = 12


def reads_of(number: int) -> int:
    return number % 5


def live(path: Path, number: int) -> None:
    """Put rows for ever, and deliver all but a few."""
    books = path.with_name("counters")
    relay, recorder = Counters(books, "relay-0"), Counters(books, "recorder")
    spool = Spool(path, counters=recorder)
    print("lives", flush=True)
    while True:
        relay.seen(reads_of(number))
        relay.sent_to_recorder(reads_of(number))
        assert spool.put([NewRow(0, reads_of(number), b"%d" % number + bytes(2000), b"%d" % number)]).stored == 1
        number += 1
        if spool.waiting().rows > 20:
            spool.done([row.id for row in spool.take(0, 30_000)])


def test_the_balance_is_conserved_over_kills(tmp_path: Path) -> None:
    path, books = tmp_path / "spool.sqlite", tmp_path / "counters"
    chance = random.Random(1)
    put = 0
    for life in range(LIVES):
        command = [sys.executable, "-c", f"from {__name__} import *; live(Path({str(path)!r}), {put})"]
        with subprocess.Popen(command, cwd=Path(__file__).parents[2], stdout=subprocess.PIPE) as process:
            assert process.stdout is not None
            assert process.stdout.readline() == b"lives\n"
            time.sleep(chance.random() * 0.3)
            process.send_signal(signal.SIGKILL)
        with Counters(books, "relay-0") as relay:
            relay.drop_unsent_reads()
        with Counters(books, "recorder") as counters, closing(Spool(path, counters=counters)) as spool:
            crashed = read_balance(books).dropped["crash"]
            if life % 2:
                close_balance_at_restart(spool, books)
            else:
                close_balance_after_crash(spool, books)
            numbers = [int(row.value[:-2000]) for row in spool.peek(0, 10**9)]
            assert numbers == list(range(numbers[0], numbers[0] + len(numbers))) if numbers else not put
            put = max(numbers, default=-1) + 1
            balance = read_balance(books)
            assert balance.delivered == sum(reads_of(number) for number in range(min(numbers, default=0)))
            assert balance.waiting == sum(reads_of(number) for number in numbers) == spool.waiting().reads
            assert balance.seen == balance.delivered + balance.waiting + sum(balance.dropped.values())
            assert balance.dropped["crash"] - crashed <= 2 * max(map(reads_of, range(5))), (
                "of the row that was being put"
            )
    assert put > 100
    assert balance.delivered > 100
