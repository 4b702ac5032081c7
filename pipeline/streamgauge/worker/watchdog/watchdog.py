"""The watchdog: ends a stuck worker with a reason, from a thread that no blocked event loop can stop.

It adds up the times between its own checks, and counts each at most as _MAX_ELAPSED_S. So the time in which the process was
stopped (SIGSTOP, a suspended machine) or starved of CPU does not count. Code that holds Python's interpreter lock stops the
watchdog as well; then the group's session expires, and the liveness probe gets no response.
"""

import asyncio
import contextlib
import logging
import os
import sys
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from types import FrameType
from typing import Any

import msgspec

from streamgauge.metrics import table
from streamgauge.metrics.prometheus import Metrics
from streamgauge.worker.faults import StuckError
from streamgauge.worker.watchdog.rules import BLOCKED_S, STUCK_S, Cause, Probe, Stuck, StuckDetector

_LOG = logging.getLogger("streamgauge.worker")

# How often the watchdog checks, and the most that the time between two checks counts (seconds).
_CHECK_EVERY_S = 1.0
_MAX_ELAPSED_S = 2 * _CHECK_EVERY_S
# How long a progress probe may take before it counts as hung (seconds): its requests and their retries.
PROBE_S = 120.0
# How long a worker whose event loop still runs may take to end in order (seconds): it stops Faust and the producers.
GRACE_S = 40.0
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
        self._until_end_s: float | None = None  # until the process has to have ended; None before `expect_end`
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

    def join(self, timeout_s: float) -> bool:
        """Wait for the thread; whether it has ended by then."""
        self._thread.join(timeout_s)
        return not self._thread.is_alive()

    def watch(self, name: str, loop: asyncio.AbstractEventLoop) -> None:
        """Also check whether this event loop runs. `fail` is called on the first loop given. Idempotent for one loop."""
        if all(loop_check.loop is not loop for loop_check in self._loops):
            self._loops.append(_LoopCheck(name, loop))

    def report(self, probe: Probe) -> None:
        """Report the result of a progress probe."""
        self._probe = probe

    def expect_end(self, within_s: float) -> None:
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
            if self._since_probe_s >= PROBE_S:
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
        """Call `fail` on the worker's loop; whether the worker then stopped the watchdog within GRACE_S."""
        if self._loops and self._loops[0].call(self.fail, fault):
            return self._over.wait(GRACE_S)
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

    def call(self, callback: Callable[..., None], *arguments: object) -> bool:
        """Schedule a call on the loop; False if the loop is closed."""
        try:
            self.loop.call_soon_threadsafe(callback, *arguments)
        except RuntimeError:
            return False
        return True

    def _ran(self) -> None:
        self._scheduled = False


# --- the last log line: the frames of each thread and task -------------------------------------------------------------


# The most frames of a stack, counted from the innermost.
_FRAMES = 20
# The most tasks of an event loop: a worker has some dozens, and one with all partitions some hundreds.
TASKS = 1_000
# How much of a task's name is kept (characters): Faust puts the whole coroutine into some names.
_NAME = 80
# The threads of this process by id, including those that run no Python. Linux only; it is in memory, not on a disk.
_SYSTEM_THREADS = Path("/proc/self/task")


def stacks_of(loops: Mapping[str, asyncio.AbstractEventLoop]) -> dict[str, list[str]]:
    """File, line and function of each frame, outermost first, by thread and by task; without any values.

    It never waits, and never reads from a disk, because the worker may be stuck on that disk. So frames have no source line.

    Safe to call from any thread. Every thread has an entry; a thread that runs no Python, for example of a library in C, has
    its id and its system name, without frames. `loops`: the event loops by name. If an event loop runs meanwhile, some of
    its tasks may be missing.
    """
    stacks: dict[str, list[str]] = {}
    threads = {thread.ident: thread for thread in threading.enumerate()}
    for ident, frame in sys._current_frames().items():
        thread = threads.get(ident)
        _add(stacks, f"thread {thread.name if thread is not None else ident}", _frames(frame))
    for name in _threads_without_python({thread.native_id for thread in threads.values()}):
        _add(stacks, f"thread {name}", [])
    for name, loop in loops.items():
        tasks = _tasks(loop)
        for task in tasks[:TASKS]:
            _add(stacks, f"{name}, task {task.get_name()[:_NAME]}", _frames_of_task(task))
        if len(tasks) > TASKS:
            _add(stacks, f"{name}, {len(tasks) - TASKS} more tasks", [])
    return stacks


