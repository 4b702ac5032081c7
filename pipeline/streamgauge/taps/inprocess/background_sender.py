"""The thread that collects the notes of streams and sends them to the recorder: one for each data directory and process.

while streams are open   it collects notes every FLUSH_S; up to every QUIET_S if there are none
while messages wait      and no recorder is reachable, it tries to connect every RETRY_S
otherwise                it closes the connection after IDLE_S, and sleeps without a timer
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

# Interval between turns while notes arrive (seconds): long enough to spread the cost of a turn over many notes, short
# compared with the recorder's flush interval of 1 s.
FLUSH_S = 0.05
# Longest interval between turns while streams are open and quiet (seconds).
QUIET_S = 0.1
# How long the connection stays open without streams (seconds): the next request of a busy process then needs no new
# one.
IDLE_S = 1.0
# Interval of attempts to connect and to send while a caller waits for a flush (seconds).
HURRY_S = 0.05

_log = logging.getLogger("streamgauge")


class BackgroundSender:
    """`begin` and `wake` may be called from any thread and do not wait. `full`: there is no room for more reads."""

    def __init__(self, data_dir: Path, agents: Agents, capacity: int = CAPACITY_BYTES) -> None:
        self.full = False
        self._data_dir, self._agents, self._capacity = data_dir, agents, capacity
        self._begun: deque[NotedStream] = deque()
        self._numbers = itertools.count((os.getpid() & 0xFFFFFF) << 36)
        self._starting = threading.Lock()
        self._thread: threading.Thread | None = None
        self._bell = threading.Lock()  # released to wake the thread
        self._bell.acquire()
        self._asleep = False
        self._ended = False
        self._hurried: deque[threading.Event] = deque()  # set when everything has been sent
        self._courier: RecorderConnection | None = None
        self._complained = ""

    # Called by the application's threads.

    def begin(self, capture: NotedStream) -> int:
        """Starts to collect the notes of a stream. Returns its number. Raises EndedError, or what starting the thread
        raises.
        """
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
        """Ends the thread's current sleep."""
        with contextlib.suppress(RuntimeError):  # it is released already
            self._bell.release()

    def flush(self, within_s: float) -> None:
        """Sends everything noted so far. Waits at most `within_s` seconds, and not for a recorder that will not start."""
        if self._thread is not None and self._thread.is_alive():
            done = threading.Event()
            self._hurried.append(done)
            self.wake()
            done.wait(within_s)

    def close(self, within_s: float) -> None:
        """The process exits: sends what is noted, for at most `within_s` seconds, and counts the rest as dropped."""
        self.flush(within_s)
        self._ended = self.full = True
        self.wake()
        if self._thread is not None:
            self._thread.join(within_s)

    def forget(self) -> None:
        """Called in a forked child: the thread, the connection, the counter slot and open streams belong to the parent."""
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
            except Exception as error:  # noqa: BLE001 - capture fails open: an internal error must not end the thread
                pause = self._survive(error)
            self._sleep(self._answer(hurried, pause))
        if self._courier is not None:
            self._courier.close()

    def _turn(self, before: float | None, *, hurry: bool) -> float | None:
        """Does one turn. Returns the pause until the next one (seconds); None: until `wake`."""
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
        """Handles an error of a turn: drops the streams begun so far if the data directory is unusable, else counts it."""
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
        except Exception as failed:  # noqa: BLE001 - as in `_run`: the thread must continue
            report_fault("the counters of a tap in an application", failed)
        return RETRY_S

    def _take_hurried(self) -> list[threading.Event]:
        """The waiting flush calls. The turn that follows collects everything that was noted before them."""
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
        """Sleeps until the pause is over or `wake` is called. `begin` calls `wake` only if the pause is long."""
        self._asleep = pause is None or pause > QUIET_S
        if not (self._asleep and (self._begun or self._hurried or self._ended)):
            self._bell.acquire(timeout=-1 if pause is None else pause)
        self._asleep = False
