"""The processes that a chaos run kills and restarts: workers on one data directory, taps with one each, and the broker."""

import asyncio
import contextlib
import os
import re
import signal
from collections.abc import AsyncIterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path

from tests.processes import children, runs
from tests.running import Running, start, wait_for, wait_until_ready

# The delay before a process that ended by itself is restarted (seconds).
_LOOK_S = 0.5
# The longest time that a process may take to end (seconds).
_STOP_TIMEOUT_S = 90.0
# The time within which a worker serves again after it was stopped or its broker was unreachable (seconds).
_READY_TIMEOUT_S = 90.0


@dataclass
class Left:
    """A process that ended unrequested: its name, exit code and reason, and the phase in which it ended."""

    name: str
    code: int
    said: str
    phase: str


@dataclass
class Seat:
    """A command that is to run, and its current process."""

    name: str
    command: str
    flags: list[str]
    place: Path
    stack: contextlib.ExitStack = field(default_factory=contextlib.ExitStack)
    running: Running | None = None
    vacant: bool = False  # set while no process may be started

    def start(self) -> Running:
        """Starts it without waiting until it serves."""
        self.running = self.stack.enter_context(start(self.command, self.flags, self.place))
        return self.running

    @property
    def alive(self) -> bool:
        return self.running is not None and self.running.process.poll() is None

    def signal(self, number: int) -> bool:
        """Signals the process itself; returns False if it does not exist."""
        if not self.alive:
            return False
        assert self.running is not None
        self.running.process.send_signal(number)
        return True

    def kill(self) -> None:
        """Kills it and all its children with SIGKILL, like a crash of the machine; returns when none of them runs."""
        assert self.running is not None
        process = self.running.process  # a moment later it may belong to the next process
        started = children(process.pid)
        for pid in (process.pid, *started):
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
        process.wait()
        wait_for(lambda: not any(map(runs, started)), f"end of {self.name}'s processes")

    def stop(self) -> int:
        """SIGTERM; gives the exit code."""
        self.vacant = True
        self.signal(signal.SIGCONT)
        self.signal(signal.SIGTERM)
        assert self.running is not None
        code = self.running.process.wait(_STOP_TIMEOUT_S)
        self.stack.close()
        return code

    def admin(self) -> str:
        """The address of its admin port; waits until it is ready."""
        assert self.running is not None
        wait_until_ready(self.running)
        return self.running.admin

    def ready(self) -> bool:
        """Whether its admin port reports that it is ready."""
        assert self.running is not None
        found = re.findall(r"metrics at (http://[^/\s]+)/metrics", self.running.log)
        self.running.admin = found[-1] if found else ""
        try:
            return bool(found) and self.running.get("/health/ready")[0] == 200
        except OSError:  # it has just ended, or cannot respond
            return False

    def has_delivered(self) -> bool:
        """For a tap: whether nothing waits in its spool any more."""
        self.admin()
        assert self.running is not None
        return self.running.metrics()["streamgauge_tap_reads_waiting"] == 0


def reason(log: str) -> str:
    """Why a process ended: its last error, after which it may have logged how it ends; otherwise its last line."""
    lines = log.splitlines() or [""]
    return next((line for line in reversed(lines) if '"level":"error"' in line), lines[-1])


class Fleet:
    """Workers and taps. A process that ends by itself is added to `left`, with `phase`, and restarted."""

    def __init__(
        self, root: Path, bootstrap: str, prefix: str, upstreams: Mapping[str, str], workers: int, taps: int
    ) -> None:
        kafka = ["--kafka", bootstrap, "--topic-prefix", prefix, "--admin", "127.0.0.1:0"]
        self.ledger = root / "ledger.sqlite"
        place = ["--data-dir", str(root / "workers"), "--ledger", f"sqlite:///{self.ledger}"]
        self.workers = [
            Seat(f"worker-{number}", "worker", [*kafka, *place], root / f"worker-{number}") for number in range(workers)
        ]
        upstream = [flag for name, url in upstreams.items() for flag in ("--upstream", f"{name}={url}")]
        self.taps = [
            Seat(
                name, "tap", [*kafka, *upstream, "--listen", "127.0.0.1:0", "--data-dir", str(root / name)], root / name
            )
            for name in (f"tap-{number}" for number in range(taps))
        ]
        self.left: list[Left] = []
        self.phase = "start"

    @contextlib.asynccontextmanager
    async def running(self) -> AsyncIterator[None]:
        """All of them, ready; what still runs at the end is stopped."""
        seats = [*self.workers, *self.taps]
        try:
            for seat in seats:
                seat.start()
            for seat in seats:
                assert seat.running is not None
                await asyncio.to_thread(wait_until_ready, seat.running)
            watching = asyncio.create_task(self._watch(seats))
            try:
                yield
            finally:
                watching.cancel()
        finally:
            for seat in seats:
                seat.signal(signal.SIGCONT)
                await asyncio.to_thread(seat.stack.close)

    async def _watch(self, seats: list[Seat]) -> None:
        while True:
            await asyncio.sleep(_LOOK_S)
            for seat in seats:
                if not seat.alive and not seat.vacant:
                    self._note(seat)
                    seat.start()

    def _note(self, seat: Seat) -> None:
        assert seat.running is not None
        code = seat.running.process.poll()
        assert code is not None
        if code != -signal.SIGKILL:
            self.left.append(Left(seat.name, code, reason(seat.running.log), self.phase))

    def wait_ready(self) -> None:
        """Waits until all serve."""
        for seat in (*self.workers, *self.taps):
            wait_for(seat.ready, f"readiness of {seat.name}", _READY_TIMEOUT_S)

    def dropped(self) -> dict[str, float]:
        """The reads that taps count as dropped, over all their runs: by tap and series."""
        found: dict[str, float] = {}
        for tap in self.taps:
            tap.admin()
            assert tap.running is not None
            series = tap.running.metrics()
            found |= {
                f"{tap.name} {name}": value for name, value in series.items() if value and "_dropped_total" in name
            }
        return found

    def url_of(self, number: int) -> str:
        """The address for clients of a tap; "" while it has none: another program may already listen at that of a tap that
        has ended.
        """
        seat = self.taps[number]
        assert seat.running is not None
        found = re.search(r": http://([^/\s]+)\S* -> ", seat.running.log)
        return f"http://{found[1]}" if found and seat.alive else ""
