"""A tap's process group: the recorder and the relays, started, watched, started again, stopped.

Each child is `python -m MODULE`: it reads one line of JSON settings from its stdin, says `ready` on its stdout, and ends
when its stdin does, so that none outlives this process. SIGTERM asks it to finish. What a child has to say goes to stderr.
"""

import asyncio
import errno
import fcntl
import os
import signal
import socket
import sys
import time
from collections.abc import Callable, Sequence
from pathlib import Path

from streamgauge.config import Address
from streamgauge.errors import Unavailable

# A child answers within this, also on a busy machine: imports take half a second (seconds).
READY_S = 60.0

# A child that ends unasked is started again after this (seconds): no tight loop, and short enough that the buffers before
# it (32 MiB before a recorder) hold what comes meanwhile.
RESTART_S = 1.0

# After a kill the old processes need a moment to let go of the port (seconds).
BIND_RETRY_S = 2.0

# Connections that the kernel holds for us while we are busy; the kernel cuts it to its own limit.
BACKLOG = 1_024


class Child:
    """One child process. `settings` makes its line of JSON, again at each start."""

    def __init__(self, name: str, module: str, settings: Callable[[], bytes], fds: Sequence[int] = ()) -> None:
        self.name = name
        self._module = module
        self._settings = settings
        self._fds = fds
        self.process: asyncio.subprocess.Process | None = None
        self.starts = 0

    async def start(self) -> None:
        """Start it and wait until it is ready. Raises Unavailable if it does not get there."""
        self.starts += 1
        self.process = await asyncio.create_subprocess_exec(
            sys.executable,
            "-m",
            self._module,
            stdin=asyncio.subprocess.PIPE,
            stdout=asyncio.subprocess.PIPE,
            pass_fds=self._fds,
            start_new_session=True,  # Ctrl-C in a terminal is ours to pass on
        )
        assert self.process.stdin is not None
        assert self.process.stdout is not None
        try:
            self.process.stdin.write(self._settings() + b"\n")
            line = await asyncio.wait_for(self.process.stdout.readline(), READY_S)
        except (TimeoutError, ConnectionError):
            line = b""
        if line.strip() != b"ready":
            await self.kill()
            raise Unavailable(f"the {self.name} did not start: what it says stands above")

    def ask_to_stop(self) -> None:
        if self.process is not None and self.process.returncode is None:
            self.process.send_signal(signal.SIGTERM)

    async def wait(self) -> int:
        return await self.process.wait() if self.process is not None else 0

    async def kill(self) -> None:
        if self.process is not None and self.process.returncode is None:
            self.process.kill()
            await self.process.wait()


class Group:
    """The recorder and the relays of one tap. `say` takes a sentence for the operator."""

    def __init__(self, recorder: Child, relays: Sequence[Child], say: Callable[[str], None]) -> None:
        self._recorder = recorder
        self._relays = relays
        self._say = say
        self._watchers: list[asyncio.Task[None]] = []
        self._stopping = False

    async def start(self) -> None:
        """Start all. Raises Unavailable if one does not get ready."""
        await asyncio.gather(*(child.start() for child in (self._recorder, *self._relays)))
        self._watchers = [asyncio.create_task(self._watch(child)) for child in (self._recorder, *self._relays)]

    @property
    def serving(self) -> bool:
        """Whether a relay accepts requests."""
        alive = (relay.process is not None and relay.process.returncode is None for relay in self._relays)
        return not self._stopping and any(alive)

    @property
    def restarts(self) -> int:
        return sum(child.starts - 1 for child in (self._recorder, *self._relays) if child.starts)

    async def _watch(self, child: Child) -> None:
        while True:
            code = await child.wait()
            if self._stopping:
                return
            self._say(f"the {child.name} ended by itself ({_ended(code)}); it is started again")
            await asyncio.sleep(RESTART_S)
            try:
                await child.start()
            except Unavailable as error:
                self._say(str(error))

    async def stop(self, drain_s: float) -> None:
        """Relays finish what is open, for `drain_s` at most; then the recorder writes down what is left."""
        self._stopping = True
        for children in (self._relays, [self._recorder]):
            for child in children:
                child.ask_to_stop()
            await asyncio.gather(*(self._finish(child, drain_s) for child in children))
        for watcher in self._watchers:
            watcher.cancel()
        await asyncio.gather(*self._watchers, return_exceptions=True)

    async def _finish(self, child: Child, drain_s: float) -> None:
        try:
            # Its own deadline is drain_s; the rest is for writing down what it holds.
            await asyncio.wait_for(child.wait(), drain_s + 10)
        except TimeoutError:
            self._say(f"the {child.name} did not end in time and was killed")
            await child.kill()


def _ended(code: int) -> str:
    return f"signal {-code}" if code < 0 else f"exit code {code}"


def listening_socket(address: Address, what: str) -> socket.socket:
    """A listening socket that children may inherit. Raises Unavailable."""
    deadline = time.monotonic() + BIND_RETRY_S
    while True:
        try:
            return _bind(address)
        except OSError as error:
            if error.errno != errno.EADDRINUSE or time.monotonic() > deadline:
                raise Unavailable(_why_not(address, what, error)) from None
            time.sleep(0.05)


def _bind(address: Address) -> socket.socket:
    family, _, _, _, place = socket.getaddrinfo(address.host, address.port, type=socket.SOCK_STREAM)[0]
    listening = socket.socket(family, socket.SOCK_STREAM)
    try:
        listening.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        listening.bind(place)
        listening.listen(BACKLOG)
    except OSError:
        listening.close()
        raise
    return listening


def _why_not(address: Address, what: str, error: OSError) -> str:
    if error.errno == errno.EADDRINUSE:
        return f"{what} {address} is taken by another process: choose another address, or stop that process"
    return f"{what} {address} cannot be used ({error.strerror or error}): choose another address"


def lock_data_dir(data_dir: Path) -> int:
    """Make the data directory (0700) and take its lock, held until this process ends. Raises Unavailable."""
    try:
        data_dir.mkdir(mode=0o700, parents=True, exist_ok=True)
        descriptor = os.open(data_dir / "lock", os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
    except OSError as error:
        raise Unavailable(f"the data directory {data_dir} cannot be used ({error.strerror}): --data-dir") from None
    deadline = time.monotonic() + BIND_RETRY_S
    while True:
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
            return descriptor
        except OSError:
            if time.monotonic() > deadline:
                os.close(descriptor)
                raise Unavailable(
                    f"another process uses the data directory {data_dir}: stop it, or choose another --data-dir"
                ) from None
            time.sleep(0.05)
