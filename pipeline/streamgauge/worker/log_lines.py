"""The worker's log: one line of JSON for each record, on stderr."""

import logging
import sys
import threading

import msgspec

from streamgauge.runtime.faults import described, frames_with_causes, report_fault
from streamgauge.runtime.log_time import Timed, rfc3339


class OneLine(Timed):
    """Formats a log record as one line of JSON. An exception is logged with the code places of its traceback.

    `stacks` of a record (`extra={"stacks": ...}`): the frames of each thread and task.
    """

    def format(self, record: logging.LogRecord) -> str:
        """Return the line."""
        line: dict[str, object] = {
            "at": rfc3339(record.created, 3),
            "level": record.levelname.lower(),
            "part": record.name,
        }
        line["message"] = " ".join(record.getMessage().split())
        # Set by streamgauge.runtime.faults; the message's later lines are its frames.
        fault = getattr(record, "fault", None)
        if fault:
            line["message"] = record.getMessage().partition("\n")[0]
            line.update(fault)
        if record.exc_info and record.exc_info[1] is not None:
            line["error"] = described(record.exc_info[1])
            line["traceback"] = frames_with_causes(record.exc_info[1])
        stacks = getattr(record, "stacks", None)
        if stacks:
            line["stacks"] = stacks
        return msgspec.json.encode(line).decode()


def log_lines_to_stderr() -> None:
    """Log to stderr as lines of JSON, unless the root logger already has handlers."""
    root = logging.getLogger()
    if not root.handlers:
        handler = logging.StreamHandler(sys.stderr)
        handler.setFormatter(OneLine())
        root.addHandler(handler)
        root.setLevel(logging.INFO)
        threading.excepthook = _report_thread


def _report_thread(ended: threading.ExceptHookArgs) -> None:
    """Report the error that ended a thread as a line of JSON."""
    if ended.exc_value is not None and not isinstance(ended.exc_value, SystemExit):
        report_fault(f"the thread {ended.thread.name if ended.thread else '?'}", ended.exc_value)
