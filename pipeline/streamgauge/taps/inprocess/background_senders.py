"""This process's senders, one a data directory. A forked child begins with none: its parent's are not its own."""

import atexit
import os
import sys
from pathlib import Path

from streamgauge.taps.inprocess import agent
from streamgauge.taps.inprocess.agent_location import DATA_DIR_VARIABLE, data_dir_of
from streamgauge.taps.inprocess.background_sender import BackgroundSender

# How long the end of a process waits for a recorder that takes nothing (seconds).
END_S = 2.0

_senders: dict[Path, BackgroundSender] = {}
_named: dict[str | Path | None, BackgroundSender] = {}  # the same, by what they were asked for with
_ends_in: set[int] = set()  # processes whose end is attended to


def sender_of(data_dir: Path | str | None = None) -> BackgroundSender:
    """The sender of a data directory: of the one that is named, else the environment's, else the command line's default.

    Raises nothing, and starts nothing: that is for the first stream.
    """
    name = data_dir or os.environ.get(DATA_DIR_VARIABLE)
    found = _named.get(name)
    if found is None:
        found = _named[name] = _made(data_dir_of(name))
    return found


def finish(within_s: float = END_S) -> None:
    """Hand over all that was noted so far, then let an agent of ours end. Waits, at most so long for each.

    For whoever knows that the process is about to end without its exit handlers. Streams may follow all the same.
    """
    for sender in list(_senders.values()):
        sender.flush(within_s)
    agent.leave()


def _made(data_dir: Path) -> BackgroundSender:
    if os.getpid() not in _ends_in:
        _attend_to_end()
    return _senders.setdefault(data_dir, BackgroundSender(data_dir, agent))


def _attend_to_end() -> None:
    if not _ends_in:
        atexit.register(_end)
        os.register_at_fork(after_in_child=_forget)
    _ends_in.add(os.getpid())
    if "multiprocessing.util" in sys.modules:  # its forked children end without exit handlers, but for its own
        sys.modules["multiprocessing.util"].Finalize(None, _end, exitpriority=0)


def _end() -> None:
    while _senders:
        _senders.popitem()[1].close(END_S)
    _named.clear()
    agent.leave()


def _forget() -> None:
    while _senders:
        _senders.popitem()[1].forget()
    _named.clear()
