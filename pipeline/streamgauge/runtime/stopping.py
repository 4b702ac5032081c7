"""How a command that stays is told to stop: the first SIGTERM or Ctrl-C ends it in order, a second one at once.

At once is what SIGKILL does: children end when their stdin does, open streams are cut, and the next start accounts for what
was under way. The exit code is 128 + the signal's number then, as a shell gives it.
"""

import asyncio
import contextlib
import os
import signal
from collections.abc import Callable

# A second signal this soon after the first is the same one (seconds): a terminal sends Ctrl-C to the whole group, and
# wrappers such as npm and make send it to their child once more.
SAME_S = 0.1


class StopSignal:
    """`stop` is set by the first signal. `say` takes a sentence for the operator; `left` says what a second one leaves.

    `before_exit` is called before the second signal ends the process, if it is set.
    """

    def __init__(self, command: str, say: Callable[[str], None], left: Callable[[], str]) -> None:
        self.stop = asyncio.Event()
        self.before_exit: Callable[[], None] | None = None
        self._command, self._say, self._left = command, say, left
        self._loop = asyncio.get_running_loop()
        self._first_s: float | None = None
        for number in (signal.SIGTERM, signal.SIGINT):
            self._loop.add_signal_handler(number, self._told, number)

    def _told(self, number: signal.Signals) -> None:
        now = self._loop.time()
        if self._first_s is None:
            self._first_s = now
            self.stop.set()
        elif now - self._first_s >= SAME_S:
            self._end(number)

    def _end(self, number: signal.Signals) -> None:
        try:
            with contextlib.suppress(Exception):  # a disk that fails does not keep the process
                self._say(f"{self._command}: stopping at once, after a second signal; {self._left()}")
                if self.before_exit is not None:
                    self.before_exit()
        finally:
            os._exit(128 + number)
