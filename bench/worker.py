"""The speed of a worker, compared with a bare loop around aiokafka that only decodes bundles and assembles streams.

A real broker has the log, and each reader is a process. The figure is the CPU time of the whole process, from before a
log is written until its last record is in its topic, all state is durable and all of the log is acknowledged. A load
goes to one reader after the other, in several rounds, and each stream must become one complete record. If there are two
cores, broker and load run on one, and the readers on the other, with two exceptions: the workers that `scale` compares
may use all cores, and for the latency tap and worker use the load's core.

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
from bench.worker_readers import Figure, Reader, fault_reported, floor, put, put_whole, workers
from bench.worker_recovery import recover, take_over
from bench.worker_table import BARE_PAIR, FLOOR, LEDGER, LONG, ONE, PAIR, WORKER, Results, report

# Large enough that the fixed cost of a load weighs little: a worker continues for ten seconds until its checkpoint.
BUSY_TAPS = Load("bundles of busy taps", streams=100, deltas=1_500)
LOADS = (
    BUSY_TAPS,
    Load("the same, four dialects", 100, 1_500, (CHAT, "openai-responses", "anthropic-messages", "gemini")),
    Load("the same, each event different", streams=100, deltas=100, varied=True),
    Load("bundles of quiet taps", streams=4, deltas=5_000),
    Load("one message an event", streams=4, deltas=300, alone=True),
)
# Keeps one worker busy for ten seconds, and two for five: each of them has the fixed cost of a load.
_SCALE = Load(LONG, streams=100, deltas=12_000)


@dataclass(frozen=True)
class Sizes:
    """How much is measured. `warm`: with a warm-up round that does not count. `share`: of the streams' deltas.

    `opened`, `taken`: numbers of open streams when a worker is killed and restarted, and when another one takes over.
    `restarts`: of a killed worker. `budget_s`: a round that would end later does not begin. `checkpoint_s`: the shortest
    time between two checkpoints of a worker; a short load waits for the longest time, which is ten times that.
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


async def speed(kafka: Kafka, directory: Path, sizes: Sizes, results: Results) -> None:
    """Compares the bare loop and workers on one core."""
    async with _readers(
        {
            FLOOR: floor(kafka),
            WORKER: workers(kafka, directory / WORKER, checkpoint_s=sizes.checkpoint_s),
            LEDGER: workers(kafka, directory / LEDGER, checkpoint_s=sizes.checkpoint_s, ledger=True),
        },
        cores()[1],
    ) as readers:
        await _rounds(kafka, readers, [load.part(sizes.share) for load in LOADS], sizes, results)


async def scale(kafka: Kafka, directory: Path, sizes: Sizes, results: Results) -> None:
    """Compares one and two workers, and one and two bare loops, on all cores, which broker and load use too."""
    wanted = {
        name: workers(kafka, directory / name, count, checkpoint_s=sizes.checkpoint_s)
        for name, count in ((ONE, 1), (PAIR, 2))
    }
    wanted |= {FLOOR: floor(kafka), BARE_PAIR: floor(kafka, 2)}
    async with _readers(wanted, set().union(*cores())) as readers:
        await _rounds(kafka, readers, [_SCALE.part(sizes.share)], sizes, results, put_whole)


@contextlib.asynccontextmanager
async def _readers(
    wanted: Mapping[str, AbstractAsyncContextManager[Reader]], where: set[int]
) -> AsyncIterator[dict[str, Reader]]:
    """Starts all readers on these cores."""
    async with contextlib.AsyncExitStack() as stack:
        with started_on(where):
            readers = {name: await stack.enter_async_context(reader) for name, reader in wanted.items()}
        yield readers


async def _rounds(
    kafka: Kafka,
    readers: Mapping[str, Reader],
    loads: Sequence[Load],
    sizes: Sizes,
    results: Results,
    put: Callable[[Log, Reader, Kafka], Awaitable[Figure]] = put,
) -> None:
    """Runs all loads on all readers. Each round begins with another reader. Round 0 is a warm-up and does not count."""
    begun, names, others = time.monotonic(), list(readers), Others()
    for number in range(0 if sizes.warm else 1, sizes.rounds + 1):
        began = time.monotonic()
        for place, load in enumerate(loads):
            log = made(load.part(0.1) if number == 0 else load, seed=number * len(loads) + place)
            results.messages[load.name] = log.events / len(log.messages)
            for name in names[number % len(names) :] + names[: number % len(names)]:
                with fault_reported(f"{name}, {load.name}", results.faults.append):
                    figure = await put(log, readers[name], kafka)
                    if number:
                        results.add(load.name, name, replace(figure, number=number))
                    speed = f"{figure.events / figure.cpu_s:,.0f} events a CPU-second"
                    print(f"{number} {load.name:<27} {name:<15} {speed}, in {figure.seconds:.2f} s", flush=True)
        now = time.monotonic()
        if now - begun + (now - began) > sizes.budget_s:
            break
    results.others = max(results.others, others.share())


async def measured(bootstrap: str, directory: Path, sizes: Sizes) -> Results:
    """Runs all measurements, one after the other."""
    results = Results([load.part(sizes.share) for load in LOADS])
    async with Kafka(bootstrap) as kafka:
        with fault_reported("speed", results.faults.append):
            await speed(kafka, directory, sizes, results)
        with fault_reported("two workers", results.faults.append):
            await scale(kafka, directory / "scale", sizes, results)
        for streams in sizes.opened:
            with fault_reported(f"recovery of {streams}", results.faults.append):
                results.recoveries.append(
                    await recover(kafka, directory / f"open-{streams}", streams, sizes.segments, sizes.restarts)
                )
                print(results.recoveries[-1], flush=True)
        for streams in sizes.taken:
            with fault_reported(f"another worker taking over {streams}", results.faults.append):
                results.taken.append(await take_over(kafka, directory / f"taken-{streams}", streams, sizes.segments))
                print(results.taken[-1], flush=True)
        with fault_reported("latency", results.faults.append):
            results.latencies = await latencies(kafka, directory / "latency", sizes.pace)
    return results


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
            results = asyncio.run(measured(bootstrap, Path(folder), sizes))
    except NoBrokerError as error:
        raise SystemExit(f"no broker is available: {error}") from error
    finally:
        os.sched_setaffinity(0, before)
    text = report(results)
    print(f"\n{text}")
    if given.document is not None:
        replace_section(given.document, "worker", text)


if __name__ == "__main__":
    main()
