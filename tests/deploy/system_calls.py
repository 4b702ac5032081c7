"""The system calls that a process makes, by strace, beside those that the units allow, by systemd."""

import re
from pathlib import Path

from tests.deploy.sandbox import DATA
from tests.deploy.test_systemd import UNITS, Unit
from tests.deploy.tools import run, tool

_FILE = "calls"


def traced() -> list[str]:
    """The beginning of a command line, after that of a sandbox: counts the calls of a process and its children."""
    return [tool("strace"), "-f", "-c", "-o", f"{DATA}/{_FILE}"]


def made(data_dir: Path) -> set[str]:
    """The calls that were made, once the traced command has ended."""
    rows = re.findall(r"^ *[0-9.]+ .* (\w+)$", (data_dir / _FILE).read_text(), flags=re.MULTILINE)
    return {name for name in rows if name != "total"}


def allowed() -> set[str]:
    """The calls that every unit allows."""
    ((allowing, forbidding),) = {tuple(Unit(unit).every("SystemCallFilter")) for unit in UNITS}
    return _of(*allowing.split()) - _of(*forbidding.removeprefix("~").split())


def _of(*sets: str) -> set[str]:
    """The calls of systemd's sets."""
    found: set[str] = set()
    for one in sets:
        listed = run("systemd-analyze", "syscall-filter", "--no-pager", one).stdout.splitlines()[1:]
        names = {line.strip() for line in listed if line.strip() and not line.strip().startswith("#")}
        inner = {name for name in names if name.startswith("@")}
        found |= (names - inner) | (_of(*inner) if inner else set())
    return found
