"""Starts, watches, restarts and stops the processes of a tap: the collector and the relays.

Each child is `python -m MODULE`: it reads one line of JSON settings from its stdin, writes `ready` to its stdout, and ends
when its stdin ends, so that no child outlives this process (`runtime/child.py`). Its messages go to stderr.

    start             a child that does not become ready is an error, and all are stopped again
    unexpected end    the child is started again, after a pause that grows with each failed start
    stop              relays first, by SIGTERM; then the collector, by a line that says until when it may deliver;
                      a child that does not end in time is killed, and a crash is logged
"""

import asyncio
import contextlib
import os
import signal
import sys
import time
from collections.abc import Callable, Sequence

from streamgauge.errors import DONE, UNAVAILABLE, StreamgaugeError, Unavailable
from streamgauge.runtime.child import READY, Status, Stop, encode_settings, start_failure
from streamgauge.runtime.faults import report_fault, reported_task

# A child is ready within this, also on a busy machine: imports take half a second (seconds).
READY_S = 60.0

# A child that ends unexpectedly is started again after this (seconds): long enough to avoid a tight loop, and short
# enough that the buffers before it (32 MiB before a collector) hold the data that arrives in this time.
RESTART_S = 1.0

# The pause doubles with each failed start, up to this (seconds): a lasting fault must not fill the log.
MAX_RESTART_S = 30.0

# The last part of a drain (s): relays cut open streams, the collector writes the rest and delivers it.
RESERVE_S = 3.0

# The time of the same timeout in which the command itself ends after all that: two interpreters exit (s).
END_S = 0.3

# Least time in which the collector delivers what it has, even if streams took the whole drain timeout (s).
FINISH_S = 1.0

# A child that still runs this long after the deadline is killed (seconds).
HANGS_S = 5.0

# A child that writes more than this without a line end does not report `ready` (bytes).
MAX_LINE_BYTES = 64 * 1024

# The name of the command's own process in metrics.
SUPERVISOR = "supervisor"

_STDIN, _STDOUT = 0, 1


def streams_drain_s(drain_s: float) -> float:
    """The part of a drain timeout that open streams may use; the rest is for writing the data (seconds)."""
    return max(drain_s - RESERVE_S, drain_s / 2)


class _Process(asyncio.SubprocessProtocol):
    """A process from its start to its end, with its first line of output. Further output is read and discarded.

    Not asyncio's Process: that one stops to read at 128 KiB of output that was not asked for, and its `wait` then never
    returns, because it waits for the end of the pipe as well; so it does if another process has inherited the pipe.
    """

    def __init__(self) -> None:
        self.first_line: asyncio.Future[bytes] = asyncio.get_running_loop().create_future()
        self._output = bytearray()
        self._ended = asyncio.Event()

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        assert isinstance(transport, asyncio.SubprocessTransport)
        self._transport = transport
        self.pid = transport.get_pid()

    def pipe_data_received(self, fd: int, data: bytes) -> None:
        if self.first_line.done():
            return
        self._output += data
        line, newline, _ = self._output.partition(b"\n")
        if newline or len(line) > MAX_LINE_BYTES:
            self.first_line.set_result(bytes(line))

    def pipe_connection_lost(self, fd: int, exc: Exception | None) -> None:
        if fd == _STDOUT and not self.first_line.done():
            self.first_line.set_result(b"")

    def process_exited(self) -> None:
        self._ended.set()

    def write(self, line: bytes) -> None:
        """Write to its stdin. It has no effect on a process that has ended."""
        stdin = self._transport.get_pipe_transport(_STDIN)
        assert isinstance(stdin, asyncio.WriteTransport)
        stdin.write(line)

    @property
    def returncode(self) -> int | None:
        """Its exit code, negative for a signal; None while it runs."""
        return self._transport.get_returncode()

    async def wait(self) -> int:
        """Wait for its end, and close the pipes. Returns its exit code."""
        await self._ended.wait()
        self._transport.close()
        assert self.returncode is not None
        return self.returncode


