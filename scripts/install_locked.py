"""Installs what a lock file names, with its hashes, and shows how far that is: `python scripts/install_locked.py LOCK`.

pip's own output would be hundreds of lines, or none. A terminal gets a line that changes, a file a line for each tenth
package. pip's warnings and errors go to stderr as they are.
"""

import re
import subprocess
import sys
import time
from collections.abc import Iterable, Iterator
from pathlib import Path

_PIP = (
    *(sys.executable, "-m", "pip", "install", "--disable-pip-version-check", "--no-compile", "--require-hashes"),
    *("--progress-bar", "off"),
)
# Lines of pip, each for a package that the lock names, whether it needs it here or not.
_PACKAGE = re.compile(r"(?:Collecting|Requirement already satisfied:|Ignoring) ([A-Za-z0-9._-]+)")


def names_in(lock: str) -> set[str]:
    """The packages that a lock file names."""
    return set(re.findall(r"^([^\s#=[]+)(?:\[.*\])?==", lock, re.MULTILINE))


def progress(lines: Iterable[str], waiting: set[str], *, changes: bool) -> Iterator[str]:
    """What to write for pip's lines. `waiting`: the packages of the lock; `changes`: whether a text may replace the one
    before it in its line.
    """
    count = len(waiting)
    for line in lines:
        if package := _PACKAGE.match(line):
            name = re.sub(r"[-_.]+", "-", package[1]).lower()
            if name not in waiting:  # pip names it again for each package that requires it
                continue
            waiting = waiting - {name}
            done = count - len(waiting)
            if changes:
                yield f"\r\033[K  {done} of {count} packages: {name}"
            elif done % 10 == 0:
                yield f"  {done} of {count} packages\n"
        elif line.startswith("Installing collected packages"):
            text = f"  {count} of {count} packages are here; unpacking the new ones"
            yield f"\r\033[K{text}" if changes else f"{text}\n"


def main() -> int:
    """Installs the lock file that the command line names. Returns pip's exit code."""
    lock = Path(sys.argv[1])
    began_s = time.monotonic()
    names = names_in(lock.read_text(encoding="utf-8"))
    with subprocess.Popen([*_PIP, "-r", str(lock)], stdout=subprocess.PIPE, text=True) as pip:
        assert pip.stdout is not None
        changes = sys.stdout.isatty()
        for text in progress(pip.stdout, names, changes=changes):
            sys.stdout.write(text)
            sys.stdout.flush()
    end = "" if pip.returncode else f"  {len(names)} packages in {time.monotonic() - began_s:.0f} s\n"
    sys.stdout.write(("\r\033[K" if changes else "") + end)
    return pip.returncode


if __name__ == "__main__":
    sys.exit(main())
