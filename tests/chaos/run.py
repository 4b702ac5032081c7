"""Chaos: traffic all the time on a real Kafka, while workers, taps and the broker are killed; then the verifier judges.

`python -m tests.chaos.run --minutes 5`, or `make chaos`. Prints its report as JSON; exit code 1 if something did not hold.

    calm     nothing is done: what latency is without faults
    kills    SIGKILL of one worker after another, each started again at once; taps are killed beside, with all their processes
    away     a killed worker stays away: the others take over
    stopped  a worker is stopped for longer than its session: the others take over
    woken    it wakes, and those who took its partitions are killed
    brokers  the broker is killed, or stopped in order, and comes back
"""

import argparse
import asyncio
import contextlib
import itertools
import json
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Awaitable, Callable, Iterable, Mapping
from dataclasses import asdict, dataclass, field
from functools import partial
from pathlib import Path
from typing import Any

from aiokafka import AIOKafkaConsumer
from aiokafka.structs import TopicPartition

from streamgauge.kafka import topics
from streamgauge.kafka.topics import Topics
from tests.chaos.bundles import LogLoad
from tests.chaos.fleet import Fleet, Left
from tests.chaos.load import Killed, Truth, ask_on
from tests.chaos.upstream import PROGRAM, UPSTREAMS
from tests.integration.synthetic import assembled, distinct, opened_in
from tests.kafka_broker.administration import admin
from tests.kafka_broker.broker import Broker
from tests.kafka_broker.reading import read_all
from tests.running import program

VERIFIER = Path(__file__).with_name("verify.py")
PREFIX = "chaos"
PARTITIONS = 8
WORKERS = 3
TAPS = 2
# One worker is killed so often (seconds).
KILL_EVERY_S = 5.0
# The group notices a dead member after 10 s (worker/faust/app.py); taking over may take 10 s more: in phases with one fault
# at a time no stream's record may come later than that after the stream's end (seconds). On a machine that is so busy that
# all processes together need longer to start than usual, everything may take longer by the same factor.
TAKEOVER_S = 20.0
USUAL_START_S = 8.0
TAKEOVER_PHASES = ("calm", "kills", "away", "stopped")
# Between two phases all serve, and work off for so long what waits (seconds): one fault's wait is not another's.
REST_S = 5.0
# What is left to do when the load has ended is done within this, or will never be (seconds).
SETTLE_S = 120.0
# For so many streams a finding reports what is known of them.
EVIDENCE = 20
# How often a condition is checked (seconds).
_LOOK_S = 0.2
# The exit code of a process that may end by itself: its broker was unavailable, or its group removed it while it was
# stopped. A process that reports a recreated topic ends with the same code, but no topic is recreated here.
UNAVAILABLE, RECREATED = 3, "recreated"
# The phases in which that may be, each with the rest after it, and the last one until all is worked off.
UNAVAILABLE_PHASES = ("woken", "brokers")


@dataclass(frozen=True)
class Plan:
    """How long each phase lasts (seconds); 0 leaves it out.

    `one_at_a_time`: a worker is killed only while all others serve. `tap_every_s`: between kills of taps. `up_s`,
    `down_s`: of the broker. `takeover_s`: how late a record may be where one fault is at a time. `clients`: of each tap, one
    stream at a time.
    """

    calm_s: float = 20.0
    kills_s: float = 300.0
    one_at_a_time: bool = False
    tap_every_s: float = 60.0
    away_s: float = 30.0
    stopped_s: float = 90.0
    woken_s: float = 20.0
    brokers_s: float = 300.0
    up_s: float = 20.0
    down_s: float = 5.0
    takeover_s: float = TAKEOVER_S
    clients: int = 12


@dataclass
class Result:
    """What happened, and what was found. `dropped`: reads that taps say they dropped, by series; `evidence`: what is known of
    the streams that findings are about, the first ones.
    """

    done: dict[str, int] = field(default_factory=dict)
    left: list[dict[str, Any]] = field(default_factory=list)
    start_s: float = 0.0
    lag_zero_s: float | None = None
    partitions: int = 0
    replayed: int = 0
    verdict: dict[str, Any] = field(default_factory=dict)
    dropped: dict[str, float] = field(default_factory=dict)
    findings: list[str] = field(default_factory=list)
    evidence: list[dict[str, Any]] = field(default_factory=list)

    def count(self, what: str) -> None:
        self.done[what] = self.done.get(what, 0) + 1


