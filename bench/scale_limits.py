"""The tested limits: ten workers, a worker with 100,000 open streams, and a ledger of 50 million rows.

`workers`: as many `streamgauge worker` as given share the partitions of a real broker; each stream must have one complete
record. `open`: bench/worker_recovery.py kills a worker with open streams and starts it again. `rows`: bench/scale_ledger.py
fills a ledger.

    python -m bench.scale_limits [--check] [--workers N] [--open N] [--rows N] [--document FILE]

Takes about an hour and 35 GB of disk, which it checks first; `--check` does nothing else. Writes the section `scale limits`.
"""

import argparse
import asyncio
import contextlib
import tempfile
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

import pytest
from tests.kafka_broker.choice import session_broker
from tests.kafka_broker.jars import NoBrokerError
from tests.postgres.server import PostgresServer
from tests.running import Running, start_worker, wait_until_ready

from bench import scale_ledger
from bench.document import replace_section, table, when_and_where
from bench.measure import cpu_seconds, peak_mib
from bench.worker_kafka import PATIENCE_S, Kafka, until
from bench.worker_logs import Load, made
from bench.worker_readers import fault_reported
from bench.worker_recovery import Recovery, recover
from streamgauge.metrics import table as metrics


@dataclass(frozen=True)
class Sizes:
    """How much is measured. `streams`, `deltas`: of each partition, in the log of the workers. `days`: of the ledger.

    `written`: rows for the speed of a writer. `segments`: of each open stream.
    """

    workers: int = 10
    partitions: int = 64
    streams: int = 100
    deltas: int = 300
    opened: int = 100_000
    segments: int = 2
    rows: int = 50_000_000
    days: int = 60
    written: int = 50_000


@dataclass(frozen=True)
class Shared:
    """Workers that read one log. `held`: the fewest and the most partitions of one. `mib`: peak memory of all together."""

    workers: int
    partitions: int
    held: tuple[int, int]
    streams: int
    events: int
    seconds: float
    cpu_s: float
    mib: float


async def share(bootstrap: str, directory: Path, sizes: Sizes) -> Shared:
    """Lets workers share the partitions of one log. Raises UnexpectedError unless each stream has one complete record."""
    log = made(Load("many workers", sizes.streams, sizes.deltas), seed=1, partitions=sizes.partitions)
    async with Kafka(bootstrap, sizes.partitions) as kafka:
        prefix = await kafka.make_topics()
        records = await kafka.records(prefix)
        with _workers(kafka.bootstrap, prefix, directory, sizes.workers) as workers:
            held = await _until_shared(workers, sizes.partitions)
            before, began = _cpu(workers), time.monotonic()
            await kafka.write(prefix, log)
            await records.until(log.ids)
            seconds, cpu = time.monotonic() - began, _cpu(workers) - before
            await records.no_more()
            mib = sum(peak_mib(one.process.pid) for one in workers)
    return Shared(sizes.workers, sizes.partitions, held, len(log.ids), log.events, seconds, cpu, mib)


@contextlib.contextmanager
def _workers(bootstrap: str, prefix: str, directory: Path, count: int) -> Iterator[list[Running]]:
    with contextlib.ExitStack() as stack:
        folders = [directory / f"worker-{number}" for number in range(count)]
        workers = [stack.enter_context(start_worker(bootstrap, prefix, folder)) for folder in folders]
        for one in workers:
            wait_until_ready(one)
        yield workers


async def _until_shared(workers: Sequence[Running], partitions: int) -> tuple[int, int]:
    """Waits until each worker has partitions, and all together have all of them. Returns the fewest and the most of one."""
    held: list[int] = []

    async def is_shared() -> bool:
        pages = [await asyncio.to_thread(one.metrics) for one in workers]
        held[:] = [int(page.get(metrics.WORKER_PARTITIONS.name, 0)) for page in pages]
        return sum(held) == partitions and min(held) > 0

    await until(is_shared, PATIENCE_S, f"{len(workers)} workers do not share {partitions} partitions", 0.5)
    return min(held), max(held)


def _cpu(workers: Sequence[Running]) -> float:
    return sum(cpu_seconds(one.process.pid) for one in workers)


