"""The process's senders: one for each data directory, a forked child's own, and nothing left at the end."""

import os
import subprocess
import sys
import textwrap
from collections.abc import Iterator
from pathlib import Path

import pytest

from streamgauge.recorder.protocol import ExchangeEnding, Message
from streamgauge.taps.inprocess import background_senders
from streamgauge.taps.inprocess.background_senders import finish, sender_of
from tests.taps.inprocess.rig import PATIENCE_S, balance_of, recorder_at, report_stream
from tests.taps.proxy.rig import arrived
from tests.taps.talk import BODY, EVENTS

pytestmark = pytest.mark.slow


@pytest.fixture(autouse=True)
def no_senders_stay() -> Iterator[None]:
    yield
    background_senders.end()


def test_one_sender_for_each_data_directory(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("STREAMGAUGE_DATA_DIR", str(tmp_path / "a"))
    one = sender_of()
    assert sender_of(None) is sender_of(tmp_path / "a") is sender_of(str(tmp_path / "a")) is one
    assert sender_of(tmp_path / "b") is not one
    monkeypatch.setenv("STREAMGAUGE_DATA_DIR", str(tmp_path / "b"))
    assert sender_of() is sender_of(tmp_path / "b")
    assert not (tmp_path / "a").exists()  # nothing happens before the first stream


def test_finish_sends_what_was_reported_and_more_may_follow(tmp_path: Path) -> None:
    with recorder_at(tmp_path) as recorder:
        for number in (1, 2):
            report_stream(sender_of(tmp_path))
            finish(PATIENCE_S)
            assert balance_of(tmp_path).seen == number * len(EVENTS)
            assert arrived(recorder.ended(number)) == BODY * number


SCRIPT = """
import multiprocessing, os, sys
from pathlib import Path
from streamgauge.taps.inprocess.background_senders import sender_of
from tests.taps.inprocess.rig import report_stream
here = Path(sys.argv[1])
def child():
    report_stream(sender_of(here))
"""


def ended_script(data_dir: Path, body: str, streams: int) -> list[Message]:
    """What a recorder received from a script that ran to its end; asserts exit code 0 and no output."""
    with recorder_at(data_dir) as recorder:
        done = subprocess.run(
            [sys.executable, "-W", "ignore::DeprecationWarning", "-c", SCRIPT + textwrap.dedent(body), str(data_dir)],
            capture_output=True,
            text=True,
            timeout=2 * PATIENCE_S,
            check=False,
        )
        assert (done.returncode, done.stdout, done.stderr) == (0, "", "")
        return recorder.ended(streams)


@pytest.mark.parametrize(
    ("body", "streams"),
    [
        pytest.param("report_stream(sender_of(here))", 1, id="exit"),
        pytest.param("report_stream(sender_of(here)); sys.exit(0)", 1, id="sys.exit"),
        pytest.param(
            """
            report_stream(sender_of(here))
            if os.fork() == 0:
                child()
                sys.exit(0)
            os.wait()
            child()
            """,
            3,
            id="fork",
        ),
        pytest.param(
            """
            from streamgauge.taps.inprocess.background_senders import finish
            report_stream(sender_of(here))
            for _ in range(3):
                if os.fork() == 0:
                    child()
                    finish()
                    os._exit(0)
            for _ in range(3):
                os.wait()
            """,
            4,
            id="forks that end at once",
        ),
        pytest.param(
            """
            fork = multiprocessing.get_context("fork")
            report_stream(sender_of(here))
            for one in [fork.Process(target=child) for _ in range(2)]:
                one.start()
                one.join()
            child()
            """,
            4,
            id="multiprocessing",
        ),
    ],
)
def test_a_process_sends_what_it_has_when_it_ends(tmp_path: Path, body: str, streams: int) -> None:
    messages = ended_script(tmp_path, body, streams)
    assert len({message.stream for message in messages if isinstance(message, ExchangeEnding)}) == streams
    assert arrived(messages) == BODY * streams
    balance = balance_of(tmp_path)
    assert (balance.seen, balance.waiting) == (streams * len(EVENTS), streams * len(EVENTS))


def test_a_stream_that_is_open_at_a_fork_belongs_to_the_parent(tmp_path: Path) -> None:
    body = """
    open_one = report_stream(sender_of(here), end=False)
    if os.fork() == 0:
        open_one.read(1, b"never told")
        open_one.end(1, "client")
        child()
        sys.exit(0)
    os.wait()
    open_one.read(2, b"told")
    open_one.end(3, "complete")
    """
    assert arrived(ended_script(tmp_path, body, 2)).count(b"told") == 1


def test_without_an_agent_a_process_ends_at_once_and_logs_one_sentence(tmp_path: Path) -> None:
    done = subprocess.run(
        [sys.executable, "-c", SCRIPT + "child(); child()", str(tmp_path)],
        capture_output=True,
        text=True,
        timeout=PATIENCE_S,
        check=False,
        env={name: value for name, value in os.environ.items() if not name.startswith("STREAMGAUGE_")},
    )
    assert (done.returncode, done.stderr.count("\n")) == (0, 1)
    assert str(tmp_path) in done.stderr
    balance = balance_of(tmp_path)
    assert (balance.seen, balance.dropped["recorder_gone"]) == (2 * len(EVENTS), 2 * len(EVENTS))


def test_it_is_imported_without_the_settings(tmp_path: Path) -> None:
    """What an application imports must be cheap: no pydantic, httpx or aiohttp, and no thread."""
    code = "import sys, threading, streamgauge.taps.httpx; print(threading.active_count(), *sys.modules)"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=PATIENCE_S, check=True)
    count, *modules = done.stdout.split()
    assert count == "1"
    assert {"pydantic", "pydantic_settings", "httpx", "httpx2", "aiohttp", "asyncio"}.isdisjoint(modules)
