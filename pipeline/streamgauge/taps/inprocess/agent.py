"""Starts an agent for the taps of an application, where STREAMGAUGE_KAFKA is set and no agent is reachable.

The agent is `streamgauge tap --child`, a child whose stdin is a pipe of ours: when this process ends, however it does, the
agent drains and ends. Of several processes on one data directory one has the turn (`starter.lock`, for as long as its
agent runs), the others connect to what it started; when it goes, another takes over. An agent that somebody else started
holds the data directory's own lock, and is left alone.

STREAMGAUGE_AGENT=external: agents are started by others only.
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
from streamgauge.runtime.data_directory import make_data_dir
from streamgauge.runtime.faults import described, report_fault
from streamgauge.taps.inprocess.outbox import CAPACITY_BYTES

# Between attempts (seconds). An agent is there within two; each attempt costs half a second of a core, so that a fault that
# lasts must not repeat it often: the pause doubles up to the larger one.
ATTEMPT_S = 5.0
MAX_ATTEMPT_S = 300.0
# An agent that ran so long was a good one: the next is tried at once (seconds).
PROVED_S = 60.0
# How long the end of a process waits for its agent to ship the rest (seconds): it takes one, with a broker. Where a container
# ends with the process, what is not shipped by then is lost unless the data directory outlives it.
END_S = 3.0

_STARTER = "starter.lock"
_OWNER = "lock"  # taken by every agent (data_directory.py)

# What a process does with captured reads while no agent runs: they wait in its outbox (outbox.py).
_WAITS = (
    f"streams are not affected, and up to {CAPACITY_BYTES // 1024**2} MiB of captured data wait in this process until an"
    " agent runs; data beyond that, or still waiting when the process ends, is lost"
)

_log = logging.getLogger("streamgauge")


class Agent:
    """The agent that this process may start. No method raises; all but `close` return at once. Used by one thread."""

    def __init__(self, data_dir: Path, environment: Mapping[str, str] = os.environ) -> None:
        self._data_dir = data_dir
        self._environment = environment
        self._process: subprocess.Popen[bytes] | None = None
        self._turn: int | None = None  # the starter's lock, while it is ours
        self._started_s = 0.0
        self._next_s = 0.0
        self._pause_s = ATTEMPT_S
        self._complained = ""

    @property
    def starts(self) -> bool:
        """Whether an agent is started where there is none."""
        external = self._environment.get("STREAMGAUGE_AGENT", "").strip().lower() == "external"
        return bool(self._environment.get("STREAMGAUGE_KAFKA")) and not external

    def missing(self) -> None:
        """No agent could be reached. Starts one, if it is time for that; call it as often as you like."""
        try:
            if self.starts:
                self._look(time.monotonic())
            else:
                self._complain(
                    f"no agent runs at {self._data_dir}: {_WAITS}. Start `streamgauge up --agent` or `streamgauge tap"
                    " --agent --kafka HOST:PORT` as this user, or set STREAMGAUGE_KAFKA so that this process starts one"
                )
        except Exception as error:  # noqa: BLE001 - capture fails open: the application knows nothing of agents
            if not isinstance(error, OSError | StreamgaugeError):
                report_fault("the start of an agent", error)
            self._complain(f"no agent can be started ({described(error)}): {_WAITS}")

    def close(self, within_s: float = END_S) -> None:
        """This process ends: so may its agent, once it has shipped the rest. Waits for it, for so long at most."""
        process, self._process = self._process, None
        with contextlib.suppress(OSError):
            if process is not None:
                _hang_up(process)
                with contextlib.suppress(subprocess.TimeoutExpired):
                    process.wait(within_s)
                _give_away(process)
            self._end_turn()

    def forget(self) -> None:
        """This process was forked off: the agent is its parent's, and ends with that."""
        process, self._process = self._process, None
        with contextlib.suppress(OSError):
            if process is not None:
                _hang_up(process)
                _give_away(process)
            self._end_turn()
        self._next_s = 0.0

    def _look(self, now: float) -> None:
        if self._process is not None:
            code = self._process.poll()
            if code is None:  # it is on its way
                return
            self._ended(code, now)
        if now < self._next_s:
            return
        self._next_s = now + self._pause_s
        if self._take_turn():
            self._pause_s = min(2 * self._pause_s, MAX_ATTEMPT_S)
            self._start(now)

    def _take_turn(self) -> bool:
        """Whether it is on us: no other process starts one, and none runs."""
        make_data_dir(self._data_dir)
        self._turn = os.open(self._data_dir / _STARTER, os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW | os.O_CLOEXEC, 0o600)
        if _taken(self._turn, fcntl.LOCK_EX) or self._runs():
            self._end_turn()
            return False
        return True

    def _runs(self) -> bool:
        """Whether some agent has the data directory; it may still start, or drain."""
        try:
            owner = os.open(self._data_dir / _OWNER, os.O_RDONLY | os.O_NOFOLLOW | os.O_CLOEXEC)
        except FileNotFoundError:
            return False
        try:
            return _taken(owner, fcntl.LOCK_SH)
        finally:
            os.close(owner)

    def _start(self, now: float) -> None:
        try:
            # Modules that lie where the application was started are not for the agent: PYTHONSAFEPATH, for its children too.
            self._process = subprocess.Popen(
                [sys.executable, "-m", "streamgauge", "tap", "--child", "--data-dir", str(self._data_dir)],
                stdin=subprocess.PIPE,
                stdout=subprocess.DEVNULL,
                env={**self._environment, "PYTHONSAFEPATH": "1"},
                start_new_session=True,  # Ctrl-C is the application's: the agent ends after it
            )
        except BaseException:
            self._end_turn()
            raise
        self._started_s = now
        _log.info("streamgauge: started an agent for %s (process %d)", self._data_dir, self._process.pid)

    def _ended(self, code: int, now: float) -> None:
        process, self._process = self._process, None
        if process is not None:
            _hang_up(process)
        self._end_turn()
        if now - self._started_s > PROVED_S:
            self._pause_s = ATTEMPT_S
            self._next_s = now
        self._complain(f"the agent for {self._data_dir} ended (exit code {code}): see its error message above")

    def _end_turn(self) -> None:
        if self._turn is not None:
            os.close(self._turn)
            self._turn = None

    def _complain(self, sentence: str) -> None:
        """Says it, but not again and again."""
        if sentence != self._complained:
            self._complained = sentence
            _log.warning("streamgauge: %s", sentence)


