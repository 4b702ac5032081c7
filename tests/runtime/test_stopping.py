"""A command that gets a stop signal: while it starts, with nothing to wait for, and for the second time."""

import _socket
import asyncio
import contextlib
import http.client
import importlib.machinery
import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from streamgauge.runtime import stopping as stopping_module
from streamgauge.runtime.stopping import SAME_S, StopSignal
from tests.integration.provider import BEGIN, provider
from tests.running import PATIENCE_S, Running, start, start_tap, start_up, wait_for

pytestmark = pytest.mark.slow

# Nothing listens there.
NO_BROKER = "127.0.0.1:1"
# Far less than the drain timeout of 30 s, and much on a busy machine (seconds).
SOON_S = 15.0

COMMANDS = {
    "up": ["up", "--upstream", "http://127.0.0.1:9"],
    "tap": ["tap", "--upstream", "http://127.0.0.1:9", "--kafka", NO_BROKER],
    "agent": ["up", "--agent"],
    "packets": ["up", "packets", "--interface", "lo", "--port", "8000"],
    "worker": ["worker", "--kafka", NO_BROKER],
    "replay": ["replay", os.devnull],
    "demo": ["demo"],
    "topics": ["topics", "describe", "--kafka", NO_BROKER],
    "ledger": ["ledger", "query"],
}


def is_importing(pid: int) -> bool:
    """Whether the process has loaded a module that the command line's own modules import, and Python's start does not."""
    assert any(map(_socket.__file__.endswith, importlib.machinery.EXTENSION_SUFFIXES)), "it is built into this Python"
    return _socket.__file__ in Path(f"/proc/{pid}/maps").read_text()


@pytest.mark.parametrize(("number", "code"), [(signal.SIGINT, 130), (signal.SIGTERM, 0)])
@pytest.mark.parametrize("name", COMMANDS)
def test_f14_a_signal_while_the_command_line_is_imported_leaves_no_traceback(name: str, number: int, code: int) -> None:
    flags = [sys.executable, "-m", "streamgauge", *COMMANDS[name]]
    process = subprocess.Popen(flags, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True, process_group=0)
    try:
        while process.poll() is None and not is_importing(process.pid):
            time.sleep(0.002)  # the rest of some commands' imports takes less than `wait_for` does between two looks
        process.send_signal(number)
        _, errors = process.communicate(timeout=PATIENCE_S)
    finally:
        process.kill()
    assert (process.returncode, errors) == (code, "")


@contextlib.contextmanager
def open_stream(tap: Running) -> Iterator[http.client.HTTPResponse]:
    """A stream that has begun, and goes on when the provider does."""
    with tap.post() as answer:
        assert answer.read(len(BEGIN)) == BEGIN
        yield answer


def stop_again(running: Running, command: str, number: int) -> None:
    """Stop it, then once more while it waits for its stream."""
    running.process.send_signal(number)
    wait_for(lambda: f"{command}: stopping" in running.log, "a word on the stop")
    time.sleep(2 * SAME_S)
    began = time.monotonic()
    assert running.stop(number) == 128 + number
    assert time.monotonic() - began < SOON_S
    assert running.log.count(f"{command}: stopping at once, after a second signal") == 1
    assert "Traceback" not in running.log


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_f14_a_tap_with_nothing_open_and_no_broker_stops_at_once(tmp_path: Path, number: int) -> None:
    data_dir = tmp_path / "data"
    with provider() as small, start_tap("tap", {"small": small.url}, data_dir, "--kafka", NO_BROKER) as tap:
        with open_stream(tap) as answer:
            answer.read()
        wait_for(lambda: tap.metrics()["streamgauge_tap_reads_waiting"] >= 1, "reads in the spool")
        began = time.monotonic()
        assert tap.stop(number) == 0
        assert time.monotonic() - began < SOON_S
        assert f"reads stay in the spool; the next start with --data-dir {data_dir} delivers them" in tap.log
        assert "Traceback" not in tap.log


