"""The shipper with a real broker that is killed, missing, or refuses: nothing lost, order kept within a slot."""

import asyncio
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import zstandard

from streamgauge.core.capture.bundles import decode_bundle, encode_bundle
from streamgauge.core.capture.segments import Bundle, Read, Segment
from streamgauge.kafka import shipper as shipper_module
from streamgauge.kafka import topics
from streamgauge.kafka.shipper import Shipper, ShipperSettings
from streamgauge.spool import NewRow
from streamgauge.spool.read_counters import read_balance
from tests.integration.shipping import Heard, Tap, by_slot, hearing, in_order, shipping, until
from tests.kafka_broker.administration import set_config
from tests.kafka_broker.broker import Broker
from tests.kafka_broker.fixtures import PARTITIONS, make_topics
from tests.kafka_broker.reading import read_all, read_until

pytestmark = pytest.mark.kafka


@pytest.fixture
def tap(tmp_path: Path) -> Iterator[Tap]:
    tap = Tap(tmp_path)
    yield tap
    tap.close()


def test_everything_arrives_once_and_in_order(kafka: str, prefix: str, tap: Tap) -> None:
    tap.fill(2000)
    shipper = Shipper(tap.spool, ShipperSettings(kafka, prefix))

    async def fill_more() -> None:
        await until(lambda: read_balance(tap.path).delivered > 0)
        assert shipper.connected
        tap.fill(500)

    asyncio.run(shipping(shipper, fill_more))
    slots = by_slot(asyncio.run(read_all(kafka, f"{prefix}.segments")))
    assert all(numbers == list(range(slot, tap.put, 8)) for slot, numbers in slots.items())
    assert sum(map(len, slots.values())) == 2500
    assert tap.spool.waiting().rows == 0
    balance = read_balance(tap.path)
    assert (balance.seen, balance.delivered, balance.waiting) == (7500, 7500, 0)