class Chaos:
    """One run in `root`, which keeps its truth, ledger and logs."""

    def __init__(self, root: Path, plan: Plan) -> None:
        self._root = root
        self._plan = plan
        self._broker = Broker(root / "broker")
        self._truth = Truth()
        self._over = asyncio.Event()
        self._in_log: set[str | None] = set()
        self.result = Result()

    async def run(self) -> Result:
        """Raises NoBrokerError where no broker can be had."""
        await asyncio.to_thread(self._broker.start)
        try:
            await topics.create(self._broker.bootstrap, PARTITIONS, PREFIX)
            with program(*PROGRAM) as upstream:
                sources = dict.fromkeys(UPSTREAMS, upstream.said)
                self._fleet = Fleet(self._root, self._broker.bootstrap, PREFIX, sources, WORKERS, TAPS)
                began = time.monotonic()
                async with self._fleet.running():
                    self.result.start_s = round(time.monotonic() - began, 3)
                    await self._make_traffic()
                    await self._settle()
                    self._fleet.phase = "end"
                    self.result.verdict = await asyncio.to_thread(self._verify)
                    self.result.dropped = await asyncio.to_thread(self._fleet.dropped)
                    await self._replay()
                    await self._stop()
        finally:
            self._broker.kill()
        self._judge()
        return self.result

    # --- traffic and faults -----------------------------------------------------------------------------------------

    async def _make_traffic(self) -> None:
        log = LogLoad(self._broker.bootstrap, Topics(PREFIX).segments, PARTITIONS, self._truth, seed=1)
        self._truth.enter("start")
        async with asyncio.TaskGroup() as group:
            group.create_task(log.run(self._over))
            for tap, client in itertools.product(range(TAPS), range(self._plan.clients)):
                where, seed = partial(self._fleet.url_of, tap), tap * self._plan.clients + client
                group.create_task(ask_on(f"tap-{tap}", where, self._truth, seed, self._over))
            await self._torment()
            self._over.set()
        self.result.done |= {"bundles": log.bundles, "resent": log.resent, "swapped": log.swapped, "deaths": log.deaths}

    async def _torment(self) -> None:
        phases: list[tuple[str, float, Callable[[], Awaitable[None]]]] = [
            ("calm", self._plan.calm_s, self._calm),
            ("kills", self._plan.kills_s, self._kills),
            ("away", self._plan.away_s, self._away),
            ("stopped", self._plan.stopped_s, self._stopped),
            ("woken", self._plan.woken_s, self._woken),
            ("brokers", self._plan.brokers_s, self._brokers),
        ]
        for name, seconds, act in phases:
            if seconds:
                self._truth.enter(name)
                self._fleet.phase = name
                await act()
                if name != "stopped":
                    await asyncio.to_thread(self._fleet.wait_ready)
                self._truth.enter("between")
                await asyncio.sleep(REST_S)

    async def _calm(self) -> None:
        await asyncio.sleep(self._plan.calm_s)

    async def _kills(self) -> None:
        ends = time.monotonic() + self._plan.kills_s
        over = asyncio.Event()
        killing = asyncio.create_task(self._kill_taps(over))
        for worker in itertools.cycle(self._fleet.workers):
            await asyncio.sleep(KILL_EVERY_S)
            if time.monotonic() >= ends:
                break
            if self._plan.one_at_a_time:
                await asyncio.to_thread(self._fleet.wait_ready)
            if worker.alive:
                await asyncio.to_thread(worker.kill)
                self.result.count("workers killed")
        over.set()
        await killing

    async def _kill_taps(self, over: asyncio.Event) -> None:
        for tap in itertools.cycle(self._fleet.taps):
            with contextlib.suppress(TimeoutError):
                await asyncio.wait_for(over.wait(), self._plan.tap_every_s)
                return
            since = time.time()
            await asyncio.to_thread(tap.kill)
            self._truth.killed.append(Killed(tap.name, since, time.time()))
            self.result.count("taps killed")

    async def _away(self) -> None:
        worker = self._fleet.workers[0]
        worker.vacant = True
        await asyncio.to_thread(worker.kill)
        self.result.count("workers away")
        await asyncio.sleep(self._plan.away_s)
        worker.vacant = False

    async def _stopped(self) -> None:
        if self._fleet.workers[0].signal(signal.SIGSTOP):
            self.result.count("workers stopped")
        await asyncio.sleep(self._plan.stopped_s)

    async def _woken(self) -> None:
        zombie, *others = self._fleet.workers
        if zombie.signal(signal.SIGCONT):
            self.result.count("workers woken")
        for other in others:
            if other.alive:
                await asyncio.to_thread(other.kill)
                self.result.count("workers killed as one woke")
        await asyncio.sleep(self._plan.woken_s)

    async def _brokers(self) -> None:
        ends = time.monotonic() + self._plan.brokers_s
        for end in itertools.cycle((self._broker.kill, self._broker.stop)):
            await asyncio.to_thread(end)
            self.result.count("broker outages")
            await asyncio.sleep(self._plan.down_s)
            await asyncio.to_thread(self._broker.start)
            await asyncio.sleep(self._plan.up_s)
            if time.monotonic() >= ends:
                return

    # --- the end ----------------------------------------------------------------------------------------------------

    async def _settle(self) -> None:
        """Until all that was written is worked off; how long that took is the time in which lag returns to 0."""
        began = time.monotonic()
        try:
            async with asyncio.timeout(SETTLE_S):
                for tap in self._fleet.taps:
                    await _until(partial(asyncio.to_thread, tap.has_delivered))
                for topic in (Topics(PREFIX).segments, Topics(PREFIX).records):
                    ends = await self._ends(topic)
                    await _until(partial(self._reached, ends))
                    self.result.partitions = self.result.partitions or sum(map(bool, ends.values()))
        except TimeoutError:
            self.result.findings.append(f"lag does not return to 0 within {SETTLE_S:g} s")
            return
        self.result.lag_zero_s = round(time.monotonic() - began, 3)

    async def _ends(self, topic: str) -> dict[TopicPartition, int]:
        consumer = AIOKafkaConsumer(bootstrap_servers=self._broker.bootstrap)
        await consumer.start()
        try:
            return dict(await consumer.end_offsets([TopicPartition(topic, number) for number in range(PARTITIONS)]))
        finally:
            await consumer.stop()

    async def _reached(self, ends: dict[TopicPartition, int]) -> bool:
        async with admin(self._broker.bootstrap) as client:
            committed = await client.list_consumer_group_offsets(PREFIX)
        return all(end == 0 or (at in committed and committed[at].offset >= end) for at, end in ends.items())

    def _verify(self) -> dict[str, Any]:
        path = self._root / "truth.jsonl"
        self._truth.write(path)
        command = [sys.executable, "-I", str(VERIFIER), "--truth", str(path), "--kafka", self._broker.bootstrap]
        command += ["--topic", Topics(PREFIX).records, "--ledger", str(self._fleet.ledger)]
        command += [flag for tap in self._fleet.taps for flag in ("--tap", tap.admin())]
        result = subprocess.run(command, capture_output=True, text=True, check=False)
        if not result.stdout:
            raise RuntimeError(f"the verifier failed: {result.stderr}")
        report: dict[str, Any] = json.loads(result.stdout)
        assert report["holds"] == (result.returncode == 0)
        return report

    async def _replay(self) -> None:
        """W5: what the workers made of the log, over all their deaths, is what one that never died makes of it."""
        names = Topics(PREFIX)
        found = distinct(await read_all(self._broker.bootstrap, names.records))
        log = await read_all(self._broker.bootstrap, names.segments)
        self._in_log, expected = opened_in(log), assembled(log)
        self.result.replayed = len(expected)
        if differing := [key for key in found.keys() | expected.keys() if found.get(key) != {expected.get(key)}]:
            self.result.findings.append(f"{len(differing)} streams have another record than a replay of the log gives")

    async def _stop(self) -> None:
        """Everybody leaves in order."""
        for seat in (*self._fleet.taps, *self._fleet.workers):
            code = await asyncio.to_thread(seat.stop)
            if code:
                self.result.findings.append(f"{seat.name} ended with {code} when it was asked to stop")

    def _judge(self) -> None:
        result, findings = self.result, self.result.findings
        faults: dict[str, list[str]] = result.verdict["faults"]
        findings += [f"{kind}: {len(found)}" for kind, found in faults.items()]
        # Most name a stream by its trace id, with words after it or without.
        named = {one.partition(":")[0] for found in faults.values() for one in found}
        known = self._truth.about(named)[:EVIDENCE]
        result.evidence = [one | {"in_log": one["trace_id"] in self._in_log} for one in known]
        result.left = [asdict(one) for one in self._fleet.left]
        findings += amiss(self._fleet.left)
        findings += late(self._plan, result.start_s, result.verdict["latency"])


