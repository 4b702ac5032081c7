"""SIGTERM in the worst moments of each process: when it has just reported that it is ready, in the last moment before it
waits, and while it ends. None is lost, and none ends a process out of order.
"""

import contextlib
import json
import os
import shlex
import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from tests.processes import children
from tests.running import CLEAN, PATIENCE_S, Running, start, wait_for, wait_until_ready
from tests.taps.packets.test_conversation import WHOLE, asking
from tests.taps.packets.wire import Line, pcap

pytestmark = pytest.mark.slow

SOURCE = Path(__file__).with_name("signal_window.c")
UP = ("up", "--upstream", "http://127.0.0.1:9", "--listen", "127.0.0.1:0")

moments = pytest.mark.parametrize("moment", ["written", "wait"])


@pytest.fixture(scope="module")
def window(tmp_path_factory: pytest.TempPathFactory) -> Path:
    compiler = shlex.split(os.environ.get("CC") or "cc")
    if sys.platform != "linux" or shutil.which(compiler[0]) is None:
        pytest.skip("it needs Linux and a C compiler")
    built = tmp_path_factory.mktemp("window") / "signal_window.so"
    subprocess.run([*compiler, "-O1", "-shared", "-fPIC", "-o", str(built), str(SOURCE), "-ldl"], check=True)
    return built


@pytest.fixture
def once(tmp_path: Path) -> Path:
    """The file that the process deletes when it sends itself the signal."""
    file = tmp_path / "once"
    file.touch()
    return file


def at(window: Path, once: Path, process: str, text: str, moment: str) -> dict[str, str]:
    chosen = {"SIGNAL_IN": process, "SIGNAL_AFTER": text, "SIGNAL_AT": moment, "SIGNAL_ONCE": str(once)}
    return {"LD_PRELOAD": str(window), **chosen}


def started(command: list[str], environment: dict[str, str]) -> "subprocess.Popen[bytes]":
    return subprocess.Popen(
        [sys.executable, "-m", *command],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        env={**CLEAN, **environment},
    )


@moments
def test_the_child_of_the_tests(window: Path, once: Path, tmp_path: Path, moment: str) -> None:
    log = tmp_path / "log"
    with started(["tests.group_child"], at(window, once, "tests.group_child", "ready", moment)) as process:
        assert process.stdin is not None
        process.stdin.write(json.dumps({"name": "it", "log": str(log), "does": ["stay"]}).encode() + b"\n")
        process.stdin.flush()
        try:
            assert process.wait(PATIENCE_S) == 0
        finally:
            process.kill()
    assert log.read_text().endswith("it stopped\n")
    assert not once.exists()


@moments
def test_the_simulator(window: Path, once: Path, moment: str) -> None:
    with started(["streamgauge_demo.simulator"], at(window, once, "demo.simulator", "http://", moment)) as process:
        try:
            assert process.wait(PATIENCE_S) == 0
        finally:
            process.kill()
    assert not once.exists()


@pytest.fixture
def capture(tmp_path: Path) -> Path:
    file = tmp_path / "file.pcap"
    file.write_bytes(pcap(Line().open().ask(asking()).answer(*WHOLE).sent))
    return file


COMMANDS = {
    "up": [*UP],
    "agent": ["up", "--agent"],
    "tap": ["tap", "--upstream", "http://127.0.0.1:9", "--listen", "127.0.0.1:0", "--kafka", "127.0.0.1:9"],
    "demo": ["demo", "--serve"],
    "worker": ["worker", "--kafka", "127.0.0.1:9"],
}


@moments
@pytest.mark.parametrize("name", COMMANDS)
def test_a_command(window: Path, once: Path, tmp_path: Path, name: str, moment: str) -> None:
    environment = at(window, once, f"-m streamgauge {COMMANDS[name][0]}", "metrics at", moment)
    with start_command(COMMANDS[name], tmp_path / "data", environment) as running:
        assert running.process.wait(PATIENCE_S) == 0, running.log
    assert "Traceback" not in running.log
    assert not once.exists()


# Each child: a part of its command line, its name in sentences.
CHILDREN = {"collector": ("streamgauge.cli.collector", "collector"), "relay": ("streamgauge.taps.proxy", "relay")}


@moments
@pytest.mark.parametrize("name", CHILDREN)
def test_a_child_ends_in_order_and_is_started_again(
    window: Path, once: Path, tmp_path: Path, name: str, moment: str
) -> None:
    module, called = CHILDREN[name]
    with start_command([*UP], tmp_path / "data", at(window, once, module, "ready", moment)) as running:
        wait_for(lambda: f"the {called}" in running.log, "end of the child")
        wait_until_ready(running)
        assert running.stop() == 0, running.log
    assert f"the {called} ended unexpectedly (exit code 0); restarting it" in running.log
    assert running.log.count("ended unexpectedly") == 1
    assert not once.exists()


@moments
def test_the_packet_tap(window: Path, once: Path, tmp_path: Path, capture: Path, moment: str) -> None:
    environment = at(window, once, "streamgauge.taps.packets", "ready", moment)
    command = ["up", "packets", "--pcap", str(capture), "--port", "8000"]
    with start_command(command, tmp_path / "data", environment) as running:
        assert running.process.wait(PATIENCE_S) == 0, running.log
    assert "signal" not in running.log
    assert not once.exists()


@pytest.mark.parametrize("name", CHILDREN)
def test_a_child_that_gets_signals_until_its_end_ends_in_order(tmp_path: Path, name: str) -> None:
    """Also after its event loop, which puts the default action of a signal back when it is closed."""
    module, called = CHILDREN[name]
    with start_command([*UP], tmp_path / "data", {}) as running:
        wait_until_ready(running)
        pid = next(pid for pid, line in children(running.process.pid).items() if module in line)
        hammer(pid)
        wait_for(lambda: f"the {called}" in running.log, "end of the child")
        assert running.stop() == 0, running.log
    assert f"the {called} ended unexpectedly (exit code 0); restarting it" in running.log


def hammer(pid: int) -> None:
    """Sends SIGTERM until the process has ended."""
    deadline = time.monotonic() + PATIENCE_S
    while time.monotonic() < deadline:
        try:
            os.kill(pid, signal.SIGTERM)
        except ProcessLookupError:
            return
        time.sleep(0.0002)
    raise AssertionError("it does not end")


def start_command(
    command: list[str], data_dir: Path, environment: dict[str, str]
) -> contextlib.AbstractContextManager[Running]:
    places = ["--admin", "127.0.0.1:0", "--data-dir", str(data_dir)]
    return start(command[0], [*command[1:], *places], data_dir, environment)
