"""Writes a file that is there whole, or not at all."""

import contextlib
import os
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import BinaryIO

from streamgauge.errors import Unavailable

# Characters of the file's name in that of the unfinished one: with all of them it may be too long.
_NAME_CHARS = 40


@contextlib.contextmanager
def whole_file(path: Path) -> Iterator[BinaryIO]:
    """A file that gets its name when the block ends well, readable by its owner alone. Raises Unavailable."""
    part = None
    try:
        # The name is random: another user of the directory cannot prepare a link or a file of that name.
        descriptor, name = tempfile.mkstemp(prefix=f".{path.name[:_NAME_CHARS]}.", suffix=".part", dir=path.parent)
        part = Path(name)
        with os.fdopen(descriptor, "wb") as file:
            yield file
        part.replace(path)
    except OSError as error:
        raise Unavailable(f"{path} cannot be written: {error.strerror}") from None
    finally:
        if part is not None:
            part.unlink(missing_ok=True)
