"""Writes the results of a benchmark into a document, between two markers. The rest of the document stays."""

import datetime
import os
import re
from collections.abc import Sequence
from pathlib import Path

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
