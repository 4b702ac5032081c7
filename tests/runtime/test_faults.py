"""Bugs that a part catches are logged once with their frames, then counted, and their text is left out."""

import asyncio
import json
import logging

import pytest

from streamgauge.errors import Unavailable
from streamgauge.runtime.faults import (
    MAX_FRAMES,
    MAX_KINDS,
    REPEAT_S,
    FaultReports,
    report_fault,
    report_loop_faults,
    reported_task,
)
from streamgauge.worker.log_lines import OneLine

SECRET = "sk-0123456789"


class Clock:
    def __init__(self) -> None:
        self.now = 1_000.0

    def __call__(self) -> float:
        return self.now


def caught(error: BaseException) -> BaseException:
    """The error with a frame of its own: this function's."""
    try:
        raise error
    except type(error) as raised:
        return raised


def parse_number(text: str) -> int:
    return int(text)


def unreadable() -> Exception:
    """An error of a parser, which quotes its input."""
    try:
        parse_number(SECRET)
    except ValueError as error:
        return error
    raise AssertionError


def test_the_first_of_a_kind_is_logged_with_its_frames_and_without_its_text(caplog: pytest.LogCaptureFixture) -> None:
    error = unreadable()
    assert SECRET in str(error)
    FaultReports().report("the recorder", error)
    [message] = caplog.messages
    first, *frames = message.splitlines()
    assert first == "internal error in the recorder: ValueError"
    assert [frame.split()[-1] for frame in frames] == ["unreadable", "parse_number"]
    assert all(f"{__file__}:" in frame for frame in frames)
    assert SECRET not in caplog.text
    assert caplog.records[0].levelno == logging.ERROR


def test_later_ones_are_counted_and_the_count_is_logged_now_and_then(caplog: pytest.LogCaptureFixture) -> None:
    clock = Clock()
    reports = FaultReports(clock)
    for _ in range(1_000):
        reports.report("the recorder", unreadable())
    assert len(caplog.messages) == 1
    clock.now += REPEAT_S
    for _ in range(10):
        reports.report("the recorder", unreadable())
    assert caplog.messages[1:] == ["internal error in the recorder (ValueError) repeated 1000 times, 1001 in total"]


def test_the_place_the_type_and_the_innermost_frame_make_a_kind(caplog: pytest.LogCaptureFixture) -> None:
    reports = FaultReports()
    for where in ("the recorder", "the relay"):
        for error in (unreadable(), caught(ValueError()), caught(KeyError())):
            reports.report(where, error)
            reports.report(where, error)
    assert len(caplog.messages) == 6


def test_the_text_of_the_system_and_of_our_own_errors_is_logged(caplog: pytest.LogCaptureFixture) -> None:
    reports = FaultReports()
    reports.report("the relay", caught(OSError(28, "No space left on device")))
    reports.report("the relay", caught(Unavailable("the port is taken by https://user:sk-1@host/x")))
    reports.report("the relay", caught(UnicodeDecodeError("utf-8", SECRET.encode(), 0, 1, "no")))
    lines = [message.splitlines()[0].partition(": ")[2] for message in caplog.messages]
    assert lines == [
        "OSError: [Errno 28] No space left on device",
        "the port is taken by ...@host/x",
        "UnicodeDecodeError",
    ]


def test_what_led_to_an_error_is_logged_with_it(caplog: pytest.LogCaptureFixture) -> None:
    try:
        try:
            parse_number(SECRET)
        except ValueError as error:
            raise RuntimeError(SECRET) from error
    except RuntimeError as error:
        FaultReports().report("the relay", error)
    lines = [line.strip() for line in caplog.messages[0].splitlines()]
    assert lines[2] == "caused by ValueError:"
    assert lines[-1].endswith(" parse_number")
    assert SECRET not in caplog.text


def test_frames_and_kinds_are_bounded(caplog: pytest.LogCaptureFixture) -> None:
    def fall(deep: int) -> None:
        if not deep:
            raise LookupError
        fall(deep - 1)

    reports = FaultReports()
    try:
        fall(5 * MAX_FRAMES)
    except LookupError as error:
        reports.report("the relay", error)
    assert len(caplog.messages[0].splitlines()) == 1 + MAX_FRAMES
    for number in range(10 * MAX_KINDS):
        reports.report(f"place {number}", caught(LookupError()))
    assert len(caplog.messages) == 1 + MAX_KINDS  # the others share the last one


def test_a_report_never_raises(monkeypatch: pytest.MonkeyPatch) -> None:
    class Odd(OSError):
        def __str__(self) -> str:
            raise ZeroDivisionError

    report_fault("the relay", caught(Odd()))

    def refuse(*_: object, **__: object) -> None:
        raise BlockingIOError

    monkeypatch.setattr(logging.getLogger("streamgauge.runtime.faults"), "error", refuse)
    report_fault("the relay", caught(KeyError()))


def test_a_task_that_nothing_waits_for_is_reported(caplog: pytest.LogCaptureFixture) -> None:
    async def fail() -> None:
        raise LookupError(SECRET)

    async def work() -> None:
        failing, resting = reported_task("one task", fail()), reported_task("another", asyncio.sleep(60))
        await asyncio.wait({failing})
        resting.cancel()
        await asyncio.wait({resting})

    asyncio.run(work())
    assert [message.splitlines()[0] for message in caplog.messages] == ["internal error in one task: LookupError"]


def test_what_an_event_loop_complains_of_is_reported(caplog: pytest.LogCaptureFixture) -> None:
    def fail() -> None:
        raise LookupError(SECRET)

    async def work() -> None:
        loop = asyncio.get_running_loop()
        loop.set_exception_handler(report_loop_faults("the relay's process"))
        loop.call_soon(fail)
        loop.call_soon(fail)
        await asyncio.sleep(0)
        for _ in range(3):
            loop.call_exception_handler({"message": "a socket was left open"})
        await asyncio.sleep(0)

    asyncio.run(work())
    sentences = [
        message.splitlines()[0].removeprefix("internal error in the relay's process: ") for message in caplog.messages
    ]
    assert sorted(sentences) == ["LookupError", "a socket was left open"]
    assert SECRET not in caplog.text


def test_the_worker_s_line_has_the_frames_apart(caplog: pytest.LogCaptureFixture) -> None:
    FaultReports().report("the assembler", unreadable())
    line = json.loads(OneLine().format(caplog.records[0]))
    assert line["message"] == "internal error in the assembler: ValueError"
    assert line["error"] == "ValueError"
    assert [place.rpartition(" ")[2] for place in line["traceback"]] == ["unreadable", "parse_number"]
