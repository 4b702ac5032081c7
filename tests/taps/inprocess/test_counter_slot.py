"""Each process counts in its own slot, and reads held by a process that was killed are counted as lost."""

import os
import shutil
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from streamgauge.errors import Unavailable
from streamgauge.spool.read_counters import (
    MAX_APPS,
    DropReason,
    close_app_balances,
    close_balance,
    read_balance,
    read_incidents,
)
from streamgauge.taps.inprocess.counter_slot import CounterSlot, TooManyError

pytestmark = pytest.mark.slow

KILLED = """
import os, signal, sys
from pathlib import Path
from streamgauge.taps.inprocess.counter_slot import CounterSlot
role = CounterSlot(Path(sys.argv[1]))
role.counters.seen(10)
role.counters.sent_to_recorder(4)
role.counters.dropped("recorder_behind", 1)
os.kill(os.getpid(), signal.SIGKILL)
"""


def killed_application(data_dir: Path) -> None:
    """One that saw 10 reads, sent 4 to the recorder and dropped 1."""
    done = subprocess.run([sys.executable, "-c", KILLED, str(data_dir)], check=False)
    assert done.returncode == -signal.SIGKILL


def test_each_role_has_its_own_slot_which_is_used_again(tmp_path: Path) -> None:
    one, two = CounterSlot(tmp_path), CounterSlot(tmp_path)
    one.counters.seen(3)
    two.counters.seen(4)
    assert read_balance(tmp_path / "counters").seen == 7
    assert sorted(path.name for path in (tmp_path / "apps").iterdir()) == ["0.lock", "1.lock"]
    one.close()
    again = CounterSlot(tmp_path)
    assert len(list((tmp_path / "apps").iterdir())) == 2
    again.close()
    two.close()


def test_the_directory_is_made_and_private(tmp_path: Path) -> None:
    role = CounterSlot(tmp_path / "new" / "data")
    assert (tmp_path / "new" / "data" / "apps").stat().st_mode & 0o777 == 0o700
    assert (tmp_path / "new" / "data" / "apps" / "0.lock").stat().st_mode & 0o777 == 0o600
    role.close()


def test_reads_held_by_a_killed_process_are_lost_when_its_role_is_taken_again(tmp_path: Path) -> None:
    killed_application(tmp_path)
    assert read_balance(tmp_path / "counters").waiting == 9
    role = CounterSlot(tmp_path)
    balance = read_balance(tmp_path / "counters")
    assert (balance.seen, balance.waiting, balance.dropped["crash"]) == (10, 4, 5)
    role.close()


def test_they_are_lost_also_when_a_tap_starts(tmp_path: Path) -> None:
    killed_application(tmp_path)
    living = CounterSlot(tmp_path)  # the same role: what it held before is counted by now
    living.counters.seen(7)
    killed_application(tmp_path)
    close_app_balances(tmp_path / "counters")
    balance = read_balance(tmp_path / "counters")
    assert (balance.seen, balance.waiting, balance.dropped["crash"]) == (27, 15, 10)
    close_app_balances(tmp_path / "counters")
    assert read_balance(tmp_path / "counters") == balance
    living.close()


def test_a_tap_that_starts_ignores_what_a_running_process_holds(tmp_path: Path) -> None:
    """Eight reads were sent to the recorder; the spool has delivered five of them and holds one."""
    living, path = CounterSlot(tmp_path), tmp_path / "counters"
    living.counters.seen(20)
    living.counters.dropped(DropReason.RECORDER_BEHIND, 2)
    living.counters.sent_to_recorder(8)
    balance = close_balance(path, 5, 1, reason=DropReason.CRASH)
    assert (balance.seen, balance.delivered, balance.dropped["crash"]) == (20, 5, 2)
    assert balance.waiting == 1 + (20 - 2 - 8)
    assert close_balance(path, 5, 1, reason=DropReason.CRASH) == balance
    living.close()


def test_processes_beyond_the_last_slot_are_refused_and_counted(tmp_path: Path) -> None:
    roles = [CounterSlot(tmp_path) for _ in range(MAX_APPS)]
    for count in (1, 2):
        with pytest.raises(TooManyError, match=str(tmp_path)):
            CounterSlot(tmp_path)
        assert read_incidents(tmp_path / "counters")["app_refused"] == count
    for role in roles:
        role.close()
    CounterSlot(tmp_path).close()


def test_a_directory_that_was_created_again_is_another(tmp_path: Path) -> None:
    data = tmp_path / "data"
    role = CounterSlot(data)
    assert role.is_current
    shutil.rmtree(data)
    assert not role.is_current
    other = CounterSlot(data)
    assert other.is_current
    assert not role.is_current
    role.close()
    other.close()


def test_an_unusable_directory_gives_no_slot(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(Unavailable, match="it is not a directory"):
        CounterSlot(tmp_path / "file")
    (tmp_path / "open").mkdir()
    (tmp_path / "open").chmod(0o777)
    with pytest.raises(Unavailable, match=r"every user of this host can change the data directory .* \(mode 0777\)"):
        CounterSlot(tmp_path / "open")
    (tmp_path / "data" / "counters").mkdir(parents=True)
    before = os.dup(0)  # the lowest free number
    os.close(before)
    with pytest.raises(OSError):
        CounterSlot(tmp_path / "data")
    after = os.dup(0)
    os.close(after)
    assert after == before  # no descriptor was left open


def test_a_symbolic_link_in_place_of_a_lock_is_not_followed(tmp_path: Path) -> None:
    (tmp_path / "apps").mkdir()
    (tmp_path / "apps" / "0.lock").symlink_to(tmp_path / "made")
    with pytest.raises(OSError, match="symbolic links"):
        CounterSlot(tmp_path)
    close_app_balances(tmp_path / "counters")
    assert not (tmp_path / "made").exists()
