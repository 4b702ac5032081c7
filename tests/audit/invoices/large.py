"""Writes large invoices: many rows that differ from each other."""

import json
from pathlib import Path

from tests.audit.invoices.samples import BY_NAME, Sample

# An export of each way of reading: pages of usage and of costs, CSV with a row for each request, and FOCUS.
KINDS = ("OpenAI usage (API)", "Anthropic cost report (API)", "OpenRouter activity (a row a request)", "FOCUS")
# What is replaced by the number of the row.
_NUMBER = "987654321"
_ROWS_AT_ONCE = 10_000


def write(name: str, path: Path, size: int, last: str | None = None) -> int:
    """Writes at least `size` bytes of an export of KINDS. Returns the number of its rows.

    `last`: what the last row has in place of its number.
    """
    sample = BY_NAME[name]
    head, row, end = parts(sample)
    between = "," if sample.is_json else ""
    pieces = row.split(_NUMBER)
    number = 0
    with path.open("w") as file:
        file.write(head)
        while file.tell() < size:
            numbers = range(number + 1, number + 1 + _ROWS_AT_ONCE)
            file.write("".join(str(one).join(pieces) + between for one in numbers))
            number = numbers[-1]
        file.write((str(number + 1) if last is None else last).join(pieces) + end)
    return number + 1


def parts(sample: Sample) -> tuple[str, str, str]:
    """What comes before the rows of an export, a row with _NUMBER in it, and what comes after the rows."""
    if sample.is_json:
        name = "output_tokens" if "output_tokens" in sample.rows[0] else "amount"
        one = json.dumps({**sample.rows[0], name: _NUMBER if name == "amount" else int(_NUMBER)})
        head, _, end = sample.text([{"@": 1}]).partition('{"@": 1}')
        return head, one, end
    columns = {"tokens_completion", "generation_id", "ConsumedQuantity"} & sample.rows[0].keys()
    head, one = sample.text([{**sample.rows[0], **dict.fromkeys(columns, _NUMBER)}]).splitlines(keepends=True)
    return head, one, ""
