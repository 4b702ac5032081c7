"""Invoices of any size take little memory."""

import subprocess
import sys
from pathlib import Path

import pytest

from tests.audit.invoices.large import KINDS, parts, write
from tests.audit.invoices.samples import BY_NAME

pytestmark = pytest.mark.slow

# Files of these sizes are read (bytes), and the larger one may take this much more memory (bytes): less than its text.
SMALL, LARGE = 2_000_000, 6_000_000
MORE = 3_500_000
# The limit for a file of 2 GB (bytes), which `make bench-audit` reads.
LIMIT = 512 * 1024**2

_READ = r"""
import re, sys
from decimal import Decimal
from pathlib import Path
from streamgauge.audit import tables
from streamgauge.audit.invoices import open_invoices
from streamgauge.audit.mapping import Mapping
from streamgauge.audit.ours import Ours
from streamgauge.audit.period import Period
from streamgauge.audit.reconcile import reconcile
from streamgauge.audit.theirs import Theirs
from streamgauge.ledger import SqliteLedger
tables.CACHE_KIB = 256
(file,), period = open_invoices([Path(sys.argv[1])], {}), Period.of("2026-03-01", "2026-03-02", "UTC")
with SqliteLedger(Path(sys.argv[1] + ".sqlite")) as ledger:
    found = reconcile(Ours(ledger, period, Mapping()), Theirs([file], period, Mapping()), period, Decimal(0))
explained = [(one.cause, one.requests) for cell in found.cells for one in cell.explanations]
# getrusage would also count the memory of the process that started this one.
peak = re.search(r"VmHWM:\s+(\d+) kB", Path("/proc/self/status").read_text())[1]
print(file.rows, peak, explained)
"""


def read(path: Path) -> tuple[int, int, str]:
    """Compares an invoice with an empty ledger, in a process of its own: its rows, the peak of the process's memory (bytes),
    and what explains the difference.
    """
    done = subprocess.run([sys.executable, "-c", _READ, str(path)], capture_output=True, text=True, check=True)
    rows, peak_kib, explained = done.stdout.strip().split(maxsplit=2)
    return int(rows), int(peak_kib) * 1024, explained


@pytest.mark.parametrize("name", KINDS)
def test_the_size_of_an_invoice_takes_no_memory(name: str, tmp_path: Path) -> None:
    path, peaks = tmp_path / "bill", []
    for size in (SMALL, LARGE):
        rows = write(name, path, size)
        read_rows, peak, explained = read(path)
        assert read_rows == rows
        assert explained.startswith(f"[('coverage', {rows})" if "a row a request" in name else "[('coverage', ")
        peaks.append(peak)
    assert peaks[1] - peaks[0] < MORE
    assert peaks[1] < LIMIT / 2


def test_a_row_without_an_end_is_refused_before_it_fills_the_memory(tmp_path: Path) -> None:
    path = tmp_path / "bill"
    head, row, _ = parts(BY_NAME["OpenAI usage (API)"])
    for text in (head + '{"object": "' + "x" * 30_000_000, BY_NAME["FOCUS"].text() + '"' + "x" * 30_000_000, row):
        path.write_text(text)
        done = subprocess.run([sys.executable, "-c", _READ, str(path)], capture_output=True, text=True, check=False)
        assert "InvoiceError" in done.stderr
