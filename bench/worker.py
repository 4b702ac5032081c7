"""What a worker carries, beside a bare loop around aiokafka that decodes and puts streams together and does nothing else.

A real broker has the log; who reads it runs as processes of their own. What counts is CPU, of a whole process: from before
a log is written until its last record is in its topic, all state is durable and all of the log acknowledged. A load is put
on one reader after the other, by turns, round after round, and each stream must become one whole record. Where there are
two cores, broker and load have one and what is measured the other. Two are not kept apart so: workers that `scale` compares
may use all cores, the broker's too, and for latency tap and worker have the load's core, which they inherit.

    python -m bench.worker [--rounds N] [--quick] [--document FILE]
"""

import argparse
import asyncio
import contextlib
import os
import tempfile
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping, Sequence
from contextlib import AbstractAsyncContextManager
from dataclasses import dataclass, field, replace
from pathlib import Path

from tests.kafka_broker.choice import session_broker
from tests.kafka_broker.jars import NoBrokerError

from bench.document import replace_section
from bench.measure import Others, cores, started_on
from bench.worker_kafka import Kafka
from bench.worker_latency import Pace, latencies
from bench.worker_logs import CHAT, Load, Log, made
from bench.worker_readers import Figure, Reader, amiss, floor, put, put_behind, workers
from bench.worker_recovery import recover, take_over
from bench.worker_table import BARE_PAIR, FLOOR, LEDGER, LONG, ONE, PAIR, WORKER, Found, report

# Busy for so long that what a load costs once weighs little: a worker runs on for ten seconds, until its checkpoint is due.
BUSY_TAPS = Load("bundles of busy taps", streams=100, deltas=1_500)
LOADS = (
    BUSY_TAPS,
    Load("the same, four dialects", 100, 1_500, (CHAT, "openai-responses", "anthropic-messages", "gemini")),
    Load("the same, each event different", streams=100, deltas=100, varied=True),
    Load("bundles of quiet taps", streams=4, deltas=5_000),
    Load("one message an event", streams=4, deltas=300, alone=True),
)
# One worker is to be busy for ten seconds, and two for five: what a load costs once each of them pays (deltas a stream).
_SCALE = Load(LONG, streams=100, deltas=12_000)


@dataclass(frozen=True)
class Sizes:
    """How much is measured. A round that would end after `budget_s` is not begun; `warm`: with one that does not count.

    `opened`, `taken`: how many streams are open where a worker is killed and comes back, and where another one takes over.
    `restarts`: how often a killed worker is started again. `checkpoint_s`: the shortest time between two checkpoints of a
    worker; a short load waits for the longest, ten times that.
    """

    rounds: int = 5
    warm: bool = True
    share: float = 1.0
    opened: tuple[int, ...] = (0, 1_000, 10_000)
    taken: tuple[int, ...] = (0, 10_000)
    segments: int = 8
    restarts: int = 3
    pace: Pace = field(default_factory=Pace)
    budget_s: float = 450.0
    checkpoint_s: float = 1.0


QUICK = Sizes(1, False, 0.02, (0, 100), (100,), 2, 1, Pace(clients=10, streams=1, deltas=20), checkpoint_s=0.1)


async def speed(kafka: Kafka, directory: Path, sizes: Sizes, found: Found) -> None:
    """The floor and workers, pinned to what is measured."""
    async with _readers(
        {
            FLOOR: floor(kafka),
            WORKER: workers(kafka, directory / WORKER, checkpoint_s=sizes.checkpoint_s),
            LEDGER: workers(kafka, directory / LEDGER, checkpoint_s=sizes.checkpoint_s, ledger=True),
        },
        cores()[1],
    ) as readers:
        await _rounds(kafka, readers, [load.part(sizes.share) for load in LOADS], sizes, found)


async def scale(kafka: Kafka, directory: Path, sizes: Sizes, found: Found) -> None:
    """One worker and two, one bare loop and two: free to use all cores, the broker's and the load's too."""
    wanted = {
        name: workers(kafka, directory / name, count, checkpoint_s=sizes.checkpoint_s)
        for name, count in ((ONE, 1), (PAIR, 2))
    }
    wanted |= {FLOOR: floor(kafka), BARE_PAIR: floor(kafka, 2)}
    async with _readers(wanted, set().union(*cores())) as readers:
        await _rounds(kafka, readers, [_SCALE.part(sizes.share)], sizes, found, put_behind)


