"""Processes that take turns: each stands half of the time, and goes on when it is over."""

import contextlib
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

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
        with subprocess.Popen([sys.executable, "-m", "bench.turns", *(str(one.pid) for one in processes)]) as turns:
            for one in processes:
                wait_for(lambda one=one: stands(one), "its pause")  # type: ignore[misc]
                wait_for(lambda one=one: not stands(one), "its turn")  # type: ignore[misc]
            turns.terminate()
        assert not any(map(stands, processes))


def test_it_ends_with_those_that_it_drives() -> None:
    with asleep() as process:
        turns = subprocess.Popen([sys.executable, "-m", "bench.turns", str(process.pid)], stderr=subprocess.DEVNULL)
        process.kill()
        process.wait()
        assert turns.wait(30) != 0
