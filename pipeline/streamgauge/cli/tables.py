r"""Prints records and rows as an aligned table, JSON, JSON lines or CSV. An unknown value is an empty cell, in JSON null.

Names of models and tenants come from clients and upstreams, and a spreadsheet reads a cell that begins with `=`, `+`, `-` or
`@` as a formula. In CSV such text gets an apostrophe before it, which makes it text; numbers, tables and JSON are unchanged.
Control characters and bidirectional marks would be obeyed by a terminal: CSV shows them as \uXXXX, but for line breaks and
tabs, and a table as `?`.
"""

import csv
import io
import json
import re
import shutil
import sys
import textwrap
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from itertools import chain, zip_longest
from typing import Any, NamedTuple, Protocol

from streamgauge.core.safe_values import escaped

# Between two columns.
_GAP = "  "
# Where a text may be broken: at blanks, and within names such as price_changed or claude-sonnet-4, but in no date.
_BREAKS = re.compile(r"(\s+)|(?<=[_/])(?=\S)|(?<=-)(?=[A-Za-z])")
# A column of text is broken to no fewer characters than this.
_NARROW = 10
# Characters of a line where the output is no terminal, and the fewest of one.
_NO_TERMINAL, _NARROWEST = 100, 40
# The widest column (characters): longer model names and ids are cut; --output jsonl has them whole.
MAX_WIDTH = 36

# A formula begins with one of these (https://owasp.org/www-community/attacks/CSV_Injection); Japanese spreadsheets also
# accept their full-width forms.
_BEGINS_FORMULA = "=+\\-@\uff1d\uff0b\u30fc\uff0d\uff20"
# Some spreadsheets drop white space, invisible characters and quotes before it. One whose separator is a semicolon or a
# tab (Excel takes it from the locale) splits cells there, even within quotes, so the text after a separator begins a
# cell, too.
_SEPARATORS = ",;\t\r\n"
_DROPPED = "\\s\\x00-\\x1f\\u200b-\\u200f\\u2060\\ufeff\"'"
# Matches each run of such characters once, so that the time grows linearly with the text's length.
_CELL = re.compile(f"(^[{_SEPARATORS}{_DROPPED}]*|[{_SEPARATORS}{_DROPPED}]+)([{_BEGINS_FORMULA}]?)")
# By the same page a cell must not begin with these either; OWASP's ASVS 1.2.10 adds NUL.
_BEGINS_BADLY = ("\t", "\r", "\n", "\0")

_COLUMNS = (
    "started_at",
    "upstream",
    "dialect",
    "model",
    "outcome",
    "finish",
    "ttft_s",
    "gap_p50_s",
    "end_s",
    "events",
    "input",
    "output",
)


# The further columns of a ledger's records.
_OF_LEDGER = ("cost_usd", "status", "error", "stream_id")


class Writes(Protocol):
    """What text is written to."""

    def write(self, text: str, /) -> object:
        """Write a text."""


class JsonPrinter:
    """Prints JSON objects, each already encoded in one line: for "jsonl" one a line, for "json" as one list.

    `output`: the value of --output; for any other value nothing is printed.
    """

    def __init__(self, output: str) -> None:
        self._output = output
        self._before = "["

    def add(self, text: str) -> None:
        """Prints one object."""
        sys.stdout.write(f"{self._before}{text}" if self._output == "json" else f"{text}\n")
        self._before = ",\n"

    def end(self) -> None:
        """Closes the list. After an error it stays open, so that a part is not read as the whole."""
        if self._output == "json":
            sys.stdout.write("[]\n" if self._before == "[" else "]\n")


def print_json(objects: Iterable[str], output: str) -> None:
    """Prints JSON objects one by one, as the iterable yields them."""
    printed = JsonPrinter(output)
    for text in objects:
        printed.add(text)
    printed.end()


def print_rows(names: Sequence[str], rows: Sequence[Sequence[object]], output: str, max_width: int | None) -> None:
    """Rows in the form that --output names; `max_width`: as for `print_table`."""
    if output in ("json", "jsonl"):
        print_json((json.dumps(dict(zip(names, row, strict=True))) for row in rows), output)
    elif output == "csv":
        print_csv(names, rows)
    else:
        print_table(names, rows, max_width)


