"""The balance of reads: it closes, it survives SIGKILL, and a snapshot is never negative."""

import os
import signal
import subprocess
import sys
import threading
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from streamgauge.spool.read_counters import (
    ROLES,
    Counters,
    DropReason,
    Incident,
    close_balance,
    close_recorder_balance,
    read_balance,
    read_incidents,
)

pytestmark = pytest.mark.slow


def test_nothing_counted_is_all_zero(tmp_path: Path) -> None:
    balance = read_balance(tmp_path / "counters")
    assert (balance.seen, balance.delivered, balance.waiting) == (0, 0, 0)
    assert balance.dropped == {reason.value: 0 for reason in DropReason}
    assert not (tmp_path / "counters").exists()


def test_a_link_that_leads_nowhere_is_moved_aside(tmp_path: Path) -> None:
    path = tmp_path / "counters"
    path.symlink_to(tmp_path / "nowhere")
    script = """
import sys
from pathlib import Path
from streamgauge.spool.read_counters import Counters
Counters(Path(sys.argv[1]), "relay-0").seen(3)
"""
    subprocess.run([sys.executable, "-c", script, str(path)], check=True, timeout=60)
    assert read_balance(path).seen == 3
    assert path.with_name("counters.other-1").is_symlink()
    assert not (tmp_path / "nowhere").exists()


def test_each_role_counts_for_itself_and_the_sum_is_the_balance(tmp_path: Path) -> None:
    path = tmp_path / "counters"
    for number, role in enumerate(ROLES, 1):
        with Counters(path, role) as counters:
            counters.seen(10 * number)
            counters.dropped(DropReason.RECORDER_BEHIND, number)
            counters.delivered(2 * number)
    total = sum(range(1, len(ROLES) + 1))
    balance = read_balance(path)
    assert (balance.seen, balance.delivered, balance.waiting) == (10 * total, 2 * total, 7 * total)
    assert balance.dropped["recorder_behind"] == total
    assert sum(balance.dropped.values()) == total


def test_every_reason_and_incident_has_a_slot_of_its_own(tmp_path: Path) -> None:
    path = tmp_path / "counters"
    with Counters(path, "recorder") as counters:
        for number, reason in enumerate(DropReason, 1):
            counters.dropped(reason, number)
        for number, incident in enumerate(Incident, 100):
            counters.happened(incident, number)
    assert read_balance(path).dropped == {reason.value: number for number, reason in enumerate(DropReason, 1)}
    assert read_incidents(path) == {incident.value: number for number, incident in enumerate(Incident, 100)}
    assert read_balance(path).seen == 0


def test_unknown_role_is_refused(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="relay-99"):
        Counters(tmp_path / "counters", "relay-99")


def test_the_file_is_private_and_values_stay(tmp_path: Path) -> None:
    path = tmp_path / "counters"
    with Counters(path, "relay-0") as counters:
        counters.seen(3)
    with Counters(path, "relay-0") as counters:
        counters.seen(4)
    assert read_balance(path).seen == 7
    assert sorted(str(file.relative_to(tmp_path)) for file in tmp_path.rglob("*")) == [
        "counters",
        "responses",
        "responses/relay-0",
    ]
    assert [file.stat().st_mode & 0o077 for file in tmp_path.rglob("*")] == [0, 0, 0]


@pytest.mark.parametrize("content", [b"", b"SGCOUNT0" + bytes(100), b"x" * 8712, os.urandom(50_000)])
def test_another_layout_is_moved_aside(tmp_path: Path, content: bytes) -> None:
    path = tmp_path / "counters"
    path.write_bytes(content)
    assert read_balance(path).seen == 0
    with Counters(path, "relay-0") as counters:
        counters.seen(5)
    assert read_balance(path).seen == 5
    assert (tmp_path / "counters.other-1").read_bytes() == content


CHILD = """
import sys, pathlib
from streamgauge.spool.read_counters import Counters, DropReason
counters = Counters(pathlib.Path(sys.argv[1]), sys.argv[2])
for _ in range(1000):
    counters.seen()
counters.dropped(DropReason.SPOOL_FULL, 10)
print("counted", flush=True)
sys.stdin.read()
"""


def test_counts_outlive_sigkill(tmp_path: Path) -> None:
    path = tmp_path / "counters"
    children = [
        subprocess.Popen(
            [sys.executable, "-c", CHILD, str(path), role], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
        )
        for role in ("relay-0", "relay-31", "recorder")
    ]
    for child in children:
        with child:
            assert child.stdout is not None
            assert child.stdout.readline() == "counted\n"
            child.send_signal(signal.SIGKILL)
            child.wait()
    assert [child.returncode for child in children] == [-signal.SIGKILL] * 3
    balance = read_balance(path)
    assert (balance.seen, balance.dropped["spool_full"], balance.waiting) == (3000, 30, 2970)


READS = st.integers(0, 1000)


