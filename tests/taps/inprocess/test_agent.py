"""The agent that an application starts for its taps, with real processes."""

import contextlib
import fcntl
import logging
import os
import signal
import subprocess
import sys
import textwrap
from collections.abc import Iterator
from pathlib import Path

import pytest

from streamgauge.taps.inprocess import agent as agent_module
from streamgauge.taps.inprocess.agent import Agent
from tests.processes import children, runs
from tests.running import CLEAN, PATIENCE_S, start, wait_for, wait_until_ready

pytestmark = pytest.mark.slow

# A port on which no broker listens.
UNREACHABLE = "127.0.0.1:1"
KAFKA = {"STREAMGAUGE_KAFKA": UNREACHABLE, "STREAMGAUGE_ADMIN": "127.0.0.1:0", "STREAMGAUGE_DRAIN_TIMEOUT": "2"}
ENVIRONMENT = {**CLEAN, **KAFKA}


@pytest.fixture
def data_dir(tmp_path: Path) -> Path:
    return tmp_path / "data"


@contextlib.contextmanager
def starting(data_dir: Path, **more: str) -> Iterator[Agent]:
    """An Agent of this process. Two of them behave like those of two processes, since a lock belongs to a file
    descriptor.
    """
    one = Agent(data_dir, {**CLEAN, **KAFKA, **more})
    try:
        yield one
    finally:
        one.close(PATIENCE_S)


def agents() -> list[int]:
    return [pid for pid, line in children(os.getpid()).items() if "streamgauge tap --child" in line]


def the_agent() -> int:
    """The one that was just started: its command line can be read shortly after the fork (execve(2))."""
    wait_for(agents, "an agent")
    [pid] = agents()
    return pid


def started_by(one: Agent) -> int:
    """The agent that was just started and may have ended: then it has no command line any more."""
    assert one._process is not None
    return one._process.pid


def is_there(data_dir: Path) -> bool:
    return (data_dir / "run" / "recorder.sock").exists()


@pytest.mark.parametrize(
    ("environment", "starts"),
    [
        ({}, False),
        ({"STREAMGAUGE_KAFKA": ""}, False),
        ({"STREAMGAUGE_KAFKA": UNREACHABLE}, True),
        ({"STREAMGAUGE_KAFKA": UNREACHABLE, "STREAMGAUGE_AGENT": "external"}, False),
        ({"STREAMGAUGE_KAFKA": UNREACHABLE, "STREAMGAUGE_AGENT": "External "}, False),
        ({"STREAMGAUGE_KAFKA": UNREACHABLE, "STREAMGAUGE_AGENT": ""}, True),
    ],
)
def test_it_is_started_where_there_is_a_broker_to_ship_to(
    environment: dict[str, str], starts: bool, data_dir: Path, caplog: pytest.LogCaptureFixture
) -> None:
    one = Agent(data_dir, environment)
    assert one.may_start is starts
    if not starts:
        one.ensure_started()
        one.ensure_started()
        assert not data_dir.exists()
        [line] = [record.message for record in caplog.records]
        assert line.startswith(
            f"streamgauge: no agent runs at {data_dir}: streams are not affected, and up to 32 MiB of captured data wait in"
            " this process until an agent runs; "
        )


