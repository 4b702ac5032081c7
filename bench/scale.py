"""What a stream costs in each part, and what a million and a billion streams a day cost.

A typical stream is a chat of 300 events, at 50 events a second. Measured: CPU seconds of relay, collector, assembler and
ledger; bytes in Kafka and in the ledger. The cost of a day is computed from these constants and from the assumptions below.

    python -m bench.scale [--streams N] [--paced N] [--rows N] [--document FILE]

Prints the tables, and writes the sections `scale constants` and `scale cost` of the document.
"""

import argparse
import tempfile
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import pytest
from tests.postgres.server import PostgresServer

from bench import scale_tap
from bench.document import replace_section, table, when_and_where
from bench.measure import cpu_seconds, tree
from bench.scale_streams import bundles_of, many, records_of
from streamgauge.core.record import encode_record
from streamgauge.ledger import LedgerRow, open_ledger, row_of

# Events of a stream: a short answer, the typical one, a long one.
EVENTS = (50, 300, 1_000)
TYPICAL = 300
# Records of one transaction of a ledger, as the worker's sink has it.
BATCH = 500
DAY_S = 86_400
# Streams of a busy hour come this many times as fast as those of a day on average.
PEAK = 3.0
# The part of a core that is used at the peak: the rest is for catching up after an outage.
USED = 0.6
_USED = f"used to {USED:.0%}"
# A worker with Kafka, Faust, durable state and its ledger carries this part of what a loop carries that fetches and
# assembles: the first row of "What a worker carries" in docs/performance.md.
WORKER_SHARE = 0.84
# Copies of each byte in Kafka, and days that its topics keep segments and records (docs/reference/topics.md).
REPLICAS, SEGMENT_DAYS, RECORD_DAYS = 3, 3, 7
# Partitions of a topic are at most the slots of a tap.
MAX_PARTITIONS = 64
# What one broker takes (bytes a second): a network of 1 Gbit/s.
BROKER_BYTES_S = 125_000_000
# The part of full streams with --full-share 0.1.
SHARE = 0.1


@dataclass(frozen=True)
class Constants:
    """Of a typical stream, unless said. CPU in seconds for 1,000 streams, sizes in bytes for one.

    `tap`: by capture, relay and collector together. `segments`: by capture and number of events. `record`: in its topic.
    `ledger_cpu`: by kind of ledger, the client's and, for PostgreSQL, the server's together. `ledger_rows_s`: rows a
    second of one writer. `row_bytes`: by kind. A ledger that could not be started is missing.
    """

    tap: Mapping[str, float]
    assembler: float
    segments: Mapping[tuple[str, int], float]
    record: float
    ledger_cpu: Mapping[str, float]
    ledger_rows_s: Mapping[str, float]
    row_bytes: Mapping[str, float]

    def segment_bytes(self, share: float) -> float:
        """Of a typical stream where this part of the streams is captured in full."""
        return share * self.segments["full", TYPICAL] + (1 - share) * self.segments["masked", TYPICAL]

    @property
    def worker(self) -> float:
        """CPU seconds of a worker for 1,000 streams, its sink of the ledger included."""
        return self.assembler / WORKER_SHARE


def measure(directory: Path, streams: int, paced: int, rows: int) -> Constants:
    """Measures all constants. `streams`: for sizes and assembling; `paced`: streams of the tap; `rows`: of each ledger."""
    tap = {
        capture: sum(scale_tap.measure(directory / capture, paced, TYPICAL, capture).values())
        for capture in ("masked", "full")
    }
    segments: dict[tuple[str, int], float] = {}
    for events in EVENTS:
        for capture in ("masked", "full"):
            messages = bundles_of(streams, events, capture)
            segments[capture, events] = sum(map(len, messages)) / streams
            if (capture, events) == ("masked", TYPICAL):
                began = time.process_time()
                records = records_of(messages)
                encoded = [encode_record(record) for record in records]
                assembler = (time.process_time() - began) / streams * 1_000
    if len(records) != streams:
        raise SystemExit(f"{len(records)} records of {streams} streams")
    today = time.time_ns() // (DAY_S * 10**9) * DAY_S * 10**9
    lines = [row_of(record) for record in many(records, rows, today, DAY_S * 10**9)]
    cpu, speed, size = dict[str, float](), dict[str, float](), dict[str, float]()
    for kind, stored in _LEDGERS.items():
        found = stored(directory, lines)
        if found is not None:
            cpu[kind], speed[kind], size[kind] = found
    return Constants(tap, assembler, segments, sum(map(len, encoded)) / streams, cpu, speed, size)


