"""The data directory: made with mode 0700, refused where every user may write, and used by one tap at a time.

It holds the key of the digests, reads that wait, and the way to the recorder's socket. A user who may write there can replace
each of them.

Two locks. `lock` is the owning command's alone, so that a second one is refused at once. `processes.lock` is inherited by
its children and free when the last of them is gone: after a SIGKILL of the owner the recorder still writes down what it
has, and nobody may close the balance of reads or open the spool before it has done so.
"""

import contextlib
import errno
import fcntl
import os
import shlex
import stat
import time
from pathlib import Path
from typing import Self

from streamgauge.errors import Unavailable
from streamgauge.runtime.ownership import WRITE, mode_of, others_who_may, owner_of

# After a kill the old owner needs a moment to be gone (seconds).
OWNER_S = 2.0

# The recorder of an owner that was killed waits for its relays and then offers the disk its last rows: 2 s each, at most;
# the rest is for a busy machine (seconds).
CHILDREN_S = 15.0

_LOOK_S = 0.05


def make_data_dir(path: Path) -> None:
    """Make the directory where it is missing. Raises Unavailable, also where every user may write to it."""
    try:
        path.mkdir(mode=0o700, parents=True, exist_ok=True)
        found = path.stat()
    except OSError as error:
        raise unusable(path, error) from None
    if _is_refused(found):
        raise Unavailable(_exposed(path, found, "every user of this host"))


def warning_about(path: Path) -> str | None:
    """What an operator should know of a data directory that is used although others can change it; None for a private one.

    Raises OSError.
    """
    found = path.stat()
    if others := others_who_may(found, WRITE):
        return _exposed(path, found, others)
    if found.st_uid not in (os.geteuid(), 0):
        return _exposed(path, found, f"the owner {owner_of(found)}")
    return None


def _is_refused(found: os.stat_result) -> bool:
    """Whether every user may write, and may replace what is in it.

    Two kinds have a warning alone. Where the sticky bit is set, nobody replaces what is another's. And volumes of containers
    often belong to root and have mode 0777: this user cannot change that, and no other user sees them.
    """
    is_open = bool(found.st_mode & WRITE) and not found.st_mode & stat.S_ISVTX
    return is_open and (found.st_uid != 0 or os.geteuid() == 0)


def _exposed(path: Path, found: os.stat_result, others: str) -> str:
    is_shared = bool(found.st_mode & stat.S_ISVTX)
    if found.st_uid == os.geteuid() and not is_shared:
        cure = f"chmod 700 {shlex.quote(str(path))}"
    elif found.st_uid == 0 or is_shared:
        cure = "name a directory inside it with --data-dir, which is then created for this user only"
    else:
        cure = "choose another with --data-dir"
    return (
        f"{others} can change the data directory {path} (mode {mode_of(found)}), and so replace its key and read captured"
        f" data: {cure}"
    )


def unusable(path: Path, error: OSError) -> Unavailable:
    """The sentence for a data directory that the system refuses."""
    if isinstance(error, FileExistsError):
        why = "it is not a directory"
    elif error.errno == errno.ELOOP:  # what we make there is never a link, and a link may lead anywhere
        why = f"{error.filename} is a link"
    else:
        why = error.strerror or str(error)
    return Unavailable(f"the data directory {path} cannot be used ({why}): choose another with --data-dir")


class DataDirLock:
    """Makes the directory and takes it, until `close`. Raises Unavailable where it cannot be had.

    `children_fd`: the descriptor that every child must inherit.
    """

    def __init__(self, path: Path) -> None:
        make_data_dir(path)
        with contextlib.ExitStack() as taken:
            self.owner_fd = _locked(path, "lock", OWNER_S)
            taken.callback(os.close, self.owner_fd)
            self.children_fd = _locked(path, "processes.lock", CHILDREN_S)
            taken.pop_all()

    def close(self) -> None:
        """Let go of it. Children that still run keep it."""
        os.close(self.children_fd)
        os.close(self.owner_fd)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


def _locked(data_dir: Path, name: str, patience_s: float) -> int:
    descriptor = -1
    try:
        descriptor = os.open(data_dir / name, os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW | os.O_CLOEXEC, 0o600)
        _lock(descriptor, time.monotonic() + patience_s)
    except OSError as error:
        if descriptor >= 0:
            os.close(descriptor)
        if isinstance(error, BlockingIOError):
            raise Unavailable(
                f"another process uses the data directory {data_dir}: stop it, or choose another with --data-dir"
            ) from None
        raise unusable(data_dir, error) from None
    return descriptor


def _lock(descriptor: int, deadline: float) -> None:
    """Raises BlockingIOError if another has it until the deadline."""
    while True:
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
            return
        except BlockingIOError:
            if time.monotonic() > deadline:
                raise
        time.sleep(_LOOK_S)
