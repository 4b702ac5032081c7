"""Every file that a run creates is for its user alone: 0600, directories 0700; and no process of it writes a core file."""

import asyncio
import os
import stat
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from streamgauge.kafka.topics import Topics
from tests.integration.provider import Provider, provider
from tests.integration.test_up import ask
from tests.kafka_broker.reading import write_all
from tests.processes import children
from tests.running import CLEAN, Running, command, start, start_tap, wait_for, wait_until_ready

pytestmark = pytest.mark.slow

# An application with the httpx tap: one stream. Its argument is the provider's URL.
APPLICATION = """
import sys, httpx
from streamgauge.taps.httpx import TapTransport
with httpx.Client(transport=TapTransport()) as client:
    with client.stream("POST", sys.argv[1] + "/v1/chat/completions", json={"stream": True}) as answer:
        print(len(answer.read()))
"""


@pytest.fixture
def small() -> Iterator[Provider]:
    with provider() as started:
        yield started


@pytest.fixture(autouse=True)
def usual_umask() -> Iterator[None]:
    """The umask of most systems: what a program does not restrict, every user may read."""
    before = os.umask(0o022)
    yield
    os.umask(before)


@pytest.fixture
def temporary() -> Iterator[Path]:
    """Where a run puts its temporary files. `tmp_path` is too long for the sockets among them."""
    with tempfile.TemporaryDirectory(prefix="files-") as made:
        yield Path(made)


@pytest.fixture
def place(temporary: Path) -> dict[str, str]:
    """The environment of a run."""
    return {"TMPDIR": str(temporary)}


def exposed(*folders: Path) -> list[str]:
    """What others may read, change or enter, with its mode."""
    found = []
    for path in (path for folder in folders for path in (folder, *folder.rglob("*"))):
        mode = path.lstat().st_mode
        if not stat.S_ISLNK(mode) and mode & 0o077:
            found.append(f"{path} {stat.S_IMODE(mode):04o}")
    return found


def names(folder: Path) -> set[str]:
    return {path.relative_to(folder).as_posix() for path in folder.rglob("*")}


def limits_of(running: Running) -> Iterator[str]:
    """The line of the core size in /proc/PID/limits, of a command and its children."""
    for pid in (running.process.pid, *children(running.process.pid)):
        lines = Path(f"/proc/{pid}/limits").read_text().splitlines()
        yield from (line for line in lines if line.startswith("Max core file size"))


def assert_no_core_file(running: Running) -> None:
    if sys.platform == "linux":
        lines = list(limits_of(running))
        assert len(lines) >= 1
        assert all(line.split()[4] == "0" for line in lines), lines


def test_the_files_of_up_while_it_runs_and_after_it(
    small: Provider, tmp_path: Path, temporary: Path, place: dict[str, str]
) -> None:
    data = tmp_path / "data"
    with start_tap(
        "up", {"small": small.url}, tmp_path / "other", "--data-dir", str(data), environment=place
    ) as running:
        ask(running)
        running.data_dir = data
        running.wait_for_records(1)
        found = names(data) | names(temporary)
        assert {"key", "spool.sqlite", "ledger.sqlite", "ledger.sqlite-wal", "state.sqlite"} <= found
        assert any(name.endswith("recorder.sock") for name in found)
        assert exposed(data, temporary) == []
        assert_no_core_file(running)
        assert running.stop() == 0
    assert exposed(data, temporary) == []


def test_the_files_of_an_application_and_its_agent(
    small: Provider, tmp_path: Path, temporary: Path, place: dict[str, str]
) -> None:
    data = tmp_path / "data"
    flags = ["--agent", "--admin", "127.0.0.1:0", "--data-dir", str(data)]
    with start("up", flags, tmp_path / "other", place) as agent:
        wait_until_ready(agent)
        environment = {**CLEAN, **place, "STREAMGAUGE_DATA_DIR": str(data)}
        done = subprocess.run(
            [sys.executable, "-c", APPLICATION, small.url], env=environment, capture_output=True, text=True, check=False
        )
        assert done.returncode == 0, done.stderr
        agent.data_dir = data
        agent.wait_for_records(1)
        assert exposed(data, temporary) == []
        assert_no_core_file(agent)
    assert exposed(data, temporary) == []


@pytest.mark.kafka
def test_the_files_of_a_tap_and_a_worker_with_kafka(
    small: Provider, kafka: str, prefix: str, tmp_path: Path, temporary: Path, place: dict[str, str]
) -> None:
    broker = ("--kafka", kafka, "--topic-prefix", prefix)
    own = ["--admin", "127.0.0.1:0", "--data-dir", str(tmp_path / "worker")]
    with (
        start("worker", [*broker, *own], tmp_path / "other", place) as worker,
        start_tap(
            "tap",
            {"small": small.url},
            tmp_path / "third",
            "--data-dir",
            str(tmp_path / "tap"),
            *broker,
            environment=place,
        ) as tap,
    ):
        wait_until_ready(worker)
        ask(tap)
        asyncio.run(write_all(kafka, Topics(prefix).segments, [(0, b"no bundle")]))
        worker.data_dir = tmp_path / "worker"
        worker.wait_for_records(1)
        assert exposed(tmp_path / "tap", tmp_path / "worker", temporary) == []
        assert_no_core_file(worker)
        assert_no_core_file(tap)
        assert [worker.stop(), tap.stop()] == [0, 0]
    assert exposed(tmp_path / "tap", tmp_path / "worker", temporary) == []


def test_files_that_commands_write_where_they_are_told(small: Provider, tmp_path: Path, place: dict[str, str]) -> None:
    """A ledger at a place of its own, also by `ledger import`, and an export."""
    ours = tmp_path / "ours"
    ours.mkdir(mode=0o700)
    ledger, copy = f"sqlite:///{ours / 'ledger.sqlite'}", f"sqlite:///{ours / 'copy.sqlite'}"
    with start_tap("up", {"small": small.url}, tmp_path / "other", "--ledger", ledger, environment=place) as running:
        ask(running)
        wait_for(lambda: command("ledger", "query", "--ledger", ledger).stdout.count("\n") > 1, "a record")
        done = command("ledger", "export", str(ours / "export.jsonl"), "--ledger", ledger)
        assert done.returncode == 0, done.stderr
        assert exposed(ours) == []
        assert running.stop() == 0
    done = command("ledger", "import", str(ours / "export.jsonl"), "--ledger", copy)
    assert done.returncode == 0, done.stderr
    assert {"ledger.sqlite", "copy.sqlite", "export.jsonl"} <= names(ours)
    assert exposed(ours) == []


def test_the_search_finds_what_is_exposed(tmp_path: Path) -> None:
    tmp_path.chmod(0o700)
    (tmp_path / "inner").mkdir(mode=0o755)
    (tmp_path / "inner" / "file").touch(mode=0o640)
    assert [line.rsplit(" ", 1)[1] for line in exposed(tmp_path)] == ["0755", "0640"]
