"""The readers of the segments topic in the worker's benchmark: bare loops and workers, without and with a ledger."""

import asyncio
import contextlib
import os
import signal
import subprocess
import sys
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tests.integration.workers import worker

from bench import worker_kafka
from bench.measure import cpu_seconds
from bench.worker_kafka import Kafka, UnexpectedError
from bench.worker_logs import PARTITIONS, Load, Log, made
from streamgauge.kafka.topics import Topics

# Two readers share the work if the one with less has at least this part of the other's: the halves of eight partitions
# differ a little.
_SHARED = 0.5
# Readers that are stopped for longer than this may have left their group, whose session is 10 s (seconds).
_MAX_STOP_S = 8.0
# How often a small load is run until the readers share it.
_TRIES = 40


@dataclass(frozen=True)
class Figure:
    """The cost of one load for one reader. `seconds`: from the first message in the log to the last record.

    `number`: of the round. Only figures of the same round are compared.
    """

    cpu_s: float
    events: int
    seconds: float
    number: int = 0


@dataclass
class Reader:
    """`done` waits until a log written under `prefix` is processed completely. Returns the time of its last record (ms)."""

    prefix: str
    pids: list[int]
    done: Callable[[Log], Awaitable[float]]

    def cpu(self) -> list[float]:
        return [cpu_seconds(pid) for pid in self.pids]


async def put(log: Log, reader: Reader, kafka: Kafka) -> Figure:
    """Runs one load on one reader. Raises UnexpectedError."""
    before = sum(reader.cpu())
    began_ms = await kafka.write(reader.prefix, log)
    ended_ms = await reader.done(log)
    return Figure(sum(reader.cpu()) - before, log.events, (ended_ms - began_ms) / 1_000)


async def put_whole(log: Log, reader: Reader, kafka: Kafka) -> Figure:
    """Runs one load that is written completely before it is read, so that readers never wait. Raises UnexpectedError.

    Its readers are stopped while it is written, for less than their session. `seconds`: from when they continue.
    """
    before, stopped_s = reader.cpu(), time.monotonic()
    with _stopped(reader.pids):
        await kafka.write(reader.prefix, log)
    stopped_s = time.monotonic() - stopped_s
    began_ms = time.time() * 1_000
    ended_ms = await reader.done(log)
    if stopped_s > _MAX_STOP_S:
        raise UnexpectedError(f"the log took {stopped_s:.1f} s to be written: its readers were stopped for too long")
    used = shared(before, reader.cpu())
    return Figure(sum(used), log.events, (ended_ms - began_ms) / 1_000)


def shared(before: Sequence[float], after: Sequence[float]) -> list[float]:
    """The CPU seconds of each reader. Raises UnexpectedError if one did much less than the other."""
    used = [now - then for then, now in zip(before, after, strict=True)]
    if min(used) < _SHARED * max(used):
        raise UnexpectedError(f"the work was not shared: CPU seconds {', '.join(f'{seconds:.1f}' for seconds in used)}")
    return used


@contextlib.contextmanager
def _stopped(pids: Sequence[int]) -> Iterator[None]:
    try:
        for pid in pids:
            os.kill(pid, signal.SIGSTOP)
        yield
    finally:
        for pid in pids:
            os.kill(pid, signal.SIGCONT)