def _add(stacks: dict[str, list[str]], name: str, frames: list[str]) -> None:
    """Add an entry; a name that is already present gets a number."""
    entry, times = name, 1
    while entry in stacks:
        times += 1
        entry = f"{name} ({times})"
    stacks[entry] = frames


def _frames(frame: FrameType | None) -> list[str]:
    lines: list[str] = []
    while frame is not None and len(lines) < _FRAMES:
        lines.append(f"{frame.f_code.co_filename}:{frame.f_lineno} {frame.f_code.co_name}")
        frame = frame.f_back
    return lines[::-1]


def _threads_without_python(known: set[int | None]) -> Iterator[str]:
    """The threads of this process that the `threading` module does not list, as `id (system name)`.

    They include threads that were created in C and run Python; their frames are listed under their Python thread id.
    """
    try:
        threads = list(_SYSTEM_THREADS.iterdir())
    except OSError:  # not on Linux
        return
    for thread in threads:
        if int(thread.name) not in known:
            try:
                name = (thread / "comm").read_text(errors="replace").strip()
            except OSError:  # it has ended
                continue
            yield f"{thread.name} ({name})"


def _tasks(loop: asyncio.AbstractEventLoop) -> list["asyncio.Task[Any]"]:
    try:
        return sorted(asyncio.all_tasks(loop), key=lambda task: task.get_name())
    except RuntimeError:  # tasks come and go while they are listed
        return []


def _frames_of_task(task: "asyncio.Task[Any]") -> list[str]:
    """The frames of a task: of its coroutine, of the object that it awaits, and so on."""
    lines: list[str] = []
    awaited: Any = task.get_coro()
    while awaited is not None and len(lines) < _FRAMES:
        frame = next((value for name in _FRAME if (value := getattr(awaited, name, None)) is not None), None)
        if frame is not None:
            lines.append(f"{frame.f_code.co_filename}:{frame.f_lineno} {frame.f_code.co_name}")
        awaited = next((value for name in _AWAITED if (value := getattr(awaited, name, None)) is not None), None)
    return lines


# The attributes of coroutines, async generators and generators for the frame, and for the awaited object.
_FRAME = ("cr_frame", "ag_frame", "gi_frame")
_AWAITED = ("cr_await", "ag_await", "gi_yieldfrom")


# --- how often it ended a worker ---------------------------------------------------------------------------------------


# The most that is read of the file (bytes): more than four counts need; any other, larger file is not read whole.
_MAX_COUNTS_BYTES = 4096


class StuckExitCounts:
    """Counts of how often the watchdog ended one group member, by cause, in the file `path`, for the next start's metrics.

    A stuck worker may not be scraped any more, and its successor starts with empty counters. Without the file, the metrics
    would not show why workers restart. Adds the counts of earlier processes to `metrics` at once.

    `member`: the slot's member id, under which they count. A restarted worker may get another slot than before.
    """

    def __init__(self, path: Path, member: str, metrics: Metrics) -> None:
        self._path = path
        self._member = member
        self._metrics = metrics
        self._counts = _read_counts(path)
        for cause in Cause:
            metrics.add(table.STUCK_EXITS.name, self._counts.get(cause, 0), cause=cause.value, member=member)

    def count(self, cause: Cause) -> None:
        """Count one exit. Ignores a failed write, so that the exit continues."""
        self._metrics.add(table.STUCK_EXITS.name, cause=cause.value, member=self._member)
        self._counts[cause] = self._counts.get(cause, 0) + 1
        new_file = self._path.with_suffix(".new")
        with contextlib.suppress(OSError):
            new_file.unlink(missing_ok=True)  # left by a killed process; a symbolic link there is not followed
            with new_file.open("xb") as file:
                file.write(msgspec.json.encode(self._counts))
            new_file.replace(self._path)


def _read_counts(path: Path) -> dict[Cause, int]:
    try:
        with path.open("rb") as file:
            return msgspec.json.decode(file.read(_MAX_COUNTS_BYTES), type=dict[Cause, int])
    except (OSError, msgspec.DecodeError):
        return {}
