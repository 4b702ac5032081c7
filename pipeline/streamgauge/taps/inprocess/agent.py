"""Starts an agent for the taps of an application if STREAMGAUGE_KAFKA is set and no agent is reachable.

The agent is a child process, `streamgauge tap --child`, whose stdin is a pipe from this process: however this process ends,
the pipe closes, and the agent drains and exits. If several processes share a data directory, the one that holds
`starter.lock` starts the agent and keeps the lock while its agent runs; the others connect to that agent, and another one
takes over after it. An agent that was started otherwise holds the data directory's own lock; no second one is started then.

STREAMGAUGE_AGENT=external: this process never starts an agent.
"""

import contextlib
import fcntl
import logging
import os
import subprocess
import sys
import time
from collections.abc import Mapping
from pathlib import Path

from streamgauge.errors import StreamgaugeError
from streamgauge.recorder.client import CAPACITY_BYTES
from streamgauge.runtime.data_directory import make_data_dir
from streamgauge.runtime.faults import described, report_fault

# Pause between attempts (seconds). An agent starts within 2 s, and each attempt costs half a second of one core. A
# lasting fault must not repeat this cost often, so the pause doubles up to MAX_ATTEMPT_S.
ATTEMPT_S = 5.0
MAX_ATTEMPT_S = 300.0
# If an agent ran longer than this, the next one is started at once (seconds).
STABLE_S = 60.0
# How long the exit of a process waits until its agent has shipped the rest (seconds): with a broker it takes about one.
# In a container that ends with the process, unshipped data is lost unless the data directory is on a volume that
# remains.
END_S = 3.0

_STARTER = "starter.lock"
_OWNER = "lock"  # every agent holds it (data_directory.py)

# Without an agent, captured reads wait in the process's sender (background_sender.py).
_WAITS = (
    f"streams are not affected, and up to {CAPACITY_BYTES // 1024**2} MiB of captured data wait in this process until an"
    " agent runs; data beyond that, or still waiting when the process ends, is lost"
)

_log = logging.getLogger("streamgauge")


