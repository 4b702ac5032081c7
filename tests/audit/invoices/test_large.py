"""Invoices of any size take little memory."""

import json
import subprocess
import sys
from pathlib import Path

import pytest

from tests.audit.invoices.samples import BY_NAME, Sample

# A file of this size is read in each case (bytes). The memory that its reading takes does not depend on it.
SIZE = 20_000_000
# The most that the whole process may use: the limit for an audit of a file of 2 GB.
LIMIT = 512 * 1024**2

_READ = r"""
import re, sys
from pathlib import Path
from streamgauge.audit.invoices import open_invoice
from streamgauge.audit.mapping import Mapping
from streamgauge.audit.period import Period
from streamgauge.audit.theirs import Theirs
file = open_invoice(Path(sys.argv[1]), {})
theirs = Theirs([file], Period.of("2026-03-01", "2026-03-02", "UTC"), Mapping())
theirs.read()
# getrusage would also count the memory of the process that started this one.
peak = re.search(r"VmHWM:\s+(\d+) kB", Path("/proc/self/status").read_text())[1]
print(file.rows, len(theirs.cells), peak)
"""


def write(sample: Sample, path: Path, size: int) -> int:
    """Writes many rows that differ from each other. Returns their number."""
    number = 0
    head, row, end = parts(sample)
    with path.open("w") as file:
        file.write(head)
        while file.tell() < size:
            lines = []
            for _ in range(10_000):
                number += 1
                lines.append(row.replace("987654321", str(number)))
            file.write(
                ("," if sample.is_json and number > 10_000 else "") + ("," if sample.is_json else "").join(lines)
            )
        file.write(end)
    return number


def parts(sample: Sample) -> tuple[str, str, str]:
    if sample.is_json:
        name = "output_tokens" if "output_tokens" in sample.rows[0] else "amount"
        one = json.dumps({**sample.rows[0], name: "987654321" if name == "amount" else 987654321})
        head, _, end = sample.text([{"@": 1}]).partition('{"@": 1}')
        return head, one, end
    column = next(name for name in ("tokens_completion", "ConsumedQuantity") if name in sample.rows[0])
    head, one = sample.text([{**sample.rows[0], column: 987654321}]).splitlines(keepends=True)
    return head, one, ""


@pytest.mark.parametrize(
    "name",
    ["OpenAI usage (API)", "Anthropic cost report (API)", "OpenRouter activity (a row a request)", "FOCUS"],
)
def test_a_large_invoice_is_read_in_little_memory(name: str, tmp_path: Path) -> None:
    path = tmp_path / "bill"
    rows = write(BY_NAME[name], path, SIZE)
    done = subprocess.run([sys.executable, "-c", _READ, str(path)], capture_output=True, text=True, check=True)
    read, cells, peak_kib = map(int, done.stdout.split())
    assert (read, cells) == (rows, 1)
    assert peak_kib * 1024 < LIMIT / 2


def test_a_row_without_an_end_is_refused_before_it_fills_the_memory(tmp_path: Path) -> None:
    path = tmp_path / "bill"
    head, row, _ = parts(BY_NAME["OpenAI usage (API)"])
    for text in (head + '{"object": "' + "x" * 30_000_000, BY_NAME["FOCUS"].text() + '"' + "x" * 30_000_000, row):
        path.write_text(text)
        done = subprocess.run([sys.executable, "-c", _READ, str(path)], capture_output=True, text=True, check=False)
        assert "InvoiceError" in done.stderr