# This process's agents by data directory: one, in all but odd cases.
_agents: dict[Path, Agent] = {}


def away(data_dir: Path) -> None:
    """No agent could be reached at this data directory. Never raises; may start one."""
    one = _agents.get(data_dir)
    if one is None:
        if not _agents:
            os.register_at_fork(after_in_child=_forget)
        one = _agents[data_dir] = Agent(data_dir)
    one.missing()


def expected(data_dir: Path) -> bool:
    """Whether an agent that is not there yet will be: where nobody starts one, nobody need wait for it."""
    one = _agents.get(data_dir)
    return one is not None and one.starts


def leave(within_s: float = END_S) -> None:
    """This process ends, and has handed over what it had: agents that it started may end. Waits for each, at most so long."""
    while _agents:
        _agents.popitem()[1].close(within_s)


def _forget() -> None:
    while _agents:
        _agents.popitem()[1].forget()


def _taken(descriptor: int, how: int) -> bool:
    """Whether another has the lock; if not, it is ours."""
    try:
        fcntl.flock(descriptor, how | fcntl.LOCK_NB)
    except BlockingIOError:
        return True
    return False


def _hang_up(process: "subprocess.Popen[bytes]") -> None:
    if process.stdin is not None:
        process.stdin.close()


def _give_away(process: "subprocess.Popen[bytes]") -> None:
    """It ends by itself; nobody here waits for it, and Popen need not warn of that."""
    if process.returncode is None:
        process.returncode = 0
