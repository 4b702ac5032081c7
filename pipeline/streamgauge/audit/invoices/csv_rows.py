"""Reads rows of CSV or TSV by the names of their columns, without holding more than a row. Pure: text in, rows out."""

import csv
from collections.abc import Callable, Iterable, Iterator, Sequence
from itertools import chain

from streamgauge.audit.invoices.contract import BadTextError, repeated_name
from streamgauge.audit.invoices.values import shown

DELIMITERS = (",", "\t", ";")
# The longest accepted line (characters): far more than any export writes, so that a file without line ends is refused
# before it fills the memory.
MAX_LINE = 1024 * 1024
# The most empty lines before the header.
MAX_BLANK_LINES = 1_000

Rows = Iterator[tuple[int, dict[str, str]]]


def lines_of(chunks: Iterable[str]) -> Iterator[str]:
    """The lines of a text, each with its line feed. Raises BadTextError for one that is too long."""
    rest, number = "", 1
    for chunk in chunks:
        *whole, rest = (rest + chunk).split("\n")
        for line in whole:
            yield line + "\n"
        number += len(whole)
        if len(rest) > MAX_LINE:
            raise BadTextError(f"the line is longer than {MAX_LINE} characters", number)
    if rest:
        yield rest


class CsvRows:
    """The rows of a CSV text. `header` is read at once, with the first of DELIMITERS (`delimiter`) for which `is_known`
    accepts it; with a comma if there is none.

    Raises BadTextError; also while it is iterated. A row has its line number (that of its last line) and its cells by column.
    """

    def __init__(self, chunks: Iterable[str], is_known: Callable[[Sequence[str]], bool]) -> None:
        lines = lines_of(chunks)
        before: list[str] = []
        for first in lines:
            before.append(first)
            if first.strip():
                break
            if len(before) > MAX_BLANK_LINES:
                raise BadTextError(f"the file begins with more than {MAX_BLANK_LINES} empty lines")
        else:
            raise BadTextError("the file is empty")
        known = [(mark, names) for mark in DELIMITERS if is_known(names := _header(first, mark))]
        self.header: Sequence[str] = known[0][1] if known else _header(first, ",")
        self._lines = chain(before, lines)
        self._before = len(before)
        self._row_chars = 0  # of the row that is being read
        self.delimiter = known[0][0] if known else ","

    def __iter__(self) -> Rows:
        reader = csv.reader(self._bounded(), delimiter=self.delimiter, strict=True)
        try:
            if (twice := repeated_name(self.header)) is not None:
                raise BadTextError(f"the header has the column {shown(twice)} twice", 1)
            for number, cells in enumerate(reader):
                self._row_chars = 0
                if number < self._before or not any(cells):  # the header, and empty lines
                    continue
                if len(cells) != len(self.header):
                    fault = f"the row has {len(cells)} cells, the header {len(self.header)} columns"
                    raise BadTextError(fault, reader.line_num)
                yield reader.line_num, dict(zip(self.header, cells, strict=True))
        except csv.Error as error:
            raise BadTextError(f"the row is not well-formed CSV: {error}", reader.line_num) from None

    def _bounded(self) -> Iterator[str]:
        """The lines. Raises BadTextError for a row of many lines that is longer than a line may be."""
        for line in self._lines:
            self._row_chars += len(line)
            if self._row_chars > MAX_LINE + len(line):
                raise BadTextError(f"a row is longer than {MAX_LINE} characters")
            yield line


def _header(line: str, delimiter: str) -> list[str]:
    try:
        cells = next(csv.reader([line], delimiter=delimiter, strict=True))
    except (csv.Error, StopIteration):
        return []
    return [cell.strip() for cell in cells]
