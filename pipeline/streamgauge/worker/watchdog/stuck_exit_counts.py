"""Count how often the watchdog ended a group member, by cause, in a file beside its slot, for the metrics of the next start.

A stuck worker may not be scraped any more, and its successor starts with empty counters. Without the file, the metrics
would not show why workers restart.
"""

import contextlib
from pathlib import Path

import msgspec

from streamgauge.metrics import table
from streamgauge.worker.settings import WorkerMetrics
from streamgauge.worker.watchdog.rules import Cause

# The most that is read of the file (bytes): more than four counts need; any other, larger file is not read whole.
_MAX_BYTES = 4096


class StuckExitCounts:
    """The counts of one slot, in the file `path`. Adds the counts of earlier processes to `metrics` at once.

    `member`: the slot's member id, under which they count. A restarted worker may get another slot than before.
    """

    def __init__(self, path: Path, member: str, metrics: WorkerMetrics) -> None:
        self._path = path
        self._member = member
        self._metrics = metrics
        self._counts = _read(path)
        for cause in Cause:
            metrics.add(table.STUCK_EXITS.name, self._counts.get(cause, 0), cause=cause.value, member=member)

    def count(self, cause: Cause) -> None:
        """Count one exit. Ignores a failed write, so that the exit continues."""
        self._metrics.add(table.STUCK_EXITS.name, cause=cause.value, member=self._member)
        self._counts[cause] = self._counts.get(cause, 0) + 1
        made = self._path.with_suffix(".new")
        with contextlib.suppress(OSError):
            made.unlink(missing_ok=True)  # left by a killed process; a symbolic link there is not followed
            with made.open("xb") as file:
                file.write(msgspec.json.encode(self._counts))
            made.replace(self._path)


def _read(path: Path) -> dict[Cause, int]:
    try:
        with path.open("rb") as file:
            return msgspec.json.decode(file.read(_MAX_BYTES), type=dict[Cause, int])
    except (OSError, msgspec.DecodeError):
        return {}
