"""The age clock counts the host's running time; a step of the wall clock does not change it while the host runs."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from streamgauge.spool import NewRow, Spool
from streamgauge.spool.read_counters import Counters, read_balance
from streamgauge.spool.row_clock import NOTE_S, Moment, moment

YEAR_S = 366 * 86_400
LIMIT_S = 3600.0


class Host:
    """A host with clocks that a test sets."""

    def __init__(self) -> None:
        self.boot, self.up_s, self.wall_s = 1, 1000, 1_700_000_000

    def now(self) -> Moment:
        return Moment(f"boot-{self.boot}", self.up_s, self.wall_s)

    def runs(self, seconds: int, step_s: int = 0) -> None:
        self.up_s, self.wall_s = self.up_s + seconds, self.wall_s + seconds + step_s

    def reboots(self, down_s: int, step_s: int = 0) -> None:
        self.boot, self.up_s, self.wall_s = self.boot + 1, 5, self.wall_s + down_s + step_s


@pytest.fixture
def host() -> Host:
    return Host()


@pytest.fixture
def spool(tmp_path: Path, host: Host) -> Iterator[Spool]:
    with Counters(tmp_path / "counters", "recorder") as counters:
        spool = Spool(tmp_path / "spool.sqlite", counters=counters, now=host.now)
        yield spool
        spool.close()


def put(spool: Spool) -> None:
    assert spool.put([NewRow(0, 3, b"whole", b"light")]).stored == 1


def test_too_old_reads_are_dropped_and_the_row_stays(spool: Spool, host: Host, tmp_path: Path) -> None:
    put(spool)
    host.runs(1800)
    put(spool)
    host.runs(1801)
    assert spool.drop_old_reads(LIMIT_S) == 3
    assert spool.drop_old_reads(LIMIT_S) == 0
    assert [(row.reads, row.value) for row in spool.take(0, 1000)] == [(0, b"light"), (3, b"whole")]
    assert read_balance(tmp_path / "counters").dropped["too_old"] == 3
    assert spool.waiting().reads == 3


@pytest.mark.parametrize("restarts", [False, True])
@pytest.mark.parametrize("step_s", [3600, -3600, YEAR_S, -YEAR_S])
def test_a_step_of_the_wall_clock_makes_nothing_older(spool: Spool, host: Host, step_s: int, restarts: bool) -> None:
    put(spool)
    host.runs(1000, step_s)
    if restarts:
        spool.close()  # the next call opens the file, as the next process does
    assert spool.drop_old_reads(LIMIT_S) == 0
    put(spool)
    host.runs(2000, -step_s)
    if restarts:
        spool.close()
    assert spool.drop_old_reads(LIMIT_S) == 0
    host.runs(700)
    assert spool.drop_old_reads(LIMIT_S) == 3


def reboot(spool: Spool, host: Host, down_s: int, step_s: int = 0) -> None:
    spool.close()
    host.reboots(down_s, step_s)


def test_what_passed_while_the_host_was_down_counts(spool: Spool, host: Host) -> None:
    put(spool)
    reboot(spool, host, down_s=3700)
    assert spool.drop_old_reads(LIMIT_S) == 3


def test_wall_clock_that_is_late_after_a_boot_changes_no_age(spool: Spool, host: Host) -> None:
    put(spool)
    host.runs(3000)
    put(spool)  # notes the clock
    reboot(spool, host, down_s=0, step_s=-YEAR_S)
    assert spool.drop_old_reads(LIMIT_S) == 0
    host.runs(10, YEAR_S)  # the network sets it right
    assert spool.drop_old_reads(LIMIT_S) == 0
    host.runs(700)
    assert spool.drop_old_reads(LIMIT_S) == 3


def test_a_reboot_costs_no_more_than_what_was_not_noted(spool: Spool, host: Host) -> None:
    put(spool)
    host.runs(3500)
    spool.drop_old_reads(LIMIT_S)
    host.runs(NOTE_S - 1)
    spool.drop_old_reads(LIMIT_S)
    reboot(spool, host, down_s=0)
    host.runs(100 + NOTE_S)
    assert spool.drop_old_reads(LIMIT_S) == 3


def test_a_clock_that_cannot_be_read_begins_at_the_last_row(spool: Spool, host: Host) -> None:
    put(spool)
    host.runs(3000)
    put(spool)
    spool.set("clock", b"rubbish")
    spool.close()
    assert spool.drop_old_reads(LIMIT_S) == 0
    host.runs(700)
    assert spool.drop_old_reads(LIMIT_S) == 3


def test_the_hosts_own_clocks() -> None:
    first, second = moment(), moment()
    assert first.boot == second.boot
    assert second.up_s - first.up_s in (0, 1)
    assert first.up_s < first.wall_s