async def open_streams(bootstrap: str, directory: Path, sizes: Sizes) -> tuple[Recovery, Recovery]:
    """A worker's recovery with no open stream, and with many."""
    async with Kafka(bootstrap) as kafka:
        none = await recover(kafka, directory / "none", 0, sizes.segments, 1)
        return none, await recover(kafka, directory / "many", sizes.opened, sizes.segments, 1)


def shared_rows(found: Shared) -> list[list[str]]:
    """The lines of the table about workers."""
    name = f"{found.workers} workers on {found.partitions} partitions"
    return [
        [f"{name}: partitions of one worker", f"{found.held[0]} to {found.held[1]}", ""],
        [f"{name}: {found.streams:,} streams, each with one complete record", f"{found.seconds:,.1f}", "s"],
        [f"{name}: events of a CPU-second", f"{found.events / found.cpu_s:,.0f}", "events"],
        [f"{name}: peak memory of all", f"{found.mib:,.0f}", "MiB"],
    ]


def open_rows(none: Recovery, many: Recovery) -> list[list[str]]:
    """The lines of the table about open streams."""
    name = f"{many.streams:,} open streams in one worker"
    each = (many.peak_mib - none.peak_mib) * 1024 / many.streams
    return [
        [f"{name}: memory of one stream", f"{each:,.1f}", "KiB"],
        [f"{name}: peak memory; with nothing open", f"{many.peak_mib:,.0f}; {none.peak_mib:,.0f}", "MiB"],
        [f"{name}: ready after SIGKILL; with nothing open", f"{many.ready_s:,.1f}; {none.ready_s:,.1f}", "s"],
        [f"{name}: peak memory after all ended at once", f"{many.ended_mib:,.0f}", "MiB"],
    ]


def with_broker(bootstrap: str, directory: Path, sizes: Sizes, faults: list[str]) -> list[list[str]]:
    """The lines about workers and open streams. What cannot be measured is a fault."""
    rows: list[list[str]] = []
    with fault_reported(f"{sizes.workers} workers", faults.append):
        rows += shared_rows(asyncio.run(share(bootstrap, directory / "shared", sizes)))
    with fault_reported(f"{sizes.opened} open streams", faults.append):
        rows += open_rows(*asyncio.run(open_streams(bootstrap, directory / "open", sizes)))
    return rows


def with_database(sizes: Sizes, faults: list[str]) -> list[list[str]]:
    """The lines about the ledger. Without PostgreSQL, a fault."""
    try:
        server = PostgresServer()
    except pytest.skip.Exception as reason:
        faults.append(f"the ledger: {reason}")
        return []
    try:
        with fault_reported(f"a ledger of {sizes.rows:,} rows", faults.append):
            return scale_ledger.table_rows(scale_ledger.measure(server, sizes.rows, sizes.days, sizes.written))
        return []
    finally:
        server.remove()


def report(rows: Sequence[Sequence[str]], faults: Sequence[str]) -> str:
    """The section."""
    lines = [table([["tested on one machine", "value", "unit"], *rows])] if rows else []
    return "\n\n".join([*lines, when_and_where(), *(f"- Not measured: {fault}" for fault in faults)])


def main(arguments: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="bench.scale_limits", description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--check", action="store_true", help="check the free space on the disk, and do nothing else")
    parser.add_argument("--workers", type=int, default=Sizes.workers)
    parser.add_argument("--open", type=int, default=Sizes.opened, help="open streams of one worker")
    parser.add_argument("--rows", type=int, default=Sizes.rows, help="rows of the ledger")
    parser.add_argument("--document", type=Path, help="write the section of this file")
    given = parser.parse_args(arguments)
    scale_ledger.check_disk(given.rows)
    if given.check:
        return 0
    sizes, faults = Sizes(workers=given.workers, opened=given.open, rows=given.rows), list[str]()
    rows: list[list[str]] = []
    with tempfile.TemporaryDirectory(prefix="streamgauge-scale-") as folder:
        try:
            with session_broker(Path(folder) / "kafka") as bootstrap:
                rows += with_broker(bootstrap, Path(folder), sizes, faults)
        except NoBrokerError as error:
            faults.append(f"workers and open streams: no broker is available ({error})")
        rows += with_database(sizes, faults)
    text = report(rows, faults)
    print(text)
    if given.document is not None:
        replace_section(given.document, "scale limits", text)
    return int(bool(faults))


if __name__ == "__main__":
    raise SystemExit(main())
