"""A worker's log line: what it has of an error, and what it leaves out."""

import json
import logging
import threading

from streamgauge.worker.faults import BugError, StuckError
from streamgauge.worker.log_lines import OneLine
from streamgauge.worker.run import Worker
from streamgauge.worker.settings import WorkerSettings


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
        Worker(WorkerSettings("127.0.0.1:1", data_dir=None))._fail(fault)  # type: ignore[arg-type]
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


def test_a_stuck_worker_says_what_each_thread_does() -> None:
    from streamgauge.worker.stacks import stacks_of

    ends = threading.Event()
    thread = threading.Thread(target=ends.wait, name="waits")
    thread.start()
    try:
        line = line_of(StuckError("the worker is stuck and ends: it does nothing", stacks_of({})))
    finally:
        ends.set()
        thread.join()
    stacks = line["stacks"]
    assert isinstance(stacks, dict)
    assert {"thread MainThread", "thread waits"} <= set(stacks)
    assert stacks["thread waits"][-1].endswith(" wait")
