"""The data directory: made with mode 0700, refused where every user may write, and used by one tap at a time.

It holds the key of the digests, waiting reads, and the link to the directory of the recorder's socket. A user who may write
there can replace each of them.

It has two locks. `lock` is held by the owning command alone, so that a second command is refused at once. `processes.lock`
is inherited by the command's children, and is free when the last of them has ended: after a SIGKILL of the owner the recorder
still writes its data to the spool, and no process may close the balance of reads or open the spool before it has done so.

By default it is below the user's state directory, as the platform has it.
"""

import contextlib
import errno
import fcntl
import os
import pwd
import shlex
import stat
import sys
import time
from pathlib import Path
from typing import Self

from streamgauge.errors import Unavailable, UsageFault
from streamgauge.runtime.ownership import WRITE, mode_of, others_who_may, owner_of

# After a kill the old owner needs a moment to end (seconds).
OWNER_S = 2.0

# The recorder of a killed owner waits for its relays, then offers its last rows to the disk: at most 2 s each. The rest
# of this time is for a busy machine (seconds).
CHILDREN_S = 15.0

_RETRY_S = 0.05


def make_data_dir(path: Path) -> None:
    """Make the directory if it is missing. Raises Unavailable, also if every user may write to it."""
    try:
        path.mkdir(mode=0o700, parents=True, exist_ok=True)
        status = path.stat()
    except OSError as error:
        raise unusable(path, error) from None
    if _is_refused(status):
        raise Unavailable(_exposed(path, status, "every user of this host"))


def warning_about(path: Path) -> str | None:
    """The warning about a data directory that is used although other users can change it; None for a private directory.

    Raises OSError.
    """
    status = path.stat()
    if others := others_who_may(status, WRITE):
        return _exposed(path, status, others)
    if status.st_uid not in (os.geteuid(), 0):
        return _exposed(path, status, f"the owner {owner_of(status)}")
    return None


def _is_refused(status: os.stat_result) -> bool:
    """Whether the directory is refused: every user may write to it, and replace files in it.

    Two kinds of directory only cause a warning. With the sticky bit, users cannot replace the files of other users. And
    volumes of containers often belong to root and have mode 0777: this user cannot change that, and no other user has
    access to them.
    """
    is_open = bool(status.st_mode & WRITE) and not status.st_mode & stat.S_ISVTX
    return is_open and (status.st_uid != 0 or os.geteuid() == 0)


def _exposed(path: Path, status: os.stat_result, others: str) -> str:
    is_shared = bool(status.st_mode & stat.S_ISVTX)
    if status.st_uid == os.geteuid() and not is_shared:
        cure = f"chmod 700 {shlex.quote(str(path))}"
    elif status.st_uid == 0 or is_shared:
        cure = "name a directory inside it with --data-dir, which is then created for this user only"
    else:
        cure = "choose another with --data-dir"
    return (
        f"{others} can change the data directory {path} (mode {mode_of(status)}), and so replace its key and read captured"
        f" data: {cure}"
    )


def unusable(path: Path, error: OSError) -> Unavailable:
    """The sentence for a data directory that the system refuses."""
    cure = "choose another with --data-dir"
    if isinstance(error, FileExistsError):
        reason = "it is not a directory"
    elif error.errno == errno.ELOOP:  # we never make a link there, and a link may lead anywhere
        reason = f"{error.filename} is a link"
    elif error.errno in (errno.ENOSPC, errno.EDQUOT):
        reason, cure = "its disk is full", f"free space there, or {cure}"
    else:
        reason = error.strerror or str(error)
    return Unavailable(f"the data directory {path} cannot be used ({reason}): {cure}")


class DataDirLock:
    """Makes the directory and locks it until `close`. Raises Unavailable if another process has it, or it is unusable.

    `children_fd`: the descriptor that every child must inherit.
    """

    def __init__(self, path: Path) -> None:
        make_data_dir(path)
        with contextlib.ExitStack() as stack:
            self.owner_fd = _locked(path, "lock", OWNER_S)
            stack.callback(os.close, self.owner_fd)
            self.children_fd = _locked(path, "processes.lock", CHILDREN_S)
            stack.pop_all()

    def close(self) -> None:
        """Release the locks. Children that still run keep `processes.lock`."""
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
    """Take the lock. Raises BlockingIOError if another process keeps it until the deadline."""
    while True:
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
            return
        except BlockingIOError:
            if time.monotonic() > deadline:
                raise
        time.sleep(_RETRY_S)


_DEFAULT_NAME = "streamgauge"


def default_data_dir() -> Path:
    """XDG_STATE_HOME/streamgauge, else ~/.local/state/streamgauge; on macOS it is in ~/Library/Application Support.

    A variable whose path is not absolute counts as not set (XDG Base Directory Specification).
    Raises UsageFault if the user has no home directory.
    """
    state = Path(os.environ.get("XDG_STATE_HOME", ""))
    if state.is_absolute():
        return state / _DEFAULT_NAME
    return _home() / ("Library/Application Support" if sys.platform == "darwin" else ".local/state") / _DEFAULT_NAME


def _home() -> Path:
    home = Path(os.environ.get("HOME", ""))
    if home.is_absolute():
        return home
    try:
        return Path(pwd.getpwuid(os.getuid()).pw_dir)
    except KeyError:
        raise UsageFault("this user has no home directory: set HOME, or give --data-dir") from None
