"""The directory of the recorder's socket: private, below the temporary directory, with a path short enough for a socket.

DATA_DIR/run is a link to it, by which taps in applications find it. A copy of a data directory has the same link, and a
user who may write there can change it. So a directory is removed only if it is an unused socket directory of this user.
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

# The prefix of the directory's name, below the temporary directory; and the only file in it.
_PREFIX = "streamgauge-"
SOCKET = "recorder.sock"
# The longest path of a Unix socket that all systems allow (bytes: macOS has 104 with a NUL).
_MAX_SOCKET_PATH = 103
# How long a test connection to a recorder may take (s): a running recorder accepts at once, or its backlog is full.
_ASK_S = 1.0


class RuntimeDir:
    """Makes the directory, and removes it in `close`. First it removes a directory that a killed tap left.

    `to_be_found`: taps in applications need the link, so a failure to make it is an error; else it is ignored. Raises
    Unavailable.
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
        """The path of the recorder's socket."""
        return self.path / SOCKET

    def restore(self) -> None:
        """Make the directory and the link again if they were removed: a recorder that is restarted needs them.

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
        """Remove the directory, and the link if it still leads to it."""
        _remove_unused(self.path)
        with contextlib.suppress(OSError):
            if self._link.readlink() == self.path:
                self._link.unlink()

    def _make_link(self) -> None:
        """Make DATA_DIR/run a link to this directory, in place of an earlier link."""
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
    """Remove a directory if it is an unused socket directory of ours; leave any other as it is."""
    with contextlib.suppress(OSError):
        if _is_ours(directory) and not _is_used(directory / SOCKET):
            (directory / SOCKET).unlink(missing_ok=True)
            directory.rmdir()


def _is_ours(directory: Path) -> bool:
    """Whether a tap of this user made the directory, by its name, place, owner, mode and contents. Raises OSError."""
    status = directory.lstat()
    return (
        directory.name.startswith(_PREFIX)
        and directory.parent.resolve() == Path(tempfile.gettempdir()).resolve()
        and stat.S_ISDIR(status.st_mode)
        and stat.S_IMODE(status.st_mode) == 0o700
        and status.st_uid == os.geteuid()
        and all(file.name == SOCKET and file.is_socket() for file in directory.iterdir())
    )


def _is_used(path: Path) -> bool:
    """Whether a process listens on the socket at this path."""
    # Without this check, `connect` to a path that is too long would count as a used socket.
    if not path.exists():
        return False
    with socket.socket(socket.AF_UNIX) as asking:
        asking.settimeout(_ASK_S)
        try:
            asking.connect(str(path))
        except ConnectionRefusedError:
            return False
        except OSError:  # for example, its backlog is full
            return True
    return True
