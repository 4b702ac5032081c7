"""The command line and its environment: an output that is closed, or that blocks, signals, bugs."""

import contextlib
import os
import shlex
import signal
import socket
import subprocess
import sys
from pathlib import Path

import pytest

from streamgauge.cli.main import main
from streamgauge.errors import BUG, DONE, UNAVAILABLE
from tests.cli.test_main import UP
from tests.running import PATIENCE_S, wait_for

pytestmark = pytest.mark.slow

EVENTS = (
    b'data: {"id":"c","object":"chat.completion.chunk","model":"m","choices":[{"index":0,"delta":{"content":"Hi"}}]}\n\n'
    b'data: {"id":"c","object":"chat.completion.chunk","model":"m","choices":[{"index":0,"delta":{},'
    b'"finish_reason":"stop"}]}\n\ndata: [DONE]\n\n'
)


@pytest.fixture
def recordings(tmp_path: Path) -> Path:
    folder = tmp_path / "recordings"
    (folder / "deep").mkdir(parents=True)
    (folder / "b.sse").write_bytes(EVENTS)
    (folder / "deep" / "a.sse").write_bytes(EVENTS[:150])
    (folder / "notes.txt").write_text("no recording")
    return folder


def run_into(arguments: list[str], stdout: int) -> "subprocess.CompletedProcess[str]":
    return subprocess.run(
        [sys.executable, "-m", "streamgauge", *arguments],
        stdout=stdout,
        stderr=subprocess.PIPE,
        text=True,
        timeout=PATIENCE_S,
        check=False,
    )


@pytest.mark.parametrize("arguments", [["replay", "RECORDING", "--output", "jsonl"], ["--help"], ["replay", "--help"]])
def test_a_reader_of_the_output_may_stop_early(arguments: list[str], recordings: Path) -> None:
    reader, writer = os.pipe()
    os.close(reader)
    try:
        done = run_into([str(recordings) if word == "RECORDING" else word for word in arguments], writer)
    finally:
        os.close(writer)
    assert (done.returncode, done.stderr) == (DONE, "")


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="this system has no /dev/full")
def test_an_output_that_fails(recordings: Path) -> None:
    with Path("/dev/full").open("w") as full:
        done = run_into(["replay", str(recordings), "--output", "jsonl"], full.fileno())
    assert done.returncode == UNAVAILABLE
    assert done.stderr == "streamgauge: the operating system reports an error: [Errno 28] No space left on device\n"


@pytest.mark.parametrize("closed", [">&-", "2>&-", ">&- 2>&-", "<&- >&- 2>&-"])
@pytest.mark.parametrize(
    ("arguments", "code"),
    [
        ("replay RECORDING --output jsonl", DONE),
        ("ledger query --data-dir EMPTY", UNAVAILABLE),
        ("ledger import - --data-dir EMPTY </dev/null", DONE),
        ("--help", DONE),
    ],
)
def test_a_stream_that_is_closed_from_the_beginning(
    arguments: str, code: int, closed: str, recordings: Path, tmp_path: Path
) -> None:
    """Its output goes nowhere, and never into a file that the command opens."""
    words = arguments.replace("RECORDING", str(recordings)).replace("EMPTY", str(tmp_path))
    line = f"{shlex.quote(sys.executable)} -m streamgauge {words} {closed}"
    done = subprocess.run(line, shell=True, capture_output=True, text=True, check=False, timeout=PATIENCE_S)
    assert done.returncode == code, done.stderr
    assert "Traceback" not in done.stderr
    assert "internal error" not in done.stderr


def test_sigterm_ends_a_command_that_does_not_stay(tmp_path: Path) -> None:
    pipe = tmp_path / "recording"
    os.mkfifo(pipe)
    process = subprocess.Popen(
        [sys.executable, "-m", "streamgauge", "replay", str(pipe)], stdout=subprocess.PIPE, stderr=subprocess.PIPE
    )
    with pipe.open("wb"):  # opened for reading by the command, which waits for what comes
        process.send_signal(signal.SIGTERM)
        _, errors = process.communicate(timeout=PATIENCE_S)
    assert (process.returncode, errors) == (DONE, b"streamgauge replay: SIGTERM ended it before it was done\n")


def test_a_tap_continues_when_its_output_is_not_read(tmp_path: Path) -> None:
    reader, writer = os.pipe()
    listening = socket.create_server(("127.0.0.1", 0))
    admin = f"127.0.0.1:{listening.getsockname()[1]}"
    listening.close()
    arguments = [*UP, "--listen", "127.0.0.1:0", "--admin", admin, "--data-dir", str(tmp_path)]
    os.close(reader)
    buffered = {**os.environ, "PYTHONUNBUFFERED": ""}  # the default
    process = subprocess.Popen([sys.executable, "-m", "streamgauge", *arguments], stderr=writer, env=buffered)
    os.close(writer)
    try:
        host, _, port = admin.partition(":")

        def answers() -> bool:
            with contextlib.suppress(OSError), socket.create_connection((host, int(port)), 1) as connection:
                connection.sendall(f"GET /health/ready HTTP/1.0\r\nHost: {admin}\r\n\r\n".encode())
                return b" 200 " in connection.recv(100)
            return False

        wait_for(answers, "readiness")
        process.send_signal(signal.SIGTERM)
        assert process.wait(PATIENCE_S) == DONE
    finally:
        if process.poll() is None:
            process.kill()
            process.wait()


def test_an_internal_error_is_one_sentence_and_a_way_to_see_more(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], recordings: Path
) -> None:
    import streamgauge.cli.replay as broken

    def fails(*_: object) -> int:
        raise RuntimeError("boom")

    monkeypatch.setattr(broken, "run", fails)
    monkeypatch.delenv("STREAMGAUGE_DEBUG", raising=False)
    assert main(["replay", str(recordings)]) == BUG
    output = capsys.readouterr().err
    assert output.startswith("streamgauge: internal error: RuntimeError: boom\n")
    assert "Traceback" not in output
    monkeypatch.setenv("STREAMGAUGE_DEBUG", "1")
    assert main(["replay", str(recordings)]) == BUG
    assert "Traceback" in capsys.readouterr().err
