"""Records and rows on a terminal or as CSV: what is not known is an empty cell."""

import csv
import sys
from collections.abc import Iterable, Sequence
from typing import Any

# A column is no wider than this (characters): models and ids are cut for the eye; jsonl has them whole.
MAX_WIDTH = 36

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


def print_records(records: Iterable[dict[str, Any]], output: str) -> None:
    """Records as an aligned table, or as CSV (`output` "csv")."""
    rows = [_row(record) for record in records]
    if output == "csv":
        csv.writer(sys.stdout, lineterminator="\n").writerows([_COLUMNS, *rows])
    else:
        print_table(_COLUMNS, rows)


def _row(record: dict[str, Any]) -> list[object]:
    timing, usage = record["timing"], record["usage"]
    return [
        record["started_at"],
        record["upstream"],
        record["dialect"],
        record["response_model"] or record["request_model"],
        record["outcome"],
        record["finish_reason"],
        timing["first_token_s"],
        timing["gaps"]["p50_s"],
        timing["end_s"],
        record["counts"]["events"],
        usage["input_tokens"],
        usage["output_tokens"],
    ]


def print_table(names: Sequence[str], rows: Sequence[Sequence[object]], max_width: int | None = MAX_WIDTH) -> None:
    """Aligned columns on stdout, numbers to the right. `max_width`: characters of a cell, None for all of it."""
    cells = [list(names), *([_cell(value, max_width) for value in row] for row in rows)]
    widths = [max(len(row[place]) for row in cells) for place in range(len(names))]
    right = [any(isinstance(row[place], int | float) for row in rows) for place in range(len(names))]
    for row in cells:
        line = "  ".join(
            cell.rjust(width) if number else cell.ljust(width)
            for cell, width, number in zip(row, widths, right, strict=True)
        )
        sys.stdout.write(line.rstrip() + "\n")


def _cell(value: object, max_width: int | None) -> str:
    if value is None:
        return ""
    text = f"{value:.3f}" if isinstance(value, float) else str(value)
    text = "".join(char if char.isprintable() else "?" for char in text)  # nothing that was sent moves the cursor
    return text if max_width is None or len(text) <= max_width else text[: max_width - 1] + "\u2026"
