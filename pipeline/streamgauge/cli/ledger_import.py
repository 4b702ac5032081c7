"""`streamgauge ledger import`: stores records of files in the ledger, each stream once.

A file holds one record a line: as `replay` and a records topic give it, or as a ledger prints it, with its cost.
"""

import contextlib
import sys
from collections.abc import Iterable, Iterator
from itertools import islice
from pathlib import Path
from typing import BinaryIO

from streamgauge.cli.commands import Arguments
from streamgauge.cli.ledgers import opened_ledger
from streamgauge.cli.stream_costs import prices_of
from streamgauge.errors import DONE, FOUND, Unavailable, UsageFault
from streamgauge.ledger import Inserted, Ledger, LedgerRow, LedgerUnavailableError, UnreadableRecordError
from streamgauge.settings.declarations import Settings

# Records of one transaction, as the worker's sink has it.
_BATCH = 500
# A longer line is no record (bytes): a record has some KiB.
_MAX_LINE = 16 * 1024 * 1024
# Unreadable lines of a file that are reported one by one; the others are only counted.
_REPORTED = 10


class _Imported:
    """What became of the lines of one file."""

    def __init__(self, file: str) -> None:
        self._file = file
        self.new = self.same = self.different = self.unpriced = self.unreadable = 0

    def add(self, inserted: Inserted) -> None:
        """Counts one transaction."""
        self.new += inserted.new
        self.same += inserted.same
        self.different += inserted.different
        self.unpriced += inserted.unpriced

    def refuse(self, line: int, why: UnreadableRecordError) -> None:
        """Counts a line that holds no record, and says why."""
        self.unreadable += 1
        if self.unreadable <= _REPORTED:
            _say(f"{self._file}: line {line}: {why}")

    @property
    def sentence(self) -> str:
        """All counts."""
        return (
            f"{self._file}: {self.new} new record{_s(self.new)} ({self.unpriced} without a price), {self.same} known, "
            f"{self.different} different from the known one, {self.unreadable} unreadable line{_s(self.unreadable)}"
        )


def run(settings: Settings, args: Arguments) -> int:
    """Stores the records of all files. Returns FOUND if a line holds no record, or a record other than the known one."""
    if not args.paths:
        raise UsageFault("give one or more files, or - for stdin")
    found = False
    with opened_ledger(settings, prices_of(settings)) as ledger:
        for path in args.paths:
            with _opened(path) as file:
                imported = _import(ledger, file, "stdin" if str(path) == "-" else str(path))
            _say(imported.sentence)
            found = found or imported.unreadable > 0 or imported.different > 0
    return FOUND if found else DONE


@contextlib.contextmanager
def _opened(path: Path) -> Iterator[BinaryIO]:
    if str(path) == "-":
        yield sys.stdin.buffer
        return
    try:
        file = path.open("rb")
    except OSError as error:
        raise UsageFault(f"{path} cannot be read: {error.strerror}") from None
    with file:
        yield file


def _import(ledger: Ledger, file: BinaryIO, name: str) -> _Imported:
    imported = _Imported(name)
    rows = _rows(_lines(file), imported)
    while batch := list(islice(rows, _BATCH)):
        try:
            imported.add(ledger.insert(batch))
        except LedgerUnavailableError as error:
            raise Unavailable(f"{error}; import {name} again: records that are stored are not stored twice") from None
    return imported


def _rows(lines: Iterable[tuple[int, bytes]], imported: _Imported) -> Iterator[LedgerRow]:
    for number, line in lines:
        try:
            yield LedgerRow.of_line(line)
        except UnreadableRecordError as why:
            imported.refuse(number, why)


def _lines(file: BinaryIO) -> Iterator[tuple[int, bytes]]:
    """The lines that are not empty, with their numbers; only the beginning of a line that is too long."""
    number = 0
    while line := file.readline(_MAX_LINE):
        number += 1
        part = line
        while len(part) == _MAX_LINE and not part.endswith(b"\n"):
            part = file.readline(_MAX_LINE)
        if text := line.strip():
            yield number, text


def _s(count: int) -> str:
    return "" if count == 1 else "s"


def _say(sentence: str) -> None:
    sys.stderr.write(f"{sentence}\n")
