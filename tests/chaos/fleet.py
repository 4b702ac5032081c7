"""The processes that a chaos run kills and restarts: workers on one data directory, taps with theirs, and the broker."""

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

# How soon a process that ended by itself is started again (seconds).
_LOOK_S = 0.5
# Whatever a process has to do at its end is done within this (seconds).
_STOP_TIMEOUT_S = 90.0
# A worker that was stopped, or whose broker was away, serves again within this (seconds).
_READY_TIMEOUT_S = 90.0


@dataclass
class Left:
    """A process that ended without being asked to: its name, exit code and reason, and the phase it was in."""

    name: str
    code: int
    said: str
    phase: str


@dataclass
class Seat:
    """A command that is to run, and the process that runs it now."""

    name: str
    command: str
    flags: list[str]
    place: Path
    stack: contextlib.ExitStack = field(default_factory=contextlib.ExitStack)
    running: Running | None = None
    vacant: bool = False  # no process is to be started

    def start(self) -> Running:
        """Start it, without waiting until it serves."""
        self.running = self.stack.enter_context(start(self.command, self.flags, self.place))
        return self.running

    @property
    def alive(self) -> bool:
        return self.running is not None and self.running.process.poll() is None

    def signal(self, number: int) -> bool:
        """To the process itself; gives whether it was there to get it."""
        if not self.alive:
            return False
        assert self.running is not None
        self.running.process.send_signal(number)
        return True

    def kill(self) -> None:
        """SIGKILL to it and to all that it started, as a machine's death would; returns when none of them runs."""
        assert self.running is not None
        process = self.running.process  # a moment later it may be the next one's
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
        """Where its admin port is; waits until it is ready."""
        assert self.running is not None
        wait_until_ready(self.running)
        return self.running.admin

    def ready(self) -> bool:
        """Whether its admin port says so."""
        assert self.running is not None
        found = re.findall(r"metrics at (http://[^/\s]+)/metrics", self.running.log)
        self.running.admin = found[-1] if found else ""
        try:
            return bool(found) and self.running.get("/health/ready")[0] == 200
        except OSError:  # it has just ended, or cannot answer
            return False

    def has_delivered(self) -> bool:
        """Of a tap: whether nothing waits in its spool any more."""
        self.admin()
        assert self.running is not None
        return self.running.metrics()["streamgauge_tap_reads_waiting"] == 0


def reason(log: str) -> str:
    """Why a process ended: its last error, after which it may have logged how it ends; or else its last line."""
    lines = log.splitlines() or [""]
    return next((line for line in reversed(lines) if '"level":"error"' in line), lines[-1])


class Fleet:
    """Workers and taps. What ends by itself is noted in `left`, with `phase`, and started again."""

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
        """All of it, ready; what still runs at the end is asked to stop."""
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
        code = seat.running.process.returncode
        if code != -signal.SIGKILL:
            self.left.append(Left(seat.name, code, reason(seat.running.log), self.phase))

    def wait_ready(self) -> None:
        """Until all serve."""
        for seat in (*self.workers, *self.taps):
            wait_for(seat.ready, f"readiness of {seat.name}", _READY_TIMEOUT_S)

    def dropped(self) -> dict[str, float]:
        """What taps count as dropped, over all their lives: by tap and series."""
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
        """Where clients of a tap connect; valid as long as it lives."""
        running = self.taps[number].running
        assert running is not None
        found = re.search(r": http://([^/\s]+)\S* -> ", running.log)
        return f"http://{found[1]}" if found else "http://127.0.0.1:1"
