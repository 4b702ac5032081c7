"""What an audit takes: of a month of millions of records, and with invoices of gigabytes.

    python -m bench.audit [--rows N] [--bytes N] [--document FILE]

Writes a ledger of N records of a month, and invoices that agree with it but for some cells, and for no cell; then invoices
of N bytes, the last of them with a bad last row. `streamgauge audit` compares each. The time for the ledger is also a ratio
to that of a bare scan: SQLite gives each of its records to a loop that does nothing. The files are deleted at the end: they
take 4.2 kB a record, and N bytes. On a machine that others use, only the seconds of CPU compare.
"""

import argparse
import json
import resource
import sqlite3
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from contextlib import closing, suppress
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path
from typing import NamedTuple
from uuid import UUID

from tests.audit.invoices.large import write
from tests.metrics.records import make_record, make_usage

from bench.document import replace_section, table
from bench.measure import peak_mib
from streamgauge.audit.period import Period
from streamgauge.errors import FOUND, USAGE
from streamgauge.ledger import Filter, LedgerRow, SqliteLedger, row_of

MONTH = Period.of("2026-03-01", "2026-04-01", "UTC")
MODELS = ("gpt-4o-2024-08-06", "o3-2025-04-16", "gpt-4o-mini-2024-07-18", "gpt-5-2025-08-07")
# Cells of a day and a model in which the invoice has a request too much.
DIFFERING = 4
# Invoices: the export, and what its last row has in place of its number.
BILLS = {"OpenAI usage (API)": None, "OpenRouter activity (a row a request)": None, "OpenAI usage (API), refused": "-1"}
# The exports of a provider of which the ledger has a record: of the other one nothing can be compared.
COMPARED = frozenset({"OpenAI usage (API)"})
BATCH = 5_000
# How often the memory of an audit is read (seconds).
LOOK_S = 0.02
_US = 10**6
_DAY_US = 86_400 * _US


class Measured(NamedTuple):
    """A run of `streamgauge audit`: its exit code, seconds, seconds of CPU, and the peak of its memory (MiB)."""

    code: int
    seconds: float
    cpu: float
    peak_mib: float