_Stored = tuple[float, float, float]


def sqlite(directory: Path, rows: Sequence[LedgerRow]) -> _Stored:
    """CPU seconds for 1,000 rows, rows a second, and bytes of a row in SQLite."""
    path = directory / "scale.sqlite"
    cpu, seconds = insert(f"sqlite:///{path}", rows, time.process_time)
    return cpu, len(rows) / seconds, path.stat().st_size / len(rows)


def postgresql(_directory: Path, rows: Sequence[LedgerRow]) -> _Stored | None:
    """The same in PostgreSQL, the server's CPU included; None if it is not installed and cannot be."""
    try:
        server = PostgresServer()
    except pytest.skip.Exception as reason:
        print(f"PostgreSQL is left out: {reason}")
        return None
    try:

        def cpu() -> float:
            return time.process_time() + sum(map(cpu_seconds, tree(server.pid)))

        spent, seconds = insert(server.url, rows, cpu)
        return spent, len(rows) / seconds, table_bytes(server.url) / len(rows)
    finally:
        server.remove()


def table_bytes(url: str) -> int:
    """Bytes of the records with their indexes in a ledger in PostgreSQL."""
    import psycopg

    with psycopg.connect(url) as connection:
        partitions = "SELECT sum(pg_total_relation_size(relid)) FROM pg_partition_tree('records')"
        (size,) = connection.execute(partitions).fetchone() or (0,)
        return int(size)


def insert(url: str, rows: Sequence[LedgerRow], cpu: Callable[[], float]) -> tuple[float, float]:
    """Stores rows in batches. Returns CPU seconds for 1,000 rows, and the seconds that all took."""
    with open_ledger(url) as ledger:
        ledger.insert(rows[:1])
        began, used = time.perf_counter(), cpu()
        for at in range(1, len(rows), BATCH):
            ledger.insert(rows[at : at + BATCH])
        return (cpu() - used) / len(rows) * 1_000, time.perf_counter() - began


_LEDGERS: Mapping[str, Callable[[Path, Sequence[LedgerRow]], _Stored | None]] = {
    "SQLite": sqlite,
    "PostgreSQL": postgresql,
}


def constants_table(found: Constants) -> str:
    """The constants, each with what measured it."""
    here = "`python -m bench.scale`"
    rows = [["of a typical stream (300 events)", "value", "unit", "measured by"]]
    rows += [
        [f"tap: relay and collector, {capture}", f"{seconds:.2f}", "CPU s for 1,000 streams", here]
        for capture, seconds in found.tap.items()
    ]
    rows.append(["assembler: decode, assemble, encode the record", f"{found.assembler:.2f}", rows[1][2], here])
    rows.append(["worker with Kafka and ledger", f"{found.worker:.2f}", rows[1][2], f"{here}, and `make bench-worker`"])
    rows += [
        [f"Kafka, segments, {capture}, {events:,} events", f"{size:,.0f}", "bytes", here]
        for (capture, events), size in found.segments.items()
    ]
    rows.append(["Kafka, record", f"{found.record:,.0f}", "bytes", here])
    for kind, cpu in found.ledger_cpu.items():
        rows.append([f"ledger, {kind}", f"{cpu:.2f}", "CPU s for 1,000 rows", here])
        rows.append([f"ledger, {kind}, one writer", f"{found.ledger_rows_s[kind]:,.0f}", "rows a second", here])
        rows.append([f"ledger, {kind}, with indexes", f"{found.row_bytes[kind]:,.0f}", "bytes a row", here])
    return table(rows)


