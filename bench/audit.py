"""What an audit takes: of a month of millions of records, and with invoices of gigabytes.

    python -m bench.audit [--rows N] [--bytes N] [--document FILE]

Writes a ledger of N records of a month, an invoice that agrees with it, and one of which every line differs; then invoices
of N bytes, the last of them with a bad last row. `streamgauge audit` compares each. The time for the ledger is also a ratio
to that of a bare scan: SQLite gives each of its records to a loop that does nothing. The files are deleted at the end: they
take 4.5 kB a record, and N bytes. On a machine that others use, only the seconds of CPU compare.
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
from pathlib import Path
from typing import NamedTuple

from tests.audit.invoices.large import write
from tests.metrics.records import make_record, make_usage

from bench.document import replace_section, table
from bench.measure import peak_mib, tree
from streamgauge.audit.period import Period
from streamgauge.errors import DONE, FOUND, USAGE
from streamgauge.ledger import Cost, Filter, LedgerRow, SqliteLedger, row_of
from streamgauge.ledger.row import COLUMNS

MONTH = Period.of("2026-03-01", "2026-04-01", "UTC")
MODELS = ("gpt-4o-2024-08-06", "o3-2025-04-16", "gpt-4o-mini-2024-07-18", "gpt-5-2025-08-07")
# Invoices: the export, and what its last row has in place of its number.
BILLS = {"OpenAI usage (API)": None, "OpenRouter activity (a row a request)": None, "OpenAI usage (API), refused": "-1"}
# The exports of a provider of which the ledger has a record: of the other one nothing can be compared.
COMPARED = frozenset({"OpenAI usage (API)"})
# Callers, each with a tenant and a key. One of so many records is the second attempt of a request.
CALLERS, RETRIED = 20, 100
_TEMPLATES = len(MODELS) * CALLERS * 5
COST = Cost(2_750_000_000, 3_000_000_000, "list", "2026-01-01")
# Records of one transaction of the fill.
FILL = 100_000
# What differs from record to record: the SQL of these columns, and of the values between the parts of the JSON.
_CHANGING = {
    "stream_id": "printf('%08x-%04x-7000-8000-%012x', us / 65536000, us / 1000 & 65535, n)",
    "started_us": "us",
    "day": "strftime('%Y-%m-%d', us / 1000000, 'unixepoch')",
    "response_id": "printf('chatcmpl-%08x%08x%08x', n * 2654435761 & 4294967295, n * 40503 & 4294967295, n)",
    "request_digest": "printf('%016x%016x', n * 2654435761, n)",
}
_STARTED_AT = "strftime('%Y-%m-%dT%H:%M:%S', us / 1000000, 'unixepoch') || printf('.%06dZ', us % 1000000)"
_BETWEEN = (*(_CHANGING[name] for name in ("stream_id", "response_id", "request_digest")), _STARTED_AT)
_PARTS = [f"part_{place}" for place in range(len(_BETWEEN) + 1)]
_JSON = " || ".join([*(f"{part} || {sql}" for part, sql in zip(_PARTS, _BETWEEN, strict=False)), _PARTS[-1]])
_VALUES = {**{name: name for name in COLUMNS}, **_CHANGING, "record": f"CAST({_JSON} AS BLOB)"}
_FILL = f"""
WITH RECURSIVE numbers(n) AS (SELECT :first UNION ALL SELECT n + 1 FROM numbers WHERE n + 1 < :first + :count)
INSERT INTO records ({", ".join(_VALUES)}) SELECT {", ".join(_VALUES.values())}
FROM (SELECT n, :since_us + n * :step_us AS us FROM numbers) CROSS JOIN templates ON number = n % {_TEMPLATES}
"""
# How often the memory of an audit is read (seconds).
LOOK_S = 0.1
_US = 10**6
_DAY_US = 86_400 * _US


class Measured(NamedTuple):
    """A run of `streamgauge audit`: its exit code, seconds, seconds of CPU, and the peak of its memory (MiB)."""

    code: int
    seconds: float
    cpu: float
    peak_mib: float


def write_ledger(path: Path, count: int) -> None:
    """Write a ledger with records that are spread over the month, and over MODELS and CALLERS.

    SQLite makes the rows of templates: encoding ten million records would take hours. The ledger is asked for some of them
    again; raises SystemExit if their columns are not those of their JSON.
    """
    SqliteLedger(path).close()
    step_us = (MONTH.until_us - MONTH.since_us) // count
    with closing(sqlite3.connect(path, isolation_level=None)) as database:
        for pragma in ("journal_mode = DELETE", "journal_mode = OFF", "synchronous = OFF"):  # each page is written once
            database.execute(f"PRAGMA {pragma}")
        database.execute(
            f"CREATE TEMPORARY TABLE templates (number INTEGER PRIMARY KEY, {', '.join((*COLUMNS, *_PARTS))})"
        )
        places = ", ".join("?" * (1 + len(COLUMNS) + len(_PARTS)))
        database.executemany(f"INSERT INTO templates VALUES ({places})", map(_template, range(_TEMPLATES)))
        for first in range(0, count, FILL):
            span = {"first": first, "count": min(FILL, count - first), "since_us": MONTH.since_us, "step_us": step_us}
            database.execute("BEGIN")
            database.execute(_FILL, span)
            database.execute("COMMIT")
    with SqliteLedger(path) as ledger:
        _check_rows(path, ledger)


def _template(number: int) -> tuple[object, ...]:
    """A row of the templates: its number, its columns, and its JSON in parts between the values of _CHANGING."""
    caller = number // len(MODELS) % CALLERS
    record = make_record(
        upstream="openai",
        response_model=MODELS[number % len(MODELS)],
        usage=make_usage(1_200, 300, input_cached_tokens=200, reasoning_tokens=64),
        service_tier="default",
        tenant=f"team-{caller}",
        credential_id=f"{caller:032x}",
        attempt=2 if number % RETRIED == 0 else 1,
        **{name: f"<{name}>" for name in ("response_id", "request_digest")},
    )
    row = row_of(record)
    values = row.values(COST)
    marks = [row.stream_id, "<response_id>", "<request_digest>", "2026-03-01T12:00:00.000000Z"]
    parts, rest = [], bytes(values[-1]).decode()
    for mark in marks:
        part, _, rest = rest.partition(mark)
        parts.append(part)
    return number, *values, *parts, rest


def _check_rows(path: Path, ledger: SqliteLedger) -> None:
    """Compare the columns of the first and the last records with those that a ledger makes of their JSON."""
    with closing(sqlite3.connect(path)) as database:
        for record in (*ledger.query(3), *ledger.query(3, newest_first=True)):
            row = LedgerRow.of_stored(record)
            query = f"SELECT {', '.join(COLUMNS)} FROM records WHERE stream_id = ?"
            if database.execute(query, (row.stream_id,)).fetchone() != row.values(COST):
                raise SystemExit(f"the columns of {row.stream_id} are not those of its JSON")


def invoice(ledger: SqliteLedger, differing: int) -> str:
    """OpenAI's usage for the month of the ledger; so many cells of a day and a model have a request too much."""
    data, cells = [], 0
    # Day by day: SQLite sorts all records of a query.
    for since_us in range(MONTH.since_us, MONTH.until_us, _DAY_US):
        results = []
        for total in ledger.totals(["model"], Filter(since_us, since_us + _DAY_US)):
            more, cells = cells < differing, cells + 1
            results.append(
                {
                    "object": "organization.usage.completions.result",
                    "model": total.keys[0],
                    "input_tokens": (total.input_tokens or 0) + 900 * more,
                    "input_cached_tokens": total.input_cached_tokens,
                    "output_tokens": (total.output_tokens or 0) + 77 * more,
                    "num_model_requests": total.streams + more,
                }
            )
        start = since_us // _US
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
            peak = max(peak, sum(map(peak_mib, tree(process.pid))))
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
    for differing, says in ((0, "the bill agrees"), (sys.maxsize, "every line differs")):
        with SqliteLedger(path) as ledger:
            bill.write_text(invoice(ledger, differing))
        found = audit(path, bill)
        _check(found, FOUND if differing else DONE, "the month")
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
