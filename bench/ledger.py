"""How fast records are stored in a ledger, compared with SQLite used directly.

The floor is the ledger's former way: one `INSERT ... ON CONFLICT DO NOTHING` for each row, by Python's sqlite3, of 28 columns
without kinds of tokens and costs, with the same durability. All write the same batches into files of their own, by turns.

    python -m bench.ledger [--batches N] [--rounds N] [--document FILE]

Prints a table of ratios. Exits with 1 if the ledger with prices is slower than LIMIT of the floor.
"""

import argparse
import sqlite3
import statistics
import sys
import tempfile
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from uuid import UUID

import msgspec
from tests.metrics.records import make_record, make_usage

from bench.document import replace_section, table
from streamgauge.core.record import encode_record
from streamgauge.ledger import LedgerRow, open_ledger
from streamgauge.prices import Prices

# The least ratio of the ledger with prices to the floor.
LIMIT = 0.7
# Records of one transaction, as the worker's sink has it, and as `up` has it under little load.
SIZES = (500, 20)

_COLUMNS = (
    "stream_id", "started_us", "day", "model", "request_model", "response_model", "tap", "upstream", "dialect",
    "endpoint", "outcome", "finish_reason", "tenant", "credential_id", "service_tier", "usage_source",
    "request_digest", "response_id", "last_event_id", "resumed_from", "attempt", "attributes",
    "input_tokens", "output_tokens", "total_tokens", "input_cached_tokens", "reasoning_tokens", "record",
)  # fmt: skip
_CREATE = f"""
CREATE TABLE records ({", ".join(_COLUMNS)}, UNIQUE (stream_id));
CREATE INDEX records_by_start ON records (ifnull(started_us, 9223372036854775807), stream_id);
CREATE INDEX records_legs ON records (resumed_from) WHERE resumed_from IS NOT NULL;
"""
_INSERT = f"""
INSERT INTO records ({", ".join(_COLUMNS)}) VALUES ({", ".join("?" * len(_COLUMNS))}) ON CONFLICT (stream_id) DO NOTHING
"""

Batches = list[list[LedgerRow]]


def batches_of(count: int, size: int) -> Batches:
    """Batches of records of a usual size, each of a stream of its own."""
    usage = make_usage(1_200, 300, input_cached_tokens=800, reasoning_tokens=100)
    known = make_record(
        usage=usage, request_digest="d" * 32, credential_id="c" * 32, tenant="search", attributes={"a": "b"}
    )
    rows = []
    for number in range(count * size):
        at = f"2026-03-01T{number // 3_600 % 24:02}:{number // 60 % 60:02}:{number % 60:02}.{number % 1_000:03}Z"
        stream = str(UUID(int=(number << 80) | (7 << 76) | (2 << 62) | number))
        rows.append(LedgerRow.of_json(encode_record(msgspec.structs.replace(known, stream_id=stream, started_at=at))))
    return [rows[begin : begin + size] for begin in range(0, len(rows), size)]


def floor(path: Path, batches: Batches) -> float:
    """Seconds of the former way."""
    database = sqlite3.connect(path, isolation_level=None)
    database.execute("PRAGMA journal_mode = WAL")
    database.execute("PRAGMA synchronous = FULL")
    database.executescript(_CREATE)
    began = time.perf_counter()
    for batch in batches:
        database.execute("BEGIN IMMEDIATE")
        for row in batch:
            database.execute(_INSERT, [getattr(row, name) for name in _COLUMNS])
        database.execute("COMMIT")
    spent = time.perf_counter() - began
    database.close()
    return spent


def ledger(path: Path, batches: Batches, prices: Prices | None = None) -> float:
    """Seconds of the ledger."""
    with open_ledger(f"sqlite:///{path}", prices=prices) as opened:
        began = time.perf_counter()
        for batch in batches:
            opened.insert(batch)
        return time.perf_counter() - began


def priced(path: Path, batches: Batches) -> float:
    """Seconds of the ledger with list prices."""
    prices = Prices()
    prices.cost_of(batches[0][0])  # loads the list
    return ledger(path, batches, prices)


WAYS: dict[str, Callable[[Path, Batches], float]] = {
    "sqlite3 directly": floor,
    "ledger": ledger,
    "ledger, with prices": priced,
}


def ratios(size: int, count: int, rounds: int) -> dict[str, float]:
    """How fast each way is, the floor = 1: medians of the rounds."""
    batches = batches_of(count, size)
    spent: dict[str, list[float]] = {name: [] for name in WAYS}
    with tempfile.TemporaryDirectory() as folder:
        for turn in range(rounds + 1):
            for name, way in WAYS.items():
                seconds = way(Path(folder) / f"{turn} {name}.sqlite", batches)
                if turn:  # the first warms caches up
                    spent[name].append(seconds)
    medians = {name: statistics.median(seconds) for name, seconds in spent.items()}
    return {name: medians["sqlite3 directly"] / seconds for name, seconds in medians.items()}


def main(arguments: Sequence[str] | None = None) -> int:
    """Measures, prints, and writes the section of the document."""
    parser = argparse.ArgumentParser(prog="bench.ledger", description=(__doc__ or "").splitlines()[0])
    parser.add_argument(
        "--batches", type=int, default=20, help="batches of 500 records; of smaller ones as many records"
    )
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--document", type=Path)
    given = parser.parse_args(arguments)
    by_size = {size: ratios(size, given.batches * SIZES[0] // size, given.rounds) for size in SIZES}
    rows = [["records in a transaction", *WAYS]]
    rows += [[str(size), *(f"{found[name]:.2f}" for name in WAYS)] for size, found in by_size.items()]
    print(table(rows))
    if given.document:
        replace_section(given.document, "ledger", table(rows))
    return int(min(found["ledger, with prices"] for found in by_size.values()) < LIMIT)


if __name__ == "__main__":
    sys.exit(main())
