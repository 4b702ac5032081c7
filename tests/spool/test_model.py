"""The spool compared with a list: rows put, taken, dropped or damaged, with restarts in between.

Order in a slot, the balance, the bound, and that nothing comes twice but what was not acknowledged when the process died.
"""

import contextlib
import resource
import sqlite3
import tempfile
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path

import hypothesis.strategies as st
import pytest
from hypothesis import settings
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from streamgauge.settings.declarations import SpoolPolicy
from streamgauge.spool import NewRow, Spool, close_balance_after_crash, close_balance_at_restart
from streamgauge.spool.read_counters import Counters, DropReason, read_balance
from streamgauge.spool.row_clock import Moment

pytestmark = pytest.mark.slow

MIB = 1024 * 1024
MOST = MIB
# SQLite's index of its log: it comes on top.
SHARED_MEMORY = 64 * 1024
# Reads are only dropped for space if the file has at least this size.
NEARLY_FULL = MOST // 2
MAX_AGE_S = 1000


@dataclass(frozen=True)
class Expected:
    """A row as it should lie there. `whole`: no byte of its value was flipped."""

    number: int
    slot: int
    reads: int
    put_s: int
    value: bytes
    whole: bool = True


def light(value: bytes) -> bytes:
    return value[:12] + b" light"


@contextlib.contextmanager
def disk_that_takes_nothing() -> Iterator[None]:
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (1, hard))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))