def test_a_second_signal_ends_up_at_once_and_the_next_start_accounts_for_the_stream(tmp_path: Path) -> None:
    data_dir = tmp_path / "data"
    with provider() as small:
        small.go_on.clear()
        with start_up({"small": small.url}, data_dir) as up, open_stream(up):
            stop_again(up, "up", signal.SIGINT)
        with start_up({"small": small.url}, data_dir) as again:
            [record] = again.wait_for_records(1)
            assert record["outcome"] != "completed"
            page = again.metrics()
            dropped = sum(
                count for name, count in page.items() if name.startswith("streamgauge_tap_reads_dropped_total")
            )
            delivered = page["streamgauge_tap_reads_delivered_total"] + page["streamgauge_tap_reads_waiting"]
            assert page["streamgauge_tap_reads_seen_total"] == delivered + dropped
            assert again.stop() == 0


def test_f14_a_second_signal_ends_a_tap_at_once(tmp_path: Path) -> None:
    data_dir = tmp_path / "data"
    with provider() as small, start_tap("tap", {"small": small.url}, data_dir, "--kafka", NO_BROKER) as tap:
        small.go_on.clear()
        with open_stream(tap):
            stop_again(tap, "tap", signal.SIGTERM)
        assert f"reads stay in the spool until the next start with --data-dir {data_dir}" in tap.log


def test_a_worker_without_a_broker_stops_at_once(tmp_path: Path) -> None:
    flags = ["--kafka", NO_BROKER, "--admin", "127.0.0.1:0", "--data-dir", str(tmp_path / "data")]
    with start("worker", flags, tmp_path / "data") as worker:
        wait_for(lambda: "does not answer" in worker.log, "a word on the broker")
        began = time.monotonic()
        assert worker.stop(signal.SIGINT) == 0
        assert time.monotonic() - began < SOON_S


async def until_ended(codes: list[int]) -> None:
    """Waits for the process's exit, which the test has replaced."""
    async with asyncio.timeout(PATIENCE_S):
        while not codes:  # noqa: ASYNC110 - the signal is handled in a turn of the loop
            await asyncio.sleep(0.01)


def test_the_same_signal_that_comes_twice_at_once_counts_as_one(monkeypatch: pytest.MonkeyPatch) -> None:
    """A terminal and a wrapper such as npm both send a Ctrl-C."""
    lines: list[str] = []
    codes: list[int] = []
    monkeypatch.setattr(os, "_exit", codes.append)

    async def work() -> None:
        stopping = StopSignal("up", lines.append, lambda: "nothing is left")
        stopping.before_exit = lambda: lines.append("cleaned up")
        os.kill(os.getpid(), signal.SIGINT)
        await stopping.stop.wait()
        monkeypatch.setattr(stopping_module, "SAME_S", 3600.0)
        os.kill(os.getpid(), signal.SIGINT)
        await asyncio.sleep(0.5)
        assert (lines, codes) == ([], [])
        monkeypatch.setattr(stopping_module, "SAME_S", 0.0)
        os.kill(os.getpid(), signal.SIGINT)
        await until_ended(codes)

    asyncio.run(work())
    assert codes == [130]
    assert lines == ["up: stopping at once, after a second signal; nothing is left", "cleaned up"]


def test_failing_disk_does_not_prevent_the_exit(monkeypatch: pytest.MonkeyPatch) -> None:
    codes: list[int] = []
    faults: list[dict[str, object]] = []
    monkeypatch.setattr(stopping_module, "SAME_S", 0.0)
    monkeypatch.setattr(os, "_exit", codes.append)

    def left() -> str:
        raise OSError(5, "Input/output error")

    async def work() -> None:
        asyncio.get_running_loop().set_exception_handler(lambda _, context: faults.append(context))
        stopping = StopSignal("up", print, left)
        os.kill(os.getpid(), signal.SIGTERM)
        await stopping.stop.wait()
        os.kill(os.getpid(), signal.SIGTERM)
        await until_ended(codes)

    asyncio.run(work())
    assert (codes, faults) == ([143], [])