@contextlib.asynccontextmanager
async def floor(kafka: Kafka, count: int = 1) -> AsyncIterator[Reader]:
    """Runs the bare loop, or several that share the partitions."""
    prefix = await kafka.make_topics()
    command = ["-m", "bench.worker_floor", kafka.bootstrap, Topics(prefix).segments]
    reports: asyncio.Queue[tuple[int, int]] = asyncio.Queue()
    made_by, expected = [0] * count, 0

    async def done(log: Log) -> float:
        nonlocal expected
        expected += len(log.ids)
        while sum(made_by) < expected:
            place, made_by[place] = await _next(reports)
        if sum(made_by) > expected:
            raise UnexpectedError(f"the bare loop made {sum(made_by)} records of {expected}")
        return time.time() * 1_000

    async with contextlib.AsyncExitStack() as stack:
        pids = []
        for place in range(count):
            partitions = map(str, range(PARTITIONS)[place::count])
            process = await asyncio.create_subprocess_exec(
                sys.executable, *command, *partitions, stdout=subprocess.PIPE
            )
            stack.push_async_callback(_kill, process)
            reading = asyncio.create_task(_read_reports(process, place, reports))
            stack.callback(reading.cancel)
            await _next(reports)
            pids.append(process.pid)
        yield Reader(prefix, pids, done)


async def _read_reports(
    process: asyncio.subprocess.Process, place: int, reports: "asyncio.Queue[tuple[int, int]]"
) -> None:
    """Queues the process's place and the number of records that it prints, and -1 at its end."""
    assert process.stdout is not None
    while line := await process.stdout.readline():
        await reports.put((place, 0 if line == b"ready\n" else int(line)))
    await reports.put((place, -1))


async def _next(reports: "asyncio.Queue[tuple[int, int]]") -> tuple[int, int]:
    try:
        place, number = await asyncio.wait_for(reports.get(), worker_kafka.PATIENCE_S)
    except TimeoutError as error:
        raise UnexpectedError("the bare loop does not continue") from error
    if number < 0:
        raise UnexpectedError("the bare loop has ended")
    return place, number


async def _kill(process: asyncio.subprocess.Process) -> None:
    with contextlib.suppress(ProcessLookupError):
        process.kill()
    await process.wait()


@contextlib.asynccontextmanager
async def workers(
    kafka: Kafka, directory: Path, count: int = 1, *, checkpoint_s: float, ledger: bool = False
) -> AsyncIterator[Reader]:
    """Runs workers on one prefix, each with a part of the partitions."""
    prefix = await kafka.make_topics()
    topics, records = Topics(prefix), await kafka.records(prefix)
    with contextlib.ExitStack() as stack:
        settings: dict[str, Any] = {"bootstrap": kafka.bootstrap, "prefix": prefix, "checkpoint_s": checkpoint_s}
        if ledger:
            settings["ledger"] = f"sqlite:///{directory / 'ledger.sqlite'}"
        running = [stack.enter_context(worker(directory, fresh=True, **settings)) for _ in range(count)]
        for process in running:
            process.wait_ready()

        async def done(log: Log) -> int:
            arrived = await records.until(log.ids)
            await kafka.until_committed(prefix, topics.segments)
            if ledger:
                await kafka.until_committed(prefix, topics.records)
            await records.no_more()
            return max(record.topic_ms for record in arrived)

        reader = Reader(prefix, [process.process.pid for process in running], done)
        if count > 1:
            await _until_shared(reader, kafka)
        yield reader


async def _until_shared(reader: Reader, kafka: Kafka) -> None:
    """Runs small loads until each process has a part of the work. Raises UnexpectedError."""
    load = Load("to be shared", streams=20, deltas=100)
    for seed in range(_TRIES):
        before = reader.cpu()
        await put(made(load, -1 - seed), reader, kafka)
        with contextlib.suppress(UnexpectedError):
            shared(before, reader.cpu())
            return
        time.sleep(0.2)  # noqa: ASYNC251 - no other task must run
    raise UnexpectedError(f"{len(reader.pids)} workers do not share the partitions")


@contextlib.contextmanager
def fault_reported(where: str, report: Callable[[str], None]) -> Iterator[None]:
    """Reports an exception as a line of text and suppresses it, so that the benchmark continues."""
    try:
        yield
    except Exception as error:  # noqa: BLE001 - after any error the figures measured so far are still reported
        report(f"{where}: {(str(error).strip().splitlines() or [type(error).__name__])[-1]}")
