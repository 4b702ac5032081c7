"""The installation's own key, under which credentials and bodies become digests. Made once, kept in the data directory.

A user who knows the key can find out which credential or body a digest is of, by trying likely ones. So a key that others may
read is refused, as ssh refuses its keys.
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
    """There is a key file, and it does not hold a key, or one that others know. Its text is a sentence for the operator."""


def installation_key(data_dir: Path) -> bytes:
    """The 32 bytes in DATA_DIR/key, made if the file is missing. Raises UnusableKeyError or OSError."""
    path = data_dir / "key"
    if not os.path.lexists(path):
        _make(path)
    with os.fdopen(os.open(path, os.O_RDONLY | os.O_CLOEXEC | os.O_NONBLOCK), "rb") as file:  # a pipe is not waited for
        found = os.fstat(file.fileno())
        if not stat.S_ISREG(found.st_mode):
            raise UnusableKeyError(f"the key {path} is not a regular file: remove it to start with a new key")
        if others := others_who_may(found, READ | WRITE):
            raise UnusableKeyError(
                f"{others} can read or change the key {path} (mode {mode_of(found)}): chmod 600 {shlex.quote(str(path))},"
                " or remove it to start with a new key if others may know it"
            )
        key = file.read(_BYTES + 1)
    if len(key) != _BYTES:
        raise UnusableKeyError(
            f"the key {path} does not have {_BYTES} bytes: restore it, or remove it to start with a new key"
        )
    return key


def _make(path: Path) -> None:
    """Whole under another name first: of two makers one wins, and nobody reads half a key."""
    with tempfile.NamedTemporaryFile(dir=path.parent, prefix=".key-") as made:
        made.write(secrets.token_bytes(_BYTES))
        made.flush()
        os.fsync(made.fileno())
        try:
            os.link(made.name, path)
        except FileExistsError:
            return
