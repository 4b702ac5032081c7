"""A tap under load while its broker is killed and comes back, for minutes: `python -m bench.soak --minutes 10`.

A real Kafka broker, a real `streamgauge tap`, streams without pause. Every few seconds the tap's processes are looked at and
its balance is checked; at the end all is delivered, every stream has one whole record, and memory and descriptors are flat.
Exit code 1 if anything of this does not hold.
"""

import argparse
import asyncio
import contextlib
import random
import sys
import tempfile
import time
from dataclasses import dataclass, field
from pathlib import Path

from tests.faults.rig import Rig, records_on, tap_rig
from tests.faults.traffic import ask, chunks_of
from tests.kafka_broker.broker import Broker
from tests.kafka_broker.fixtures import make_topics

from bench.soak_watch import Verdict, Watch, table
from streamgauge.core.record import Record

# Streams at a time: some 1,000 reads a second, which leaves room on two cores for provider, client and broker.
STREAMS = 20
# How often it is looked (seconds).
LOOK_S = 2.0
# How long the broker is there, and away (seconds): on its way up it is both for some seconds.
UP_S, DOWN_S = (15.0, 40.0), (5.0, 20.0)


@dataclass
class Result:
    """What a soak found."""

    seconds: float = 0.0
    streams: int = 0
    reads: int = 0
    outages: int = 0
    most_waiting: int = 0
    records: int = 0
    verdicts: list[Verdict] = field(default_factory=list)
    findings: list[str] = field(default_factory=list)


async def soak(
    seconds: float, folder: Path, *, up_s: tuple[float, float] = UP_S, down_s: tuple[float, float] = DOWN_S
) -> Result:
    """Run it. Raises NoBrokerError where no broker can be had."""
    result = Result(seconds)
    broker = Broker(folder / "broker")
    await asyncio.to_thread(broker.start)
    try:
        prefix = await asyncio.to_thread(make_topics, broker.bootstrap)
        async with tap_rig(folder, broker.bootstrap, prefix) as rig:
            await _run(rig, broker, result, up_s, down_s)
            _judge(result, await records_on(broker.bootstrap, prefix))
    finally:
        broker.kill()
    return result


async def _run(
    rig: Rig, broker: Broker, result: Result, up_s: tuple[float, float], down_s: tuple[float, float]
) -> None:
    began = time.monotonic()
    ends = began + result.seconds
    over = asyncio.Event()
    outages = asyncio.create_task(_outages(broker, result, up_s, down_s, over))
    load = [asyncio.create_task(_load(rig, ends, result, worker)) for worker in range(STREAMS)]
    watch = Watch(rig.tap.process.pid)
    while time.monotonic() < ends:
        await asyncio.sleep(LOOK_S)
        watch.look(time.monotonic() - began)
        books = await asyncio.to_thread(rig.books)  # says so if the balance is open
        result.most_waiting = max(result.most_waiting, int(books["waiting"]))
    await asyncio.gather(*load)
    over.set()
    await outages  # behind the last one the broker is up
    await rig.deliver_all()
    books = rig.books()
    result.reads = int(books["seen"])
    if set(books) != {"seen", "delivered", "waiting"}:
        result.findings.append(f"reads were dropped: {books}")
    result.verdicts = watch.verdicts()


async def _load(rig: Rig, ends: float, result: Result, worker: int) -> None:
    """One stream after another, each compared with what the provider sends."""
    number = worker
    while time.monotonic() < ends:
        got = await ask(rig.traffic.tapped, number)
        if got.data.partition(b"\r\n\r\n")[2] != chunks_of(number):
            result.findings.append(f"stream {number}: the client got other bytes")
        result.streams += 1
        number += STREAMS


async def _outages(
    broker: Broker, result: Result, up_s: tuple[float, float], down_s: tuple[float, float], over: asyncio.Event
) -> None:
    chance = random.Random(1)
    while not over.is_set():
        with contextlib.suppress(TimeoutError):
            await asyncio.wait_for(over.wait(), chance.uniform(*up_s))
            return
        await asyncio.to_thread(broker.kill)
        result.outages += 1
        await asyncio.sleep(chance.uniform(*down_s))
        await asyncio.to_thread(broker.start)


def _judge(result: Result, records: list[Record]) -> None:
    result.records = len(records)
    if len({record.stream_id for record in records}) != len(records) or len(records) != result.streams:
        result.findings.append(f"{len(records)} records of {result.streams} streams")
    cut = sum(not record.integrity.complete or record.outcome != "completed" for record in records)
    if cut:
        result.findings.append(f"{cut} records are not whole")
    result.findings += [finding for verdict in result.verdicts for finding in verdict.findings]


def report(result: Result) -> str:
    """Markdown."""
    said = (
        f"{result.seconds / 60:g} minutes, {result.streams} streams, {result.reads} reads, {result.outages} outages of the"
        f" broker, at most {result.most_waiting} reads waiting; {result.records} records."
    )
    return "\n".join([said, "", table(result.verdicts), "", *(result.findings or ["All held."])])


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--minutes", type=float, default=10.0)
    minutes = parser.parse_args().minutes
    with tempfile.TemporaryDirectory() as folder:
        result = asyncio.run(soak(60 * minutes, Path(folder)))
    print(report(result))
    return 1 if result.findings else 0


if __name__ == "__main__":
    sys.exit(main())