def test_a_row_is_sent_when_it_is_put(kafka: str, prefix: str, tap: Tap, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(shipper_module, "_POLL_S", 600.0)
    tap.fill(1)
    shipper = Shipper(tap.spool, ShipperSettings(kafka, prefix))

    async def put_another() -> None:
        assert len(await read_until(kafka, f"{prefix}.segments", lambda found: len(found) >= 1)) == 1
        tap.fill(1)
        assert len(await read_until(kafka, f"{prefix}.segments", lambda found: len(found) >= 2)) == 2

    asyncio.run(shipping(shipper, put_another))


def test_a_row_does_not_hasten_the_next_attempt_after_a_refusal(
    kafka: str, prefix: str, tap: Tap, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Too many log-ins may lock us out."""
    monkeypatch.setattr(shipper_module, "_RETRY_S", 600.0)
    attempts = 0

    async def refused(*_: object) -> int:
        nonlocal attempts
        attempts += 1
        raise topics.TopicsError("the topic is missing")

    monkeypatch.setattr(shipper_module, "segments_partitions", refused)
    shipper = Shipper(tap.spool, ShipperSettings(kafka, prefix))

    async def put_rows() -> None:
        await until(lambda: attempts > 0)
        for _ in range(20):
            tap.fill(1)
            await asyncio.sleep(0.02)
        assert attempts == 1

    asyncio.run(shipping(shipper, put_rows, 1.0))


def test_rows_of_the_spool_are_sent_unchanged(kafka: str, prefix: str, tap: Tap) -> None:
    """A bundle from another compressor, with other bytes for the same content, is not packed again."""
    made = encode_bundle(
        Bundle(bytes(16), 0, 0, 0, [Segment(bytes(16), 0, reads=[Read(1, 9, 9, b"the same " * 1_000)])])
    )
    content = zstandard.ZstdDecompressor().decompress(made[3:])
    value = made[:3] + zstandard.ZstdCompressor(level=19, write_checksum=True).compress(content)
    assert (decode_bundle(value), value != made) == (decode_bundle(made), True)
    tap.recorder.seen(1)
    assert tap.spool.put([NewRow(0, 1, value)]).failure is None
    shipper = Shipper(tap.spool, ShipperSettings(kafka, prefix))

    async def ship_all() -> None:
        await until(lambda: tap.spool.waiting().rows == 0)

    asyncio.run(shipping(shipper, ship_all))
    assert [message.value for message in asyncio.run(read_all(kafka, f"{prefix}.segments"))] == [value]


@pytest.fixture
def heard() -> Iterator[Heard]:
    with hearing() as heard:
        yield heard


def test_k2_a_real_broker_that_is_killed_and_restarted(
    own_broker: Callable[..., Broker], tap: Tap, heard: Heard
) -> None:
    broker = own_broker()
    prefix = make_topics(broker.bootstrap)
    shipper = Shipper(tap.spool, ShipperSettings(broker.bootstrap, prefix))

    async def outage() -> None:
        tap.fill(3000)
        await until(lambda: read_balance(tap.path).delivered > 0)
        await asyncio.to_thread(broker.kill)
        tap.fill(1000)
        await until(lambda: not shipper.connected)
        tap.fill(1000)
        await asyncio.to_thread(broker.start)
        await until(lambda: tap.spool.waiting().rows == 0)
        tap.fill(100)

    asyncio.run(shipping(shipper, outage))
    slots = by_slot(asyncio.run(read_all(broker.bootstrap, f"{prefix}.segments")))
    assert all(in_order(numbers) for numbers in slots.values())
    assert {number for numbers in slots.values() for number in numbers} == set(range(5100))
    assert sum("does not answer" in line for line in heard.lines) == 1
    assert sum("answers again" in line for line in heard.lines) == 1
    assert len(heard.lines) < 10
    assert read_balance(tap.path).delivered == 3 * 5100


def test_a_broker_that_is_unreachable_at_the_start(own_broker: Callable[..., Broker], tap: Tap) -> None:
    broker = own_broker()
    prefix = make_topics(broker.bootstrap)
    broker.stop()
    shipper = Shipper(tap.spool, ShipperSettings(broker.bootstrap, prefix))
    tap.fill(200)

    async def come_up() -> None:
        await asyncio.sleep(2.5)
        assert not shipper.connected
        assert tap.spool.waiting().rows == 200
        await asyncio.to_thread(broker.start)
        await until(lambda: tap.spool.waiting().rows == 0)

    asyncio.run(shipping(shipper, come_up))
    assert len(asyncio.run(read_all(broker.bootstrap, f"{prefix}.segments"))) == 200


def test_a_bundle_that_the_broker_refuses_is_dropped_and_counted(kafka: str, prefix: str, tap: Tap) -> None:
    asyncio.run(set_config(kafka, f"{prefix}.segments", max_message_bytes="400000"))
    tap.fill(50)
    tap.fill(1, size=600_000)
    tap.fill(50)
    shipper = Shipper(tap.spool, ShipperSettings(kafka, prefix))

    async def ship_all() -> None:
        await until(lambda: tap.spool.waiting().rows == 0)

    asyncio.run(shipping(shipper, ship_all))
    slots = by_slot(asyncio.run(read_all(kafka, f"{prefix}.segments")))
    assert all(in_order(numbers) for numbers in slots.values())
    assert {number for numbers in slots.values() for number in numbers} == set(range(101)) - {50}
    balance = read_balance(tap.path)
    assert (balance.delivered, balance.dropped["refused"], balance.waiting) == (300, 3, 0)


def test_a_missing_topic_is_logged_and_waited_for(kafka: str, tap: Tap, heard: Heard) -> None:
    prefix = f"later-{tap.path.parent.name[-8:]}"
    shipper = Shipper(tap.spool, ShipperSettings(kafka, prefix))
    tap.fill(20)

    async def create_later() -> None:
        await until(lambda: shipper.problem is not None)
        assert "streamgauge topics create" in (shipper.problem or "")
        await asyncio.sleep(2.5)
        await topics.create(kafka, PARTITIONS, prefix)
        await until(lambda: tap.spool.waiting().rows == 0)
        assert shipper.problem is None

    asyncio.run(shipping(shipper, create_later))
    assert sum("topics create" in line for line in heard.lines) == 1


def test_stopping_without_a_broker_keeps_the_spool(tap: Tap) -> None:
    tap.fill(10)
    shipper = Shipper(tap.spool, ShipperSettings("127.0.0.1:1"))

    async def nothing() -> None:
        await asyncio.sleep(0.5)

    started = asyncio.run(timed(shipping(shipper, nothing, deadline_s=1.0)))
    assert started < 15
    assert tap.spool.waiting().rows == 10
    assert read_balance(tap.path).waiting == 30


async def timed(work: Any) -> float:
    loop = asyncio.get_running_loop()
    began = loop.time()
    await work
    return loop.time() - began


def test_the_partition_count_is_kept_while_rows_wait(kafka: str, prefix: str, tap: Tap) -> None:
    assert tap.spool.set("partitions", b"2")
    tap.fill(8)
    shipper = Shipper(tap.spool, ShipperSettings(kafka, prefix))

    async def ship_all() -> None:
        await until(lambda: tap.spool.waiting().rows == 0)

    asyncio.run(shipping(shipper, ship_all))
    messages = asyncio.run(read_until(kafka, f"{prefix}.segments", lambda found: len(found) == 8))
    assert {message.partition for message in messages} == {0, 1}
    assert all(int(message.value.split()[0]) % 2 == message.partition for message in messages)
    fresh = Shipper(tap.spool, ShipperSettings(kafka, prefix))

    async def learn() -> None:
        await until(lambda: fresh.connected)

    asyncio.run(shipping(fresh, learn))
    assert tap.spool.get("partitions") == b"%d" % PARTITIONS
