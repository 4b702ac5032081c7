"""The installation's own key, under which credentials and bodies become digests. Made once, kept in the data directory."""

import os
import secrets
import tempfile
from pathlib import Path

_BYTES = 32


class UnusableKeyError(ValueError):
    """There is a key file, and it does not hold a key."""


def installation_key(data_dir: Path) -> bytes:
    """The 32 bytes in DATA_DIR/key, made if the file is missing. Raises UnusableKeyError or OSError."""
    path = data_dir / "key"
    if not path.exists():
        _make(path)
    key = path.read_bytes()
    if len(key) != _BYTES:
        raise UnusableKeyError(f"{path} does not hold {_BYTES} bytes: restore it, or remove it to begin with a new key")
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
