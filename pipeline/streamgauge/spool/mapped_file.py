"""A file of a fixed size that processes map and write in place: what was stored is kept when a process is killed.

Its first word names its layout. All of it is allocated when it is made: a full disk cannot stop a later store, which would
kill the process (SIGBUS).
"""

import mmap
import os
import tempfile
from pathlib import Path

WORD = 8


def open_mapped(path: Path, layout: bytes, size: int) -> mmap.mmap:
    """The file's mapping; a new one if it is missing, or has another layout (then it is moved aside). `layout`: WORD bytes.

    Raises OSError if it can be neither read nor made.
    """
    mapped = map_existing(path, layout, size, write=True)
    if mapped is None and os.path.lexists(path):  # also for a dangling link
        path.rename(_aside(path))
    while mapped is None:
        _create(path, layout, size)
        mapped = map_existing(path, layout, size, write=True)
    return mapped


def map_existing(path: Path, layout: bytes, size: int, *, write: bool) -> mmap.mmap | None:
    """The file's mapping; None if it is missing or not of this layout. Raises OSError if it cannot be read."""
    try:
        with path.open("r+b" if write else "rb") as file:
            if os.fstat(file.fileno()).st_size != size:
                return None
            mapped = mmap.mmap(file.fileno(), size, access=mmap.ACCESS_WRITE if write else mmap.ACCESS_READ)
    except FileNotFoundError:
        return None
    if mapped[:WORD] == layout:
        return mapped
    mapped.close()
    return None


def _create(path: Path, layout: bytes, size: int) -> None:
    """Write the whole file under another name, then link it: no process reads half a file, and of two makers one wins."""
    with tempfile.NamedTemporaryFile(dir=path.parent, prefix=f".{path.name}-") as file:
        file.write(layout + bytes(size - WORD))
        file.flush()
        try:
            os.link(file.name, path)
        except FileExistsError:
            return


def _aside(path: Path) -> Path:
    number = 1
    while (aside := path.with_name(f"{path.name}.other-{number}")).exists():
        number += 1
    return aside
