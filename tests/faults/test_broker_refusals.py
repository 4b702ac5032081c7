"""K5 and K7: the broker responds with errors. Retriable errors are retried with pauses; other sends end after some
attempts.

Retriable errors cost nothing. A bundle that is refused is dropped and counted. Where an operator has to act, the shipper
logs this once and keeps its rows.
"""

import asyncio
import contextlib
import socket
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest

from streamgauge.kafka import backoff, shipper, topics
from streamgauge.kafka.shipper import Shipper, ShipperSettings
from streamgauge.spool.read_counters import Balance, read_balance
from tests.faults import mock_kafka
from tests.faults.half_open import half_open
from tests.faults.mock_kafka import PRODUCE, MockCluster, mock_cluster
from tests.faults.rig import assert_whole, records_on, tap_rig
from tests.integration.shipping import Heard, Tap, by_slot, hearing, in_order, shipping, until
from tests.kafka_broker.administration import delete_topic
from tests.kafka_broker.fixtures import PARTITIONS
from tests.kafka_broker.reading import read_all

PREFIX = "streamgauge"
SEGMENTS = f"{PREFIX}.segments"
ROWS = 200
READS = 3  # a row, by Tap.fill


@pytest.fixture
def broker() -> Iterator[MockCluster]:
    with mock_cluster() as cluster:
        cluster.create_topic(SEGMENTS, PARTITIONS)
        yield cluster


@pytest.fixture
def tap(tmp_path: Path) -> Iterator[Tap]:
    tap = Tap(tmp_path)
    yield tap
    tap.close()


@pytest.fixture(autouse=True)
def soon(monkeypatch: pytest.MonkeyPatch) -> None:
    """Pauses as in production, but shorter."""
    monkeypatch.setattr(backoff, "FIRST_S", 0.1)
    monkeypatch.setattr(backoff, "LONGEST_S", 0.4)
    monkeypatch.setattr(shipper, "DENIED_S", 1.0)
    monkeypatch.setattr(shipper, "STUCK_S", 3.0)


def shipped(broker: MockCluster, tap: Tap) -> Balance:
    """Ships everything that waits; what arrived is in order and without duplicates, except for rows that were sent again
    after a failure.
    """
    shipper = Shipper(tap.spool, ShipperSettings(broker.bootstrap, PREFIX))

    async def all_of_it() -> None:
        await until(lambda: tap.spool.waiting().rows == 0)

    asyncio.run(shipping(shipper, all_of_it))
    slots = by_slot(asyncio.run(read_all(broker.bootstrap, SEGMENTS)))
    assert all(in_order(numbers) for numbers in slots.values())
    balance = read_balance(tap.path)
    arrived = {number for numbers in slots.values() for number in numbers}
    assert len(arrived) * READS == balance.delivered
    return balance


@pytest.mark.parametrize(
    "error",
    [
        mock_kafka.UNKNOWN_TOPIC,
        mock_kafka.NOT_LEADER,
        mock_kafka.REQUEST_TIMED_OUT,
        mock_kafka.NOT_ENOUGH_REPLICAS,
        mock_kafka.NOT_ENOUGH_REPLICAS_AFTER_APPEND,
        mock_kafka.STORAGE,
        mock_kafka.OUT_OF_ORDER_SEQUENCE,
        mock_kafka.CORRUPT_MESSAGE,
        mock_kafka.UNKNOWN,
    ],
)
def test_k5_retriable_error_drops_nothing(broker: MockCluster, tap: Tap, error: int) -> None:
    tap.fill(ROWS)
    broker.fail_produce([error] * 4)
    balance = shipped(broker, tap)
    assert (balance.delivered, balance.waiting) == (ROWS * READS, 0)


def test_k5_a_bundle_that_is_too_large_is_dropped_alone(broker: MockCluster, tap: Tap) -> None:
    """The first error is for a whole batch: sending the bundles one by one shows which one is meant."""
    tap.fill(ROWS)
    broker.fail_produce([mock_kafka.MESSAGE_TOO_LARGE] * 2)
    balance = shipped(broker, tap)
    assert balance.dropped["refused"] == READS
    assert (balance.delivered, balance.waiting) == ((ROWS - 1) * READS, 0)


@pytest.mark.parametrize("error", [mock_kafka.UNKNOWN, mock_kafka.POLICY_VIOLATION, mock_kafka.CORRUPT_MESSAGE])
def test_k5_bundle_that_always_fails_is_dropped_after_some_tries(broker: MockCluster, tap: Tap, error: int) -> None:
    tap.fill(3)
    broker.fail_produce([error] * 1000)
    broker.track()
    balance = shipped(broker, tap)
    assert balance.dropped["refused"] == 3 * READS
    assert broker.requests()[PRODUCE] <= 3 * (shipper._TRIES_ALONE + 1)


def test_k5_denied_write_is_logged_and_waits_for_an_operator(broker: MockCluster, tap: Tap, heard: Heard) -> None:
    tap.fill(ROWS)
    shipper = Shipper(tap.spool, ShipperSettings(broker.bootstrap, PREFIX))

    async def allow_later() -> None:
        broker.fail_produce([mock_kafka.TOPIC_AUTHORIZATION_FAILED] * 1000)
        broker.track()
        await until(lambda: shipper.problem is not None)
        await asyncio.sleep(4)
        assert "denies writes" in (shipper.problem or "")
        assert broker.requests()[PRODUCE] <= 3 * PARTITIONS
        assert tap.spool.waiting().rows == ROWS
        broker.fail_no_more()
        await until(lambda: tap.spool.waiting().rows == 0)
        assert shipper.problem is None

    asyncio.run(shipping(shipper, allow_later))
    assert read_balance(tap.path).delivered == ROWS * READS
    assert sum("denies writes" in line for line in heard.lines) == 1


