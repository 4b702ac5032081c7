"""A tap under load for minutes, while its broker is killed and restarted: `python -m bench.soak --minutes 10`

It uses a real Kafka broker, a real `streamgauge tap`, and streams without pause. Two in five are left by their client,
broken by their provider, or end in an error. Every few seconds the tap's processes are sampled and its balance of reads
is checked. At the end all reads must be delivered, each stream must have one record that agrees with what the load knows
of it, and memory and descriptors must be flat. Otherwise the exit code is 1.
"""

import argparse
import asyncio
import contextlib
import random
import sys
import tempfile
import time
from collections import Counter
from collections.abc import AsyncIterator
from dataclasses import dataclass, field
from pathlib import Path

from tests.faults.rig import Rig, records_on
from tests.faults.traffic import Traffic
from tests.kafka_broker.broker import Broker
from tests.kafka_broker.fixtures import make_topics
from tests.running import off_loop, start_tap

from bench.soak_records import findings_of
from bench.soak_traffic import Load
from bench.soak_watch import Verdict, Watch, table

# Concurrent streams: about 1,000 reads a second, which leaves time on two cores for provider, clients and broker.
STREAMS = 20
# How often processes are sampled (seconds).
SAMPLE_S = 2.0
# How long the broker is up, and down (seconds). Its start takes some seconds more.
UP_S, DOWN_S = (15.0, 40.0), (5.0, 20.0)
# A surge doubles the streams between these parts of a run; what is judged for growth follows it.
SURGE = (0.2, 0.45)


@dataclass
class Result:
    """The result of a soak."""

    seconds: float = 0.0
    streams: int = 0
    outcomes: Counter[str] = field(default_factory=Counter)
    reads: int = 0
    outages: int = 0
    most_waiting: int = 0
    records: int = 0
    verdicts: list[Verdict] = field(default_factory=list)
    findings: list[str] = field(default_factory=list)


async def soak(
    seconds: float,
    folder: Path,
    *,
    up_s: tuple[float, float] = UP_S,
    down_s: tuple[float, float] = DOWN_S,
    surge: bool = False,
) -> Result:
    """Runs a soak, with twice the streams for a while if `surge`. Raises NoBrokerError."""
    result = Result(seconds)
    broker = Broker(folder / "broker")
    await asyncio.to_thread(broker.start)
    try:
        prefix = await asyncio.to_thread(make_topics, broker.bootstrap)
        load = Load()
        async with load.provider() as upstream, _tap(upstream.url, folder, broker.bootstrap, prefix) as rig:
            await _run(rig, load, broker, result, up_s, down_s, surge)
            records = await records_on(broker.bootstrap, prefix)
    finally:
        broker.kill()
    result.streams, result.records = len(load.streams), len(records)
    result.outcomes.update(stream.outcome for stream in load.streams)
    result.findings += findings_of(records, load.streams)
    result.findings += [finding for verdict in result.verdicts for finding in verdict.findings]
    return result


@contextlib.asynccontextmanager
async def _tap(url: str, folder: Path, bootstrap: str, prefix: str) -> AsyncIterator[Rig]:
    """Runs a tap in front of the provider, and stops it in order."""
    command = start_tap("tap", {"p": url}, folder / "data", "--kafka", bootstrap, "--topic-prefix", prefix)
    async with off_loop(command) as tap:
        yield Rig(tap, Traffic(url, f"{tap.url}/p"), prefix)
        assert await asyncio.to_thread(tap.stop) == 0, tap.log


async def _run(
    rig: Rig,
    load: Load,
    broker: Broker,
    result: Result,
    up_s: tuple[float, float],
    down_s: tuple[float, float],
    surge: bool,
) -> None:
    began = time.monotonic()
    ends = began + result.seconds
    stopping = asyncio.Event()
    outages = asyncio.create_task(_outages(broker, result, up_s, down_s, stopping))
    requests = asyncio.create_task(load.keep(rig.traffic.tapped, STREAMS, lambda: time.monotonic() >= ends))
    more = asyncio.create_task(_surge(load, rig.traffic.tapped, began, result.seconds if surge else 0.0))
    watch = Watch(rig.tap.process.pid)
    while time.monotonic() < ends:
        await asyncio.sleep(SAMPLE_S)
        watch.sample(time.monotonic() - began)
        reads = await asyncio.to_thread(rig.tap.reads)  # raises if the balance does not hold
        result.most_waiting = max(result.most_waiting, int(reads["waiting"]))
    await asyncio.gather(requests, more)
    stopping.set()
    await outages  # after the last one the broker is up
    await rig.deliver_all()
    reads = rig.tap.reads()
    result.reads = int(reads["seen"])
    if set(reads) != {"seen", "delivered", "waiting"}:
        result.findings.append(f"reads were dropped: {reads}")
    result.verdicts = watch.verdicts()


async def _surge(load: Load, url: str, began: float, seconds: float) -> None:
    """Twice the streams for a part of a run of this length; none if it is 0."""
    first, last = (began + part * seconds for part in SURGE)
    if seconds:
        await asyncio.sleep(first - time.monotonic())
        await load.keep(url, STREAMS, lambda: time.monotonic() >= last)


async def _outages(
    broker: Broker, result: Result, up_s: tuple[float, float], down_s: tuple[float, float], stopping: asyncio.Event
) -> None:
    chance = random.Random(1)
    while not stopping.is_set():
        with contextlib.suppress(TimeoutError):
            await asyncio.wait_for(stopping.wait(), chance.uniform(*up_s))
            return
        await asyncio.to_thread(broker.kill)
        result.outages += 1
        await asyncio.sleep(chance.uniform(*down_s))
        await asyncio.to_thread(broker.start)


def report(result: Result) -> str:
    """The result as Markdown."""
    summary = (
        f"{result.seconds / 60:g} minutes, {result.streams} streams, {result.reads} reads, {result.outages} outages of the"
        f" broker, at most {result.most_waiting} reads waiting; {result.records} records."
    )
    outcomes = (
        "Streams by outcome: " + ", ".join(f"{name} {count}" for name, count in sorted(result.outcomes.items())) + "."
    )
    return "\n".join(
        [summary, "", outcomes, "", table(result.verdicts), "", *(result.findings or ["No check failed."])]
    )


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--minutes", type=float, default=10.0)
    parser.add_argument("--surge", action="store_true", help="twice the streams for a quarter of the time")
    given = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        result = asyncio.run(soak(60 * given.minutes, Path(folder), surge=given.surge))
    print(report(result))
    return 1 if result.findings else 0


if __name__ == "__main__":
    sys.exit(main())
