"""A worker that is killed with many streams open, and started again: how soon it has their state, what memory they take.

Each stream gets some segments first, and each time all of it is made durable, so the changelog holds several states of
each. Behind the restart every stream is ended: all must become whole records, or the figures are none.

It is started on the same data directory, so it is the same static member of its group and has its partitions back at once.
Nothing waits for the session: where another worker takes over instead, its 10 s come first. It is killed with something on
its way that no checkpoint holds, and again and again before the streams go on.
"""

import contextlib
import statistics
import time
from dataclasses import dataclass
from pathlib import Path

from tests.integration.workers import WorkerProcess, worker

from bench.measure import cores, cpu_seconds, peak_mib, started_on
from bench.worker_kafka import Kafka
from bench.worker_logs import OpenStreams
from streamgauge.topics import Topics

# How often it is killed and started again: the median counts.
RESTARTS = 3


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


async def recover(kafka: Kafka, directory: Path, streams: int, rounds: int) -> Recovery:
    """So many open streams, with so many segments each. Raises AmissError."""
    prefix = await kafka.make_topics()
    topics, records = Topics(prefix), await kafka.records(prefix)
    settings = {"bootstrap": kafka.bootstrap, "prefix": prefix}
    opened = OpenStreams(streams, seed=streams)
    with contextlib.ExitStack() as stack:
        first = _started(stack, directory, settings)
        for _ in range(rounds if streams else 0):
            await kafka.write(prefix, opened.next())
            await kafka.until_committed(prefix, topics.segments)
        peak = peak_mib(first.process.pid)
        if streams:
            await kafka.write(prefix, opened.next())
        first.kill()
    entries = await kafka.messages(topics.state)
    times, cpu = list[float](), list[float]()
    with contextlib.ExitStack() as stack:
        for left in reversed(range(RESTARTS)):
            began = time.monotonic()
            again = _started(stack, directory, settings)
            times.append(time.monotonic() - began)
            cpu.append(cpu_seconds(again.process.pid))
            memory = peak_mib(again.process.pid)
            if left:
                again.kill()
        if streams:
            await kafka.write(prefix, opened.end())
            await records.until(opened.ids)
            await kafka.until_committed(prefix, topics.segments)
            await records.no_more()
        ended = peak_mib(again.process.pid)
    return Recovery(streams, statistics.median(times), statistics.median(cpu), entries, peak, memory, ended)


def _started(stack: contextlib.ExitStack, directory: Path, settings: dict[str, str]) -> WorkerProcess:
    """A worker that is ready, on the core that is measured."""
    with started_on(cores()[1]):
        return stack.enter_context(worker(directory, **settings)).wait_ready()
