"""The worker's log: one line of JSON for each record, on stderr."""

import logging
import sys
import threading

import msgspec

from streamgauge.runtime.faults import places_with_causes, report_fault


class OneLine(logging.Formatter):
    """A log record as one line of JSON. What is logged with an exception keeps the places in the code that it came from.

    `stacks` of a record (`extra={"stacks": ...}`): what each thread did.
    """

    def format(self, record: logging.LogRecord) -> str:
        """The line."""
        line: dict[str, object] = {"at": record.created, "level": record.levelname.lower(), "part": record.name}
        line["message"] = " ".join(record.getMessage().split())
        fault = getattr(
            record, "fault", None
        )  # of streamgauge.runtime.faults: the message's further lines are the frames
        if fault:
            line["message"] = record.getMessage().partition("\n")[0]
            line.update(fault)
        if record.exc_info and record.exc_info[1] is not None:
            line["error"] = repr(record.exc_info[1])
            line["traceback"] = places_with_causes(record.exc_info[1])
        stacks = getattr(record, "stacks", None)
        if stacks:
            line["stacks"] = stacks
        return msgspec.json.encode(line).decode()


def log_lines_to_stderr() -> None:
    """One line of JSON each, unless somebody has set up logging already."""
    root = logging.getLogger()
    if not root.handlers:
        handler = logging.StreamHandler(sys.stderr)
        handler.setFormatter(OneLine())
        root.addHandler(handler)
        root.setLevel(logging.INFO)
        threading.excepthook = _report_thread


def _report_thread(ended: threading.ExceptHookArgs) -> None:
    """A thread that ends with an error: as a line of JSON, as all else."""
    if ended.exc_value is not None and not isinstance(ended.exc_value, SystemExit):
        report_fault(f"the thread {ended.thread.name if ended.thread else '?'}", ended.exc_value)
