"""Processes that take turns: each stands half of the time, and goes on when it is over."""

import contextlib
import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from bench.turns import take_turns
from bench.worker_kafka import AmissError
from bench.worker_readers import taking_turns

from tests.processes import children
from tests.running import wait_for


def stands(process: "subprocess.Popen[bytes]") -> bool:
    stat = Path(f"/proc/{process.pid}/stat").read_text()
    return stat.rpartition(")")[2].split()[0] == "T"


@contextlib.contextmanager
def asleep() -> Iterator["subprocess.Popen[bytes]"]:
    with subprocess.Popen([sys.executable, "-c", "import time; time.sleep(600)"]) as process:
        try:
            yield process
        finally:
            process.kill()


@pytest.mark.parametrize("count", [1, 2])
def test_they_go_by_turns_and_on_at_the_end(count: int) -> None:
    with contextlib.ExitStack() as stack:
        processes = [stack.enter_context(asleep()) for _ in range(count)]
        command = [sys.executable, "-m", "bench.turns", *(str(one.pid) for one in processes)]
        with subprocess.Popen(command, stdout=subprocess.PIPE) as turns:
            assert turns.stdout is not None
            assert turns.stdout.readline() == b"ready\n"
            for one in processes:
                wait_for(lambda one=one: stands(one), "its pause")  # type: ignore[misc]
                wait_for(lambda one=one: not stands(one), "its turn")  # type: ignore[misc]
            turns.terminate()
        assert not any(map(stands, processes))


def test_one_stands_while_the_other_goes(monkeypatch: pytest.MonkeyPatch) -> None:
    """Pids that are nobody's: what is sent is only noted."""
    sent: list[tuple[str, int] | str] = []

    def pause(_: float) -> None:
        sent.append("pause")
        if sent.count("pause") == 3:
            raise InterruptedError

    monkeypatch.setattr(os, "kill", lambda pid, number: sent.append((signal.Signals(number).name, pid)))
    monkeypatch.setattr(time, "sleep", pause)
    with pytest.raises(InterruptedError):
        take_turns([1, 2])
    one, other = [("SIGCONT", 1), ("SIGSTOP", 2), "pause"], [("SIGSTOP", 1), ("SIGCONT", 2), "pause"]
    assert sent == [*one, *other, *one]


def test_it_ends_with_those_that_it_drives() -> None:
    with asleep() as process:
        turns = subprocess.Popen(
            [sys.executable, "-m", "bench.turns", str(process.pid)],
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
        )
        try:
            assert turns.stdout is not None
            assert turns.stdout.readline() == b"ready\n"
            wait_for(lambda: stands(process), "its pause")
            process.kill()
            process.wait()
            _, said = turns.communicate(timeout=30)
            assert turns.returncode == 1
            assert said.splitlines()[-1].startswith(b"ProcessLookupError")
        finally:
            turns.kill()
            turns.communicate()


def test_who_relies_on_turns_knows_that_they_are_taken() -> None:
    with asleep() as process, taking_turns([process.pid]):
        wait_for(lambda: stands(process), "its pause")
    with asleep() as process, pytest.raises(AmissError, match="to the end"), taking_turns([process.pid]):
        pid = next(pid for pid, line in children(os.getpid()).items() if "bench.turns" in line)
        os.kill(pid, signal.SIGTERM)
        os.waitid(os.P_PID, pid, os.WEXITED | os.WNOWAIT)  # it has ended, and its exit code is still to be asked for


def test_turns_that_do_not_begin_are_no_turns(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "executable", "/bin/false")
    with pytest.raises(AmissError, match="do not begin"), taking_turns([]):
        pass