def cost_table(found: Constants, days: Sequence[int] = (1_000_000, 1_000_000_000)) -> str:
    """What numbers of streams a day cost."""
    rows = [["a day", *(f"{streams:,} streams" for streams in days)]]
    peak = [streams / DAY_S * PEAK for streams in days]
    rows.append(
        [
            f"streams a second: on average; at the peak ({PEAK:g} times)",
            *(f"{one / PEAK:,.1f}; {one:,.0f}" for one in peak),
        ]
    )
    rows += [
        [f"cores of taps, {capture}, {_USED}", *(_cores(one * seconds / 1_000) for one in peak)]
        for capture, seconds in found.tap.items()
    ]
    workers = [one * found.worker / 1_000 for one in peak]
    rows.append([f"cores of workers, {_USED}", *map(_cores, workers)])
    rows.append(["partitions", *(_partitions(cores / USED) for cores in workers)])
    for name, share in (("masked", 0.0), (f"full, --full-share {SHARE:g}", SHARE), ("full", 1.0)):
        size = found.segment_bytes(share)
        rows.append([f"Kafka, segments a day, {name}", *(_bytes(streams * size) for streams in days)])
        rows.append([f"Kafka at the peak, {name}", *(f"{_bytes(one * (size + found.record))}/s" for one in peak)])
    kept = REPLICAS * (found.segment_bytes(0.0) * SEGMENT_DAYS + found.record * RECORD_DAYS)
    rows.append([f"Kafka, disk of {REPLICAS} replicas, masked", *(_bytes(streams * kept) for streams in days)])
    rows.append(["ledger, rows", *(f"{streams:,}" for streams in days)])
    for kind, size in found.row_bytes.items():
        rows.append([f"ledger, {kind}", *(_bytes(streams * size) for streams in days)])
        rows.append(
            [f"cores of the ledger, {kind}, {_USED}", *(_cores(one * found.ledger_cpu[kind] / 1_000) for one in peak)]
        )
    return table(rows)


def limits_of(found: Constants) -> list[tuple[str, float]]:
    """The most streams a day that each part carries, the least first."""
    at_peak = DAY_S / PEAK
    limits = {
        "one core of a tap, masked": at_peak * USED * 1_000 / found.tap["masked"],
        "one worker, on one core": at_peak * USED * 1_000 / found.worker,
        f"{MAX_PARTITIONS} partitions, a core for each": at_peak * USED * 1_000 / found.worker * MAX_PARTITIONS,
        "one broker with 1 Gbit/s, masked": at_peak
        * USED
        * BROKER_BYTES_S
        / (found.segment_bytes(0.0) + found.record)
        / REPLICAS,
        "one broker with 1 Gbit/s, full": at_peak
        * USED
        * BROKER_BYTES_S
        / (found.segment_bytes(1.0) + found.record)
        / REPLICAS,
    }
    limits |= {f"one writer of a ledger in {kind}": at_peak * USED * rows for kind, rows in found.ledger_rows_s.items()}
    return sorted(limits.items(), key=lambda limit: limit[1])


def limits_table(found: Constants) -> str:
    """The same as a table."""
    rows = [["part", "streams a day"], *([name, f"{streams:,.0f}"] for name, streams in limits_of(found))]
    return table(rows)


def _cores(cores: float) -> str:
    return f"{cores / USED:,.2f}" if cores < 1 else f"{cores / USED:,.0f}"


def _partitions(cores: float) -> str:
    number = 1
    while number < cores:
        number *= 2
    return f"{number}" if number <= MAX_PARTITIONS else f"more than {MAX_PARTITIONS}"


def _bytes(size: float) -> str:
    for unit in ("B", "KB", "MB", "GB", "TB"):
        if size < 1_000:
            return f"{size:.3g} {unit}"
        size /= 1_000
    return f"{size:,.3g} PB"


def main(arguments: Sequence[str] | None = None) -> None:
    parser = argparse.ArgumentParser(prog="bench.scale", description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--streams", type=int, default=200, help="concurrent streams whose messages are made")
    parser.add_argument("--paced", type=int, default=200, help="concurrent streams at the tap")
    parser.add_argument("--rows", type=int, default=100_000, help="rows of each ledger")
    parser.add_argument("--document", type=Path, help="write the sections of this file")
    given = parser.parse_args(arguments)
    with tempfile.TemporaryDirectory(prefix="streamgauge-scale-") as folder:
        found = measure(Path(folder), given.streams, given.paced, given.rows)
    sections = {
        "scale constants": f"{constants_table(found)}\n\n{when_and_where()}",
        "scale cost": f"{cost_table(found)}\n\n{limits_table(found)}",
    }
    for name, text in sections.items():
        print(text)
        if given.document is not None:
            replace_section(given.document, name, text)


if __name__ == "__main__":
    main()
