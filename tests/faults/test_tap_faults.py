"""T1 to T3 and C1: a process of the tap is killed, stopped, or has a bug; the wall clock steps.

The loss window of a kill, as docs/reliability.md states it: up to 1.3 s of a stream in a relay, and 380 ms in the
recorder.
"""

import asyncio
import contextlib
import http.client
import os
import random
import signal
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from streamgauge.core.record import Record
from streamgauge.spool import Spool
from streamgauge.spool.read_counters import read_balance, read_incidents
from streamgauge.taps.proxy.pump_handle import BUILT
from tests.client import Received
from tests.faults.mock_kafka import MockCluster, mock_cluster
from tests.faults.rig import PARTITIONS, Rig, assert_whole, records_on, tap_rig
from tests.faults.traffic import EVENTS, PACE_S, PAIRS, ask
from tests.integration.provider import BEGIN, REST, Provider, provider
from tests.processes import children, runs
from tests.running import PATIENCE_S, Running, start_tap, wait_for

PREFIX = "streamgauge"
BROKEN_PYTHON = str(Path(__file__).parent / "broken_python")
# The module of the collector.
COLLECTOR = "streamgauge.cli.collector"
# The documented window of about 1.35 s, and what a busy machine may add to it (seconds).
WINDOW_S = 2.0
# Events of streams that are open for longer than that: four seconds.
LONG = 200


@pytest.fixture
def broker() -> Iterator[MockCluster]:
    with mock_cluster() as cluster:
        cluster.create_topic(f"{PREFIX}.segments", PARTITIONS)
        yield cluster


@pytest.fixture
def small() -> Iterator[Provider]:
    with provider() as started:
        yield started


def part(tap: Running, module: str) -> int:
    """The tap's process that runs this module."""
    return int(
        wait_for(
            lambda: next((pid for pid, line in children(tap.process.pid).items() if module in line), 0), f"a {module}"
        )
    )


def victims(tap: Running, who: str) -> list[int]:
    parts = {"relay": "taps.proxy", "collector": COLLECTOR}
    if who in parts:
        return [part(tap, parts[who])]
    return [tap.process.pid] if who == "supervisor" else [*children(tap.process.pid), tap.process.pid]


@contextlib.contextmanager
def opened(tap: Running) -> Iterator[http.client.HTTPResponse]:
    """A stream that has begun: its first events have been read."""
    with tap.post() as answer:
        assert answer.read(len(BEGIN)) == BEGIN
        yield answer


def recorded(broker: MockCluster) -> list[Record]:
    return asyncio.run(records_on(broker.bootstrap, PREFIX))


@pytest.mark.parametrize("who", ["collector", "relay", "supervisor", "all"])
def test_t1_sigkill_mid_stream(broker: MockCluster, small: Provider, tmp_path: Path, who: str) -> None:
    """What was delivered before stays; the stream that was cut ends as abandoned, its usage null and not 0."""
    small.go_on.clear()
    options = ["--kafka", broker.bootstrap]
    with start_tap("tap", {"small": small.url}, tmp_path / "data", *options) as tap:
        with opened(tap) as answer:
            wait_for(lambda: (reads := tap.reads())["delivered"] == reads["seen"] > 0, "delivered beginning")
            before = tap.reads()["delivered"]
            end_with_it = children(tap.process.pid) if who in ("supervisor", "all") else {}
            for pid in victims(tap, who):
                os.kill(pid, signal.SIGKILL)
            wait_for(lambda: not any(map(runs, end_with_it)), "end of all that the tap has started")
            small.go_on.set()
            if who == "collector":
                assert answer.read() == REST  # the stream has nothing to do with it
                tap.settled()
            else:
                with pytest.raises((http.client.IncompleteRead, ConnectionResetError)):
                    answer.read()
        if who in ("supervisor", "all"):
            tap.process.wait(PATIENCE_S)
    with start_tap("tap", {"small": small.url}, tmp_path / "data", *options) as again:
        again.settled()
        wait_for(lambda: len(recorded(broker)) == 1, f"record after {again.reads()}", 20)
        reads = again.reads()
        with opened(again) as answer:
            assert answer.read() == REST
        assert again.stop() == 0
    assert reads["delivered"] >= before
    assert set(reads) <= {"seen", "delivered", "waiting", "crash", "recorder_gone"}
    cut, whole = sorted(recorded(broker), key=lambda record: record.stream_id)
    assert (cut.outcome, cut.usage.output_tokens, cut.usage.source) == ("abandoned", None, "absent")
    assert cut.timing.first_token_s is not None
    assert (whole.outcome, whole.integrity.complete) == ("completed", True)