class Child:
    """One child process. `settings` gives its line of JSON, and is called at each start. The child inherits `fds`.
    `ready_s`: how long it may take to become ready (seconds); None: without limit.
    """

    def __init__(
        self,
        name: str,
        module: str,
        settings: Callable[[], bytes],
        fds: Sequence[int] = (),
        ready_s: float | None = READY_S,
    ) -> None:
        self.name = name
        self._module = module
        self._settings = settings
        self._fds = fds
        self._ready_s = ready_s
        self.process: _Process | None = None
        self.starts = 0
        self._ready = False

    @property
    def ready(self) -> bool:
        """Whether it has reported `ready` and still runs."""
        return self._ready and self.running

    @property
    def running(self) -> bool:
        """Whether its process runs."""
        return self.process is not None and self.process.returncode is None

    async def start(self) -> None:
        """Start it and wait until it is ready. Raises StreamgaugeError if it does not become ready; then it does not run."""
        self.starts += 1
        self._ready = False
        try:
            _, self.process = await asyncio.get_running_loop().subprocess_exec(
                _Process,
                sys.executable,
                "-m",
                self._module,
                stderr=None,
                pass_fds=self._fds,
                # A process group of its own: Ctrl-C in a terminal must reach only this process. Not a session of its
                # own: Linux divides cores between sessions (autogroup), and a relay that wakes up would wait until the
                # collector's time slice ends (decision 18).
                process_group=0,
            )
        except OSError as error:
            raise Unavailable(f"the {self.name} cannot be started ({error.strerror or error})") from None
        try:
            line = await self._first_line(self.process)
        except BaseException:
            await self.kill()
            raise
        if line.strip() != READY:
            await self.kill()
            failure = start_failure(line)
            raise (
                failure.error()
                if failure
                else Unavailable(f"the {self.name} did not start: see its error message above")
            )
        self._ready = True

    async def _first_line(self, process: _Process) -> bytes:
        process.write(self._settings() + b"\n")
        try:
            async with asyncio.timeout(self._ready_s):  # wait_for of Python 3.11 may swallow a cancellation
                return await process.first_line
        except TimeoutError:
            return b""

    def ask_to_stop(self) -> None:
        """Send SIGTERM, if it runs. Does not wait."""
        self._signal(signal.SIGTERM)

    def tell(self, message: Status | Stop) -> None:
        """Write a message to its stdin, if it is ready. Does not wait."""
        if self.ready and self.process is not None:
            self.process.write(encode_settings(message) + b"\n")

    async def wait(self) -> int:
        """Wait for its end. Returns its exit code, negative for a signal; 0 if it was never started."""
        return await self.process.wait() if self.process is not None else 0

    async def kill(self) -> None:
        """Send SIGKILL, and wait for its end."""
        self._signal(signal.SIGKILL)
        await self.wait()

    def _signal(self, number: signal.Signals) -> None:
        # Not by Process.send_signal: it may reap the child before asyncio's watcher, which then gets no exit code.
        if self.process is not None and self.running:
            with contextlib.suppress(ProcessLookupError):
                os.kill(self.process.pid, number)


