"""A tap under load while its broker is killed and comes back, for minutes: `python -m bench.soak --minutes 10`.

A real Kafka broker, a real `streamgauge tap`, streams without pause. Two in five are left by their client, broken by
their provider, or tell of an error. Every few seconds the tap's processes are looked at and its balance is checked; at the
end all is delivered, every stream has one record that says what the load knows of it, and memory and descriptors are flat.
Exit code 1 if anything of this does not hold.
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
from tests.running import start_tap

from bench.soak_records import findings_of
from bench.soak_traffic import Load
from bench.soak_watch import Verdict, Watch, table

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
    endings: Counter[str] = field(default_factory=Counter)
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
        load = Load()
        async with load.provider() as url, _tap(url, folder, broker.bootstrap, prefix) as rig:
            await _run(rig, load, broker, result, up_s, down_s)
            records = await records_on(broker.bootstrap, prefix)
    finally:
        broker.kill()
    result.streams, result.records = len(load.streams), len(records)
    result.endings.update(one.outcome for one in load.streams)
    result.findings += findings_of(records, load.streams)
    result.findings += [finding for verdict in result.verdicts for finding in verdict.findings]
    return result


@contextlib.asynccontextmanager
async def _tap(url: str, folder: Path, bootstrap: str, prefix: str) -> AsyncIterator[Rig]:
    """A tap before the provider; at its end it leaves in order."""
    context = start_tap("tap", {"p": url}, folder / "data", "--kafka", bootstrap, "--topic-prefix", prefix)
    tap = await asyncio.to_thread(context.__enter__)
    try:
        yield Rig(tap, Traffic(url, f"{tap.url}/p"), prefix)
        assert await asyncio.to_thread(tap.stop) == 0, tap.log
    finally:
        await asyncio.to_thread(context.__exit__, None, None, None)


async def _run(
    rig: Rig, load: Load, broker: Broker, result: Result, up_s: tuple[float, float], down_s: tuple[float, float]
) -> None:
    began = time.monotonic()
    ends = began + result.seconds
    over = asyncio.Event()
    outages = asyncio.create_task(_outages(broker, result, up_s, down_s, over))
    asking = asyncio.create_task(load.keep(rig.traffic.tapped, STREAMS, lambda: time.monotonic() >= ends))
    watch = Watch(rig.tap.process.pid)
    while time.monotonic() < ends:
        await asyncio.sleep(LOOK_S)
        watch.look(time.monotonic() - began)
        books = await asyncio.to_thread(rig.books)  # says so if the balance is open
        result.most_waiting = max(result.most_waiting, int(books["waiting"]))
    await asking
    over.set()
    await outages  # behind the last one the broker is up
    await rig.deliver_all()
    books = rig.books()
    result.reads = int(books["seen"])
    if set(books) != {"seen", "delivered", "waiting"}:
        result.findings.append(f"reads were dropped: {books}")
    result.verdicts = watch.verdicts()


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


def report(result: Result) -> str:
    """Markdown."""
    said = (
        f"{result.seconds / 60:g} minutes, {result.streams} streams, {result.reads} reads, {result.outages} outages of the"
        f" broker, at most {result.most_waiting} reads waiting; {result.records} records."
    )
    endings = (
        "Streams by ending: " + ", ".join(f"{name} {count}" for name, count in sorted(result.endings.items())) + "."
    )
    return "\n".join([said, "", endings, "", table(result.verdicts), "", *(result.findings or ["No check failed."])])


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