def rows(count: int) -> Iterator[LedgerRow]:
    """Records that are spread over the month and over four models."""
    templates = []
    for model in MODELS:
        usage = make_usage(1_200, 300, input_cached_tokens=200)
        made = row_of(make_record(upstream="openai", response_model=model, usage=usage, response_id="resp_0"))
        cost = b'{"usd":"0.005750","price_source":"list","price_date":null}}'
        templates.append(replace(made, record=made.record.removesuffix(b"null}") + cost))
    step_us = (MONTH.until_us - MONTH.since_us) / count
    for number in range(count):
        one = templates[number % len(templates)]
        started_us = MONTH.since_us + int(number * step_us)
        started = datetime.fromtimestamp(started_us // _US, UTC).strftime("%Y-%m-%dT%H:%M:%S")
        name = str(UUID(int=(started_us // 1_000 << 80) | (7 << 76) | (2 << 62) | number))
        record = one.record.replace(one.stream_id.encode(), name.encode(), 1)
        record = record.replace(b"2026-03-01T12:00:00.000000Z", f"{started}.{started_us % _US:06}Z".encode(), 1)
        response_id = f"resp_{number}"
        record = record.replace(b"resp_0", response_id.encode(), 1)
        yield replace(
            one, stream_id=name, started_us=started_us, day=started[:10], response_id=response_id, record=record
        )


def write_ledger(path: Path, count: int) -> None:
    with SqliteLedger(path) as ledger:
        batch: list[LedgerRow] = []
        for row in rows(count):
            batch.append(row)
            if len(batch) == BATCH:
                ledger.insert(batch)
                batch = []
        ledger.insert(batch)


def invoice(ledger: SqliteLedger, differing: int) -> str:
    """OpenAI's usage for the month of the ledger; so many cells have a request too much."""
    buckets: dict[str, list[dict[str, object]]] = {}
    totals = ledger.totals(["day", "model"], Filter(MONTH.since_us, MONTH.until_us))
    for place, total in enumerate(totals):
        day, model = total.keys
        more = place < differing
        buckets.setdefault(str(day), []).append(
            {
                "object": "organization.usage.completions.result",
                "model": model,
                "input_tokens": (total.input_tokens or 0) + 900 * more,
                "input_cached_tokens": total.input_cached_tokens,
                "output_tokens": (total.output_tokens or 0) + 77 * more,
                "num_model_requests": total.streams + more,
            }
        )
    data = []
    for day, results in buckets.items():
        start = (MONTH.since_us + (int(day[-2:]) - 1) * _DAY_US) // _US
        data.append({"object": "bucket", "start_time": start, "end_time": start + 86_400, "results": results})
    return json.dumps({"object": "page", "data": data, "has_more": False})


def audit(ledger: Path, bill: Path) -> Measured:
    """Runs `streamgauge audit` of the month."""
    flags = ["--ledger", f"sqlite:///{ledger}", "--invoice", str(bill), "--from", MONTH.first, "--to", MONTH.end]
    began, used, peak = time.perf_counter(), _cpu_of_children(), 0.0
    process = subprocess.Popen([sys.executable, "-m", "streamgauge", "audit", *flags], stdout=subprocess.DEVNULL)
    # The resource usage of an ended process would also count the memory of this one, which started it.
    while (code := process.poll()) is None:
        with suppress(OSError):
            peak = peak_mib(process.pid)
        time.sleep(LOOK_S)
    return Measured(code, time.perf_counter() - began, _cpu_of_children() - used, peak)


def _cpu_of_children() -> float:
    """The CPU seconds of the processes that this one started and that have ended."""
    usage = resource.getrusage(resource.RUSAGE_CHILDREN)
    return usage.ru_utime + usage.ru_stime


def _check(found: Measured, code: int, what: str) -> None:
    if found.code != code:
        raise SystemExit(f"{what}: the audit ended with {found.code} instead of {code}")


def of_month(folder: Path, count: int) -> Iterator[list[str]]:
    """The rows for the ledger."""
    path, bill = folder / "ledger.sqlite", folder / "usage.json"
    write_ledger(path, count)
    seconds, floor = bare_scan(path)
    yield _line(f"a bare scan of {count:,} records", path, seconds, floor, "1", "")
    for differing, says in ((DIFFERING, f"{DIFFERING} lines differ"), (sys.maxsize, "every line differs")):
        with SqliteLedger(path) as ledger:
            bill.write_text(invoice(ledger, differing))
        found = audit(path, bill)
        _check(found, FOUND, "the month")
        what, ratio = f"a month of {count:,} records, {says}", f"{found.cpu / floor:.2f}"
        yield _line(what, path, found.seconds, found.cpu, ratio, f"{found.peak_mib:.0f}")


def bare_scan(path: Path) -> tuple[float, float]:
    """The seconds, and those of CPU, in which SQLite gives each record to a loop that does nothing."""
    with closing(sqlite3.connect(path)) as database:
        began, used = time.perf_counter(), time.process_time()
        for _ in database.execute("SELECT record FROM records"):
            pass
        return time.perf_counter() - began, time.process_time() - used


def _line(what: str, path: Path, seconds: float, cpu: float, ratio: str, memory: str) -> list[str]:
    return [what, f"{path.stat().st_size / 1e9:.2f}", f"{seconds:.1f}", f"{cpu:.1f}", ratio, memory]


def of_bills(folder: Path, size: int) -> Iterator[list[str]]:
    """The rows for invoices, with a ledger that holds no record of theirs."""
    ledger, path = folder / "empty.sqlite", folder / "bill"
    write_ledger(ledger, 1)
    for name, last in BILLS.items():
        count = write(name.removesuffix(", refused"), path, size, last)
        found = audit(ledger, path)
        _check(found, FOUND if name in COMPARED else USAGE, name)
        yield _line(f"{name}: {count:,} rows", path, found.seconds, found.cpu, "", f"{found.peak_mib:.0f}")


def main(arguments: Sequence[str] | None = None) -> None:
    parser = argparse.ArgumentParser(prog="bench.audit", description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--rows", type=int, default=10_000_000)
    parser.add_argument("--bytes", type=int, default=2_000_000_000)
    parser.add_argument("--document", type=Path, help="write the table into this file, between its markers")
    given = parser.parse_args(arguments)
    lines = [["what is compared", "file, GB", "seconds", "seconds of CPU", "CPU of a bare scan = 1", "memory, MiB"]]
    with tempfile.TemporaryDirectory() as folder:
        for line in of_month(Path(folder), given.rows):
            lines.append(line)
            print(*line, sep="  ", flush=True)
        (Path(folder) / "ledger.sqlite").unlink()
        for line in of_bills(Path(folder), given.bytes):
            lines.append(line)
            print(*line, sep="  ", flush=True)
    if given.document is not None:
        replace_section(given.document, "audit", table(lines))


if __name__ == "__main__":
    main()