def print_records(records: Iterable[bytes], output: str, *, with_cost: bool = False) -> None:
    """Records, each as its JSON, in the form that --output names: whole in JSON, some of their fields in a table or CSV.

    `with_cost`: they are a ledger's, with a cost; a table or CSV then has _OF_LEDGER besides.
    """
    if output in ("json", "jsonl"):
        print_json((record.decode() for record in records), output)
        return
    rows = [_row(json.loads(record), with_cost) for record in records]
    print_rows([*_COLUMNS, *_OF_LEDGER] if with_cost else _COLUMNS, rows, output, MAX_WIDTH)


def _row(record: dict[str, Any], with_cost: bool) -> list[object]:
    usage = record["usage"]
    fields = [
        record["started_at"],
        record["upstream"],
        record["dialect"],
        record["response_model"] or record["request_model"],
        record["outcome"],
        record["finish_reason"],
        member(record, "timing", "first_token_s"),
        member(record, "timing", "gaps", "p50_s"),
        member(record, "timing", "end_s"),
        member(record, "counts", "events"),
        usage["input_tokens"],
        usage["output_tokens"],
    ]
    if not with_cost:
        return fields
    cost = (record.get("cost") or {}).get("usd")
    return [*fields, cost, record.get("status_code"), error_word(record.get("error")), record.get("stream_id")]


def error_word(error: object) -> str | None:
    """A record's error in a cell: its code, which says more than the type; without one the type, else the phase."""
    return next((str(word) for name in ("code", "type", "phase") if (word := member(error, name)) is not None), None)


def member(record: object, *names: str) -> Any:
    """A member of a member. None if there is none: a ledger of an earlier version may hold a record without `timing`."""
    for name in names:
        record = record.get(name) if isinstance(record, dict) else None
    return record


def print_csv(names: Sequence[str], rows: Iterable[Sequence[object]], file: Writes | None = None) -> None:
    """Rows as CSV on stdout or into a file, safe to open in a spreadsheet."""
    out: Writes = sys.stdout if file is None else file
    line = io.StringIO()
    writer = csv.writer(line)  # keeps its CRLF, since it quotes only cells that contain its line end
    for row in chain((names,), rows):
        writer.writerow([escaped(_as_text(value), keep="\t\n\r") if isinstance(value, str) else value for value in row])
        out.write(line.getvalue().removesuffix("\r\n") + "\n")
        line.seek(0)
        line.truncate()


def _as_text(text: str) -> str:
    """The text with an apostrophe wherever a spreadsheet may read the next characters as a formula."""
    return _CELL.sub(_with_apostrophe, text)


def _with_apostrophe(match: re.Match[str]) -> str:
    before, sign = match.groups()
    cell = max(before.rfind(separator) for separator in _SEPARATORS) + 1  # where the last cell begins, 0 for none
    if sign and cell:
        before = f"{before[:cell]}'{before[cell:]}"
    begins_badly = match.start() == 0 and (sign or before.startswith(_BEGINS_BADLY))
    return ("'" if begins_badly else "") + before + sign


def print_table(
    names: Sequence[str],
    rows: Sequence[Sequence[object]],
    max_width: int | None = MAX_WIDTH,
    *,
    numbers: Collection[str] = (),
    line_width: int | None = None,
) -> None:
    """Aligned columns on stdout, numbers to the right. `max_width`: characters of a cell, None for all of it.

    `numbers`: columns of numbers that are given as text. `line_width`: characters of a line; where they are more, the widest
    columns of text are broken into several lines, none to fewer than _NARROW characters.
    """
    cells = [list(names), *([_cell(value, max_width) for value in row] for row in rows)]
    widths = [max(len(row[column]) for row in cells) for column in range(len(names))]
    right = [
        name in numbers or any(isinstance(row[column], int | float) for row in rows)
        for column, name in enumerate(names)
    ]
    if line_width is not None:
        widths = _narrowed(cells, right, line_width)
        cells = [part for row in cells for part in _broken(row, widths, right)]
    for row in cells:
        line = _GAP.join(
            cell.rjust(width) if number else cell.ljust(width)
            for cell, width, number in zip(row, widths, right, strict=True)
        )
        sys.stdout.write(line.rstrip() + "\n")


class Column(NamedTuple):
    """A column of a table that fits a line. `rank`: columns with the highest are left out first, 0 stays; `least`: the
    characters to which its text may be cut, None if it is not cut; `optional`: left out if no row has a value.
    """

    name: str
    rank: int = 0
    least: int | None = None
    right: bool = False
    optional: bool = False


