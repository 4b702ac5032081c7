"""The thread that takes streams' notes and hands them to the recorder. One a data directory and process.

while streams are open   their notes are taken each FLUSH_S; up to QUIET_S apart while none come
while something waits    and no recorder is there, it is looked for each RETRY_S
otherwise                after IDLE_S it lets the connection go, and sleeps without a timer
"""

import contextlib
import itertools
import logging
import os
import threading
from collections import deque
from pathlib import Path

from streamgauge.errors import StreamgaugeError
from streamgauge.runtime.faults import described, report_fault
from streamgauge.taps.inprocess.capture import EndedError, NotedStream
from streamgauge.taps.inprocess.outbox import CAPACITY_BYTES
from streamgauge.taps.inprocess.recorder_client import RETRY_S, Agents, RecorderConnection

# Notes are taken this often while they come (s): late enough to share what a turn costs, early beside the recorder's 1 s.
FLUSH_S = 0.05
# And this often at least while streams are open and quiet (seconds).
QUIET_S = 0.1
# Without streams the connection is kept for so long (seconds): it spares the next request of a busy process a new one.
IDLE_S = 1.0
# While somebody waits for a flush, it looks this often for the recorder, and whether all has gone out (seconds).
HURRY_S = 0.05

_log = logging.getLogger("streamgauge")


class BackgroundSender:
    """`begin` and `wake` may be called by any thread, and wait for nothing. `full`: there is no room for more reads."""

    def __init__(self, data_dir: Path, agents: Agents, capacity: int = CAPACITY_BYTES) -> None:
        self.full = False
        self._data_dir, self._agents, self._capacity = data_dir, agents, capacity
        self._begun: deque[NotedStream] = deque()
        self._numbers = itertools.count((os.getpid() & 0xFFFFFF) << 36)
        self._starting = threading.Lock()
        self._thread: threading.Thread | None = None
        self._bell = threading.Lock()  # released to ring it
        self._bell.acquire()
        self._asleep = False
        self._ended = False
        self._hurried: deque[threading.Event] = deque()  # who waits until all has gone out
        self._courier: RecorderConnection | None = None
        self._complained = ""

    # Called by the application's threads.

    def begin(self, capture: NotedStream) -> int:
        """A stream begins: its notes are taken from now on. Gives its number. Raises EndedError, or what a start raises."""
        if self._ended:
            raise EndedError
        if self._thread is None:
            self._start()
        capture.stream = next(self._numbers)
        self._begun.append(capture)
        if self._asleep:
            self.wake()
        return capture.stream

    def wake(self) -> None:
        """Come soon."""
        with contextlib.suppress(RuntimeError):  # it rings already
            self._bell.release()

    def flush(self, within_s: float) -> None:
        """Hand over all that was noted so far. Waits, for so long at most; not at all for a recorder that nobody expects."""
        if self._thread is not None and self._thread.is_alive():
            done = threading.Event()
            self._hurried.append(done)
            self.wake()
            done.wait(within_s)

    def close(self, within_s: float) -> None:
        """The process ends: hand over what there is, for so long at most, and count what stays as dropped."""
        self.flush(within_s)
        self._ended = self.full = True
        self.wake()
        if self._thread is not None:
            self._thread.join(within_s)

    def forget(self) -> None:
        """In a forked child: thread, connection and role are the parent's, and so are the streams begun so far."""
        self._ended = self.full = True
        if self._courier is not None:
            self._courier.forget()

    def _start(self) -> None:
        with self._starting:
            if self._thread is None:
                thread = threading.Thread(target=self._run, name="streamgauge-sender", daemon=True)
                thread.start()
                self._thread = thread

    # The thread.

    def _run(self) -> None:
        pause: float | None = FLUSH_S
        while not self._ended:
            hurried = self._take_hurried()
            try:
                pause = self._turn(pause, hurry=bool(hurried))
            except Exception as error:  # noqa: BLE001 - capture fails open: no fault of ours ends it for good
                pause = self._survive(error)
            self._sleep(self._answer(hurried, pause))
        if self._courier is not None:
            self._courier.close()

    def _turn(self, before: float | None, *, hurry: bool) -> float | None:
        """Gives how long nothing needs to be done (seconds); None: until somebody calls."""
        if self._courier is None:
            self._courier = RecorderConnection(self._data_dir, self._agents, self._capacity)
        courier = self._courier
        busy = courier.turn(self._begun, hurry=hurry)
        self.full = courier.full
        if courier.streams:
            return FLUSH_S if busy or before is None else min(2 * before, QUIET_S)
        if not courier.empty:
            return FLUSH_S if courier.connected else RETRY_S
        if courier.connected and (busy or before != IDLE_S):
            return IDLE_S
        courier.rest()
        return None

    def _survive(self, error: Exception) -> float | None:
        """The data directory cannot be used: streams that began are forgotten. Or a fault of ours: it is counted."""
        if not isinstance(error, OSError | StreamgaugeError):
            report_fault("the sender's thread of a tap in an application", error)
        complaint = described(error)
        if complaint != self._complained:
            self._complained = complaint
            what = "they are not captured" if self._courier is None else "a part of the captured data may be lost"
            _log.warning("streamgauge: streams are not affected, but %s (%s)", what, complaint)
        if self._courier is None:
            self.full = True
            self._begun.clear()
            return None
        try:
            self._courier.survived()
        except Exception as failed:  # noqa: BLE001 - as in `_run`: the thread goes on
            report_fault("the counters of a tap in an application", failed)
        return RETRY_S

    def _take_hurried(self) -> list[threading.Event]:
        """Those who wait by now: what they noted before is taken in the turn that follows."""
        return [self._hurried.popleft() for _ in range(len(self._hurried))]

    def _answer(self, hurried: list[threading.Event], pause: float | None) -> float | None:
        courier = self._courier
        if hurried and courier is not None and not courier.empty and not courier.hopeless:
            self._hurried.extend(hurried)
            return HURRY_S
        for one in hurried:
            one.set()
        return pause

    def _sleep(self, pause: float | None) -> None:
        """Until the pause is over, or somebody rings. Who begins a stream rings only where the pause is long."""
        self._asleep = pause is None or pause > QUIET_S
        if not (self._asleep and (self._begun or self._hurried or self._ended)):
            self._bell.acquire(timeout=-1 if pause is None else pause)
        self._asleep = False
