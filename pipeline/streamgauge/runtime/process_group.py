"""Starts, watches, restarts and stops the processes of a tap: the recorder and the relays.

Each child is `python -m MODULE`: it reads one line of JSON settings from its stdin, writes `ready` to its stdout, and ends
when its stdin ends, so that no child outlives this process. At SIGTERM it finishes its work. Its messages go to stderr.

    start             a child that does not become ready is an error, and all are stopped again
    unexpected end    the child is started again, after a pause that grows with each failed start
    stop              relays first, then the recorder; a child that does not end in time is killed, and a crash is logged
"""

import asyncio
import contextlib
import os
import signal
import sys
import time
from collections.abc import Callable, Sequence

from streamgauge.errors import DONE, UNAVAILABLE, Unavailable
from streamgauge.runtime.faults import report_fault, reported_task

# A child is ready within this, also on a busy machine: imports take half a second (seconds).
READY_S = 60.0

# A child that ends unexpectedly is started again after this (seconds): long enough to avoid a tight loop, and short
# enough that the buffers before it (32 MiB before a recorder) hold the data that arrives in this time.
RESTART_S = 1.0

# The pause doubles with each failed start, up to this (seconds): a lasting fault must not fill the log.
MAX_RESTART_S = 30.0

# The last part of a drain (s): relays cut open streams, the recorder writes the rest, the ledger stores it.
RESERVE_S = 3.0

# The time of the same timeout in which the command itself ends after all that: two interpreters exit (s).
END_S = 0.3

# A child that still runs this long after the deadline is killed (seconds).
HANGS_S = 5.0

# A child that writes more than this without a line end does not report `ready` (bytes).
MAX_LINE_BYTES = 64 * 1024

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
    """One child process. `settings` gives its line of JSON, and is called at each start. The child inherits `fds`."""

    def __init__(self, name: str, module: str, settings: Callable[[], bytes], fds: Sequence[int] = ()) -> None:
        self.name = name
        self._module = module
        self._settings = settings
        self._fds = fds
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
        """Start it and wait until it is ready. Raises Unavailable if it does not become ready; then it does not run."""
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
                # recorder's turn ends (decision 18).
                process_group=0,
            )
        except OSError as error:
            raise Unavailable(f"the {self.name} cannot be started ({error.strerror or error})") from None
        try:
            line = await self._first_line(self.process)
        except BaseException:
            await self.kill()
            raise
        if line.strip() != b"ready":
            await self.kill()
            raise Unavailable(f"the {self.name} did not start: see its error message above")
        self._ready = True

    async def _first_line(self, process: _Process) -> bytes:
        process.write(self._settings() + b"\n")
        try:
            async with asyncio.timeout(READY_S):  # wait_for of Python 3.11 may swallow a cancellation
                return await process.first_line
        except TimeoutError:
            return b""

    def ask_to_stop(self) -> None:
        """Send SIGTERM, if it runs. Does not wait."""
        self._signal(signal.SIGTERM)

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
    """The recorder and the relays of one tap; without relays it is an agent for taps in applications.

    `say` takes a sentence for the operator. `accept_no_more` is called first when the group is stopped. `relay_ended` is
    called when a relay has ended unexpectedly, before its next start, with its exit code (a signal's number is negative).
    """

    def __init__(
        self,
        recorder: Child,
        relays: Sequence[Child],
        say: Callable[[str], None],
        accept_no_more: Callable[[], None] = lambda: None,
        relay_ended: Callable[[int], None] = lambda code: None,
    ) -> None:
        self._recorder = recorder
        self._accept_no_more = accept_no_more
        self._relay_ended = relay_ended
        self._relays = relays
        self._say = say
        self._supervisors: list[asyncio.Task[None]] = []
        self._stopping = False
        self._recorder_served = False  # when it was asked to stop

    async def start(self) -> None:
        """Start all children. Raises Unavailable if one does not become ready; then none runs."""
        children = (self._recorder, *self._relays)
        try:
            # First the recorder: a relay that finds none tries again only a second later, and holds reads until then.
            await self._recorder.start()
            results = await asyncio.gather(*(relay.start() for relay in self._relays), return_exceptions=True)
            for result in results:
                if isinstance(result, BaseException):
                    raise result
        except BaseException:
            await asyncio.gather(*(child.kill() for child in children))
            raise
        for child in children:
            self._supervisors.append(reported_task(f"the supervision of the {child.name}", self._supervise(child)))

    @property
    def serving(self) -> bool:
        """Whether a relay accepts requests; in an agent, whether the recorder accepts data from taps."""
        return not self._stopping and any(child.ready for child in self._relays or (self._recorder,))

    @property
    def processes(self) -> list[tuple[str, int]]:
        """The name and the process id of each child that runs."""
        started = [(child.name, child.process) for child in (self._recorder, *self._relays)]
        return [(name, process.pid) for name, process in started if process is not None and process.returncode is None]

    @property
    def exit_code(self) -> int:
        """The command's exit code after `stop`: not 0 if the recorder served then, and its own code does not report that
        it has written its last rows. A recorder that had crashed, and was being started again, had none to write.
        """
        process = self._recorder.process
        wrote = process is None or process.returncode == DONE or not self._recorder_served
        return DONE if wrote else UNAVAILABLE

    async def _supervise(self, child: Child) -> None:
        while True:
            code = await child.wait()
            self._say(f"the {child.name} ended unexpectedly ({_ended(code)}); restarting it")
            if child is not self._recorder:
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
                return
            except Unavailable as error:
                self._say(str(error))
            except Exception as error:  # noqa: BLE001 - the tap runs on with its other children, and starts this one again
                report_fault(f"the start of the {child.name}", error)
            pause = min(2 * pause, MAX_RESTART_S)

    async def stop(self, drain_s: float) -> None:
        """Stop the relays, which finish open streams in their part of `drain_s`; then the recorder, which writes the rest.

        It may be called again: children that have ended are skipped.
        """
        self._stopping = True
        self._accept_no_more()
        ready = {child for child in (self._recorder, *self._relays) if child.ready}
        self._recorder_served = self._recorder_served or self._recorder in ready
        for supervisor in self._supervisors:
            supervisor.cancel()
        await asyncio.gather(*self._supervisors, return_exceptions=True)
        deadline = time.monotonic() + streams_drain_s(drain_s)
        for children in (self._relays, [self._recorder]):
            for child in children:
                child.ask_to_stop()
            await asyncio.gather(*(self._finish(child, deadline + HANGS_S) for child in children if child in ready))

    async def _finish(self, child: Child, deadline: float) -> None:
        try:
            # The recorder has HANGS_S also if the relays have used all the time.
            async with asyncio.timeout(max(deadline - time.monotonic(), HANGS_S)):
                code = await child.wait()
        except TimeoutError:
            self._say(f"the {child.name} did not stop in time and was killed")
            await child.kill()
            return
        if code not in (DONE, UNAVAILABLE):  # UNAVAILABLE: it has reported itself what failed
            self._say(f"the {child.name} ended unexpectedly while it was stopped ({_ended(code)})")


def _ended(code: int) -> str:
    return f"signal {-code}" if code < 0 else f"exit code {code}"
