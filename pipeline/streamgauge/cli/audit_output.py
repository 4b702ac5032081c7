"""Prints the result of an audit: as tables, JSON, CSV or an HTML page."""

import sys

from streamgauge.audit.page import page
from streamgauge.audit.result import Result, encode
from streamgauge.audit.rows import CAUSE_COLUMNS, LINE_COLUMNS, cause_rows, line_rows, summary
from streamgauge.cli.tables import MAX_WIDTH, print_csv, print_table


def print_result(result: Result, output: str) -> None:
    """Print a result in the form that --output names."""
    if output == "json":
        sys.stdout.write(encode(result).decode() + "\n")
    elif output == "html":
        sys.stdout.write(page(result))
    elif output == "csv":
        print_csv(LINE_COLUMNS, line_rows(result, all_lines=True))
    else:
        _print_tables(result)


def _print_tables(result: Result) -> None:
    sys.stdout.write("\n".join(summary(result)) + "\n")
    if result.causes:
        sys.stdout.write("\n")
        print_table(CAUSE_COLUMNS, cause_rows(result), MAX_WIDTH)
    if lines := line_rows(result, all_lines=False):
        sys.stdout.write("\n")
        print_table(LINE_COLUMNS, lines, MAX_WIDTH)
    if result.findings:
        sys.stdout.write("\n")
        rows = [
            [finding.finding, finding.provider, finding.model, finding.count, finding.detail]
            for finding in result.findings
        ]
        print_table(("finding", "provider", "model", "streams", "detail"), rows, None)
