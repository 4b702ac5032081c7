"""How long a fault lasts: shortened in an ordinary test run, in full under `make faults` (STREAMGAUGE_FAULTS=full)."""

import os
from typing import TypeVar

FULL = os.environ.get("STREAMGAUGE_FAULTS") == "full"

Length = TypeVar("Length", int, float)


def length(short: Length, full: Length) -> Length:
    """The number of seconds or repetitions of this run; also for the timeout of a test."""
    return full if FULL else short