class Model(RuleBasedStateMachine):
    """One spool, whose process may die, and a deliverer that remembers what it was given."""

    def __init__(self) -> None:
        super().__init__()
        self.folder = tempfile.TemporaryDirectory()
        self.path = Path(self.folder.name) / "spool.sqlite"
        self.books = self.path.with_name("counters")
        self.counters = Counters(self.books, "recorder")
        self.boot, self.up_s, self.wall_s, self.age_s = 0, 500, 1_000_000, 0
        self.spool = Spool(self.path, MOST, self.counters, self.now)
        assert self.spool.waiting().rows == 0
        self.rows: list[Expected] = []
        self.number = self.seen = self.delivered = 0
        self.dropped: Counter[str] = Counter()
        self.after = 0
        self.held: dict[int, int] = {}  # id -> number, taken and not acknowledged
        self.taken = -1  # the highest number that was ever handed out
        self.given: list[tuple[int, int]] = []  # slot and number, as they were handed out
        self.may_repeat: set[int] = set()

    def now(self) -> Moment:
        return Moment(str(self.boot), self.up_s, self.wall_s)

    # --- what a recorder does ---------------------------------------------------------------------------------------

    @rule(
        kinds=st.lists(
            st.tuples(st.integers(0, 3), st.integers(0, 9), st.sampled_from([40, 3000, 50_000, 100_000])), max_size=8
        ),
        policy=st.sampled_from(["drop-newest", "drop-oldest"]),
    )
    def put(self, kinds: list[tuple[int, int, int]], policy: SpoolPolicy) -> None:
        for kind in kinds:
            self.put_at_once([kind] if kind[2] > 9000 else [kind] * 3, policy)

    def put_at_once(self, kinds: list[tuple[int, int, int]], policy: SpoolPolicy) -> None:
        new = [self.fresh(number, *kind) for number, kind in enumerate(kinds, self.number)]
        room = self.spool.waiting().file_bytes
        result = self.spool.put(
            [NewRow(row.slot, row.reads, row.value, light(row.value)) for row in new], policy=policy
        )
        assert result.failure is None
        assert room > NEARLY_FULL or result.stored == len(new)
        new = new[: result.stored]
        self.number += len(new)
        self.see(sum(row.reads for row in new))
        there = [reads for _, reads, _ in self.in_file()]
        mine = self.rows + new
        assert len(there) == len(mine)
        lost = [row for row, reads in zip(mine, there, strict=True) if row.reads and not reads]
        for_itself = [row for row in lost if row in new]
        others = [row for row in lost if row not in new]
        assert room > NEARLY_FULL or not others
        assert room > NEARLY_FULL or all(len(row.value) > 60_000 for row in for_itself), "larger than a transaction"
        candidates = [row for row in self.rows if row.reads and row.number > self.taken]
        some = len(others)
        assert others == (candidates[:some] if policy == "drop-oldest" else candidates[len(candidates) - some :])
        for row in lost:
            self.drop("spool_full", row.reads)
        gone = {row.number for row in lost}
        self.rows = [self.lighter(row) if row.number in gone else row for row in mine]

    def see(self, reads: int) -> None:
        self.seen += reads
        self.counters.seen(reads)
        self.counters.sent_to_recorder(reads)

    def fresh(self, number: int, slot: int, reads: int, size: int) -> Expected:
        value = b"number%06d" % number + number.to_bytes(4) * (size // 4)
        return Expected(number, slot, reads, self.age_s, value)

    @rule()
    def drop_old_reads(self) -> None:
        old = [row for row in self.rows if row.reads and row.number > self.taken and row.put_s < self.age_s - MAX_AGE_S]
        lost = sum(row.reads for row in old)
        assert self.spool.drop_old_reads(MAX_AGE_S) == lost
        self.rows = [self.lighter(row) if row in old else row for row in self.rows]
        self.drop("too_old", lost)

    def lighter(self, row: Expected) -> Expected:
        return replace(row, reads=0, value=light(row.value), whole=True)

    def drop(self, reason: str, reads: int) -> None:
        self.dropped[reason] += reads

    # --- what a deliverer does --------------------------------------------------------------------------------------

    @rule(most=st.sampled_from([1, 10_000, 1_000_000]))
    def take(self, most: int) -> None:
        rows = self.spool.take(self.after, most)
        expected = [row for row in self.rows if row.number > max(self.held.values(), default=-1) or not self.held]
        damaged: list[Expected] = []
        for row in rows:
            while not expected[0].whole:
                damaged.append(expected.pop(0))
            there = expected.pop(0)
            assert (row.slot, row.reads, row.value) == (there.slot, there.reads, there.value)
            repeated = (row.slot, there.number) in self.given
            assert not repeated or there.number in self.may_repeat
            assert repeated or all(number < there.number for slot, number in self.given if slot == row.slot)
            self.given.append((row.slot, there.number))
            self.held[row.id] = there.number
            self.taken = max(self.taken, there.number)
        while expected and not expected[0].whole:  # it looks as far as the next row that it could give
            damaged.append(expected.pop(0))
        self.drop("spool_damaged", sum(row.reads for row in damaged))
        self.rows = [row for row in self.rows if row not in damaged]
        if rows:
            self.after = rows[-1].id
        assert rows or not expected

    @precondition(lambda self: self.held)
    @rule(count=st.integers(1, 10), refused=st.booleans())
    def acknowledge(self, count: int, refused: bool) -> None:
        ids = list(self.held)[:count]
        numbers = {self.held.pop(one) for one in ids}
        reads = sum(row.reads for row in self.rows if row.number in numbers)
        if refused:
            assert self.spool.discard(ids, DropReason.REFUSED) == reads
            self.drop("refused", reads)
        else:
            assert self.spool.done(ids) == reads
            self.delivered += reads
        assert self.spool.done(ids) == 0
        self.rows = [row for row in self.rows if row.number not in numbers]

    # --- what goes wrong --------------------------------------------------------------------------------------------

    @rule(all_end=st.booleans())
    def the_process_dies(self, all_end: bool) -> None:
        self.may_repeat |= set(self.held.values())
        self.after, self.held = 0, {}
        self.spool.close()
        self.spool = Spool(self.path, MOST, self.counters, self.now)
        before = read_balance(self.books)
        if all_end:
            assert close_balance_after_crash(self.spool, self.books) == before
        else:
            close_balance_at_restart(self.spool, self.books)
        assert read_balance(self.books) == before
        assert before.waiting == sum(row.reads for row in self.rows)

    @rule(seconds=st.sampled_from([0, 70, 600, 2000]), step=st.sampled_from([0, 3600, -3600, 366 * 86_400]))
    def time_passes_and_the_wall_clock_steps(self, seconds: int, step: int) -> None:
        self.up_s, self.wall_s = self.up_s + seconds, self.wall_s + seconds + step
        self.age_s += seconds

    @rule(reads=st.integers(1, 5))
    def the_disk_takes_nothing(self, reads: int) -> None:
        with disk_that_takes_nothing():
            result = self.spool.put([NewRow(0, reads, b"x" * 5000, b"x")])
            assert result.failure is not None
            assert self.spool.drop_old_reads(0) == 0
            assert self.spool.done(list(self.held)) == 0
        self.see(reads)
        self.counters.dropped(DropReason.SPOOL_FAILED, reads)
        self.drop("spool_failed", reads)

    @rule(which=st.integers(0, 1000))
    def a_byte_flips(self, which: int) -> None:
        whole = [row for row in self.rows if row.whole and row.reads and row.number > self.taken]
        if not whole:
            return
        row = whole[which % len(whole)]
        self.spool.close()  # that brings the log into the file
        content = bytearray(self.path.read_bytes())
        at = content.find(row.value[:16])
        while at >= 0:
            content[at + 7] ^= 1
            at = content.find(row.value[:16], at + 1)
        self.path.write_bytes(content)
        self.rows[self.rows.index(row)] = replace(row, whole=False)

    # --- what always holds ------------------------------------------------------------------------------------------

    def in_file(self) -> list[tuple[int, int, bytes]]:
        with contextlib.closing(sqlite3.connect(self.path)) as file:
            return file.execute("SELECT slot, reads, value FROM rows ORDER BY id").fetchall()

    @invariant()
    def the_file_holds_what_it_should_and_the_books_balance(self) -> None:
        found = self.in_file()
        assert [row[:2] for row in found] == [(row.slot, row.reads) for row in self.rows]
        assert [row[2] for row, one in zip(found, self.rows, strict=True) if one.whole] == [
            row.value for row in self.rows if row.whole
        ]
        waiting = self.spool.waiting()
        assert (waiting.rows, waiting.reads) == (len(self.rows), sum(row.reads for row in self.rows))
        balance = read_balance(self.books)
        assert balance.seen == self.seen == balance.delivered + balance.waiting + sum(balance.dropped.values())
        assert (balance.delivered, balance.waiting) == (self.delivered, waiting.reads)
        assert {reason: reads for reason, reads in balance.dropped.items() if reads} == +self.dropped
        on_disk = {file.name: file.stat().st_size for file in self.path.parent.glob("spool.sqlite*")}
        assert sum(on_disk.values()) <= MOST + SHARED_MEMORY, on_disk

    def teardown(self) -> None:
        self.spool.close()
        self.counters.close()
        self.folder.cleanup()


TestModel = Model.TestCase
TestModel.settings = settings(stateful_step_count=30)
