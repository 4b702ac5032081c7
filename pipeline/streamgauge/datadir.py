"""The data directory: made with mode 0700, and used by one tap at a time.

Two locks. `lock` is the owning command's alone, so that a second one is refused at once. `processes.lock` is inherited by
its children and free when the last of them is gone: after a SIGKILL of the owner the recorder still writes down what it
has, and nobody may close the balance of reads or open the spool before it has done so.
"""

import contextlib
import fcntl
import os
import time
from pathlib import Path
from typing import Self

from streamgauge.errors import Unavailable

# After a kill the old owner needs a moment to be gone (seconds).
OWNER_S = 2.0

# The recorder of an owner that was killed waits for its relays and then offers the disk its last rows: 2 s each, at most;
# the rest is for a busy machine (seconds).
CHILDREN_S = 15.0

_LOOK_S = 0.05


def make_data_dir(path: Path) -> None:
    """Make the directory where it is missing. Raises Unavailable."""
    try:
        path.mkdir(mode=0o700, parents=True, exist_ok=True)
    except OSError as error:
        raise unusable(path, error) from None


def unusable(path: Path, error: OSError) -> Unavailable:
    """The sentence for a data directory that the system refuses."""
    why = "it is a file" if isinstance(error, FileExistsError) else error.strerror or str(error)
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
        descriptor = os.open(data_dir / name, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
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
