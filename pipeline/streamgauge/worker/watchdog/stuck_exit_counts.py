"""How often the watchdog has ended this worker, by cause: a file beside its slot, so that the next life exports it.

A worker that is stuck is no longer scraped, and its successor begins with empty counters: without the file nobody
would see from the metrics why workers come and go.
"""

import contextlib
from pathlib import Path

import msgspec

from streamgauge.metrics import table
from streamgauge.worker.settings import WorkerMetrics
from streamgauge.worker.watchdog.rules import Cause

# More than a file of four counts ever has (bytes): whatever else lies there is not read.
_MAX_BYTES = 4096


class Exits:
    """The counts of one slot, in `path`. What is there from earlier lives is given to `metrics` at once."""

    def __init__(self, path: Path, metrics: WorkerMetrics) -> None:
        self._path = path
        self._metrics = metrics
        self._counts = _read(path)
        for cause in Cause:
            metrics.add(table.STUCK_EXITS.name, self._counts.get(cause, 0), cause=cause.value)

    def note(self, cause: Cause) -> None:
        """One more. A disk that takes nothing does not keep a stuck worker."""
        self._metrics.add(table.STUCK_EXITS.name, cause=cause.value)
        self._counts[cause] = self._counts.get(cause, 0) + 1
        made = self._path.with_suffix(".new")
        with contextlib.suppress(OSError):
            made.unlink(missing_ok=True)  # of a process that was killed; a link there is not followed
            with made.open("xb") as file:
                file.write(msgspec.json.encode(self._counts))
            made.replace(self._path)


def _read(path: Path) -> dict[Cause, int]:
    try:
        with path.open("rb") as file:
            return msgspec.json.decode(file.read(_MAX_BYTES), type=dict[Cause, int])
    except (OSError, msgspec.DecodeError):
        return {}
