"""Lets processes run by turns, as if each had half a core: odd ones stand while even ones go, and the other way round.

What is measured then does not share its cores with the broker, on a machine that has no core more for it.

    python -m bench.turns PID...        says "ready" as it begins; until SIGTERM, then all go on
"""

import contextlib
import os
import signal
import sys
import time
from collections.abc import Sequence

# Long beside what a signal takes, short beside every timeout (seconds).
_TURN_S = 0.01


def take_turns(pids: Sequence[int]) -> None:
    """Never returns. Raises SystemExit at SIGTERM, and ProcessLookupError when one of them has ended."""
    while True:
        for turn in (0, 1):
            for place, pid in enumerate(pids):
                os.kill(pid, signal.SIGCONT if place % 2 == turn else signal.SIGSTOP)
            time.sleep(_TURN_S)


def main() -> None:
    pids = [int(pid) for pid in sys.argv[1:]]
    signal.signal(signal.SIGTERM, lambda *_: sys.exit())
    try:
        print("ready", flush=True)
        take_turns(pids)
    finally:
        for pid in pids:
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGCONT)


if __name__ == "__main__":
    main()
