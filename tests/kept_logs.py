"""The logs of processes that a test starts: if it fails, the report shows their ends, and the files are kept.

A process registers its log with `add`; logs in the test's own `tmp_path` are found without that.
"""

import re
import shutil
from pathlib import Path

# Logs of failed tests, by test; the folder is no part of the repository.
FOLDER = Path(__file__).parent.parent / "build" / "test-logs"

# What a report shows of each log (characters), and how many logs it shows: a failed chaos run has dozens.
TAIL = 4_000
SHOWN = 8

_PATTERNS = ("*.log", "*.err")
_started: list[Path] = []


def add(log: Path) -> None:
    """Registers the log of a process that the running test has started."""
    _started.append(log)


def forget() -> None:
    """The test has ended."""
    _started.clear()


def keep(test: str, tmp_path: Path | None) -> list[tuple[str, str]]:
    """Copies the logs of a test that failed; gives a title and the end of each that is not empty."""
    found = {log.resolve(): None for log in _started if log.exists()}
    if tmp_path is not None:
        found |= {log.resolve(): None for pattern in _PATTERNS for log in sorted(tmp_path.rglob(pattern))}
    logs = [log for log in found if log.is_file() and log.stat().st_size]
    folder = FOLDER / re.sub(r"[^A-Za-z0-9_.-]+", "-", test)[-150:]
    shutil.rmtree(folder, ignore_errors=True)
    sections = []
    for number, log in enumerate(logs):
        folder.mkdir(parents=True, exist_ok=True)
        kept = folder / f"{number}-{log.name}"
        shutil.copyfile(log, kept)
        if number < SHOWN:
            with log.open("rb") as file:
                file.seek(max(0, log.stat().st_size - TAIL))
                sections.append((f"log {log}, kept as {kept}", file.read(TAIL).decode(errors="replace")))
    if len(logs) > SHOWN:
        sections.append(("more logs", f"{len(logs) - SHOWN} more are kept in {folder}"))
    return sections
