"""Stops a long-running command: the first SIGTERM or Ctrl-C ends it in order, a second one at once.

An end at once is like SIGKILL: children end when their stdin ends, open streams are cut, and the next start accounts for
data that was in flight. The exit code is then 128 + the signal's number, as a shell gives it.
"""

import asyncio
import contextlib
import os
import signal
from collections.abc import Callable

# A second signal so soon after the first counts as the same one (seconds): a terminal sends Ctrl-C to the whole process
# group, and wrappers such as npm and make send it to their child again.
SAME_S = 0.1


class StopSignal:
    """Sets `stop` at the first signal, and ends the process at the second. `first`: the first signal; None before it.

    `say` takes a sentence for the operator; `left` gives the words for what a second signal leaves unfinished.
    `before_exit`, if set, is called before the second signal ends the process.
    """

    def __init__(self, command: str, say: Callable[[str], None], left: Callable[[], str]) -> None:
        self.stop = asyncio.Event()
        self.first: signal.Signals | None = None
        self.before_exit: Callable[[], None] | None = None
        self._command, self._say, self._left = command, say, left
        self._loop = asyncio.get_running_loop()
        self._first_s: float | None = None
        for number in (signal.SIGTERM, signal.SIGINT):
            self._loop.add_signal_handler(number, self._on_signal, number)

    def _on_signal(self, number: signal.Signals) -> None:
        now = self._loop.time()
        if self._first_s is None:
            self._first_s, self.first = now, number
            self.stop.set()
        elif now - self._first_s >= SAME_S:
            self._end(number)

    def _end(self, number: signal.Signals) -> None:
        try:
            with contextlib.suppress(Exception):  # a failing disk must not prevent the exit
                self._say(f"{self._command}: stopping at once, after a second signal; {self._left()}")
                if self.before_exit is not None:
                    self.before_exit()
        finally:
            os._exit(128 + number)
