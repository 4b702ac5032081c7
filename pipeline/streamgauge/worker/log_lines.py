"""The worker's log: one line of JSON for each record, on stderr."""

import logging
import sys
import traceback
from types import TracebackType

import msgspec

# Frames of a traceback that a line keeps, from where the error was raised (count): what is above them is asyncio's loop.
_FRAMES = 30


class OneLine(logging.Formatter):
    """A log record as one line of JSON. What is logged with an exception keeps the places in the code that it came from.

    `stacks` of a record (`extra={"stacks": ...}`): what each thread did.
    """

    def format(self, record: logging.LogRecord) -> str:
        """The line."""
        line: dict[str, object] = {"at": record.created, "level": record.levelname.lower(), "part": record.name}
        line["message"] = " ".join(record.getMessage().split())
        if record.exc_info and record.exc_info[1] is not None:
            line["error"] = repr(record.exc_info[1])
            line["traceback"] = places_of(record.exc_info[2])
        stacks = getattr(record, "stacks", None)
        if stacks:
            line["stacks"] = stacks
        return msgspec.json.encode(line).decode()


def places_of(raised: TracebackType | None) -> list[str]:
    """Where an error came from, outermost first: file, line and function of each frame; no value, which may be anybody's."""
    frames = traceback.extract_tb(raised)[-_FRAMES:]
    return [f"{frame.filename}:{frame.lineno} {frame.name}" for frame in frames]


def log_lines_to_stderr() -> None:
    """One line of JSON each, unless somebody has set up logging already."""
    root = logging.getLogger()
    if not root.handlers:
        handler = logging.StreamHandler(sys.stderr)
        handler.setFormatter(OneLine())
        root.addHandler(handler)
        root.setLevel(logging.INFO)
