"""Prints the result of an audit: as tables that fit the terminal, JSON, CSV or an HTML page."""

import sys
import textwrap
from collections.abc import Sequence

from streamgauge.audit.cause_texts import ACCEPT
from streamgauge.audit.page import Kept, page
from streamgauge.audit.parts import explained_parts, is_tolerated, undecided_parts, unexplained_parts
from streamgauge.audit.result import Result, encode
from streamgauge.audit.rows import (
    LINE_COLUMNS,
    PART_COLUMNS,
    line_rows,
    part_details,
    part_rows,
    shown_totals,
    summary,
    total_name,
    total_rows,
    what_to_do,
)
from streamgauge.audit.shown_amounts import ROUNDING
from streamgauge.cli.tables import print_csv, print_table, printable, terminal_width

_FINDING_COLUMNS = ("finding", "provider", "model", "streams", "detail")
# Characters of an amount of a total, of its name, and between two columns: they say how many totals fit beside each other.
_AMOUNT, _NAME, _GAP = 18, 20, 2


def print_result(result: Result, output: str, kept: Kept | None = None) -> None:
    """Print a result in the form that --output names. `kept`: of a kept run, for the page."""
    if output == "json":
        sys.stdout.write(encode(result).decode() + "\n")
    elif output == "html":
        sys.stdout.write(page(result, kept))
    elif output == "csv":
        print_csv(LINE_COLUMNS, line_rows(result))
    else:
        _print_tables(result)


def _print_tables(result: Result) -> None:
    """Verdicts, totals, causes, what is undecided or unexplained, findings."""
    width = terminal_width()
    for sentence in summary(result):
        _say(printable(sentence), width)
    totals = shown_totals(result)
    beside = max((width - _NAME) // (_AMOUNT + _GAP), 1)
    for first in range(0, len(totals), beside):
        some = totals[first : first + beside]
        names = [total_name(total) for total in some]
        _print(("total", *names), total_rows(some), width, names)
    unexplained = unexplained_parts(result)
    for parts in (explained_parts(result), undecided_parts(result), unexplained):
        _print(PART_COLUMNS, part_rows(parts), width, ("tokens", "USD", "streams"))
        for sentence in (*part_details(parts), *what_to_do(parts, is_tolerated(result, unexplained))):
            _say(printable(sentence), width)
    if result.causes and not result.agrees:
        _say(f"{ACCEPT.replace('`', '')}", width)
    findings = [[one.finding, one.provider, one.model, one.count, one.detail] for one in result.findings]
    _print(_FINDING_COLUMNS, findings, width)
    if totals:
        sys.stdout.write("\n")
        _say(f"{ROUNDING} --output json or csv prints these.", width)


def _say(sentence: str, width: int) -> None:
    sys.stdout.write(textwrap.fill(sentence, width, subsequent_indent="  ", break_on_hyphens=False) + "\n")


def _print(names: Sequence[str], rows: Sequence[Sequence[object]], width: int, numbers: Sequence[str] = ()) -> None:
    if rows:
        sys.stdout.write("\n")
        print_table(names, rows, None, numbers=numbers, line_width=width)
