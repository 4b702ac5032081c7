"""ConfirmedSender retries failed sends with pauses, and counts each retry."""

import asyncio
from collections.abc import Awaitable, Callable
from unittest.mock import patch

import pytest

from streamgauge.kafka.backoff import FIRST_S
from streamgauge.kafka.producer import Message, Producer
from streamgauge.worker import confirmed_sender as waiting
from streamgauge.worker.confirmed_sender import ConfirmedSender
from streamgauge.worker.faults import StateRefusedError
from tests.faults.mock_kafka import POLICY_VIOLATION, PRODUCE, UNKNOWN, MockCluster, mock_cluster
from tests.running import wait_for

pytestmark = pytest.mark.slow

_TOPIC = "records"


Elsewhere = Callable[[Message], Awaitable[bool]]


async def nowhere(message: Message) -> bool:
    return False


class Outbox(ConfirmedSender):
    """A sender, and the producer that it was given."""

    def __init__(self, producer: Producer, store_refused: Elsewhere) -> None:
        super().__init__(producer, store_refused)
        self.producer = producer


def with_outbox(test: Callable[[MockCluster, Outbox], Awaitable[None]], store_refused: Elsewhere = nowhere) -> None:
    async def run(cluster: MockCluster) -> None:
        producer = Producer(cluster.bootstrap, max_message_bytes=100_000, batch_bytes=16_384)
        assert await producer.start()
        try:
            await test(cluster, Outbox(producer, store_refused))
        finally:
            await producer.stop(0)

    with mock_cluster() as cluster:
        cluster.create_topic(_TOPIC, 1)
        asyncio.run(run(cluster))


def test_an_error_without_a_reason_is_tried_again_in_pauses_that_grow() -> None:
    """A broker that fails over everything got a thousand requests a second, as many as it could answer."""

    async def test(cluster: MockCluster, sender: Outbox) -> None:
        cluster.track()
        cluster.fail_produce([UNKNOWN, POLICY_VIOLATION] * 5_000)
        await sender.send(Message(_TOPIC, b"one", b"key"))
        confirming = asyncio.ensure_future(sender.confirmed())
        done, _ = await asyncio.wait({confirming}, timeout=3 * FIRST_S + 1.5)
        # At once, after one pause, and after twice that; a slow machine makes fewer of it.
        assert not done
        assert 1 <= cluster.requests()[PRODUCE] <= 3
        assert sender.tries >= 1
        cluster.fail_no_more()
        await confirming

    with_outbox(test)


def test_messages_that_fail_together_cause_one_pause() -> None:
    async def test(cluster: MockCluster, sender: Outbox) -> None:
        cluster.fail_produce([UNKNOWN])
        for number in range(200):
            await sender.send(Message(_TOPIC, b"%d" % number, b"key", 0))
        began = sender.tries
        # With a pause for each of them this would take 200 of them, most of them of half a minute.
        async with asyncio.timeout(60):
            await sender.confirmed()
        assert sender.tries > began

    with_outbox(test)


def test_a_broker_that_is_away_keeps_the_producer(monkeypatch: pytest.MonkeyPatch) -> None:
    """It keeps what it has, in order; a new one could not connect either."""

    async def test(cluster: MockCluster, sender: Outbox) -> None:
        await sender.send(Message(_TOPIC, b"zero", b"key"))
        await sender.confirmed()
        cluster.down()
        await sender.send(Message(_TOPIC, b"one", b"key"))
        confirming = asyncio.ensure_future(sender.confirmed())
        await asyncio.to_thread(wait_for, lambda: sender.tries >= 2, "two tries")
        cluster.up()
        await confirming
        assert sender.producer.generation == 0

    monkeypatch.setattr("streamgauge.worker.confirmed_sender._UNCONFIRMED_S", 1.0)
    with_outbox(test)


def test_a_producer_that_confirms_nothing_is_replaced(monkeypatch: pytest.MonkeyPatch) -> None:
    async def test(cluster: MockCluster, sender: Outbox) -> None:
        await sender.send(Message(_TOPIC, b"zero", b"key"))
        await sender.confirmed()
        before = sender.producer.generation
        cluster.slow(4_000)
        await sender.send(Message(_TOPIC, b"one", b"key"))
        confirming = asyncio.ensure_future(sender.confirmed())
        await asyncio.to_thread(wait_for, lambda: sender.producer.generation > before, "a new producer")
        cluster.slow(0)
        await confirming

    monkeypatch.setattr("streamgauge.worker.confirmed_sender._UNCONFIRMED_S", 1.0)
    with_outbox(test)


def test_refused_message_is_stored_elsewhere() -> None:
    """While there is no room for it elsewhere either, `tries` says that it waits by rule."""

    room, moved = asyncio.Event(), list[Message]()

    async def elsewhere(message: Message) -> bool:
        await room.wait()
        moved.append(message)
        return True

    async def test(cluster: MockCluster, sender: Outbox) -> None:
        large = Message(_TOPIC, bytes(200_000), b"key")
        await sender.send(Message(_TOPIC, b"one", b"key"))
        sending = asyncio.ensure_future(sender.send(large))
        await asyncio.sleep(0.5)
        assert not sending.done()
        with patch.object(waiting, "_WAITING_S", 0.05):
            await asyncio.sleep(5.5)
            assert sender.tries >= 1
        room.set()
        await sending
        await sender.confirmed()
        assert moved == [large]

    with_outbox(test, elsewhere)


def test_refused_message_without_another_place_ends_the_worker() -> None:
    async def test(cluster: MockCluster, sender: Outbox) -> None:
        with pytest.raises(StateRefusedError, match="rejected a message of 200000 bytes for records"):
            await sender.send(Message(_TOPIC, bytes(200_000), b"key"))

    with_outbox(test)
