"""`top` in a pseudo terminal: keys, sizes, what it writes over a slow link, and the terminal that it leaves."""

import os
import signal
import termios
import time
from collections.abc import Iterator

import pytest

from tests.live.serving import Served, serving
from tests.live.shown import SILENT, busy_process, id_of
from tests.running import PATIENCE_S
from tests.top.answers import begin
from tests.top.screens import Screen, on_screen

pytestmark = pytest.mark.slow


@pytest.fixture
def served() -> Iterator[Served]:
    with serving(busy_process()) as one:
        yield one


def address(served: Served) -> str:
    return served.url.removeprefix("http://")


def listed(screen: Screen) -> int:
    return sum(line.startswith("000000") for line in screen.lines)


def test_keys_change_the_screen(served: Served) -> None:
    with on_screen(address(served), "--interval", "0.3") as screen:
        screen.wait_for(lambda text: "q quit" in text, "footer")
        assert len(screen.lines) == 24
        assert max(map(len, screen.lines)) <= 80
        assert "3 open, 1 silent" in screen.text
        assert listed(screen) >= 15
        screen.press("?")
        screen.wait_for(lambda text: "Keys" in text and not listed(screen), "help")
        screen.press("\x1b")
        screen.wait_for(lambda _: listed(screen), "list")
        screen.press("/outcome=upstream_reset\r")
        screen.wait_for(lambda text: listed(screen) == 4 and "filter outcome=upstream_reset" in text, "filter")
        screen.press("\x1b")
        screen.wait_for(lambda _: listed(screen) > 4, "list without a filter")
        screen.press("s")
        screen.wait_for(lambda text: "sort: newest" in text, "order")
        screen.press("S")
        screen.wait_for(lambda text: "sort: worst" in text, "order")
        screen.press("\r")
        screen.wait_for(lambda text: f"Stream {id_of(SILENT)}" in text and "Capture" in text, "stream with its facts")
        screen.press("G")
        screen.wait_for(lambda text: f"Stream {id_of(SILENT)}" not in text and "2 reads" in text, "its reads")
        screen.press("k" * 10)
        screen.wait_for(lambda text: f"Stream {id_of(SILENT)}" in text, "its first line")
        screen.press("\t")
        screen.wait_for(lambda text: "Budget of tenant river" in text, "totals")
        screen.press(" ")
        screen.wait_for(lambda text: "paused" in text, "pause")
        screen.press("q")
        assert screen.process.wait(PATIENCE_S) == 0
        assert screen.read().endswith("\x1b[?1049l")


def test_an_arrow_in_two_reads_is_one_key(served: Served) -> None:
    with on_screen(address(served)) as screen:
        screen.wait_for(lambda text: "q quit" in text, "footer")
        screen.press("/reset")
        screen.wait_for(lambda text: "filter: reset" in text, "filter")
        screen.press("\x1b")
        screen.press("[B")  # an arrow ends the typing; escape alone would remove the filter
        screen.wait_for(lambda text: "filter reset" in text, "kept filter")


def test_a_new_size_is_used_at_once(served: Served) -> None:
    with on_screen(address(served), "--interval", "60") as screen:
        screen.wait_for(lambda text: "q quit" in text, "footer")
        assert "token events" not in screen.text
        screen.resize(200, 60)
        screen.wait_for(lambda text: "token events" in text and len(screen.lines) == 60, "wide picture")
        assert max(map(len, screen.lines)) <= 200
        screen.resize(40, 10)
        screen.wait_for(lambda _: len(screen.lines) == 10, "small picture")
        assert max(map(len, screen.lines)) <= 40


def test_only_lines_that_changed_are_written(served: Served) -> None:
    """Over a slow link a whole screen takes seconds."""
    with on_screen(address(served), "--interval", "0.2", columns=200, lines=60) as screen:
        screen.wait_for(lambda text: "q quit" in text, "footer")
        screen.read(1.0)
        whole, before = screen.written, [line.rstrip() for line in screen.lines]
        screen.press("j")
        screen.wait_for(lambda _: screen.written > whole, "selection")
        screen.read(1.0)
        assert [line.rstrip() for line in screen.lines] == before, "the style alone changed"
        assert screen.written - whole < whole / 10
        served.do(lambda process: begin(process, 60))
        screen.wait_for(lambda text: "4 open" in text, "new stream")


def test_sigterm_and_ctrl_c_leave_the_terminal_as_it_was(served: Served) -> None:
    for ending in (signal.SIGTERM, signal.SIGINT):
        with on_screen(address(served)) as screen:
            before = termios.tcgetattr(screen._terminal)
            screen.wait_for(lambda text: "q quit" in text, "footer")
            assert not termios.tcgetattr(screen._terminal)[3] & termios.ECHO
            os.kill(screen.process.pid, ending)
            assert screen.process.wait(PATIENCE_S) == 0
            assert "\x1b[?25h" in screen.read()
            assert termios.tcgetattr(screen._terminal)[3] == before[3]


def test_ctrl_z_gives_the_terminal_back_until_it_goes_on(served: Served) -> None:
    with on_screen(address(served), "--interval", "60") as screen:
        screen.wait_for(lambda text: "q quit" in text, "footer")
        screen.read(1.0)
        os.kill(screen.process.pid, signal.SIGTSTP)  # in a session without a shell it goes on at once
        text = ""
        while "q\x1b" not in text:  # the footer comes last
            text += screen.read(1.0)
        assert text.index("\x1b[?1049l") < text.index("\x1b[?1049h") < text.index("3 open")
        assert not termios.tcgetattr(screen._terminal)[3] & termios.ECHO
        screen.press("q")
        assert screen.process.wait(PATIENCE_S) == 0


def test_a_process_that_stops_answering_is_said_and_comes_back(served: Served) -> None:
    original = served.process.view.overview
    with on_screen(address(served), "--interval", "0.2") as screen:
        screen.wait_for(lambda text: "3 open" in text, "list")
        served.process.view.overview = lambda *_, **__: 1 / 0  # type: ignore[method-assign, assignment]
        screen.wait_for(lambda text: "answered 500: internal error" in text, "problem")
        assert "3 open" in screen.text
        assert "Its streams below are" in " ".join(screen.text.split())
        time.sleep(0.3)
        served.process.view.overview = original  # type: ignore[method-assign]
        screen.wait_for(lambda text: "answered 500" not in text, "end of the problem")
