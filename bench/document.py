"""Writes the results of a benchmark into a document, between two markers. The rest of the document stays."""

import argparse
import datetime
import os
import re
from collections.abc import Callable, Sequence
from dataclasses import fields
from pathlib import Path
from typing import Any, TypeVar

_Sizes = TypeVar("_Sizes")
_PROCESSORS = Path("/proc/cpuinfo")


def table(rows: Sequence[Sequence[str]]) -> str:
    """Rows as a Markdown table, with the first one as its head."""
    widths = [max(len(row[column]) for row in rows) for column in range(len(rows[0]))]
    lines = [
        "| " + " | ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)) + " |" for row in rows
    ]
    return "\n".join([lines[0], "|" + "|".join("-" * (width + 2) for width in widths) + "|", *lines[1:]])


def when_and_where() -> str:
    """The sentence that says when, and on which machine, the figures above it were measured. The date is of UTC."""
    named = re.search(r"^model name\s*: (.+)$", _PROCESSORS.read_text(), re.MULTILINE) if _PROCESSORS.exists() else None
    today = datetime.datetime.now(datetime.UTC)
    return f"Measured on {today.day} {today:%B %Y}, on {os.cpu_count()} cores ({named[1] if named else 'unknown processor'})."


def replace_section(path: Path, name: str, text: str) -> None:
    """Puts `text` between the markers of that name. Raises ValueError unless the file has one of each, in order."""
    begin, end = f"<!-- {name}: begin -->", f"<!-- {name}: end -->"
    document = path.read_text()
    before, opened, rest = document.partition(begin)
    _, closed, after = rest.partition(end)
    if not opened or not closed or begin in rest or end in after:
        raise ValueError(f"{path} has no single section {begin} ... {end}")
    path.write_text(f"{before}{begin}\n{text}\n{end}{after}")


def measure(
    name: str,
    doc: str | None,
    sizes: type[_Sizes],
    rows: Callable[[_Sizes], list[list[str]]],
    arguments: Sequence[str] | None = None,
) -> None:
    """The command of a benchmark: prints its rows, and writes them into the section `name` of a document.

    `sizes`: a dataclass of numbers with defaults, each of which is an option. `doc`: of the module; its first line is the
    help's.
    """
    parser = argparse.ArgumentParser(prog=f"bench.{name}", description=(doc or "").splitlines()[0])
    of_sizes: Any = sizes
    for one in fields(of_sizes):
        parser.add_argument(f"--{one.name}", type=type(one.default), default=one.default)
    parser.add_argument("--document", type=Path, help="write the table into this file, between its markers")
    given = vars(parser.parse_args(arguments))
    document = given.pop("document")
    lines = rows(sizes(**given))
    width = max(len(cell) for line in lines for cell in line)
    for line in lines:
        print("  ".join(cell.ljust(width) for cell in line), flush=True)
    if document is not None:
        replace_section(document, name, f"{table(lines)}\n\n{when_and_where()}")
