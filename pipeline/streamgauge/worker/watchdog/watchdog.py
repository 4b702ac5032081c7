"""The watchdog: ends a stuck worker with a reason, from a thread that no blocked event loop can stop.

It adds up the times between its own checks, and counts each at most as _MOST_S. So the time in which the process was
stopped (SIGSTOP, a suspended machine) or starved of CPU does not count. Code that holds Python's interpreter lock stops the
watchdog as well; then the group's session expires, and the liveness probe gets no response.
"""

import asyncio
import logging
import os
import threading
import time
from collections.abc import Callable

from streamgauge.worker.faults import StuckError
from streamgauge.worker.watchdog.rules import BLOCKED_S, STUCK_S, Cause, Probe, Stuck, StuckDetector
from streamgauge.worker.watchdog.stacks import stacks_of

_LOG = logging.getLogger("streamgauge.worker")

# How often the watchdog checks, and the most that the time between two checks counts (seconds).
_LOOK_S = 1.0
_MOST_S = 2 * _LOOK_S
# How long a progress probe may take before it counts as hung (seconds): its requests and their retries.
_CHECKUP_S = 120.0
# How long a worker whose event loop still runs may take to end in order (seconds): it stops Faust and the producers.
_GRACE_S = 40.0
# How long writing the last log line may take (seconds): stderr may be a full pipe.
_SAY_S = 2.0


class Watchdog:
    """The watchdog's thread; start it with `start`. `stuck`: the verdict; None if not stuck.

    `end` ends the process at once, with an exit code. `fail` is called on the first watched loop, to end in order. `note` is
    called from the thread, to count the cause.
    """

    def __init__(
        self, stuck_s: float = STUCK_S, blocked_s: float = BLOCKED_S, *, end: Callable[[int], object] = os._exit
    ) -> None:
        self._judge = StuckDetector(stuck_s)
        self._blocked_s = blocked_s
        self._end = end
        self._beats: list[_Beat] = []
        self._found: Probe | None = None
        self._unheard_s: float | None = None  # since the last progress probe; None before the first one
        self._left_s: float | None = None  # until the process has to have ended; None before `ending`
        self._over = threading.Event()
        self._thread = threading.Thread(target=self._run, name="watchdog", daemon=True)
        self.note: Callable[[Cause], None] = lambda cause: None
        self.fail: Callable[[StuckError], None] = lambda fault: None
        self.stuck: Stuck | None = None

    def start(self) -> None:
        """Begin to check. The thread is a daemon, so it does not keep the process alive."""
        self._thread.start()

    def stop(self) -> None:
        """End the checks."""
        self._over.set()

    def watch(self, name: str, loop: asyncio.AbstractEventLoop) -> None:
        """Also check whether this event loop runs. `fail` is called on the first loop given. Idempotent for one loop."""
        if all(beat.loop is not loop for beat in self._beats):
            self._beats.append(_Beat(name, loop))

    def found(self, found: Probe) -> None:
        """Report the result of a progress probe."""
        self._found = found

    def ending(self, within_s: float) -> None:
        """Report that the worker stops: the process has to end within this time (seconds), and no more probes are expected.

        After several calls, the earliest end counts.
        """
        self._left_s = within_s if self._left_s is None else min(within_s, self._left_s)

    # --- in the thread ----------------------------------------------------------------------------------------------

    def _run(self) -> None:
        before = time.monotonic()
        while not self._over.wait(_LOOK_S):
            now = time.monotonic()
            verdict = self._look(min(now - before, _MOST_S))
            before = now
            if verdict is not None:
                self._exit(verdict)
                return

    def _look(self, elapsed_s: float) -> Stuck | None:
        for beat in list(self._beats):
            if beat.look(elapsed_s) >= self._blocked_s:
                return Stuck(Cause.LOOP, f"{beat.name} has been blocked for {beat.silent_s:.0f} s")
        if self._left_s is not None:
            self._left_s -= elapsed_s
            return Stuck(Cause.STOP, "it did not stop in time") if self._left_s <= 0 else None
        return self._look_at_checkup(elapsed_s)

    def _look_at_checkup(self, elapsed_s: float) -> Stuck | None:
        found, self._found = self._found, None
        if found is not None:
            since, self._unheard_s = self._unheard_s or 0.0, 0.0
            return self._judge.look(found, since + elapsed_s)
        if self._unheard_s is not None:
            self._unheard_s += elapsed_s
            if self._unheard_s >= _CHECKUP_S:
                return Stuck(Cause.LOOP, f"its self-check has not finished for {self._unheard_s:.0f} s")
        return None

    def _exit(self, stuck: Stuck) -> None:
        self.stuck = stuck
        self.note(stuck.cause)
        stacks = stacks_of({beat.name: beat.loop for beat in list(self._beats)})
        # If it stayed a static member, a restart would get the same assignment, in which partitions are missing.
        leaves = stuck.cause is Cause.GROUP
        fault = StuckError(f"the worker is stuck and exits: {stuck.why}", stacks, leaves=leaves)
        if stuck.cause in (Cause.COMMIT, Cause.GROUP) and self._ends_in_order(fault):
            return
        saying = threading.Thread(
            target=_LOG.error, args=("%s", fault), kwargs={"extra": {"stacks": stacks}}, daemon=True
        )
        saying.start()
        saying.join(_SAY_S)
        self._end(fault.exit_code)

    def _ends_in_order(self, fault: StuckError) -> bool:
        """Call `fail` on the worker's loop; whether the worker then stopped the watchdog within _GRACE_S."""
        if self._beats and self._beats[0].tell(self.fail, fault):
            return self._over.wait(_GRACE_S)
        return False


class _Beat:
    """Calls a callback on an event loop, and measures for how long the loop does not run it."""

    def __init__(self, name: str, loop: asyncio.AbstractEventLoop) -> None:
        self.name = name
        self.loop = loop
        self._waits = False
        self.silent_s = 0.0

    def look(self, elapsed_s: float) -> float:
        """Check once; returns for how long the loop has not run the callback (seconds)."""
        if self._waits and not self.loop.is_closed():
            self.silent_s += elapsed_s
        else:
            self.silent_s = 0.0
            self._waits = True  # set before the call, because the loop may run the callback at once
            if not self.tell(self._answer):
                self._waits = False
        return self.silent_s

    def tell(self, what: Callable[..., None], *given: object) -> bool:
        """Schedule a call on the loop; False if the loop is closed."""
        try:
            self.loop.call_soon_threadsafe(what, *given)
        except RuntimeError:
            return False
        return True

    def _answer(self) -> None:
        self._waits = False
