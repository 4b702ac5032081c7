"""Prints the entries of some packages from a lock file, with their hashes: python scripts/locked.py LOCK NAME..."""

import re
import sys
from pathlib import Path


def locked(lock: str, names: list[str]) -> str:
    """The lines of these packages. Raises KeyError for a package that the lock does not name."""
    entries = {entry.partition("==")[0]: entry for entry in re.split(r"^(?=[^\s#]+==)", lock, flags=re.MULTILINE)}
    return "".join(entries[name] for name in names)


if __name__ == "__main__":
    sys.stdout.write(locked(Path(sys.argv[1]).read_text(encoding="utf-8"), sys.argv[2:]))