@contextlib.asynccontextmanager
async def _readers(
    wanted: Mapping[str, AbstractAsyncContextManager[Reader]], where: set[int]
) -> AsyncIterator[dict[str, Reader]]:
    """All of them, started on these cores."""
    async with contextlib.AsyncExitStack() as stack:
        with started_on(where):
            readers = {name: await stack.enter_async_context(one) for name, one in wanted.items()}
        yield readers


async def _rounds(
    kafka: Kafka,
    readers: Mapping[str, Reader],
    loads: Sequence[Load],
    sizes: Sizes,
    found: Found,
    put: Callable[[Log, Reader, Kafka], Awaitable[Figure]] = put,
) -> None:
    """All loads on all readers; who is first changes from round to round. Round 0 warms up and does not count."""
    begun, names, others = time.monotonic(), list(readers), Others()
    for number in range(0 if sizes.warm else 1, sizes.rounds + 1):
        began = time.monotonic()
        for place, load in enumerate(loads):
            log = made(load.part(0.1) if number == 0 else load, seed=number * len(loads) + place)
            found.messages[load.name] = log.events / len(log.messages)
            for name in names[number % len(names) :] + names[: number % len(names)]:
                with amiss(f"{name}, {load.name}", found.faults.append):
                    figure = await put(log, readers[name], kafka)
                    if number:
                        found.add(load.name, name, replace(figure, number=number))
                    said = f"{figure.events / figure.cpu_s:,.0f} events a CPU-second"
                    print(f"{number} {load.name:<27} {name:<15} {said}, in {figure.seconds:.2f} s", flush=True)
        now = time.monotonic()
        if now - begun + (now - began) > sizes.budget_s:
            break
    found.others = max(found.others, others.share())


async def measured(bootstrap: str, directory: Path, sizes: Sizes) -> Found:
    """Everything, one after the other."""
    found = Found([load.part(sizes.share) for load in LOADS])
    async with Kafka(bootstrap) as kafka:
        with amiss("speed", found.faults.append):
            await speed(kafka, directory, sizes, found)
        with amiss("two workers", found.faults.append):
            await scale(kafka, directory / "scale", sizes, found)
        for streams in sizes.opened:
            with amiss(f"recovery of {streams}", found.faults.append):
                found.recoveries.append(
                    await recover(kafka, directory / f"open-{streams}", streams, sizes.segments, sizes.restarts)
                )
                print(found.recoveries[-1], flush=True)
        for streams in sizes.taken:
            with amiss(f"another worker taking over {streams}", found.faults.append):
                found.taken.append(await take_over(kafka, directory / f"taken-{streams}", streams, sizes.segments))
                print(found.taken[-1], flush=True)
        with amiss("latency", found.faults.append):
            found.latencies = await latencies(kafka, directory / "latency", sizes.pace)
    return found


def main(arguments: Sequence[str] | None = None) -> None:
    parser = argparse.ArgumentParser(prog="bench.worker", description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--rounds", type=int, default=Sizes.rounds)
    parser.add_argument("--quick", action="store_true", help="one short round, in a minute")
    parser.add_argument("--document", type=Path, help="write the tables into this file, between its markers")
    given = parser.parse_args(arguments)
    before, sizes = os.sched_getaffinity(0), QUICK if given.quick else Sizes(rounds=given.rounds)
    try:
        with (
            tempfile.TemporaryDirectory(prefix="streamgauge-bench-") as folder,
            started_on(cores()[0]),
            session_broker(Path(folder) / "kafka") as bootstrap,
        ):
            found = asyncio.run(measured(bootstrap, Path(folder), sizes))
    except NoBrokerError as why:
        raise SystemExit(f"there is no broker to measure with: {why}") from why
    finally:
        os.sched_setaffinity(0, before)
    text = report(found)
    print(f"\n{text}")
    if given.document is not None:
        replace_section(given.document, "worker", text)


if __name__ == "__main__":
    main()