def test_one_process_holds_the_lock_and_another_takes_over(data_dir: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(agent_module, "ATTEMPT_S", 0.0)
    with starting(data_dir) as other:
        with starting(data_dir) as one:
            for _ in range(3):
                one.ensure_started()
                other.ensure_started()
            first = the_agent()
            wait_for(lambda: is_there(data_dir), "its recorder")
            other.ensure_started()
            assert agents() == [first]
        assert not runs(first), "it ended with the process that started it"
        assert not is_there(data_dir)
        other.ensure_started()
        wait_for(lambda: is_there(data_dir), "the next one's recorder")
        assert len(agents()) == 1
    assert agents() == []


def test_an_agent_that_another_process_started_is_left_running(data_dir: Path) -> None:
    with start("up", ["--agent", "--admin", "127.0.0.1:0", "--data-dir", str(data_dir)], data_dir) as up:
        wait_until_ready(up)
        with starting(data_dir) as one:
            one.ensure_started()
            assert agents() == []
            assert up.get("/health/ready")[0] == 200


def test_a_failure_is_logged_once_and_not_retried_at_once(
    data_dir: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(agent_module, "ATTEMPT_S", 0.0)
    with starting(data_dir, STREAMGAUGE_KAFKA="nonsense") as one:
        for _ in range(2):
            one.ensure_started()
            pid = started_by(one)
            wait_for(lambda pid=pid: not runs(pid), "its end")
        one.ensure_started()
    assert [record.message for record in caplog.records if record.levelno == logging.WARNING] == [
        f"streamgauge: the agent for {data_dir} ended (exit code 2): see its error message above"
    ]


def test_pauses_between_attempts_grow(data_dir: Path) -> None:
    with starting(data_dir, STREAMGAUGE_KAFKA="nonsense") as one:
        one.ensure_started()
        pid = started_by(one)
        wait_for(lambda: not runs(pid), "its end")
        for _ in range(10):
            one.ensure_started()
        assert agents() == []
        assert one._pause_s == 2 * agent_module.ATTEMPT_S


def test_an_unusable_directory_does_not_raise(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    (tmp_path / "file").touch()
    with starting(tmp_path / "file") as one:
        one.ensure_started()
    assert "no agent can be started" in caplog.text
    assert "up to 32 MiB of captured data wait in this process" in caplog.text
    assert agents() == []


def test_an_attempt_that_fails_does_not_keep_the_lock(data_dir: Path) -> None:
    with starting(data_dir) as one:
        data_dir.mkdir(exist_ok=True)
        (data_dir / "lock").symlink_to("nowhere")
        one.ensure_started()
        assert agents() == []
        with (data_dir / "starter.lock").open("rb") as lock:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)


APPLICATION = textwrap.dedent(
    """
    import os, sys, time
    from pathlib import Path
    from streamgauge.taps.inprocess.agent import recorder_unreachable, stop_agents
    recorder_unreachable(Path(sys.argv[1]))
    if sys.argv[2] == "forks":
        os.fork()
    os.write(1, b"%d\\n" % os.getpid())
    sys.stdin.read()
    stop_agents(60)
    """
)


@pytest.mark.parametrize("way", ["alone", "forks"])
def test_an_agent_ends_with_its_application_even_if_that_is_killed(way: str, data_dir: Path) -> None:
    """And a process that it forked keeps neither the agent nor the lock."""
    command = [sys.executable, "-c", APPLICATION, str(data_dir), way]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, env=ENVIRONMENT) as application:
        assert application.stdout is not None
        pids = {int(application.stdout.readline()) for _ in range(2 if way == "forks" else 1)}
        try:
            wait_for(lambda: is_there(data_dir), "the recorder")
            [agent] = [pid for pid, line in children(application.pid).items() if "tap --child" in line]
            application.kill()
            wait_for(lambda: not runs(agent), "the agent's end")
            with starting(data_dir) as next_one:
                next_one.ensure_started()
                assert len(agents()) == 1
        finally:
            for pid in pids - {application.pid}:
                os.kill(pid, signal.SIGKILL)


def test_an_application_that_ends_waits_for_its_agent(data_dir: Path) -> None:
    command = [sys.executable, "-c", APPLICATION, str(data_dir), "alone"]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, env=ENVIRONMENT) as application:
        assert application.stdout is not None
        application.stdout.readline()
        wait_for(lambda: is_there(data_dir), "the recorder")
        [agent] = [pid for pid, line in children(application.pid).items() if "tap --child" in line]
        application.communicate()
        assert application.returncode == 0
        assert not runs(agent)


def test_modules_of_the_applications_directory_are_not_imported_by_the_agent(
    data_dir: Path, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    (tmp_path / "msgspec.py").write_text("raise RuntimeError('of the application')")
    monkeypatch.chdir(tmp_path)
    with starting(data_dir) as one:
        one.ensure_started()
        wait_for(lambda: is_there(data_dir), "the recorder")
