"""Who reads the segments topic in the worker's benchmark: the floor, workers without and with a ledger, two side by side."""

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
from bench.worker_kafka import AmissError, Kafka
from bench.worker_logs import PARTITIONS, Load, Log, made
from streamgauge.kafka.topics import Topics

# A pair shares its partitions when the one that does less does at least this part of what the other does: the halves of
# eight partitions are not quite alike.
_SHARED = 0.5
# Readers that stand for longer than this may have lost their places in their group: its session is 10 s (seconds).
_STANDS_S = 8.0
# How often it is looked whether it does, each time with a small load of its own.
_TRIES = 40


@dataclass(frozen=True)
class Figure:
    """What one load cost one reader. `seconds`: from the first message in the log to the last record.

    `number`: of the round. Only figures of one round are compared.
    """

    cpu_s: float
    events: int
    seconds: float
    number: int = 0


@dataclass
class Reader:
    """`done` returns when a log written under `prefix` is done with to the end; gives when its last record was made (ms)."""

    prefix: str
    pids: list[int]
    done: Callable[[Log], Awaitable[float]]

    def cpu(self) -> list[float]:
        return [cpu_seconds(pid) for pid in self.pids]


async def put(log: Log, reader: Reader, kafka: Kafka) -> Figure:
    """One load on one reader. Raises AmissError."""
    before = sum(reader.cpu())
    began_ms = await kafka.write(reader.prefix, log)
    ended_ms = await reader.done(log)
    return Figure(sum(reader.cpu()) - before, log.events, (ended_ms - began_ms) / 1_000)


async def put_behind(log: Log, reader: Reader, kafka: Kafka) -> Figure:
    """One load that lies there whole before anybody reads it: nobody waits for whoever writes. Raises AmissError.

    Its readers are stopped meanwhile, for less than their session. `seconds`: from when they go on.
    """
    before, stood_s = reader.cpu(), time.monotonic()
    with _stopped(reader.pids):
        await kafka.write(reader.prefix, log)
    stood_s = time.monotonic() - stood_s
    began_ms = time.time() * 1_000
    ended_ms = await reader.done(log)
    if stood_s > _STANDS_S:
        raise AmissError(f"the log took {stood_s:.1f} s to be written: its readers stood for too long")
    used = shared(before, reader.cpu())
    return Figure(sum(used), log.events, (ended_ms - began_ms) / 1_000)


def shared(before: Sequence[float], after: Sequence[float]) -> list[float]:
    """What each has done meanwhile (CPU seconds). Raises AmissError if one left it to the other."""
    used = [now - then for then, now in zip(before, after, strict=True)]
    if min(used) < _SHARED * max(used):
        raise AmissError(f"the work was not shared: CPU seconds {', '.join(f'{one:.1f}' for one in used)}")
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
    """The bare loop, or so many that share the partitions."""
    prefix = await kafka.make_topics()
    command = ["-m", "bench.worker_floor", kafka.bootstrap, Topics(prefix).segments]
    said: asyncio.Queue[tuple[int, int]] = asyncio.Queue()
    made_by, expected = [0] * count, 0

    async def done(log: Log) -> float:
        nonlocal expected
        expected += len(log.ids)
        while sum(made_by) < expected:
            place, made_by[place] = await _next(said)
        if sum(made_by) > expected:
            raise AmissError(f"the bare loop made {sum(made_by)} records of {expected}")
        return time.time() * 1_000

    async with contextlib.AsyncExitStack() as stack:
        pids = []
        for place in range(count):
            partitions = map(str, range(PARTITIONS)[place::count])
            process = await asyncio.create_subprocess_exec(
                sys.executable, *command, *partitions, stdout=subprocess.PIPE
            )
            stack.push_async_callback(_ended, process)
            listening = asyncio.create_task(_listen(process, place, said))
            stack.callback(listening.cancel)
            await _next(said)
            pids.append(process.pid)
        yield Reader(prefix, pids, done)


async def _listen(process: asyncio.subprocess.Process, place: int, said: "asyncio.Queue[tuple[int, int]]") -> None:
    """What it says, with its place: how many records it has made so far; less than none at its end."""
    assert process.stdout is not None
    while line := await process.stdout.readline():
        await said.put((place, 0 if line == b"ready\n" else int(line)))
    await said.put((place, -1))


async def _next(said: "asyncio.Queue[tuple[int, int]]") -> tuple[int, int]:
    try:
        place, number = await asyncio.wait_for(said.get(), worker_kafka.PATIENCE_S)
    except TimeoutError as late:
        raise AmissError("the bare loop does not go on") from late
    if number < 0:
        raise AmissError("the bare loop has ended")
    return place, number


async def _ended(process: asyncio.subprocess.Process) -> None:
    with contextlib.suppress(ProcessLookupError):
        process.kill()
    await process.wait()


@contextlib.asynccontextmanager
async def workers(
    kafka: Kafka, directory: Path, count: int = 1, *, checkpoint_s: float, ledger: bool = False
) -> AsyncIterator[Reader]:
    """So many workers on one prefix, each with its partitions."""
    prefix = await kafka.make_topics()
    topics, records = Topics(prefix), await kafka.records(prefix)
    with contextlib.ExitStack() as stack:
        settings: dict[str, Any] = {"bootstrap": kafka.bootstrap, "prefix": prefix, "checkpoint_s": checkpoint_s}
        if ledger:
            settings["ledger"] = f"sqlite:///{directory / 'ledger.sqlite'}"
        running = [stack.enter_context(worker(directory, **settings)) for _ in range(count)]
        for one in running:
            one.wait_ready()

        async def done(log: Log) -> int:
            arrived = await records.until(log.ids)
            await kafka.until_committed(prefix, topics.segments)
            if ledger:
                await kafka.until_committed(prefix, topics.records)
            await records.no_more()
            return max(one.topic_ms for one in arrived)

        reader = Reader(prefix, [one.process.pid for one in running], done)
        if count > 1:
            await _share(reader, kafka)
        yield reader


async def _share(reader: Reader, kafka: Kafka) -> None:
    """Until each of them has work. Raises AmissError."""
    load = Load("to be shared", streams=20, deltas=100)
    for seed in range(_TRIES):
        before = reader.cpu()
        await put(made(load, -1 - seed), reader, kafka)
        with contextlib.suppress(AmissError):
            shared(before, reader.cpu())
            return
        time.sleep(0.2)  # noqa: ASYNC251 - nothing else is to go on
    raise AmissError(f"{len(reader.pids)} workers do not share the partitions")


@contextlib.contextmanager
def amiss(what: str, say: Callable[[str], None]) -> Iterator[None]:
    """What goes wrong within is said, and the rest goes on."""
    try:
        yield
    except Exception as why:  # noqa: BLE001 - whatever it is: what was measured before is worth a table
        say(f"{what}: {(str(why).strip().splitlines() or [type(why).__name__])[-1]}")