@given(counted=st.tuples(READS, READS, READS), books=st.tuples(READS, READS))
def test_close_balance_uses_the_totals_of_the_spool(
    tmp_path_factory: pytest.TempPathFactory, counted: tuple[int, int, int], books: tuple[int, int]
) -> None:
    path = tmp_path_factory.mktemp("close_balance") / "counters"
    seen, dropped, mirrored = counted
    delivered, waiting = books
    with Counters(path, "relay-0") as relay, Counters(path, "delivery") as delivery:
        relay.seen(seen)
        relay.dropped(DropReason.RECORDER_BEHIND, dropped)
        delivery.delivered(mirrored)
    balance = close_balance(path, delivered, waiting, reason=DropReason.CRASH)
    assert balance.waiting == waiting
    assert balance.delivered == max(delivered, mirrored)
    assert balance.seen == balance.delivered + balance.waiting + sum(balance.dropped.values())
    assert balance.seen >= seen
    assert balance.seen == seen or balance.dropped["crash"] == 0
    assert close_balance(path, balance.delivered, waiting, reason=DropReason.CRASH) == balance


def test_a_snapshot_while_counting_is_never_negative(tmp_path: Path) -> None:
    path = tmp_path / "counters"
    stop = threading.Event()

    def count() -> None:
        with Counters(path, "relay-0") as relay, Counters(path, "delivery") as delivery:
            while not stop.is_set():
                relay.seen(3)
                relay.dropped(DropReason.RECORDER_BEHIND)
                delivery.delivered(2)

    writer = threading.Thread(target=count)
    writer.start()
    try:
        while not read_balance(path).seen:
            pass
        balances = [read_balance(path) for _ in range(300)]
    finally:
        stop.set()
        writer.join()
    assert all(balance.waiting >= 0 for balance in balances)
    assert len({balance.seen for balance in balances}) > 1
    assert read_balance(path).waiting == 0


def test_reads_of_a_killed_recorder_are_dropped(tmp_path: Path) -> None:
    """A relay saw ten reads and handed eight over; two of them reached the spool, one was dropped: five are gone."""
    path = tmp_path / "counters"
    with Counters(path, "relay-0") as relay, Counters(path, "recorder") as recorder:
        relay.seen(10)
        relay.sent_to_recorder(8)
        recorder.dropped(DropReason.SPOOL_FULL, 1)
        close_recorder_balance(path, delivered=1, waiting=1, reason=DropReason.CRASH)
        balance = read_balance(path)
        assert balance.dropped[DropReason.CRASH] == 5
        assert (balance.delivered, balance.waiting) == (1, 2 + 1), "two are with the relay, one is in the spool"
        close_recorder_balance(path, delivered=1, waiting=1, reason=DropReason.CRASH)
        assert read_balance(path) == balance, "settled once"


def test_reads_that_an_ended_recorder_delivered_and_did_not_count_are_delivered(tmp_path: Path) -> None:
    """It was killed between the removal of rows and the count. A spool that was deleted has fewer than were counted."""
    path = tmp_path / "counters"
    with Counters(path, "relay-0") as relay, Counters(path, "recorder") as recorder:
        relay.seen(20)
        relay.sent_to_recorder(20)
        recorder.delivered(6)
    close_recorder_balance(path, delivered=9, waiting=11, reason=DropReason.CRASH)
    balance = read_balance(path)
    assert (balance.delivered, balance.waiting, balance.dropped[DropReason.CRASH]) == (9, 11, 0)
    close_recorder_balance(path, delivered=0, waiting=0, reason=DropReason.CRASH)
    balance = read_balance(path)
    assert (balance.delivered, balance.waiting, balance.dropped[DropReason.CRASH]) == (9, 0, 11)


def test_unsent_reads_of_a_killed_relay_are_dropped(tmp_path: Path) -> None:
    path = tmp_path / "counters"
    with Counters(path, "relay-1") as relay:
        relay.seen(10)
        relay.sent_to_recorder(6)
        relay.dropped(DropReason.RECORDER_BEHIND, 1)
    with Counters(path, "relay-1") as again:
        again.drop_unsent_reads()
        again.drop_unsent_reads()
    assert read_balance(path).dropped[DropReason.CRASH] == 3


def test_closed_balance_is_not_closed_again(tmp_path: Path) -> None:
    path = tmp_path / "counters"
    with Counters(path, "relay-0") as relay:
        relay.seen(10)
        relay.sent_to_recorder(4)
        relay.dropped(DropReason.RECORDER_BEHIND, 2)
    close_balance(path, 1, 1, reason=DropReason.CRASH)
    settled = read_balance(path)
    assert (settled.waiting, settled.dropped[DropReason.CRASH]) == (1, 6)
    with Counters(path, "relay-0") as relay:
        relay.drop_unsent_reads()
    close_recorder_balance(path, delivered=1, waiting=1, reason=DropReason.CRASH)
    assert read_balance(path) == settled
