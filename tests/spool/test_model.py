"""The spool compared with a list: rows put, taken, dropped, refused or damaged, with restarts in between.

Order in a slot, the balance, the bound, and that nothing comes twice but what was not acknowledged when its deliverer died.
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

from streamgauge.spool import NewRow, Spool, close_balance_after_crash, close_balance_at_restart, cost_of
from streamgauge.spool.read_counters import Counters, DropReason, read_balance
from streamgauge.spool.row_clock import Moment
from streamgauge.spool.sql import STRIP_ROWS

pytestmark = pytest.mark.slow

MIB = 1024 * 1024
MOST = MIB
# SQLite's index of its log: it comes on top.
SHARED_MEMORY = 64 * 1024
MAX_AGE_S = 1000


@dataclass(frozen=True)
class Expected:
    """A row as it should lie there. `whole`: no byte of it was flipped."""

    number: int
    slot: int
    reads: int
    put_s: int
    value: bytes
    whole: bool = True


def lighter(value: bytes) -> bytes:
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
    """Two views of one file, as the tap's two processes have, and a deliverer that remembers what it was given."""

    def __init__(self) -> None:
        super().__init__()
        self.folder = tempfile.TemporaryDirectory()
        self.path = Path(self.folder.name) / "spool.sqlite"
        self.books = self.path.with_name("counters")
        self.of_recorder, self.of_delivery = Counters(self.books, "recorder"), Counters(self.books, "delivery")
        self.boot, self.up_s, self.wall_s, self.age_s = 0, 500, 1_000_000, 0
        self.open_both()
        self.rows: list[Expected] = []
        self.number = self.seen = self.delivered = 0
        self.dropped: Counter[str] = Counter()
        self.after = 0
        self.held: dict[int, int] = {}  # id -> number, taken and not acknowledged
        self.taken = -1  # the highest number that was ever handed out
        self.given: list[tuple[int, int]] = []  # slot and number, as they were handed out
        self.may_repeat: set[int] = set()

    def open_both(self) -> None:
        now = self.now
        self.writer = Spool(self.path, MOST, self.of_recorder, now)
        self.reader = Spool(self.path, MOST, self.of_delivery, now)

    def now(self) -> Moment:
        return Moment(str(self.boot), self.up_s, self.wall_s)

    # --- what a recorder does ---------------------------------------------------------------------------------------

    def fresh(self, slot: int, reads: int, size: int) -> NewRow:
        value = b"number%06d" % self.number + self.number.to_bytes(4) * (size // 4)
        self.number += 1
        return NewRow(slot, reads, value, vital=not reads)

    @rule(
        kinds=st.lists(st.tuples(st.integers(0, 3), st.integers(0, 9), st.sampled_from([40, 3000, 50_000])), max_size=8)
    )
    def put(self, kinds: list[tuple[int, int, int]]) -> None:
        for kind in kinds:
            self.put_at_once([kind] if kind[2] > 9000 else [kind] * 3)

    def put_at_once(self, kinds: list[tuple[int, int, int]]) -> None:
        first = self.number
        new = [self.fresh(*kind) for kind in kinds]
        room = self.writer.room()
        outcome = self.writer.put(new)
        assert outcome.failure is None
        self.seen += sum(row.reads for row in new)
        self.of_recorder.seen(sum(row.reads for row in new))
        spent = 0
        for place, row in enumerate(new):
            if place in outcome.refused:
                assert spent + cost_of(row.value) > (room.vital if row.vital else room.reads)
                self.drop("spool_full", row.reads)
                self.of_recorder.dropped(DropReason.SPOOL_FULL, row.reads)
            else:
                spent += cost_of(row.value)
                self.rows.append(Expected(first + place, row.slot, row.reads, self.age_s, row.value))

    @rule(want=st.sampled_from([1, 5000, 100_000]), newest=st.booleans())
    def drop_reads_for_space(self, want: int, newest: bool) -> None:
        freed = lost = 0
        for row in self.candidates(newest):
            if freed >= want:
                break
            freed += cost_of(row.value) - cost_of(lighter(row.value)) if row.whole else 0
            lost += self.lighten(row)
        assert self.writer.drop_reads_for_space(want, lighter, newest=newest) == lost
        self.drop("spool_full", lost)

    @rule()
    def drop_old_reads(self) -> None:
        old = []
        for row in self.candidates(newest=False):
            if row.put_s >= self.age_s - MAX_AGE_S:
                break
            old.append(row)
        lost = sum(map(self.lighten, old))
        assert self.writer.drop_old_reads(MAX_AGE_S, lighter) == lost
        self.drop("too_old", lost)

    def candidates(self, newest: bool) -> list[Expected]:
        found = [row for row in self.rows if row.reads and row.number > self.taken]
        return (found[::-1] if newest else found)[:STRIP_ROWS]

    def lighten(self, row: Expected) -> int:
        if not row.whole:
            return 0
        self.rows[self.rows.index(row)] = replace(row, reads=0, value=lighter(row.value))
        return row.reads

    def drop(self, reason: str, reads: int) -> None:
        self.dropped[reason] += reads

    # --- what a deliverer does --------------------------------------------------------------------------------------

    @rule(most=st.sampled_from([1, 10_000, 1_000_000]))
    def take(self, most: int) -> None:
        rows = self.reader.take(self.after, most)
        expected = [row for row in self.rows if row.number > max(self.held.values(), default=-1) or not self.held]
        spoilt = False
        for row in rows:
            while not expected[0].whole:
                spoilt, _ = True, expected.pop(0)
            there = expected.pop(0)
            assert (row.slot, row.reads, row.value) == (there.slot, there.reads, there.value)
            repeated = (row.slot, there.number) in self.given
            assert not repeated or there.number in self.may_repeat
            assert repeated or all(number < there.number for slot, number in self.given if slot == row.slot)
            self.given.append((row.slot, there.number))
            self.held[row.id] = there.number
            self.taken = max(self.taken, there.number)
        while expected and not expected[0].whole:  # it looks as far as the next row that it could give
            spoilt, _ = True, expected.pop(0)
        if spoilt:
            self.lose_what_is_spoilt()
        if rows:
            self.after = rows[-1].id
        assert rows or not expected

    def lose_what_is_spoilt(self) -> None:
        self.drop("spool_damaged", sum(row.reads for row in self.rows if not row.whole))
        self.rows = [row for row in self.rows if row.whole]

    @precondition(lambda self: self.held)
    @rule(count=st.integers(1, 10), refused=st.booleans())
    def acknowledge(self, count: int, refused: bool) -> None:
        ids = list(self.held)[:count]
        numbers = {self.held.pop(one) for one in ids}
        reads = sum(row.reads for row in self.rows if row.number in numbers)
        if refused:
            assert self.reader.discard(ids, DropReason.REFUSED) == reads
            self.drop("refused", reads)
        else:
            assert self.reader.done(ids) == reads
            self.delivered += reads
        assert self.reader.done(ids) == 0
        self.rows = [row for row in self.rows if row.number not in numbers]

    # --- what goes wrong --------------------------------------------------------------------------------------------

    @rule()
    def deliverer_dies(self) -> None:
        self.may_repeat |= set(self.held.values())
        self.reader.close()
        self.reader = Spool(self.path, MOST, self.of_delivery, self.now)
        self.after, self.held = 0, {}

    @rule()
    def recorder_dies(self) -> None:
        self.of_recorder.sent_to_recorder(0)
        self.writer.close()
        self.writer = Spool(self.path, MOST, self.of_recorder, self.now)

    @rule()
    def all_die(self) -> None:
        self.deliverer_dies()
        self.recorder_dies()
        balance = close_balance_after_crash(self.writer, self.books)
        self.lose_what_is_spoilt()
        assert balance.dropped["crash"] == 0
        assert balance.waiting == sum(row.reads for row in self.rows)
        close_balance_at_restart(self.writer, self.books)

    @rule(seconds=st.sampled_from([0, 70, 600, 2000]), step=st.sampled_from([0, 3600, -3600, 366 * 86_400]))
    def time_passes_and_the_wall_clock_steps(self, seconds: int, step: int) -> None:
        self.up_s, self.wall_s = self.up_s + seconds, self.wall_s + seconds + step
        self.age_s += seconds

    @rule(reads=st.integers(1, 5))
    def the_disk_takes_nothing(self, reads: int) -> None:
        with disk_that_takes_nothing():
            outcome = self.writer.put([NewRow(0, reads, b"x" * 5000)])
            assert outcome.failure is not None or list(outcome.refused) == [
                0
            ]  # where there is no room nothing is written
            assert self.writer.drop_reads_for_space(1, lighter, newest=False) == 0
            assert self.reader.done(list(self.held)) == 0
        self.seen += reads
        self.of_recorder.seen(reads)
        self.of_recorder.dropped(DropReason.SPOOL_FAILED, reads)
        self.drop("spool_failed", reads)

    @precondition(lambda self: any(row.whole and row.number not in self.held.values() for row in self.rows))
    @rule(which=st.integers(0, 1000))
    def a_byte_flips(self, which: int) -> None:
        whole = [row for row in self.rows if row.whole and row.number > self.taken]
        if not whole:
            return
        row = whole[which % len(whole)]
        self.writer.close()
        self.reader.close()  # the last one out brings the log into the file
        content = bytearray(self.path.read_bytes())
        at = content.find(row.value[:12])
        while at >= 0:
            content[at + 7] ^= 1
            at = content.find(row.value[:12], at + 1)
        self.path.write_bytes(content)
        self.rows[self.rows.index(row)] = replace(row, whole=False)

    # --- what always holds ------------------------------------------------------------------------------------------

    def in_file(self) -> list[tuple[int, int, bytes]]:
        with contextlib.closing(sqlite3.connect(self.path)) as file:
            return file.execute("SELECT slot, reads, value FROM rows ORDER BY id").fetchall()

    @invariant()
    def the_file_holds_what_it_should_and_the_books_balance(self) -> None:
        if not self.path.exists():
            return
        found = self.in_file()
        assert [row[:2] for row in found] == [(row.slot, row.reads) for row in self.rows]
        assert [row[2] for row, one in zip(found, self.rows, strict=True) if one.whole] == [
            row.value for row in self.rows if row.whole
        ]
        waiting = self.writer.waiting()
        assert (waiting.rows, waiting.reads) == (len(self.rows), sum(row.reads for row in self.rows))
        balance = read_balance(self.books)
        assert balance.seen == self.seen == balance.delivered + balance.waiting + sum(balance.dropped.values())
        assert (balance.delivered, balance.waiting) == (self.delivered, waiting.reads)
        assert {reason: reads for reason, reads in balance.dropped.items() if reads} == +self.dropped
        on_disk = {file.name: file.stat().st_size for file in self.path.parent.glob("spool.sqlite*")}
        assert sum(on_disk.values()) <= MOST + SHARED_MEMORY, on_disk

    def teardown(self) -> None:
        for one in (self.writer, self.reader, self.of_recorder, self.of_delivery):
            one.close()
        self.folder.cleanup()


TestModel = Model.TestCase
TestModel.settings = settings(stateful_step_count=30)
