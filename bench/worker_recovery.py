"""A worker that is killed with many streams open: how soon it, or another one, has their state, what memory they take.

Each stream gets some segments first, and each time all of it is made durable, so the changelog holds several states of
each. It is killed with something on its way that no checkpoint holds. Behind that every stream is ended: all must become
whole records, or the figures are none.

`recover`: it is started again on the same data directory, so it is the same static member of its group and has its
partitions back at once, without waiting for the session; again and again before the streams go on. `take_over`: it is gone
for good, and another worker, which had the other half of the partitions, must have all. Its session comes first.
"""

import asyncio
import contextlib
import statistics
import time
from dataclasses import dataclass
from pathlib import Path

from tests.integration.workers import WorkerProcess, worker
from tests.running import Running, start, wait_until_ready

from bench.measure import cores, cpu_seconds, peak_mib, started_on
from bench.worker_kafka import PATIENCE_S, Kafka, Records, until
from bench.worker_logs import PARTITIONS, OpenStreams
from streamgauge.kafka.topics import Topics
from streamgauge.metrics import table

# How often a worker's metrics are looked at (seconds): they say what it holds twice a second.
_LOOK_S = 0.1


@dataclass(frozen=True)
class Recovery:
    """`ready_s`: from the start of the process until it has its partitions and their state; `cpu_s` what that took it.

    `entries`: messages of the changelog that it read. `peak_mib`: the most memory of the one that was killed;
    `ready_mib`: of the one that followed, when it was ready; `ended_mib`: of that, after all streams have ended at once.
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
    """`held_s`: from the kill of one of two workers until the other has all partitions and, in their state, all streams."""

    streams: int
    held_s: float


async def recover(kafka: Kafka, directory: Path, streams: int, rounds: int, restarts: int) -> Recovery:
    """So many open streams, with so many segments each; the median of so many restarts. Raises AmissError."""
    prefix = await kafka.make_topics()
    topics, records = Topics(prefix), await kafka.records(prefix)
    settings = {"bootstrap": kafka.bootstrap, "prefix": prefix}
    opened = OpenStreams(streams, seed=streams)
    with contextlib.ExitStack() as stack:
        first = _started(stack, directory, settings)
        await _go_on(kafka, prefix, opened, rounds)
        peak = peak_mib(first.process.pid)
        await _leave_something(kafka, prefix, opened)
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
    """The same of two `streamgauge worker`, each on a data directory of its own, of which one never comes back."""
    prefix = await kafka.make_topics()
    records, opened = await kafka.records(prefix), OpenStreams(streams, seed=streams)
    flags = ["--kafka", kafka.bootstrap, "--topic-prefix", prefix, "--admin", "127.0.0.1:0"]
    with contextlib.ExitStack() as stack:
        with started_on(cores()[1]):
            places = [directory / name for name in ("killed", "stays")]
            killed, stays = (
                stack.enter_context(start("worker", [*flags, "--data-dir", str(place)], place)) for place in places
            )
        for one in (killed, stays):
            wait_until_ready(one)
        for one in (killed, stays):
            await until_held(one, PARTITIONS // 2, 0)
        await _go_on(kafka, prefix, opened, rounds)
        await _leave_something(kafka, prefix, opened)
        began = time.monotonic()
        killed.process.kill()
        await until_held(stays, PARTITIONS, streams)
        held_s = time.monotonic() - began
        await _end(kafka, prefix, opened, records)
    return TakeOver(streams, held_s)


async def until_held(one: Running, partitions: int, streams: int) -> None:
    """Until a worker says that it has so many partitions, and in their state so many open streams. Raises AmissError."""

    async def holds() -> bool:
        told = await asyncio.to_thread(one.metrics)
        return (told[table.WORKER_PARTITIONS.name], told[table.OPEN_STREAMS.name]) == (partitions, streams)

    await until(holds, PATIENCE_S, f"a worker has no {partitions} partitions with {streams} open streams", _LOOK_S)


async def _go_on(kafka: Kafka, prefix: str, opened: OpenStreams, rounds: int) -> None:
    """So many segments for each stream, one after the other, each time until all is durable."""
    for _ in range(rounds if opened.ids else 0):
        await kafka.write(prefix, opened.next())
        await kafka.until_committed(prefix, Topics(prefix).segments)


async def _leave_something(kafka: Kafka, prefix: str, opened: OpenStreams) -> None:
    """Another segment for each stream, which no checkpoint holds when this returns."""
    if opened.ids:
        await kafka.write(prefix, opened.next())


async def _end(kafka: Kafka, prefix: str, opened: OpenStreams, records: Records) -> None:
    """All streams end at once. Raises AmissError unless each becomes one whole record, and no other comes."""
    if opened.ids:
        await kafka.write(prefix, opened.end())
        await records.until(opened.ids)
        await kafka.until_committed(prefix, Topics(prefix).segments)
        await records.no_more()


def _started(stack: contextlib.ExitStack, directory: Path, settings: dict[str, str]) -> WorkerProcess:
    """A worker that is ready, on the core that is measured."""
    with started_on(cores()[1]):
        return stack.enter_context(worker(directory, **settings)).wait_ready()