def print_fitted(
    columns: Sequence[Column], rows: Sequence[Sequence[str]], line_width: int | None, last: Sequence[str] = ()
) -> list[str]:
    """Aligned columns on stdout, in lines of at most `line_width` characters; None: nothing is cut or left out. `last`: a row
    below a line. Returns the names of the columns that have no place.

    Text is cut first, at the widest column, then columns are left out.
    """
    cells = [[_cell(text, None) for text in row] for row in (*rows, *([last] if last else []))]
    wanted = [
        place
        for place, column in enumerate(columns)
        if not column.optional or any(row[place].strip("-") for row in cells)
    ]
    shown = list(wanted)
    while True:
        widths = {place: max([len(columns[place].name), *(len(row[place]) for row in cells)]) for place in shown}
        if line_width is not None:
            _cut(widths, columns, _length(widths) - line_width)
        lowest = max(shown, key=lambda place: columns[place].rank)
        if line_width is None or _length(widths) <= line_width or not columns[lowest].rank:
            break
        shown.remove(lowest)
    lines = [[column.name for column in columns], *cells]
    if last:
        lines.insert(-1, ["-" * widths.get(place, 0) for place in range(len(columns))])
    for line in lines:
        text = _GAP.join(_aligned(line[place], widths[place], columns[place].right) for place in shown)
        sys.stdout.write(text.rstrip() + "\n")
    return [columns[place].name for place in wanted if place not in shown]


def _length(widths: Mapping[int, int]) -> int:
    """Characters of a line."""
    return sum(widths.values()) + len(_GAP) * (len(widths) - 1)


def _cut(widths: dict[int, int], columns: Sequence[Column], surplus: int) -> None:
    """Takes `surplus` characters from the widest columns of text, as far as they may be cut."""
    for _ in range(max(surplus, 0)):
        able = [place for place in widths if (least := columns[place].least) is not None and widths[place] > least]
        if not able:
            return
        widths[max(able, key=widths.__getitem__)] -= 1


def _aligned(text: str, width: int, right: bool) -> str:
    cut = text if len(text) <= width else text[: width - 1] + "\u2026"
    return cut.rjust(width) if right else cut.ljust(width)


class _Wrapper(textwrap.TextWrapper):
    wordsep_re = _BREAKS


def _narrowed(cells: Sequence[Sequence[str]], right: Sequence[bool], line_width: int) -> list[int]:
    """The widths of columns, so that lines fit if they can: texts are broken between words first, then within them."""
    columns = list(zip(*cells, strict=True))
    widths = [max(map(len, column)) for column in columns]
    surplus = sum(widths) + len(_GAP) * (len(widths) - 1) - line_width
    words = [
        max((len(word) for cell in column for word in _BREAKS.split(cell) if word), default=0) for column in columns
    ]
    for least in (words, [0] * len(words)):
        while surplus > 0:
            wide = [at for at, width in enumerate(widths) if not right[at] and width > max(least[at], _NARROW)]
            if not wide:
                break
            widths[max(wide, key=lambda at: widths[at])] -= 1
            surplus -= 1
    return widths


def _broken(row: Sequence[str], widths: Sequence[int], right: Sequence[bool]) -> Iterator[list[str]]:
    """The lines of a row: each text broken, numbers in the first line."""
    parts = [
        [cell] if is_number else _Wrapper(width).wrap(cell) or [""]
        for cell, width, is_number in zip(row, widths, right, strict=True)
    ]
    for line in zip_longest(*parts, fillvalue=""):
        yield list(line)


def line_width() -> int | None:
    """Characters of a line of the terminal; None if stdout is no terminal: then nothing is cut."""
    return terminal_width() if sys.stdout.isatty() else None


def terminal_width() -> int:
    """Characters of a line of the terminal; _NO_TERMINAL if the output is no terminal."""
    return max(shutil.get_terminal_size((_NO_TERMINAL, 24)).columns, _NARROWEST)


def printable(text: str) -> str:
    """A text from outside, which must not move the cursor."""
    return "".join(char if char.isprintable() else "?" for char in text)


def _cell(value: object, max_width: int | None) -> str:
    if value is None:
        return ""
    text = f"{value:.3f}" if isinstance(value, float) else str(value)
    text = printable(text)
    return text if max_width is None or len(text) <= max_width else text[: max_width - 1] + "\u2026"
