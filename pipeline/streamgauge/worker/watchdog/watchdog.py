"""The watchdog: ends a stuck worker with a reason, from a thread that no blocked event loop can stop.

It adds up the times between its own checks, and counts each at most as _MAX_ELAPSED_S. So the time in which the process was
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
_CHECK_EVERY_S = 1.0
_MAX_ELAPSED_S = 2 * _CHECK_EVERY_S
# How long a progress probe may take before it counts as hung (seconds): its requests and their retries.
_PROBE_S = 120.0
# How long a worker whose event loop still runs may take to end in order (seconds): it stops Faust and the producers.
_GRACE_S = 40.0
# How long writing the last log line may take (seconds): stderr may be a full pipe.
_LOG_S = 2.0


class Watchdog:
    """The watchdog's thread; start it with `start`. `stuck`: the verdict; None if not stuck.

    `end` ends the process at once, with an exit code. `fail` is called on the first watched loop, to end in order.
    `count_exit` is called from the thread, to count the cause.
    """

    def __init__(
        self, stuck_s: float = STUCK_S, blocked_s: float = BLOCKED_S, *, end: Callable[[int], object] = os._exit
    ) -> None:
        self._detector = StuckDetector(stuck_s)
        self._blocked_s = blocked_s
        self._end = end
        self._loops: list[_LoopCheck] = []
        self._probe: Probe | None = None
        self._since_probe_s: float | None = None  # since the last progress probe; None before the first one
        self._until_end_s: float | None = None  # until the process has to have ended; None before `ending`
        self._over = threading.Event()
        self._thread = threading.Thread(target=self._run, name="watchdog", daemon=True)
        self.count_exit: Callable[[Cause], None] = lambda cause: None
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
        if all(loop_check.loop is not loop for loop_check in self._loops):
            self._loops.append(_LoopCheck(name, loop))

    def report(self, probe: Probe) -> None:
        """Report the result of a progress probe."""
        self._probe = probe

    def ending(self, within_s: float) -> None:
        """Report that the worker stops: the process has to end within this time (seconds), and no more probes are expected.

        After several calls, the earliest end counts.
        """
        self._until_end_s = within_s if self._until_end_s is None else min(within_s, self._until_end_s)

    # --- in the thread ----------------------------------------------------------------------------------------------

    def _run(self) -> None:
        before = time.monotonic()
        while not self._over.wait(_CHECK_EVERY_S):
            now = time.monotonic()
            verdict = self._check(min(now - before, _MAX_ELAPSED_S))
            before = now
            if verdict is not None:
                self._exit(verdict)
                return

    def _check(self, elapsed_s: float) -> Stuck | None:
        for loop_check in list(self._loops):
            if loop_check.check(elapsed_s) >= self._blocked_s:
                return Stuck(Cause.LOOP, f"{loop_check.name} has been blocked for {loop_check.silent_s:.0f} s")
        if self._until_end_s is not None:
            self._until_end_s -= elapsed_s
            return Stuck(Cause.STOP, "it did not stop in time") if self._until_end_s <= 0 else None
        return self._check_probe(elapsed_s)

    def _check_probe(self, elapsed_s: float) -> Stuck | None:
        probe, self._probe = self._probe, None
        if probe is not None:
            since, self._since_probe_s = self._since_probe_s or 0.0, 0.0
            return self._detector.apply(probe, since + elapsed_s)
        if self._since_probe_s is not None:
            self._since_probe_s += elapsed_s
            if self._since_probe_s >= _PROBE_S:
                return Stuck(Cause.LOOP, f"its self-check has not finished for {self._since_probe_s:.0f} s")
        return None

    def _exit(self, stuck: Stuck) -> None:
        self.stuck = stuck
        self.count_exit(stuck.cause)
        stacks = stacks_of({loop_check.name: loop_check.loop for loop_check in list(self._loops)})
        # If it stayed a static member, a restart would get the same assignment, in which partitions are missing.
        leaves = stuck.cause is Cause.GROUP
        fault = StuckError(f"the worker is stuck and exits: {stuck.why}", stacks, leaves=leaves)
        if stuck.cause in (Cause.COMMIT, Cause.GROUP) and self._ends_in_order(fault):
            return
        logging_thread = threading.Thread(
            target=_LOG.error, args=("%s", fault), kwargs={"extra": {"stacks": stacks}}, daemon=True
        )
        logging_thread.start()
        logging_thread.join(_LOG_S)
        self._end(fault.exit_code)

    def _ends_in_order(self, fault: StuckError) -> bool:
        """Call `fail` on the worker's loop; whether the worker then stopped the watchdog within _GRACE_S."""
        if self._loops and self._loops[0].call(self.fail, fault):
            return self._over.wait(_GRACE_S)
        return False


class _LoopCheck:
    """Calls a callback on an event loop, and measures for how long the loop does not run it."""

    def __init__(self, name: str, loop: asyncio.AbstractEventLoop) -> None:
        self.name = name
        self.loop = loop
        self._scheduled = False
        self.silent_s = 0.0

    def check(self, elapsed_s: float) -> float:
        """Check once; returns for how long the loop has not run the callback (seconds)."""
        if self._scheduled and not self.loop.is_closed():
            self.silent_s += elapsed_s
        else:
            self.silent_s = 0.0
            self._scheduled = True  # set before the call, because the loop may run the callback at once
            if not self.call(self._ran):
                self._scheduled = False
        return self.silent_s

    def call(self, what: Callable[..., None], *given: object) -> bool:
        """Schedule a call on the loop; False if the loop is closed."""
        try:
            self.loop.call_soon_threadsafe(what, *given)
        except RuntimeError:
            return False
        return True

    def _ran(self) -> None:
        self._scheduled = False