class Agent:
    """The agent that this process may start. No method raises; all but `close` return at once. One thread uses it."""

    def __init__(self, data_dir: Path, environment: Mapping[str, str] = os.environ) -> None:
        self._data_dir = data_dir
        self._environment = environment
        self._process: subprocess.Popen[bytes] | None = None
        self._start_lock: int | None = None  # descriptor of the starter's lock while this process holds it
        self._started_s = 0.0
        self._next_s = 0.0
        self._pause_s = ATTEMPT_S
        self._last_warning = ""

    @property
    def may_start(self) -> bool:
        """Whether this process starts an agent if none runs."""
        external = self._environment.get("STREAMGAUGE_AGENT", "").strip().lower() == "external"
        return bool(self._environment.get("STREAMGAUGE_KAFKA")) and not external

    def ensure_started(self) -> None:
        """Starts an agent if the pause between attempts is over. Call it, at any rate, while no agent is reachable."""
        try:
            if self.may_start:
                self._start_if_due(time.monotonic())
            else:
                self._warn(
                    f"no agent runs at {self._data_dir}: {_WAITS}. Start `streamgauge up --agent` or `streamgauge tap"
                    " --agent --kafka HOST:PORT` as this user, or set STREAMGAUGE_KAFKA so that this process starts one"
                )
        except Exception as error:  # noqa: BLE001 - capture fails open: the application must not see errors of agents
            if not isinstance(error, OSError | StreamgaugeError):
                report_fault("the start of an agent", error)
            self._warn(f"no agent can be started ({described(error)}): {_WAITS}")

    def close(self, within_s: float = END_S) -> None:
        """Lets the agent ship the rest and exit, because this process exits. Waits at most `within_s` seconds."""
        process, self._process = self._process, None
        with contextlib.suppress(OSError):
            if process is not None:
                _close_stdin(process)
                with contextlib.suppress(subprocess.TimeoutExpired):
                    process.wait(within_s)
                _detach(process)
            self._unlock()

    def after_fork(self) -> None:
        """Releases the agent in a forked child: it belongs to the parent process, and ends with that."""
        process, self._process = self._process, None
        with contextlib.suppress(OSError):
            if process is not None:
                _close_stdin(process)
                _detach(process)
            self._unlock()
        self._next_s = 0.0

    def _start_if_due(self, now: float) -> None:
        if self._process is not None:
            code = self._process.poll()
            if code is None:  # it is starting, or draining
                return
            self._ended(code, now)
        if now < self._next_s:
            return
        self._next_s = now + self._pause_s
        if self._lock_start():
            self._pause_s = min(2 * self._pause_s, MAX_ATTEMPT_S)
            self._start(now)

    def _lock_start(self) -> bool:
        """Locks `starter.lock`. Returns False if another process starts an agent, or an agent runs."""
        make_data_dir(self._data_dir)
        self._start_lock = os.open(
            self._data_dir / _STARTER, os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW | os.O_CLOEXEC, 0o600
        )
        try:
            if not _is_locked_elsewhere(self._start_lock, fcntl.LOCK_EX) and not self._runs():
                return True
        except OSError:
            self._unlock()
            raise
        self._unlock()
        return False

    def _runs(self) -> bool:
        """Whether an agent holds the data directory; it may be starting or draining."""
        try:
            owner = os.open(self._data_dir / _OWNER, os.O_RDONLY | os.O_NOFOLLOW | os.O_CLOEXEC)
        except FileNotFoundError:
            return False
        try:
            return _is_locked_elsewhere(owner, fcntl.LOCK_SH)
        finally:
            os.close(owner)

    def _start(self, now: float) -> None:
        try:
            # PYTHONSAFEPATH keeps the agent and its children from importing modules of the application's working
            # directory.
            self._process = subprocess.Popen(
                [sys.executable, "-m", "streamgauge", "tap", "--child", "--data-dir", str(self._data_dir)],
                stdin=subprocess.PIPE,
                stdout=subprocess.DEVNULL,
                env={**self._environment, "PYTHONSAFEPATH": "1"},
                start_new_session=True,  # Ctrl-C must end the application only: the agent ends after it
            )
        except BaseException:
            self._unlock()
            raise
        self._started_s = now
        _log.info("streamgauge: started an agent for %s (process %d)", self._data_dir, self._process.pid)

    def _ended(self, code: int, now: float) -> None:
        process, self._process = self._process, None
        if process is not None:
            _close_stdin(process)
        self._unlock()
        if now - self._started_s > STABLE_S:
            self._pause_s = ATTEMPT_S
            self._next_s = now
        self._warn(f"the agent for {self._data_dir} ended (exit code {code}): see its error message above")

    def _unlock(self) -> None:
        if self._start_lock is not None:
            os.close(self._start_lock)
            self._start_lock = None

    def _warn(self, sentence: str) -> None:
        """Logs the sentence unless it is the last one that was logged."""
        if sentence != self._last_warning:
            self._last_warning = sentence
            _log.warning("streamgauge: %s", sentence)


# This process's agents by data directory: usually one.
_agents: dict[Path, Agent] = {}


def recorder_unreachable(data_dir: Path) -> None:
    """Starts an agent for this data directory if this process may; call it when none is reachable. Never raises."""
    one = _agents.get(data_dir)
    if one is None:
        if not _agents:
            os.register_at_fork(after_in_child=_after_fork)
        one = _agents[data_dir] = Agent(data_dir)
    one.ensure_started()


def will_start(data_dir: Path) -> bool:
    """Whether this process starts the missing agent; if not, waiting for it is useless."""
    one = _agents.get(data_dir)
    return one is not None and one.may_start


def stop_agents(within_s: float = END_S) -> None:
    """Ends the agents that this process started. Call it at the exit, after the data was sent. Waits at most `within_s`
    seconds for each agent.
    """
    while _agents:
        _agents.popitem()[1].close(within_s)


def _after_fork() -> None:
    while _agents:
        _agents.popitem()[1].after_fork()


def _is_locked_elsewhere(descriptor: int, how: int) -> bool:
    """Whether another process holds the lock; if not, this call takes it."""
    try:
        fcntl.flock(descriptor, how | fcntl.LOCK_NB)
    except BlockingIOError:
        return True
    return False


def _close_stdin(process: "subprocess.Popen[bytes]") -> None:
    if process.stdin is not None:
        process.stdin.close()


def _detach(process: "subprocess.Popen[bytes]") -> None:
    """Sets a return code, so that Popen does not warn about a running process, which will exit by itself."""
    if process.returncode is None:
        process.returncode = 0
