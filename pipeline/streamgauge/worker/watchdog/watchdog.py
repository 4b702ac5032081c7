"""The watchdog: turns a stuck worker into an exit with a reason, from a thread that no event loop can stop.

It counts its own looks and not the clock's time: a process that was stopped (SIGSTOP, a suspended machine) or starved
did not get to look either, and wakes no older than it fell asleep. What holds Python's interpreter lock stops it, too;
then the group's session ends, and the liveness probe gets no answer.
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

# How often it looks (seconds), and how much of the time between two looks counts, at most.
_LOOK_S = 1.0
_MOST_S = 2 * _LOOK_S
# How long a look at the broker may take before it counts as hung itself (seconds): its requests and their retries.
_CHECKUP_S = 120.0
# How long a worker whose loop still turns may take to end in order (seconds): it lets go of Faust and the producer.
_GRACE_S = 40.0
# How long the last sentence may take to be written (seconds): stderr may be a full pipe.
_SAY_S = 2.0


class Watchdog:
    """Start it with `start`. `stuck`: the verdict, None as long as all is well. `end` ends the process at once.

    `fail` is called on the watched loop, to end in order; `note` from the thread, to leave a trace of the cause.
    """

    def __init__(
        self, stuck_s: float = STUCK_S, blocked_s: float = BLOCKED_S, *, end: Callable[[int], object] = os._exit
    ) -> None:
        self._judge = StuckDetector(stuck_s)
        self._blocked_s = blocked_s
        self._end = end
        self._beats: list[_Beat] = []
        self._found: Probe | None = None
        self._unheard_s: float | None = None  # since the last checkup; None until there was one
        self._left_s: float | None = None  # until it has to be gone; None until it was told to go
        self._over = threading.Event()
        self._thread = threading.Thread(target=self._run, name="watchdog", daemon=True)
        self.note: Callable[[Cause], None] = lambda cause: None
        self.fail: Callable[[StuckError], None] = lambda fault: None
        self.stuck: Stuck | None = None

    def start(self) -> None:
        """Begin to look. The thread does not keep the process."""
        self._thread.start()

    def stop(self) -> None:
        """Look no more."""
        self._over.set()

    def watch(self, name: str, loop: asyncio.AbstractEventLoop) -> None:
        """Look whether this event loop turns, too; the first is the one that `fail` is called on. Twice is as once."""
        if all(beat.loop is not loop for beat in self._beats):
            self._beats.append(_Beat(name, loop))

    def found(self, found: Probe) -> None:
        """What a checkup found."""
        self._found = found

    def ending(self, within_s: float) -> None:
        """The worker was told to end: no checkup comes any more, and the process has to be gone in time.

        Told twice, the earlier end counts.
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
        # The next life of a static member would be given the same assignment, in which partitions are missing.
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
        """Whether the process ended, or somebody ended the watch, once the worker was told its fault."""
        if self._beats and self._beats[0].tell(self.fail, fault):
            return self._over.wait(_GRACE_S)
        return False


class _Beat:
    """Asks a loop to answer, and counts how long it does not."""

    def __init__(self, name: str, loop: asyncio.AbstractEventLoop) -> None:
        self.name = name
        self.loop = loop
        self._waits = False
        self.silent_s = 0.0

    def look(self, elapsed_s: float) -> float:
        """For how long it has not answered (seconds)."""
        if self._waits and not self.loop.is_closed():
            self.silent_s += elapsed_s
        else:
            self.silent_s = 0.0
            self._waits = True  # before it is asked: it may answer at once
            if not self.tell(self._answer):
                self._waits = False
        return self.silent_s

    def tell(self, what: Callable[..., None], *given: object) -> bool:
        """Have the loop call something; False if it is closed."""
        try:
            self.loop.call_soon_threadsafe(what, *given)
        except RuntimeError:
            return False
        return True

    def _answer(self) -> None:
        self._waits = False
