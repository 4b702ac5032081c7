"""The shipper with a replaced producer: a row that is sent alone, and never confirmed."""

import asyncio
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from aiokafka.errors import KafkaConnectionError, OutOfOrderSequenceNumber

from streamgauge.kafka import backoff, shipper
from streamgauge.kafka.producer import Message
from streamgauge.kafka.shipper import Shipper, ShipperSettings
from tests.integration.shipping import Tap, shipping, until


class Producer:
    """A producer of which the first batch fails, the second one is never confirmed, and all later ones are."""

    def __init__(self) -> None:
        self.generation = 0
        self.started = True
        self._unconfirmed: list[asyncio.Future[SimpleNamespace]] = []

    async def answers(self) -> bool:
        return True

    async def refusal(self) -> str | None:
        return None

    async def send(self, message: Message) -> "asyncio.Future[SimpleNamespace]":
        future = asyncio.get_running_loop().create_future()
        if self.generation == 0:
            future.set_exception(OutOfOrderSequenceNumber())
        elif self.generation == 1:
            self._unconfirmed.append(future)
        else:
            future.set_result(SimpleNamespace(timestamp=1, timestamp_type=1))
        return future

    async def renew(self, failed: int) -> bool:
        self.generation += 1
        for future in self._unconfirmed:
            future.set_exception(KafkaConnectionError("the producer was discarded"))
        self._unconfirmed.clear()
        return True

    async def stop(self, deadline_s: float) -> None:
        pass


def test_a_row_that_is_sent_alone_and_never_confirmed_is_sent_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The shipper waited for its confirmation without limit."""
    monkeypatch.setattr(backoff, "FIRST_S", 0.01)
    monkeypatch.setattr(shipper, "STUCK_S", 0.5)

    async def one_partition(*_: object) -> int:
        return 1

    monkeypatch.setattr(shipper, "segments_partitions", one_partition)
    tap = Tap(tmp_path)
    tap.fill(3)

    async def run() -> None:
        unhandled: list[dict[str, Any]] = []
        asyncio.get_running_loop().set_exception_handler(lambda _, context: unhandled.append(context))
        producer = Producer()
        monkeypatch.setattr(shipper, "Producer", lambda *_, **__: producer)
        shipping_all = Shipper(tap.spool, ShipperSettings("127.0.0.1:1"))
        await shipping(shipping_all, lambda: until(lambda: tap.spool.waiting().rows == 0, timeout_s=5), deadline_s=1)
        assert producer.generation == 2
        assert unhandled == []

    asyncio.run(run())
    tap.close()