@pytest.mark.parametrize("events", [EVENTS, LONG], ids=["ended", "open"])
def test_t1_the_loss_window_of_the_collector(broker: MockCluster, tmp_path: Path, events: int) -> None:
    """Killed under traffic three times: at most what arrived in the documented window is lost, and each stream that
    ended before it, or began after the collector's restart, is complete.
    """

    async def run() -> None:
        gone: list[tuple[float, float]] = []  # the interval in which streams may be incomplete
        async with tap_rig(tmp_path, broker.bootstrap, PREFIX, events=events) as rig:
            for round_ in range(3):
                await rig.traffic.run_until(lambda: rig.tap.reads()["waiting"] < PAIRS * events)  # it has caught up
                running = asyncio.create_task(rig.traffic.run_for(WINDOW_S + 4))
                await asyncio.sleep(WINDOW_S + 1 + 0.03 * round_)  # more has arrived than may be lost
                collector = await asyncio.to_thread(part, rig.tap, COLLECTOR)
                os.kill(collector, signal.SIGKILL)
                killed = time.monotonic()
                await asyncio.to_thread(
                    wait_for, lambda gone=collector: is_restarted(rig.tap, gone), "another collector"
                )
                gone.append((killed - WINDOW_S, time.monotonic() + WINDOW_S))
                await running
            await rig.traffic.run_for(2)
            await rig.deliver_all()
            rig.traffic.judge()
            reads = rig.tap.reads()
            assert set(reads) <= {"seen", "delivered", "waiting", "crash", "recorder_gone", "recorder_behind"}
            assert reads.get("crash", 0) <= 3 * PAIRS * WINDOW_S / PACE_S
            records = await records_on(broker.bootstrap, PREFIX)
            assert len({record.stream_id for record in records}) == len(records)
            streams = {f"c-{number}": tapped for number, (_, tapped) in enumerate(rig.traffic.pairs)}
            safe = {name for name, one in streams.items() if not any(overlap(one, window) for window in gone)}
            assert len(safe) >= 3 * PAIRS
            whole = {one.response_id for one in records if one.integrity.complete and one.outcome == "completed"}
            assert safe - whole == set()

    asyncio.run(run())


def is_restarted(tap: Running, gone: int) -> bool:
    return any(pid != gone and COLLECTOR in line for pid, line in children(tap.process.pid).items())


def overlap(stream: Received, window: tuple[float, float]) -> bool:
    return stream.sent_at < window[1] and stream.ended_at > window[0]


def test_t1_any_process_at_any_moment(broker: MockCluster, tmp_path: Path) -> None:
    """Killed a dozen times, one or all, while the broker stops and starts: at every check all reads are counted, and at
    the end nothing waits, no stream has two records, and every read that is not delivered has its reason.
    """
    chance = random.Random(5)

    async def life(seconds: float, *, last: bool) -> None:
        async with tap_rig(tmp_path, broker.bootstrap, PREFIX) as rig:
            ends = time.monotonic() + seconds
            asking = asyncio.create_task(keep_asking(rig, ends))
            while time.monotonic() < ends:
                await asyncio.sleep(chance.uniform(0.2, 0.9))
                broker.down() if chance.random() < 0.4 else broker.up()
                with contextlib.suppress(ProcessLookupError, AssertionError):
                    os.kill(victims(rig.tap, chance.choice(["collector", "relay"]))[0], signal.SIGKILL)
                await asyncio.to_thread(rig.tap.reads)
            await asking
            broker.up()
            if last:
                await rig.deliver_all()
            else:
                for pid in victims(rig.tap, "all"):
                    os.kill(pid, signal.SIGKILL)
                await asyncio.to_thread(rig.tap.process.wait)

    async def keep_asking(rig: Rig, ends: float) -> None:
        while time.monotonic() < ends:
            requests = [ask(rig.traffic.tapped, number) for number in range(PAIRS)]
            await asyncio.gather(*requests, return_exceptions=True)
            await asyncio.sleep(0.05)

    for place in range(3):
        asyncio.run(life(5, last=place == 2))
    balance = read_balance(tmp_path / "data" / "counters")
    dropped = {reason for reason, reads in balance.dropped.items() if reads}
    assert dropped <= {"crash", "recorder_gone", "recorder_behind"}
    assert balance.waiting == 0
    assert balance.delivered > 0
    records = recorded(broker)
    assert len({record.stream_id for record in records}) == len(records)
    assert sum(record.counts.reads for record in records) <= balance.delivered


