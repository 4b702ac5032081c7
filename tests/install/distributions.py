"""The packages that an installation of Streamgauge has, by the metadata of those that are installed here, and their size."""

import re
import tomllib
from collections.abc import Iterable
from functools import cache
from importlib.metadata import distribution
from pathlib import Path
from typing import Any

from packaging.requirements import Requirement

ROOT = Path(__file__).parents[2]
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
    """The names of all packages that these requirements bring here."""
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
