"""K7: partitions are added. A tap keeps its count, a worker ends with the reason, and both find their streams again."""

import asyncio
from pathlib import Path

import pytest

from streamgauge.core.capture.bundles import decode_bundle
from streamgauge.kafka.shipper import Shipper, ShipperSettings
from streamgauge.spool.read_counters import read_balance
from tests.faults.log_faults import EXIT, add_partitions, errors, refuses, settings_of, wait_until_committed
from tests.integration.shipping import Tap, by_slot, shipping, until
from tests.integration.synthetic import SyntheticTap, assembled
from tests.integration.test_worker import log_of, records_of, same, write
from tests.integration.workers import worker
from tests.kafka_broker.administration import set_config
from tests.kafka_broker.fixtures import PARTITIONS

pytestmark = [pytest.mark.kafka, pytest.mark.timeout(300)]


def test_k7_partitions_added(kafka: str, prefix: str, tmp_path: Path) -> None:
    """A running worker ends; a started one refuses until both topics have the same count; streams stay in their
    partitions.
    """
    tap = SyntheticTap(12)
    old = list(tap.bundles(100, segments=10))
    half = len(old) // 2
    settings = settings_of(kafka, prefix)
    with worker(tmp_path, **settings) as process:
        process.wait_ready()
        write(kafka, prefix, old[:half])
        wait_until_committed(kafka, prefix, 1)
        asyncio.run(add_partitions(kafka, 2 * PARTITIONS, f"{prefix}.segments"))
        assert process.process.wait(60) == EXIT, process.log
        [sentence] = errors(process)
        assert f"topic {prefix}.segments has 8 partitions now, and had 4" in sentence
    refuses(kafka, prefix, tmp_path, f"{prefix}.segments and {prefix}.state", "8 and 4")
    asyncio.run(add_partitions(kafka, 2 * PARTITIONS, f"{prefix}.state", f"{prefix}.records"))
    grown = SyntheticTap(13, slots=tuple(range(2 * PARTITIONS)))
    new = [(decode_bundle(value).slot % (2 * PARTITIONS), value) for _, value in grown.bundles(100)]
    assert {partition for partition, _ in new} == set(range(2 * PARTITIONS))
    with worker(tmp_path, **settings) as process:
        process.wait_ready()
        write(kafka, prefix, [*old[half:], *new])
        found = records_of(kafka, prefix, 200)
        assert process.stop() == 0
    assert same(found, assembled(log_of(kafka, f"{prefix}.segments")))
    assert sorted(found) == sorted(tap.ids + grown.ids)
    assert all(b'"complete":true' in record for records in found.values() for record in records)


def test_k7_partitions_added_under_a_tap(kafka: str, prefix: str, tmp_path: Path) -> None:
    """It keeps its first count, even if nothing is in flight and it restarts: `by_slot` has the partitions of its
    streams.
    """
    tap = Tap(tmp_path)
    shipper = Shipper(tap.spool, ShipperSettings(kafka, prefix))

    async def grow() -> None:
        tap.fill(8)
        await until(lambda: tap.spool.waiting().rows == 0)
        await set_config(kafka, f"{prefix}.segments", message_timestamp_type="LogAppendTime", max_message_bytes="10000")
        await add_partitions(kafka, 2 * PARTITIONS, f"{prefix}.segments")
        tap.fill(1, size=20_000)  # refused, which makes the shipper check the topic again
        await until(lambda: tap.spool.waiting().rows == 0)
        tap.fill(15)
        await until(lambda: tap.spool.waiting().rows == 0)

    try:
        asyncio.run(shipping(shipper, grow))
        assert read_balance(tap.path).dropped["refused"] == 3
        arrived = [number for numbers in by_slot(log_of(kafka, f"{prefix}.segments")).values() for number in numbers]
        assert sorted(arrived) == [number for number in range(24) if number != 8]
    finally:
        tap.close()
