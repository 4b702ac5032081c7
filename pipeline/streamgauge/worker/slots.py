"""Who a worker is to its group: a static member, one a process slot of a data directory.

A static member that is killed and started again takes its partitions back at once, without a rebalance. Two processes
with one id throw each other out, so a slot is held by a file lock: it lasts exactly as long as its process.
"""

import contextlib
import fcntl
import os
import tempfile
import uuid
from pathlib import Path
from types import TracebackType
from typing import Self

from streamgauge.worker.faults import SlotsTakenError

# More workers than partitions (64 at most) have nothing to do.
MAX_SLOTS = 64


class Slot:
    """A slot of `data_dir`, held until `release` or the end of the process. `instance_id` is unique in the group.

    Raises SlotsTakenError if all are held, OSError if the directory cannot be used.
    """

    def __init__(self, data_dir: Path) -> None:
        directory = data_dir / "worker-slots"
        directory.mkdir(mode=0o700, parents=True, exist_ok=True)
        for number in range(MAX_SLOTS):
            handle = os.open(directory / str(number), os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW | os.O_CLOEXEC, 0o600)
            try:
                fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError:
                os.close(handle)
                continue
            self.number = number
            self.exits = directory / f"{number}.exits"  # what `stuck_exit_counts.py` keeps
            self._handle = handle
            break
        else:
            raise SlotsTakenError(f"{MAX_SLOTS} workers use {data_dir} already: choose another --data-dir")
        self.instance_id = f"{_directory_id(directory)}-{self.number}"

    def release(self) -> None:
        os.close(self._handle)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        self.release()


def _directory_id(directory: Path) -> str:
    """An id for the data directory, made once, by whichever process comes first."""
    path = directory / "id"
    if not path.exists():
        with tempfile.NamedTemporaryFile("w", dir=directory, prefix=".id-") as made:
            made.write(uuid.uuid4().hex)
            made.flush()
            with contextlib.suppress(FileExistsError):  # another process was faster, and its id is as good
                os.link(made.name, path)
    return path.read_text()
