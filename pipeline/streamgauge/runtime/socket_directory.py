"""The directory of the recorder's socket: private, below the temporary directory, with a path short enough for a socket.

DATA_DIR/run is a link to it, by which taps in applications find it. A copy of a data directory has the same link, and a user
who may write there can change it. So a directory is removed only if it is a socket's directory of this user, and unused.
"""

import contextlib
import os
import socket
import stat
import tempfile
from pathlib import Path
from typing import Self

from streamgauge.errors import Unavailable
from streamgauge.runtime.data_directory import unusable
from streamgauge.runtime.ownership import is_our_directory

# How the directory is named, below the temporary directory, and all that it holds.
_PREFIX = "streamgauge-"
SOCKET = "recorder.sock"
# How long a Unix socket's path may be everywhere (bytes: macOS has 104 with a NUL).
_MAX_SOCKET_PATH = 103
# A recorder that lives accepts at once, or its backlog is full; it is asked only whether it lives (seconds).
_ASK_S = 1.0


class RuntimeDir:
    """Made when it is constructed, removed by `close`. One that a killed tap left on the data directory is removed before.

    `to_be_found`: taps in applications need the link; without it a tap that relays goes on. Raises Unavailable.
    """

    def __init__(self, data_dir: Path, *, to_be_found: bool) -> None:
        self._data_dir, self._to_be_found = data_dir, to_be_found
        self._link = data_dir / "run"
        with contextlib.suppress(OSError):
            _remove_unused(data_dir / self._link.readlink())
        try:
            self.path = Path(tempfile.mkdtemp(prefix=_PREFIX))
        except OSError as error:
            raise Unavailable(
                f"no directory for temporary files can be used ({error.strerror}): set TMPDIR to one that can"
            ) from None
        try:
            if len(os.fsencode(self.socket)) > _MAX_SOCKET_PATH:
                raise Unavailable(f"the path {self.path} is too long for a socket: set TMPDIR to a shorter one")
            self._make_link()
        except Unavailable:
            self.close()
            raise

    @property
    def socket(self) -> Path:
        """Where the recorder listens."""
        return self.path / SOCKET

    def restore(self) -> None:
        """Make the directory and the link again where they are gone: a recorder that starts again needs them.

        Raises Unavailable.
        """
        try:
            self.path.mkdir(mode=0o700)
        except FileExistsError:
            if self.path.is_symlink() or not is_our_directory(self.path):
                raise Unavailable(
                    f"{self.path} is no longer the directory of this tap: remove it, or restart the tap"
                ) from None
        except OSError as error:
            raise Unavailable(
                f"the socket directory {self.path} cannot be created ({error.strerror}): check TMPDIR, or restart the tap"
            ) from None
        self._make_link()

    def close(self) -> None:
        """Remove the directory, and the link if it still leads there."""
        _remove_unused(self.path)
        with contextlib.suppress(OSError):
            if self._link.readlink() == self.path:
                self._link.unlink()

    def _make_link(self) -> None:
        """Lead DATA_DIR/run here, wherever it led before."""
        try:
            if self._link.is_symlink():
                if self._link.readlink() == self.path:
                    return
                self._link.unlink()
            self._link.symlink_to(self.path)
        except FileExistsError:
            if self._to_be_found:
                raise Unavailable(
                    f"the data directory {self._data_dir} cannot be used ({self._link} is not a symbolic link): move that"
                    " away, or choose another directory with --data-dir"
                ) from None
        except OSError as error:
            if self._to_be_found:
                raise unusable(self._data_dir, error) from None

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


def _remove_unused(directory: Path) -> None:
    """Remove a socket's directory; anything else stays as it is."""
    with contextlib.suppress(OSError):
        if _is_ours(directory) and not _is_used(directory / SOCKET):
            (directory / SOCKET).unlink(missing_ok=True)
            directory.rmdir()


def _is_ours(directory: Path) -> bool:
    """Whether we made it: by its name and place, its owner and mode, and what is in it. Raises OSError."""
    found = directory.lstat()
    return (
        directory.name.startswith(_PREFIX)
        and directory.parent.resolve() == Path(tempfile.gettempdir()).resolve()
        and stat.S_ISDIR(found.st_mode)
        and stat.S_IMODE(found.st_mode) == 0o700
        and found.st_uid == os.geteuid()
        and all(file.name == SOCKET and file.is_socket() for file in directory.iterdir())
    )


def _is_used(path: Path) -> bool:
    """Whether a process listens there."""
    if not path.exists():  # its path may be too long to be asked
        return False
    with socket.socket(socket.AF_UNIX) as asking:
        asking.settimeout(_ASK_S)
        try:
            asking.connect(str(path))
        except ConnectionRefusedError:
            return False
        except OSError:  # its backlog is full, for example
            return True
    return True
