"""A worker's log line has the frames of an error, and no values."""

import json
import logging
import subprocess
import sys
import threading

import pytest

from streamgauge.kafka.log_throttle import throttle_logs
from streamgauge.worker.faults import BugError, StuckError
from streamgauge.worker.log_lines import OneLine
from streamgauge.worker.process import Worker
from streamgauge.worker.settings import WorkerSettings

pytestmark = pytest.mark.slow


class Kept(logging.Handler):
    """The lines as the worker writes them."""

    def __init__(self) -> None:
        super().__init__()
        self.lines: list[dict[str, object]] = []

    def emit(self, record: logging.LogRecord) -> None:
        self.lines.append(json.loads(OneLine().format(record)))


def line_of(fault: BugError | StuckError) -> dict[str, object]:
    """What the worker writes about the fault that ends it."""
    logger, kept = logging.getLogger("streamgauge.worker"), Kept()
    logger.addHandler(kept)
    try:
        Worker(WorkerSettings("127.0.0.1:1", data_dir=None)).watchdog.fail(fault)  # type: ignore[arg-type]
    finally:
        logger.removeHandler(kept)
    (line,) = kept.lines
    return line


def fails_deep_inside(secret: str) -> None:
    raise LookupError("no such part")


def test_a_bug_has_its_places_in_the_code_and_no_value() -> None:
    try:
        fails_deep_inside("sk-0123456789")
    except LookupError as error:
        line = line_of(BugError(f"partition 3: {error!r}", error))
    assert line["message"] == "partition 3: LookupError('no such part')"
    places = line["traceback"]
    assert isinstance(places, list)
    assert [place.rpartition(" ")[2] for place in places] == [
        "test_a_bug_has_its_places_in_the_code_and_no_value",
        "fails_deep_inside",
    ]
    assert all(__file__ in place for place in places)
    assert "sk-0123456789" not in json.dumps(line)


def test_the_error_of_a_line_has_no_text_that_may_quote_a_stream() -> None:
    try:
        b"sk-0123456789 \xff".decode()
    except UnicodeDecodeError as error:  # its text has the whole input
        line = line_of(BugError("a part failed", error))
    assert line["error"] == "UnicodeDecodeError"
    assert "sk-0123456789" not in json.dumps(line)


def test_stuck_worker_logs_the_stack_of_each_thread() -> None:
    from streamgauge.worker.watchdog.watchdog import stacks_of

    ends = threading.Event()
    thread = threading.Thread(target=ends.wait, name="waits")
    thread.start()
    try:
        line = line_of(StuckError("the worker is stuck and exits: it does nothing", stacks_of({})))
    finally:
        ends.set()
        thread.join()
    stacks = line["stacks"]
    assert isinstance(stacks, dict)
    assert {"thread MainThread", "thread waits"} <= set(stacks)
    assert stacks["thread waits"][-1].endswith(" wait")


def test_what_led_to_an_error_has_its_places_too() -> None:
    try:
        try:
            fails_deep_inside("sk-0123456789")
        except LookupError as error:
            raise RuntimeError("no answer") from error
    except RuntimeError as error:
        line = line_of(BugError("a part failed", error))
    places = line["traceback"]
    assert isinstance(places, list)
    assert places[1] == "caused by LookupError:"
    assert places[-1].endswith(" fails_deep_inside")


THREAD = """
import threading
from streamgauge.worker.log_lines import log_lines_to_stderr

def fails_in_a_thread():
    raise LookupError("sk-0123456789")

log_lines_to_stderr()
thread = threading.Thread(target=fails_in_a_thread, name="ledger")
thread.start()
thread.join()
"""


def test_a_thread_that_fails_is_a_line_as_all_else() -> None:
    done = subprocess.run([sys.executable, "-c", THREAD], capture_output=True, text=True, check=True)
    line = json.loads(done.stderr)
    assert line["message"] == "internal error in the thread ledger: LookupError"
    assert line["traceback"][-1].endswith(" fails_in_a_thread")
    assert "sk-0123456789" not in done.stderr


def test_an_error_that_faust_logs_keeps_its_places(caplog: pytest.LogCaptureFixture) -> None:
    """The damper makes one sentence of what the libraries log; an agent's bug reaches the log through them alone."""
    faust = logging.getLogger("faust.agents")
    throttle_logs()
    try:
        fails_deep_inside("sk-0123456789")
    except LookupError:
        faust.exception("Agent crashed")
    [record] = [record for record in caplog.records if record.name == "streamgauge.runtime.faults"]
    line = json.loads(OneLine().format(record))
    assert line["message"] == "internal error in code that faust.agents calls: LookupError"
    assert line["traceback"][-1].endswith(" fails_deep_inside")


def test_the_time_of_a_line_is_rfc_3339() -> None:
    record = logging.LogRecord("streamgauge.worker", logging.INFO, __file__, 1, "ready", None, None)
    record.created = 1_700_000_000.1234
    assert json.loads(OneLine().format(record))["at"] == "2023-11-14T22:13:20.123Z"
