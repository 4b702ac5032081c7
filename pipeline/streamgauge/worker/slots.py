"""A worker's group member id: each worker is a static member, with one id per slot of a data directory.

A static member that is killed and restarted gets its partitions back at once, without a rebalance. Two processes with the
same id would fence each other, so a file lock reserves the slot; the lock lasts exactly as long as its process.
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

# The most workers of one data directory: more workers than partitions (64 at most) would have no work.
MAX_SLOTS = 64


class Slot:
    """A slot of `data_dir`, locked until `release` or the end of the process. `instance_id` is unique in the group.

    Raises SlotsTakenError if all slots are locked, OSError if the directory cannot be used.
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
            self.exits = directory / f"{number}.exits"  # the file of StuckExitCounts
            self._handle = handle
            break
        else:
            raise SlotsTakenError(f"{MAX_SLOTS} workers use {data_dir} already: choose another --data-dir")
        self.instance_id = f"{_directory_id(directory)}-{self.number}"

    def release(self) -> None:
        """Unlock the slot: another worker may use it, and its instance id."""
        os.close(self._handle)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        self.release()


def _directory_id(directory: Path) -> str:
    """The id of the data directory. The first process creates it."""
    path = directory / "id"
    with contextlib.suppress(FileNotFoundError):
        if not path.stat().st_size:
            path.unlink()  # left so by a loss of power
    if not path.exists():
        with tempfile.NamedTemporaryFile("w", dir=directory, prefix=".id-") as file:
            file.write(uuid.uuid4().hex)
            file.flush()
            os.fsync(file.fileno())
            with contextlib.suppress(FileExistsError):  # another process created it at the same moment: use its id
                os.link(file.name, path)
    return path.read_text()
