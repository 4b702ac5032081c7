"""The installation's own key, for the digests of credentials and bodies. Made once, and kept in the data directory.

To rotate it, move it to `key.previous`, and start the tap: it makes a new one. Entries of --tenants with ids under the
previous key count until that file is removed.

With the key, the credential or body of a digest can be found by trying likely ones. So a key that other users may read is
refused, as ssh refuses such keys.
"""

import os
import secrets
import shlex
import stat
import tempfile
from pathlib import Path

from streamgauge.runtime.ownership import READ, WRITE, mode_of, others_who_may

_BYTES = 32


class UnusableKeyError(ValueError):
    """The key file does not hold a key, or other users can read or change it. The text is a sentence for the operator."""


def installation_key(data_dir: Path) -> bytes:
    """The 32 bytes in DATA_DIR/key, made if the file is missing. Raises UnusableKeyError or OSError."""
    path = data_dir / "key"
    if not os.path.lexists(path):
        _make(path)
    return _read(path, "to start with a new key")


def previous_key(data_dir: Path) -> bytes | None:
    """The 32 bytes in DATA_DIR/key.previous; None if there is no such file. Raises UnusableKeyError or OSError."""
    path = data_dir / "key.previous"
    return _read(path, "to end the rotation") if os.path.lexists(path) else None


def _read(path: Path, purpose: str) -> bytes:
    """The key in a file. `purpose`: why an operator would remove the file."""
    with os.fdopen(os.open(path, os.O_RDONLY | os.O_CLOEXEC | os.O_NONBLOCK), "rb") as file:  # a pipe must not block
        status = os.fstat(file.fileno())
        if not stat.S_ISREG(status.st_mode):
            raise UnusableKeyError(f"the key {path} is not a regular file: remove it {purpose}")
        if others := others_who_may(status, READ | WRITE):
            raise UnusableKeyError(
                f"{others} can read or change the key {path} (mode {mode_of(status)}): chmod 600 {shlex.quote(str(path))},"
                f" or remove it {purpose} if others may know it"
            )
        key = file.read(_BYTES + 1)
    if len(key) != _BYTES:
        raise UnusableKeyError(f"the key {path} does not have {_BYTES} bytes: restore it, or remove it {purpose}")
    return key


def _make(path: Path) -> None:
    """Write the whole key under another name, then link it: no process reads half a key, and of two makers one wins."""
    with tempfile.NamedTemporaryFile(dir=path.parent, prefix=".key-") as file:
        file.write(secrets.token_bytes(_BYTES))
        file.flush()
        os.fsync(file.fileno())
        try:
            os.link(file.name, path)
        except FileExistsError:
            return