class Group:
    """The collector and the relays, or other taps, of one command; without them it is an agent for taps in applications.

    `say` takes a sentence for the operator. `accept_no_more` is called first when the group is stopped. `relay_ended` is
    called when a relay has ended unexpectedly, before its next start, with its exit code (a signal's number is negative).
    """

    def __init__(
        self,
        collector: Child,
        relays: Sequence[Child],
        say: Callable[[str], None],
        accept_no_more: Callable[[], None] = lambda: None,
        relay_ended: Callable[[int], None] = lambda code: None,
    ) -> None:
        self._collector = collector
        self._accept_no_more = accept_no_more
        self._relay_ended = relay_ended
        self._relays = relays
        self._say = say
        self._supervisors: list[asyncio.Task[None]] = []
        self._stopping = False
        self._collector_served = False  # when it was asked to stop

    async def start(self) -> None:
        """Start all children. Raises StreamgaugeError if one does not become ready; then none runs."""
        children = (self._collector, *self._relays)
        try:
            # First the collector: a relay that finds none tries again only a second later, and holds reads until then.
            await self._collector.start()
            results = await asyncio.gather(*(relay.start() for relay in self._relays), return_exceptions=True)
            for result in results:
                if isinstance(result, BaseException):
                    raise result
        except BaseException:
            await asyncio.gather(*(child.kill() for child in children))
            raise
        for child in children:
            self._supervisors.append(reported_task(f"the supervision of the {child.name}", self._supervise(child)))
        self._tell_status()

    @property
    def serving(self) -> bool:
        """Whether a relay accepts requests; in an agent, whether the collector accepts data from taps."""
        return not self._stopping and any(child.ready for child in self._relays or (self._collector,))

    @property
    def processes(self) -> list[tuple[str, int]]:
        """The name and the process id of each child that runs."""
        started = [(child.name, child.process) for child in (self._collector, *self._relays)]
        return [(name, process.pid) for name, process in started if process is not None and process.returncode is None]

    @property
    def exit_code(self) -> int:
        """The command's exit code after `stop`: not 0 if the collector served then, and its own code does not report that
        it has written its last rows. A collector that had crashed, and was being started again, had none to write.
        """
        process = self._collector.process
        wrote = process is None or process.returncode == DONE or not self._collector_served
        return DONE if wrote else UNAVAILABLE

    def _tell_status(self) -> None:
        others = [(name, pid) for name, pid in self.processes if name != self._collector.name]
        self._collector.tell(Status(self.serving, [(SUPERVISOR, os.getpid()), *others]))

    async def _supervise(self, child: Child) -> None:
        while True:
            code = await child.wait()
            self._say(f"the {child.name} ended unexpectedly ({_ended(code)}); restarting it")
            if child is not self._collector:
                self._tell_status()
                try:
                    self._relay_ended(code)
                except Exception as error:  # noqa: BLE001 - without its supervision, the child would not be started again
                    report_fault(f"the callback after the end of the {child.name}", error)
            await self._restart(child)

    async def _restart(self, child: Child) -> None:
        pause = RESTART_S
        while True:
            await asyncio.sleep(pause)
            try:
                await child.start()
                self._tell_status()
                return
            except StreamgaugeError as error:
                self._say(str(error))
            except Exception as error:  # noqa: BLE001 - the tap runs on with its other children, and starts this one again
                report_fault(f"the start of the {child.name}", error)
            pause = min(2 * pause, MAX_RESTART_S)

    async def stop(self, drain_s: float) -> None:
        """Stop the relays, which finish open streams in their part of `drain_s`; then the collector, which writes and
        delivers the rest.

        It may be called again: children that have ended are skipped.
        """
        began_s = time.monotonic()
        streams_end_s = began_s + streams_drain_s(drain_s)
        self._stopping = True
        self._accept_no_more()
        collector_ready = self._collector.ready
        self._collector_served = self._collector_served or collector_ready
        for supervisor in self._supervisors:
            supervisor.cancel()
        await asyncio.gather(*self._supervisors, return_exceptions=True)
        self._tell_status()
        ready = [relay for relay in self._relays if relay.ready]
        for relay in self._relays:
            relay.ask_to_stop()
        await asyncio.gather(*(self._finish(relay, streams_end_s) for relay in ready))
        end_s = max(began_s + drain_s - END_S, time.monotonic() + FINISH_S)
        if self._collector.ready:
            self._collector.tell(Stop(streams_end_s, end_s))
        else:
            self._collector.ask_to_stop()
        if collector_ready:
            await self._finish(self._collector, end_s)

    async def _finish(self, child: Child, deadline: float) -> None:
        try:
            async with asyncio.timeout(max(deadline - time.monotonic(), 0) + HANGS_S):
                code = await child.wait()
        except TimeoutError:
            self._say(f"the {child.name} did not stop in time and was killed")
            await child.kill()
            return
        if code not in (DONE, UNAVAILABLE):  # UNAVAILABLE: it has reported itself what failed
            self._say(f"the {child.name} ended unexpectedly while it was stopped ({_ended(code)})")


def _ended(code: int) -> str:
    return f"signal {-code}" if code < 0 else f"exit code {code}"
