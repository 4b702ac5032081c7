"""A line for each finished stream on the terminal of `up`: short, dropped where the terminal takes none."""

import contextlib
import fcntl
import os
import signal
import struct
import subprocess
import sys
import termios
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from streamgauge.cli.stream_lines import MOST_LINES, StreamLines
from streamgauge.core.record import Error, Record
from streamgauge.metrics.observe import StreamCost
from tests.ledger.rows import stream_id
from tests.metrics.records import make_record, make_timing, make_usage
from tests.ports import free_port
from tests.running import CLEAN, wait_for
from tests.taps.proxy.rig import RawUpstream, answering

Costed = tuple[Record, StreamCost | None]


class Terminal:
    """A terminal of some columns: `fd` is its device."""

    def __init__(self, columns: int) -> None:
        self._screen, self.fd = os.openpty()
        fcntl.ioctl(self.fd, termios.TIOCSWINSZ, struct.pack("HHHH", 24, columns, 0, 0))
        os.set_blocking(self._screen, False)
        self.text = ""

    def read(self) -> str:
        """All that was written since it began."""
        with contextlib.suppress(BlockingIOError, OSError):
            while part := os.read(self._screen, 65_536):
                self.text += part.decode()
        return self.text

    def close(self) -> None:
        os.close(self._screen)
        os.close(self.fd)


@pytest.fixture(params=[80, 140])
def terminal(request: pytest.FixtureRequest) -> Iterator[Terminal]:
    opened = Terminal(request.param)
    yield opened
    opened.close()


def record(number: int, **changes: Any) -> Record:
    known = {"stream_id": stream_id(number), "started_at": "2026-03-01T17:34:59.5Z", "response_model": "gpt-4o-mini"}
    return make_record(**known | changes)


def test_a_line_has_what_is_known_and_fits(terminal: Terminal) -> None:
    broken = {
        "outcome": "stream_error",
        "error": Error("in_stream", "upstream_error", "upstream_disconnect_of_some_length", None),
        "usage": make_usage(None, None),
        "timing": make_timing(first_token_s=None, inter_token_latency_s=None),
        "response_model": "m" * 200,
    }
    lines = StreamLines(terminal.fd)
    lines.show([(record(1, usage=make_usage(1_200, 50)), StreamCost(0.001, 0.002)), (record(2, **broken), None)])
    lines.show([(record(3), StreamCost(unknown="no_seller"))])
    meaning, head, first, second, third = terminal.read().splitlines()
    assert meaning == "ttft: time to the first token, reasoning included"
    assert head.split() == ["started", "stream", "model", "outcome", "ttft", "in+out", "tok/s", "cost"]
    assert first.split() == [
        "17:34:59Z", stream_id(1)[-8:], "gpt-4o-mini", "completed", "200", "ms", "1.2k+50", "40", "0.0030"
    ]  # fmt: skip
    assert "upstream_di" in second
    assert second.split()[-4:] == ["-"] * 4
    assert third.split()[-1] == "-"
    columns = os.get_terminal_size(terminal.fd).columns
    assert max(len(line) for line in terminal.text.splitlines()) <= columns


def test_text_of_a_stream_does_not_move_the_cursor(terminal: Terminal) -> None:
    StreamLines(terminal.fd).show([(record(1, response_model="\x1b[2J\n"), None)])
    assert "\x1b" not in terminal.read()
    assert len(terminal.text.splitlines()) == 3


def test_of_a_large_batch_a_part_is_shown(terminal: Terminal) -> None:
    StreamLines(terminal.fd).show([(record(number), None) for number in range(MOST_LINES + 5)])
    lines = terminal.read().splitlines()
    assert len(lines) == 2 + MOST_LINES + 1
    assert lines[-1].startswith("and 5 more streams")


def test_a_terminal_that_takes_nothing_delays_nothing_and_is_told_later(monkeypatch: pytest.MonkeyPatch) -> None:
    terminal = Terminal(80)
    lines = StreamLines(terminal.fd)
    with monkeypatch.context() as stopped:
        stopped.setattr("select.select", lambda *_: ([], [], []))
        lines.show([(record(1), None), (record(2), None)])
    assert terminal.read() == ""
    lines.show([(record(3), None)])
    assert terminal.read().splitlines()[2] == "2 streams were not shown: the terminal took no output"
    terminal.close()
    lines.show([(record(4), None)])
    lines.show([(record(5), None)])  # nothing is raised, and nothing is written to what has the number now


@pytest.mark.slow
@pytest.mark.parametrize("quiet", [False, True])
def test_up_shows_streams_on_a_terminal_unless_it_is_quiet(tmp_path: Path, quiet: bool) -> None:
    terminal, port = Terminal(80), free_port()
    body = b'{"error":{"type":"invalid","code":"invalid_api_key"}}'
    answer = (
        b"HTTP/1.1 401 Unauthorized\r\nContent-Type: application/json\r\nContent-Length: %d\r\nConnection: close\r\n\r\n"
        % len(body)
    ) + body
    with RawUpstream(answering(answer)) as upstream, (tmp_path / "log").open("wb") as log:
        words = [
            "up",
            "--upstream",
            f"a={upstream.url}",
            "--listen",
            f"127.0.0.1:{port}",
            "--data-dir",
            str(tmp_path / "d"),
        ]
        words += ["--admin", f"127.0.0.1:{free_port()}", *(["--quiet"] if quiet else [])]
        up = subprocess.Popen(
            [sys.executable, "-m", "streamgauge", *words],
            stdout=terminal.fd,
            stderr=log,
            env=CLEAN,
            stdin=subprocess.DEVNULL,
        )
        try:
            wait_for(lambda: "page at" in (tmp_path / "log").read_text(), "up is ready")
            line = next(line for line in (tmp_path / "log").read_text().splitlines() if "try it" in line)
            curl = line.partition(": curl ")[2]
            done = subprocess.run(["bash", "-c", f"curl {curl}"], capture_output=True, check=False, timeout=30)
            assert done.stdout == body
            if not quiet:
                wait_for(lambda: "401 inva" in terminal.read(), "a line")
        finally:
            up.send_signal(signal.SIGTERM)
            up.wait(30)
        if quiet:
            assert terminal.read() == ""
    terminal.close()
