"""Time and processes of a simulation: one virtual clock, an event loop for each process, no thread and no waiting.

A process can be frozen (SIGSTOP: its loop does not turn, what it had begun goes on when it wakes) and killed (SIGKILL:
its loop is thrown away, nothing of it runs any more, no handler and no `finally`). What lies between processes (a
message on the wire, a broker's timer) is an event of the world and outlives them.
"""

import asyncio
import contextlib
import heapq
import itertools
import random
from collections.abc import Callable, Coroutine
from typing import Any

# Turns of one process at one moment: more is a loop that never rests.
_MAX_TURNS = 20_000


class Stuck(AssertionError):
    """A process turns for ever without letting time pass."""


class _NoSockets:
    """What a loop asks for input and output: there is none, and time passes elsewhere."""

    def select(self, _timeout: float | None) -> list[object]:
        return []


class ProcessLoop(asyncio.BaseEventLoop):
    """asyncio's own loop on the world's clock. What runs in an executor runs at once."""

    def __init__(self, world: "World") -> None:
        super().__init__()
        self._world = world
        self._selector = _NoSockets()
        self._clock_resolution = 1e-9
        self.set_debug(False)

    def time(self) -> float:
        return self._world.now

    def _process_events(self, _events: list[object]) -> None:
        pass

    def _write_to_self(self) -> None:
        pass

    def run_in_executor(self, executor: Any, func: Callable[..., Any], *args: Any) -> Any:  # type: ignore[override]
        future = self.create_future()
        try:
            future.set_result(func(*args))
        except Exception as error:  # noqa: BLE001 - an executor passes any exception on
            future.set_exception(error)
        return future

    @property
    def has_work(self) -> bool:
        scheduled = self._scheduled  # type: ignore[attr-defined]
        return bool(self._ready or (scheduled and scheduled[0]._when <= self._world.now))  # type: ignore[attr-defined]

    @property
    def next_at(self) -> float:
        scheduled = self._scheduled  # type: ignore[attr-defined]
        return float(scheduled[0]._when) if scheduled else float("inf")

    def turn(self) -> None:
        asyncio._set_running_loop(self)
        try:
            self._run_once()  # type: ignore[attr-defined]
        finally:
            asyncio._set_running_loop(None)


class Process:
    """One process; `alive` until it is killed or ends. `has_sent` is called with the topic of each of its sends."""

    def __init__(self, world: "World") -> None:
        self.world = world
        self.loop = ProcessLoop(world)
        self.alive = True
        self.frozen = False
        self.has_sent: Callable[[str], None] = lambda topic: None
        self.loop.set_exception_handler(self._on_exception)
        world.processes.append(self)

    def start(self, work: Coroutine[Any, Any, Any]) -> None:
        self.loop.create_task(work)

    def later(self, delay: float, what: Callable[..., object], *args: object) -> None:
        """Something that reaches this process after `delay`: when it is frozen later, when it is dead never."""
        if self.alive:
            self.loop.call_later(delay, what, *args)

    def kill(self) -> None:
        if not self.alive:
            return
        self.alive = False
        self.world.processes.remove(self)
        for task in asyncio.all_tasks(self.loop):
            task._log_destroy_pending = False  # type: ignore[attr-defined]
            with contextlib.suppress(RuntimeError):
                task.get_coro().close()
        self.loop.close()

    def _on_exception(self, _loop: object, context: dict[str, Any]) -> None:
        self.world.unhandled.append(repr(context.get("exception") or context["message"]))


class World:
    """The clock (seconds), what is to happen, and who runs. `chance` decides everything; the same seed, the same world."""

    def __init__(self, seed: int) -> None:
        self.now = 0.0
        self.chance = random.Random(seed)
        self.processes: list[Process] = []
        self.unhandled: list[str] = []
        self._events: list[tuple[float, int, Callable[[], object]]] = []
        self._count = itertools.count()

    def after(self, delay: float, what: Callable[[], object]) -> None:
        """Let something happen after `delay` seconds. What is due at the same moment happens in the order of asking."""
        heapq.heappush(self._events, (self.now + delay, next(self._count), what))

    def run(self, until: Callable[[], bool], limit_s: float) -> bool:
        """Let time pass until a condition holds; False if `limit_s` is reached before."""
        while not until():
            moment = min(self._turn_all(), self._events[0][0] if self._events else limit_s)
            if moment >= limit_s:
                self.now = max(self.now, limit_s)
                return until()
            self.now = max(self.now, moment)
            while self._events and self._events[0][0] <= self.now:
                heapq.heappop(self._events)[2]()
        return True

    def end(self) -> None:
        """Kill the processes that still run."""
        for process in list(self.processes):
            process.kill()

    def _turn_all(self) -> float:
        """Runs all work that is due; gives the time at which the next work is due."""
        moment = float("inf")
        for process in list(self.processes):
            turns = 0
            while process.alive and not process.frozen and process.loop.has_work:
                process.loop.turn()
                turns += 1
                if turns > _MAX_TURNS:
                    raise Stuck(f"a process turns for ever at {self.now}")
            if process.alive and not process.frozen:
                moment = min(moment, process.loop.next_at)
        return moment
