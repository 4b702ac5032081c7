"""The watchdog with a real loop and a real thread. Its last step, the end of the process, is tested in a child."""

import asyncio
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from streamgauge.worker.faults import StuckError
from streamgauge.worker.watchdog.rules import Cause, PartitionProgress, Probe, TopicPartition
from streamgauge.worker.watchdog.watchdog import Watchdog

_STAYS = Probe(True, True, (), {TopicPartition("t", 0): PartitionProgress(1, 2)})

# The child reads what to do, and says `begun` when it does.
_CHILD = """
import asyncio, sys, threading, time
from streamgauge.worker.watchdog.rules import Cause
from streamgauge.worker.process import log_lines_to_stderr
from streamgauge.worker.watchdog.watchdog import Watchdog

async def main():
    dog = Watchdog(blocked_s=8.0)
    dog.count_exit = lambda cause: print("noted", cause.value, flush=True)
    dog.watch("the loop", asyncio.get_running_loop())
    dog.start()
    print("begun", flush=True)
    if sys.argv[1] == "block":
        time.sleep(600)
    elif sys.argv[1] == "turn":
        await asyncio.sleep(float(sys.argv[2]))
        dog.stop()
    elif sys.argv[1] == "linger":
        dog.expect_end(2.0)
        dog.expect_end(600.0)  # called again: the earlier end counts
        threading.Thread(target=time.sleep, args=(600,)).start()

log_lines_to_stderr()
asyncio.run(main())
"""


def child(*arguments: str, stderr: int = subprocess.PIPE) -> "subprocess.Popen[str]":
    process = subprocess.Popen(
        [sys.executable, "-c", _CHILD, *arguments], stdout=subprocess.PIPE, stderr=stderr, text=True
    )
    assert process.stdout is not None
    assert process.stdout.readline() == "begun\n"
    return process


def test_blocked_loop_ends_the_process_with_one_sentence() -> None:
    output, errors = (process := child("block")).communicate(timeout=60)
    assert (process.returncode, output) == (StuckError.exit_code, "noted loop\n")
    (line,) = errors.splitlines()
    assert "the worker is stuck and exits: the loop has been blocked for" in line


def test_full_stderr_does_not_keep_the_process() -> None:
    reading, writing = os.pipe()
    os.set_blocking(writing, False)
    try:
        while True:
            os.write(writing, b"x" * 65536)
    except BlockingIOError:
        os.set_blocking(writing, True)
    with os.fdopen(reading, "rb"), child("block", stderr=writing) as process:
        os.close(writing)
        assert process.wait(60) == StuckError.exit_code


def test_a_thread_that_does_not_end_does_not_keep_the_process_either() -> None:
    output, errors = (process := child("linger")).communicate(timeout=60)
    assert (process.returncode, output) == (StuckError.exit_code, "noted stop\n")
    assert "it did not stop in time" in errors


def test_a_process_that_was_stopped_wakes_no_older_than_it_fell_asleep() -> None:
    process = child("turn", "14")
    process.send_signal(signal.SIGSTOP)
    time.sleep(12)
    process.send_signal(signal.SIGCONT)
    output, errors = process.communicate(timeout=60)
    assert (process.returncode, output, errors) == (0, "", "")


def end_in_order(dog: Watchdog, *, obeys: bool) -> list[StuckError]:
    """Run a loop that is not blocked, with probes that find no progress. Gives the faults that `fail` was called with."""
    faults: list[StuckError] = []

    async def run() -> None:
        dog.watch("the loop", asyncio.get_running_loop())
        dog.start()
        has_failed = asyncio.Event()

        def fail(fault: StuckError) -> None:
            faults.append(fault)
            has_failed.set()

        dog.fail = fail
        while not has_failed.is_set():
            dog.report(_STAYS)
            await asyncio.sleep(0.1)
        if obeys:
            dog.stop()

    asyncio.run(run())
    return faults


def test_stuck_worker_with_a_running_loop_stops_in_order() -> None:
    codes: list[int] = []
    causes: list[Cause] = []
    dog = Watchdog(stuck_s=2.0, end=codes.append)
    dog.count_exit = causes.append
    (fault,) = end_in_order(dog, obeys=True)
    assert "t/0 has stayed at offset 1" in str(fault)
    assert causes == [Cause.COMMIT]
    assert dog.join(20)
    assert codes == []


def test_worker_that_does_not_stop_in_order_is_ended(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("streamgauge.worker.watchdog.watchdog.GRACE_S", 1.0)
    codes: list[int] = []
    dog = Watchdog(stuck_s=2.0, end=codes.append)
    end_in_order(dog, obeys=False)
    assert dog.join(20)
    assert codes == [StuckError.exit_code]


def test_probe_that_does_not_return_is_stuck(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("streamgauge.worker.watchdog.watchdog.PROBE_S", 2.0)
    codes: list[int] = []
    dog = Watchdog(end=codes.append)
    dog.report(Probe(broker_answers=False))
    dog.start()
    assert dog.join(20)
    assert codes == [StuckError.exit_code]
    assert dog.stuck is not None
    assert dog.stuck.cause is Cause.LOOP


def test_closed_loop_is_not_checked() -> None:
    codes: list[int] = []
    dog = Watchdog(blocked_s=1.0, end=codes.append)
    loop = asyncio.new_event_loop()
    dog.watch("the loop", loop)
    loop.close()
    dog.start()
    time.sleep(4)
    dog.stop()
    assert dog.join(20)
    assert codes == []


def test_stopped_watchdog_checks_no_more(tmp_path: Path) -> None:
    dog = Watchdog(end=lambda code: None)
    dog.start()
    dog.stop()
    assert dog.join(20)