@pytest.mark.parametrize("there", [True, False], ids=["broker there", "broker away"])
def test_t2_sigterm_under_traffic(broker: MockCluster, tmp_path: Path, there: bool) -> None:
    """Open streams end, everything is shipped if possible, and the tap exits with 0. The rest is shipped later."""

    async def run() -> None:
        async with tap_rig(tmp_path, broker.bootstrap, PREFIX, "--drain-timeout", "10") as rig:
            await rig.traffic.run_until(lambda: rig.tap.reads()["delivered"] > 0)
            if not there:
                broker.down()
            running = asyncio.create_task(rig.traffic.run_for(0))
            await asyncio.sleep(EVENTS * PACE_S / 2)
            assert await asyncio.to_thread(rig.tap.stop) == 0, rig.tap.log
            await running
            rig.traffic.judge()
        streams = len(rig.traffic.pairs)
        waiting = Spool(tmp_path / "data" / "spool.sqlite").waiting().rows
        assert (waiting == 0) is there
        if not there:
            broker.up()
            async with tap_rig(tmp_path, broker.bootstrap, PREFIX) as again:
                await again.deliver_all()
        balance = read_balance(tmp_path / "data" / "counters")
        assert (balance.waiting, sum(balance.dropped.values())) == (0, 0)
        assert_whole(await records_on(broker.bootstrap, PREFIX), streams)

    asyncio.run(run())


@pytest.mark.parametrize(
    "where",
    ["relay", pytest.param("pump", marks=pytest.mark.skipif(not BUILT, reason="the pump is not built")), "recorder"],
)
def test_t3_exception_inside_capture(broker: MockCluster, tmp_path: Path, where: str) -> None:
    """A bug in the capture of one stream: neither its client nor any other stream is affected. A bug in reporting the
    pump's reads affects the streams that are reported together.
    """

    async def run() -> None:
        environment = {"PYTHONPATH": BROKEN_PYTHON, "FAULT_CAPTURE": where, "FAULT_MARK": "text 1 3 "}
        options = ["--pump", "off"] if where == "relay" else []
        async with tap_rig(tmp_path, broker.bootstrap, PREFIX, *options, environment=environment) as rig:
            await rig.traffic.run_for(1)
            await rig.deliver_all()
            rig.traffic.judge()
            dropped = rig.tap.reads()["capture_fault"]
            assert dropped > 0
            records = await records_on(broker.bootstrap, PREFIX)
            assert len({record.stream_id for record in records}) == len(records) == len(rig.traffic.pairs)
            incomplete = [record.integrity for record in records if not record.integrity.complete]
            assert len(incomplete) == 1 or where == "pump"
            assert sum(one.dropped_reads for one in incomplete) == dropped
        assert read_incidents(tmp_path / "data" / "counters")["capture_fault"] == 1

    asyncio.run(run())


def test_c1_the_wall_clock_steps_an_hour_either_way(broker: MockCluster, tmp_path: Path) -> None:
    """Durations come from the monotonic clock, and a step does not make anything expire."""
    off = tmp_path / "off"
    off.write_text("0")

    async def run() -> None:
        environment = {"PYTHONPATH": BROKEN_PYTHON, "FAULT_CLOCK": str(off)}
        options = ["--spool-age", "600"]
        async with tap_rig(tmp_path, broker.bootstrap, PREFIX, *options, environment=environment) as rig:
            for step in ("3600", "-3600", "31622400", "0"):
                running = asyncio.create_task(rig.traffic.run_for(1))
                await asyncio.sleep(0.3)
                off.write_text(step)
                await running
            broker.down()
            await rig.traffic.run_until(lambda: rig.tap.reads()["waiting"] > 0)
            off.write_text("31622400")
            await rig.traffic.run_for(6)  # longer than the recorder's upkeep, which looks for what is too old
            broker.up()
            await rig.deliver_all()
            rig.traffic.judge()
            records = await records_on(broker.bootstrap, PREFIX)
            assert_whole(records, len(rig.traffic.pairs))
            assert set(rig.tap.reads()) == {"seen", "delivered", "waiting"}
            for record in records:
                assert record.timing.end_s is not None
                assert record.timing.first_byte_s is not None
                assert 0 <= record.timing.first_byte_s <= record.timing.end_s < 60
            assert len({record.started_at[:13] for record in records if record.started_at}) >= 3

    asyncio.run(run())
