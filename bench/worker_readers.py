"""Who reads the segments topic in the worker's benchmark: the floor, workers without and with a ledger, two side by side."""

import asyncio
import contextlib
import os
import signal
import subprocess
import sys
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tests.integration.workers import worker

from bench.measure import cpu_seconds
from bench.worker_kafka import PATIENCE_S, AmissError, Kafka
from bench.worker_logs import PARTITIONS, Load, Log, made
from streamgauge.topics import Topics

# A pair shares its partitions when the one that does less does at least this part of what the other does: the halves of
# eight partitions are not quite alike.
_SHARED = 0.5
# How often it is looked whether it does, each time with a small load of its own.
_TRIES = 40


@dataclass(frozen=True)
class Figure:
    """What one load cost one reader. `seconds`: from the first message in the log to the last record; None: not told.

    `number`: of the round. Only figures of one round are compared.
    """

    cpu_s: float
    events: int
    seconds: float | None = None
    number: int = 0


@dataclass
class Reader:
    """`done` returns when a log written under `prefix` is done with to the end; gives the last record's time (ms)."""

    prefix: str
    pids: list[int]
    done: Callable[[Log], Awaitable[int | None]]

    def cpu(self) -> list[float]:
        return [cpu_seconds(pid) for pid in self.pids]


async def put(log: Log, reader: Reader, kafka: Kafka) -> Figure:
    """One load on one reader. Raises AmissError."""
    before = sum(reader.cpu())
    began_ms = await kafka.write(reader.prefix, log)
    ended_ms = await reader.done(log)
    seconds = None if ended_ms is None else (ended_ms - began_ms) / 1_000
    return Figure(sum(reader.cpu()) - before, log.events, seconds)


async def put_behind(log: Log, reader: Reader, kafka: Kafka) -> Figure:
    """One load that lies there whole before anybody reads it: nobody waits for whoever writes. Raises AmissError.

    Its readers are stopped meanwhile, for less than their session. `seconds`: from when they go on.
    """
    return await _put_behind(log, reader, kafka, contextlib.nullcontext())


async def put_by_turns(log: Log, reader: Reader, kafka: Kafka) -> Figure:
    """The same, read by processes that have half a core each. Raises AmissError."""
    return await _put_behind(log, reader, kafka, taking_turns(reader.pids))


async def _put_behind(log: Log, reader: Reader, kafka: Kafka, going: AbstractContextManager[None]) -> Figure:
    before = sum(reader.cpu())
    with contextlib.ExitStack() as stack:
        with _stopped(reader.pids):
            await kafka.write(reader.prefix, log)
            stack.enter_context(going)
        began_ms = time.time() * 1_000
        ended_ms = await reader.done(log)
    seconds = None if ended_ms is None else (ended_ms - began_ms) / 1_000
    return Figure(sum(reader.cpu()) - before, log.events, seconds)


@contextlib.contextmanager
def taking_turns(pids: Sequence[int]) -> Iterator[None]:
    """They have begun when it is entered. Raises AmissError unless they do so to the end."""
    command = [sys.executable, "-m", "bench.turns", *map(str, pids)]
    with subprocess.Popen(command, stdout=subprocess.PIPE) as turns:
        try:
            assert turns.stdout is not None
            if not turns.stdout.readline():
                raise AmissError("they do not begin to take turns")
            yield
            if turns.poll() is not None:
                raise AmissError("they did not take turns to the end")
        finally:
            turns.terminate()


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
async def floor(kafka: Kafka) -> AsyncIterator[Reader]:
    """The bare loop."""
    prefix = await kafka.make_topics()
    command = ["-m", "bench.worker_floor", kafka.bootstrap, Topics(prefix).segments, str(PARTITIONS)]
    process = await asyncio.create_subprocess_exec(sys.executable, *command, stdout=subprocess.PIPE)
    expected = 0

    async def done(log: Log) -> None:
        nonlocal expected
        expected += len(log.ids)
        while (made_so_far := int(await _line(process))) < expected:
            continue
        if made_so_far > expected:
            raise AmissError(f"the bare loop made {made_so_far} records of {expected}")

    try:
        await _line(process)
        yield Reader(prefix, [process.pid], done)
    finally:
        with contextlib.suppress(ProcessLookupError):
            process.kill()
        await process.wait()


async def _line(process: asyncio.subprocess.Process) -> str:
    assert process.stdout is not None
    try:
        line = await asyncio.wait_for(process.stdout.readline(), PATIENCE_S)
    except TimeoutError as late:
        raise AmissError("the bare loop does not go on") from late
    if not line:
        raise AmissError("the bare loop has ended")
    return line.decode()


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
        used = [after - one for one, after in zip(before, reader.cpu(), strict=True)]
        if min(used) >= _SHARED * max(used):
            return
        time.sleep(0.2)  # noqa: ASYNC251 - nothing else is to go on
    raise AmissError(f"{len(reader.pids)} workers do not share the partitions")


@contextlib.contextmanager
def amiss(what: str, say: Callable[[str], None]) -> Iterator[None]:
    """What goes wrong within is said, and the rest goes on."""
    try:
        yield
    except (AmissError, AssertionError, OSError) as why:
        say(f"{what}: {(str(why).strip().splitlines() or [type(why).__name__])[-1]}")
