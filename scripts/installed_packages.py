"""The packages that an installation of Streamgauge has, and their size, by the metadata of those that are installed here.

`python -m scripts.installed_packages` writes the table of docs/guides/install.md. It needs the environment of `make`, in
which each extra is installed.
"""

import re
import tomllib
from collections.abc import Iterable
from functools import cache
from importlib.metadata import distribution
from pathlib import Path
from typing import Any

from packaging.requirements import Requirement

ROOT = Path(__file__).parent.parent
GUIDE = ROOT / "docs" / "guides" / "install.md"
# The table is between these lines.
BEGIN, END = "<!-- python -m scripts.installed_packages -->", "<!-- end -->"
PROJECT = "streamgauge"


def plain(name: str) -> str:
    """A package's name in its one normal form."""
    return re.sub(r"[-_.]+", "-", name).lower()


@cache
def project() -> dict[str, Any]:
    """The table `project` of pyproject.toml."""
    table: dict[str, Any] = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    return table


def requirements_of(extra: str = "") -> list[str]:
    """What Streamgauge requires with this extra; empty: a plain installation."""
    extras = project()["optional-dependencies"]
    found = [*project()["dependencies"]]
    for one in extras[extra] if extra else ():
        inner = Requirement(one)
        found += [more for name in inner.extras for more in requirements_of(name)] if inner.name == PROJECT else [one]
    return found


def closure(requirements: Iterable[str]) -> set[str]:
    """The names of all packages that these requirements bring here. Raises PackageNotFoundError."""
    found: set[tuple[str, frozenset[str]]] = set()
    waiting = [Requirement(one) for one in requirements]
    while waiting:
        one = waiting.pop()
        extras = frozenset(one.extras)
        environments = [{"extra": extra} for extra in ("", *extras)]
        applies = one.marker is None or one.marker.evaluate({"extra": ""})
        if not applies or (plain(one.name), extras) in found:
            continue
        found.add((plain(one.name), extras))
        for line in distribution(one.name).requires or ():
            inner = Requirement(line)
            if inner.marker is None or any(inner.marker.evaluate(environment) for environment in environments):
                inner.marker = None
                waiting.append(inner)
    return {name for name, _ in found}


def size_of(name: str) -> int:
    """The bytes of a package's files, without the bytecode that pip compiles."""
    files = (Path(str(file.locate())) for file in distribution(name).files or () if not str(file).endswith(".pyc"))
    return sum(file.stat().st_size for file in files if file.is_file())


def own_size() -> int:
    """The bytes of Streamgauge's own files in an installation."""
    places = (ROOT / name for name in ("pipeline", "dashboards", "schemas"))
    files = (path for place in places for path in place.rglob("*") if "__pycache__" not in path.parts)
    return sum(path.stat().st_size for path in files if path.is_file())


def measured(extra: str = "") -> tuple[int, int]:
    """The number of packages of an installation with this extra, Streamgauge itself among them, and their bytes."""
    names = closure(requirements_of(extra))
    return 1 + len(names), own_size() + sum(map(size_of, names))


def table() -> list[str]:
    """The lines of the table: a plain installation, then each extra."""
    lines = ["| installation | packages | MB |", "|---|---|---|"]
    for extra in ("", *sorted(project()["optional-dependencies"])):
        packages, size = measured(extra)
        name = f"`{PROJECT}[{extra}]`" if extra else f"`{PROJECT}`"
        lines.append(f"| {name} | {packages} | {size / 1e6:.0f} |")
    return lines


def documented() -> dict[str, tuple[int, int]]:
    """What the guide says: extra (empty: a plain installation) -> packages, MB."""
    text = GUIDE.read_text(encoding="utf-8").partition(BEGIN)[2].partition(END)[0]
    found = re.findall(rf"^\| `{PROJECT}(?:\[(\w+)\])?` \| (\d+) \| (\d+) \|$", text, re.MULTILINE)
    return {extra: (int(packages), int(size)) for extra, packages, size in found}


if __name__ == "__main__":
    before, _, rest = GUIDE.read_text(encoding="utf-8").partition(BEGIN)
    GUIDE.write_text("\n".join([before + BEGIN, *table(), END + rest.partition(END)[2]]), encoding="utf-8")
