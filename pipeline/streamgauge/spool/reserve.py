"""Disk space that the recorder reserves for its last rows: a file that it writes at its start, and deletes if the disk is
full at its end.

Then there is space for the heads and ends of open streams and for the counts of lost reads, so that each stream has a
record.
"""

import os
import shutil
from contextlib import suppress
from pathlib import Path

# The size of the file (bytes): 4 MiB hold the heads and ends of about 20,000 streams, as many as may be open at once.
# The file is at most 1/RESERVE_PART of the disk and of the spool.
RESERVE_BYTES = 4 * 1024 * 1024
RESERVE_PART = 16
# A file is written in pieces (bytes).
_PIECE = 64 * 1024


class Reserve:
    """The file `path`. Raises nothing: without the file a full disk costs heads and ends as well, which the caller counts."""

    def __init__(self, path: Path, spool_bytes: int) -> None:
        self._path = path
        self._spool_bytes = spool_bytes

    @property
    def is_kept(self) -> bool:
        """Whether the file exists."""
        return self._path.exists()

    def keep(self) -> bool:
        """Write the file, unless it exists. False if the disk refuses it."""
        if self.is_kept:
            return True
        new = self._path.with_name(f"{self._path.name}.new")
        try:
            new.unlink(missing_ok=True)
            left = min(RESERVE_BYTES, self._spool_bytes // RESERVE_PART, self._disk_bytes() // RESERVE_PART)
            descriptor = os.open(new, os.O_CREAT | os.O_EXCL | os.O_WRONLY | os.O_NOFOLLOW, 0o600)
            with os.fdopen(descriptor, "wb", buffering=0) as file:
                while left > 0:
                    # Random bytes: some file systems store zeros and repeated blocks without taking any space.
                    left -= file.write(os.urandom(min(left, _PIECE)))
            new.rename(self._path)
        except OSError:
            with suppress(OSError):
                new.unlink(missing_ok=True)
            return False
        return True

    def release(self) -> None:
        """Delete the file, so that the last rows can use its space."""
        with suppress(OSError):
            self._path.unlink(missing_ok=True)

    def _disk_bytes(self) -> int:
        return shutil.disk_usage(self._path.parent).total
