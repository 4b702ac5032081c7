"""K1 to K4: the broker is unreachable, ends, is slow, or keeps connections open without a response.

Traffic is not affected, memory stays bounded, and everything arrives later: each stream complete and in order.
"""

import asyncio
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.faults.half_open import half_open
from tests.faults.lengths import length
from tests.faults.mock_kafka import PRODUCE, MockCluster, mock_cluster
from tests.faults.rig import MEMORY_BYTES, PARTITIONS, Rig, assert_whole, records_on, tap_rig
from tests.running import wait_for

SEGMENTS = "streamgauge.segments"
# How long the broker is away under traffic, and how long it is slow (seconds).
AWAY_S, SLOW_S = length(3, 60), length(8, 120)


@pytest.fixture
def broker() -> Iterator[MockCluster]:
    with mock_cluster() as cluster:
        cluster.create_topic(SEGMENTS, PARTITIONS)
        yield cluster


def broker_is(rig: Rig, connected: bool) -> bool:
    return rig.tap.metrics()["streamgauge_broker_connected"] == connected


async def judge(rig: Rig, broker: MockCluster) -> None:
    """Asserts that everything arrived, each stream complete and in order, and that clients were not affected."""
    await rig.deliver_all()
    rig.traffic.judge()
    assert set(rig.tap.reads()) == {"seen", "delivered", "waiting"}, "reads were dropped"
    assert_whole(await records_on(broker.bootstrap, rig.prefix), len(rig.traffic.pairs))


def test_k1_broker_away_at_start(broker: MockCluster, tmp_path: Path) -> None:
    async def run() -> None:
        broker.down()
        async with tap_rig(tmp_path, broker.bootstrap) as rig:
            await rig.traffic.run_for(4)
            reads = rig.tap.reads()
            assert (reads["delivered"], reads["waiting"]) == (0, reads["seen"])
            assert rig.tap.metrics()["streamgauge_spool_rows"] > 0
            assert broker_is(rig, False)
            assert rig.tap.log.count("does not answer") == 1
            broker.up()
            await rig.traffic.run_until(lambda: broker_is(rig, True))
            await judge(rig, broker)

    asyncio.run(run())


@pytest.mark.timeout(length(180, 600))
def test_k2_broker_killed_under_traffic(broker: MockCluster, tmp_path: Path) -> None:
    async def run() -> None:
        async with tap_rig(tmp_path, broker.bootstrap) as rig:
            await rig.traffic.run_until(lambda: rig.tap.reads()["delivered"] > 0)
            for _ in range(2):
                before = rig.tap.memory()
                broker.down()
                await rig.traffic.run_until(lambda: broker_is(rig, False))
                await rig.traffic.run_for(AWAY_S)
                assert rig.tap.reads()["waiting"] > 0
                assert rig.tap.memory() - before < MEMORY_BYTES
                broker.up()
                await rig.traffic.run_until(lambda: broker_is(rig, True))
            await judge(rig, broker)

    asyncio.run(run())


@pytest.mark.timeout(length(180, 600))
@pytest.mark.parametrize("milliseconds", [500, 5000])
def test_k3_slow_broker(broker: MockCluster, tmp_path: Path, milliseconds: int) -> None:
    async def run() -> None:
        async with tap_rig(tmp_path, broker.bootstrap) as rig:
            await rig.traffic.run_until(lambda: rig.tap.reads()["delivered"] > 0)
            before = rig.tap.memory()
            broker.slow(milliseconds)
            await rig.traffic.run_for(SLOW_S)
            assert rig.tap.memory() - before < MEMORY_BYTES
            delivered = rig.tap.reads()["delivered"]
            await rig.traffic.run_until(lambda: rig.tap.reads()["delivered"] > delivered)  # slowly, but it continues
            broker.slow(0)
            await judge(rig, broker)

    asyncio.run(run())


@pytest.mark.parametrize("ways", [("asking",), ("answering",), ("asking", "answering")], ids=" and ".join)
def test_k4_half_open_connection(broker: MockCluster, tmp_path: Path, ways: tuple[str, ...]) -> None:
    """The connection stays open without a response: this is noticed within the request timeout of 10 s, then a new one
    is made.
    """

    async def run() -> None:
        with half_open(broker.bootstrap) as line:
            broker.advertise(*line.address)
            async with tap_rig(tmp_path, "{}:{}".format(*line.address)) as rig:
                await rig.traffic.run_until(lambda: rig.tap.reads()["delivered"] > 0)
                connections = line.connections
                for way in ways:
                    setattr(line, way, False)
                await rig.traffic.run_until(lambda: line.swallowed > 0)
                line.heal()  # for new connections; existing ones stay unusable
                await rig.traffic.run_until(lambda: line.connections > connections)
                await judge(rig, broker)

    asyncio.run(run())


def test_k3_slow_broker_is_not_flooded_with_requests(broker: MockCluster, tmp_path: Path) -> None:
    """At 2 s per response there are a few requests per second, however much waits, since bundles are sent in batches."""

    async def run() -> None:
        async with tap_rig(tmp_path, broker.bootstrap) as rig:
            await rig.traffic.run_until(lambda: rig.tap.reads()["delivered"] > 0)
            broker.slow(2000)
            broker.track()
            began = time.monotonic()
            await rig.traffic.run_for(6)
            assert broker.requests()[PRODUCE] < 5 * (time.monotonic() - began)
            broker.slow(0)
            await asyncio.to_thread(wait_for, rig.all_delivered, "empty spool")

    asyncio.run(run())
