"""A worker is killed with many open streams: the time until it, or another worker, has their state, and their memory.

First each stream has some segments, with a checkpoint after each, so that the changelog holds several states of each
stream. The worker is killed while segments that no checkpoint holds are in flight. Afterwards every stream ends: all must
have complete records, otherwise there are no figures.

`recover`: the worker is restarted on the same data directory. It is the same static member of its group, so it has its
partitions at once, without waiting for the session to expire. This is repeated before the streams continue. `take_over`:
the worker is not restarted. Another worker, which has the other half of the partitions, must take over its half, after
the session has expired.
"""

import asyncio
import contextlib
import statistics
import time
from dataclasses import dataclass
from pathlib import Path

from tests.integration.workers import WorkerProcess, worker
from tests.running import Running, start_worker, wait_until_ready

from bench.measure import cores, cpu_seconds, peak_mib, started_on
from bench.worker_kafka import PATIENCE_S, Kafka, Records, until
from bench.worker_logs import PARTITIONS, OpenStreams
from streamgauge.kafka.topics import Topics
from streamgauge.metrics import table

# How often a worker's metrics are read (seconds); they are updated twice a second.
_CHECK_S = 0.1


@dataclass(frozen=True)
class Recovery:
    """`ready_s`: from the start of the process until it has its partitions and their state; `cpu_s`: its CPU time for that.

    `entries`: messages of the changelog that it read. Peaks of memory: `peak_mib` of the killed process, `ready_mib` of the
    restarted one when it is ready, `ended_mib` of the same after all streams have ended at once.
    """

    streams: int
    ready_s: float
    cpu_s: float
    entries: int
    peak_mib: float
    ready_mib: float
    ended_mib: float


@dataclass(frozen=True)
class TakeOver:
    """`held_s`: from the kill of one of two workers until the other one has all partitions and all open streams."""

    streams: int
    held_s: float


async def recover(kafka: Kafka, directory: Path, streams: int, rounds: int, restarts: int) -> Recovery:
    """Runs a recovery. `rounds`: segments of each stream. Times are medians of the restarts. Raises UnexpectedError."""
    prefix = await kafka.make_topics()
    topics, records = Topics(prefix), await kafka.records(prefix)
    settings = {"bootstrap": kafka.bootstrap, "prefix": prefix}
    opened = OpenStreams(streams, seed=streams)
    with contextlib.ExitStack() as stack:
        first = _started(stack, directory, settings)
        await _write_segments(kafka, prefix, opened, rounds)
        peak = peak_mib(first.process.pid)
        await _write_without_checkpoint(kafka, prefix, opened)
        first.kill()
    entries = await kafka.messages(topics.state)
    times, cpu = list[float](), list[float]()
    with contextlib.ExitStack() as stack:
        for left in reversed(range(restarts)):
            began = time.monotonic()
            again = _started(stack, directory, settings)
            times.append(time.monotonic() - began)
            cpu.append(cpu_seconds(again.process.pid))
            memory = peak_mib(again.process.pid)
            if left:
                again.kill()
        await _end(kafka, prefix, opened, records)
        ended = peak_mib(again.process.pid)
    return Recovery(streams, statistics.median(times), statistics.median(cpu), entries, peak, memory, ended)


async def take_over(kafka: Kafka, directory: Path, streams: int, rounds: int) -> TakeOver:
    """Kills one of two `streamgauge worker`, each with its own data directory, for good. Raises UnexpectedError."""
    prefix = await kafka.make_topics()
    records, opened = await kafka.records(prefix), OpenStreams(streams, seed=streams)
    with contextlib.ExitStack() as stack:
        with started_on(cores()[1]):
            folders = [directory / name for name in ("killed", "stays")]
            killed, stays = (stack.enter_context(start_worker(kafka.bootstrap, prefix, folder)) for folder in folders)
        for process in (killed, stays):
            wait_until_ready(process)
        for process in (killed, stays):
            await until_held(process, PARTITIONS // 2, 0)
        await _write_segments(kafka, prefix, opened, rounds)
        await _write_without_checkpoint(kafka, prefix, opened)
        began = time.monotonic()
        killed.process.kill()
        await until_held(stays, PARTITIONS, streams)
        held_s = time.monotonic() - began
        await _end(kafka, prefix, opened, records)
    return TakeOver(streams, held_s)


async def until_held(process: Running, partitions: int, streams: int) -> None:
    """Waits until a worker reports this many partitions and open streams. Raises UnexpectedError."""

    async def holds() -> bool:
        metrics = await asyncio.to_thread(process.metrics)
        return (metrics[table.WORKER_PARTITIONS.name], metrics[table.OPEN_STREAMS.name]) == (partitions, streams)

    await until(
        holds, PATIENCE_S, f"the worker does not have {partitions} partitions with {streams} open streams", _CHECK_S
    )


async def _write_segments(kafka: Kafka, prefix: str, opened: OpenStreams, rounds: int) -> None:
    """Writes `rounds` segments for each stream, and waits for a checkpoint after each."""
    for _ in range(rounds if opened.ids else 0):
        await kafka.write(prefix, opened.next())
        await kafka.until_committed(prefix, Topics(prefix).segments)


async def _write_without_checkpoint(kafka: Kafka, prefix: str, opened: OpenStreams) -> None:
    """Writes another segment for each stream, and returns before a checkpoint holds it."""
    if opened.ids:
        await kafka.write(prefix, opened.next())


async def _end(kafka: Kafka, prefix: str, opened: OpenStreams, records: Records) -> None:
    """Ends all streams at once. Raises UnexpectedError unless each has one complete record, and there is no other."""
    if opened.ids:
        await kafka.write(prefix, opened.end())
        await records.until(opened.ids)
        await kafka.until_committed(prefix, Topics(prefix).segments)
        await records.no_more()


def _started(stack: contextlib.ExitStack, directory: Path, settings: dict[str, str]) -> WorkerProcess:
    """A worker that is ready, on the core of the readers."""
    with started_on(cores()[1]):
        return stack.enter_context(worker(directory, fresh=True, **settings)).wait_ready()
