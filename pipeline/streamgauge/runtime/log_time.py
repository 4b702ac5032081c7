"""The time of each line that a command which stays writes for its operator: UTC, as RFC 3339."""

import logging
import sys
import time
from datetime import UTC, datetime


def rfc3339(seconds: float | None = None, digits: int = 0) -> str:
    """A time in seconds since 1970 (None: now), with `digits` 0 or 3 after the point."""
    at = time.time() if seconds is None else seconds
    written = datetime.fromtimestamp(at, UTC).isoformat(timespec="milliseconds" if digits else "seconds")
    return written.replace("+00:00", "Z")


class Timed(logging.Formatter):
    """A form of log lines that has the time."""


class TimedLine(Timed):
    """A log record as a line with its time. The frames of a fault follow in lines of their own, as without a formatter."""

    def format(self, record: logging.LogRecord) -> str:
        """Return the line."""
        return f"{rfc3339(record.created)} streamgauge: {super().format(record)}"


def log_with_times(level: int = logging.WARNING) -> None:
    """Log to stderr, with times, unless the root logger has handlers."""
    handler = logging.StreamHandler(sys.stderr)
    handler.setFormatter(TimedLine())
    logging.basicConfig(level=level, handlers=[handler])


def logs_with_times() -> bool:
    """Whether this process logs with times, so that a last sentence to its operator belongs into the log."""
    return any(isinstance(handler.formatter, Timed) for handler in logging.getLogger().handlers)