@pytest.fixture
def heard() -> Iterator[Heard]:
    with hearing() as heard:
        yield heard


@pytest.mark.kafka
@pytest.mark.parametrize("partitions", [PARTITIONS, 1])
def test_k7_topic_recreated_while_the_shipper_runs(kafka: str, prefix: str, tap: Tap, partitions: int) -> None:
    shipper = Shipper(tap.spool, ShipperSettings(kafka, prefix))
    tap.fill(ROWS)

    async def delete_and_create() -> None:
        await until(lambda: tap.spool.waiting().rows == 0)
        await delete_topic(kafka, f"{prefix}.segments")
        tap.fill(ROWS)
        await until(lambda: shipper.problem is not None)
        assert "streamgauge topics create" in (shipper.problem or "")
        assert read_balance(tap.path).waiting == ROWS * READS
        if partitions == PARTITIONS:
            await topics.create(kafka, partitions, prefix)
        else:
            for topic in topics.Topics(prefix).names[1:]:
                await delete_topic(kafka, topic)
            await topics.create(kafka, partitions, prefix)
        await until(lambda: tap.spool.waiting().rows == 0)

    asyncio.run(shipping(shipper, delete_and_create))
    messages = asyncio.run(read_all(kafka, f"{prefix}.segments"))
    numbers = [int(message.value.split(b" ", 2)[1]) for message in messages]
    assert set(numbers) == set(range(ROWS, 2 * ROWS))
    assert {message.partition for message in messages} == set(range(partitions))
    assert read_balance(tap.path).delivered == 2 * ROWS * READS


def test_k7_topic_missing_or_denied_and_the_tap_serves(broker: MockCluster, tmp_path: Path) -> None:
    async def run() -> None:
        broker.fail_topic(SEGMENTS, mock_kafka.TOPIC_AUTHORIZATION_FAILED)
        async with tap_rig(tmp_path, broker.bootstrap, PREFIX) as rig:
            await rig.traffic.run_until(lambda: "treamgauge" in rig.tap.log and SEGMENTS in rig.tap.log)
            assert rig.tap.get("/health/ready")[0] == 200
            assert rig.tap.reads()["delivered"] == 0
            broker.fail_topic(SEGMENTS, 0)
            await rig.deliver_all()
            rig.traffic.judge()
            assert_whole(await records_on(broker.bootstrap, PREFIX), len(rig.traffic.pairs))

    asyncio.run(run())


@contextlib.contextmanager
def no_kafka() -> Iterator[tuple[str, int]]:
    """Another server at the broker's address: it responds to anything with bytes of another protocol."""
    listening = socket.create_server(("127.0.0.1", 0))

    def serve() -> None:
        while True:
            try:
                client, _ = listening.accept()
            except OSError:
                return
            with client, contextlib.suppress(OSError):
                client.recv(4096)
                client.sendall(b"\x00\x00\x00\x20" + b"HTTP/1.1 400 Bad Request\r\n\r\n" * 10)

    threading.Thread(target=serve, daemon=True).start()
    try:
        yield listening.getsockname()
    finally:
        listening.shutdown(socket.SHUT_RDWR)
        listening.close()


def test_k7_server_that_is_no_broker_ends_no_tap(broker: MockCluster, tap: Tap) -> None:
    tap.fill(ROWS)
    with no_kafka() as address:
        shipper = Shipper(tap.spool, ShipperSettings(f"{address[0]}:{address[1]}", PREFIX))

        async def wait() -> None:
            await asyncio.sleep(3)

        asyncio.run(shipping(shipper, wait, deadline_s=1.0))
        assert not shipper.connected
    assert tap.spool.waiting().rows == ROWS
    assert shipped(broker, tap).delivered == ROWS * READS


def test_k5_a_bug_of_ours_does_not_end_the_shipper(
    broker: MockCluster, tap: Tap, monkeypatch: pytest.MonkeyPatch
) -> None:
    """An unexpected exception in the middle of shipping: it is logged, the shipper continues, and nothing is lost."""
    tap.fill(ROWS)
    take, calls = tap.spool.take, iter(range(1000))

    def breaks(after: int, most: int) -> object:
        if next(calls) in (2, 5, 6):
            raise RuntimeError("a bug")
        return take(after, min(most, 20_000))

    monkeypatch.setattr(tap.spool, "take", breaks)
    assert shipped(broker, tap).delivered == ROWS * READS


def test_k4_connection_that_breaks_repeatedly(broker: MockCluster, tap: Tap) -> None:
    """Each connection works for a while and then swallows what is sent: everything arrives, in order."""
    with half_open(broker.bootstrap) as line:
        broker.advertise(*line.address)
        shipper = Shipper(tap.spool, ShipperSettings("{}:{}".format(*line.address), PREFIX))

        async def break_it() -> None:
            for _ in range(2):
                tap.fill(ROWS)
                await until(lambda: tap.spool.waiting().rows == 0)
                line.answering = False
                tap.fill(ROWS)
                await until(lambda: line.swallowed > 0)
                line.heal()
                line.swallowed = 0

        asyncio.run(shipping(shipper, break_it))
        slots = by_slot(asyncio.run(read_all(broker.bootstrap, SEGMENTS)))
    assert all(in_order(numbers) for numbers in slots.values())
    assert {number for numbers in slots.values() for number in numbers} == set(range(4 * ROWS))
    assert read_balance(tap.path).delivered == 4 * ROWS * READS
