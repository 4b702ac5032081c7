"""This process's senders, one for each data directory. A forked child starts without its parent's senders."""

import atexit
import os
import sys
from pathlib import Path

from streamgauge.taps.inprocess.agent_location import DATA_DIR_VARIABLE, data_dir_of
from streamgauge.taps.inprocess.background_sender import BackgroundSender

# How long the exit of a process waits for a recorder that does not accept data (seconds).
END_S = 2.0

_senders: dict[Path, BackgroundSender] = {}
_named: dict[str | Path | None, BackgroundSender] = {}  # the same senders, by the argument of `sender_of`
_registered_processes: set[int] = set()  # process ids with an exit handler


def sender_of(data_dir: Path | str | None = None) -> BackgroundSender:
    """The sender of a data directory: `data_dir`, else STREAMGAUGE_DATA_DIR, else the default of `data_dir_of`.

    Never raises, and starts no thread: the first stream starts it.
    """
    name = data_dir or os.environ.get(DATA_DIR_VARIABLE)
    sender = _named.get(name)
    if sender is None:
        sender = _named[name] = _made(data_dir_of(name))
    return sender


def finish(within_s: float = END_S) -> None:
    """Sends everything noted so far. Waits at most `within_s` seconds for each sender.

    For a process that will end without running its exit handlers. Later streams are still captured.
    """
    for sender in list(_senders.values()):
        sender.flush(within_s)


def _made(data_dir: Path) -> BackgroundSender:
    if os.getpid() not in _registered_processes:
        _register_exit_handlers()
    return _senders.setdefault(data_dir, BackgroundSender(data_dir))


def _register_exit_handlers() -> None:
    if not _registered_processes:
        atexit.register(end)
        os.register_at_fork(after_in_child=_after_fork)
    _registered_processes.add(os.getpid())
    if "multiprocessing.util" in sys.modules:  # its forked children run only its own exit handlers
        sys.modules["multiprocessing.util"].Finalize(None, end, exitpriority=0)


def end() -> None:
    """Ends this process's senders, as its exit does: each sends what it has for at most END_S, and drops the rest. A later
    `sender_of` makes new ones.
    """
    while _senders:
        _senders.popitem()[1].close(END_S)
    _named.clear()


def _after_fork() -> None:
    while _senders:
        _senders.popitem()[1].after_fork()
    _named.clear()