def amiss(left: Iterable[Left]) -> list[str]:
    """The findings on processes that ended by themselves: all but those that had lost their broker or their group."""
    return [
        f"{one.phase}: {one.name} ended with {one.code}: {one.said}"
        for one in left
        if one.code != UNAVAILABLE or RECREATED in one.said or one.phase not in UNAVAILABLE_PHASES
    ]


def late(plan: Plan, start_s: float, latency: Mapping[str, Mapping[str, float]]) -> list[str]:
    """The findings on phases in which a takeover must be short. Each planned phase must have measured one."""
    most = plan.takeover_s * max(1.0, start_s / USUAL_START_S)
    findings = []
    for phase in TAKEOVER_PHASES:
        measured = latency.get(phase)
        if measured and measured["max_s"] > most:
            findings.append(f"{phase}: a record came {measured['max_s']:.1f} s after its stream's end")
        if getattr(plan, f"{phase}_s") and not measured:
            findings.append(f"{phase}: of no stream it is known how late its record came")
    return findings


async def _until(holds: Callable[[], Awaitable[bool]]) -> None:
    while True:
        if await holds():
            return
        await asyncio.sleep(_LOOK_S)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--minutes", type=float, default=5.0, help="of killing workers, and of broker restarts")
    parser.add_argument("--keep", type=Path, metavar="DIR", help="keep truth, ledger and logs there")
    arguments = parser.parse_args()
    plan = Plan(kills_s=60 * arguments.minutes, brokers_s=60 * arguments.minutes)
    with tempfile.TemporaryDirectory() as folder:
        result = asyncio.run(Chaos(arguments.keep or Path(folder), plan).run())
    print(json.dumps(asdict(result), indent=2))
    return 1 if result.findings else 0


if __name__ == "__main__":
    sys.exit(main())
