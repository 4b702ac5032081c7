"""A revoked partition: its task ends although aiokafka suppresses a cancellation."""

import asyncio
import contextlib
import logging
from types import SimpleNamespace
from typing import Any

import pytest
from aiokafka.client import AIOKafkaClient

from streamgauge.core.assembly.assembler import Assembler
from streamgauge.kafka.producer import Message, Producer
from streamgauge.kafka.topics import Topics
from streamgauge.metrics.prometheus import Metrics
from streamgauge.worker.confirmed_sender import ConfirmedSender
from streamgauge.worker.partition import Partition, PartitionContext
from streamgauge.worker.partition_offsets import ReadContext

pytestmark = pytest.mark.slow

# How long a partition may take to be dropped (seconds): its task is cancelled again each second.
_DROPPED_S = 20.0


async def _nowhere(_: Message) -> bool:
    return False


def a_partition(producer: Producer, metrics: Metrics) -> Partition:
    """A partition that reads nothing, and checkpoints at once: it has read messages that are not acknowledged."""
    anything: Any = SimpleNamespace(topic="segments", end=lambda number: 7, limit=0, alone_s=0.0)
    reading = ReadContext(anything, anything)
    around = PartitionContext(Topics(), reading, anything, metrics, lambda *_: None, lambda _: None, 0.01, 60.0)
    return Partition(
        3, Assembler(), ConfirmedSender(producer, _nowhere), around, acknowledged=0, next_offset=7, lost=0, known=[]
    )


def test_a_cancellation_that_aiokafka_swallows_does_not_keep_the_partition(monkeypatch: pytest.MonkeyPatch) -> None:
    """`AIOKafkaClient.close` waits for its own task with CancelledError suppressed. The task that is cancelled there went on,
    and the rebalance waited for it without end."""
    logging.getLogger("aiokafka").setLevel(logging.CRITICAL)
    close = AIOKafkaClient.close
    cancelled: list[object] = []

    async def run() -> None:
        # A listener that takes connections and says nothing is a broker that does not answer.
        writers: list[asyncio.StreamWriter] = []
        server = await asyncio.start_server(lambda reader, writer: writers.append(writer), "127.0.0.1", 0)
        producer = Producer(f"127.0.0.1:{server.sockets[0].getsockname()[1]}", max_message_bytes=1000, batch_bytes=1000)
        partition = a_partition(producer, Metrics())
        others = asyncio.all_tasks()
        partition.start()
        [task] = asyncio.all_tasks() - others
        dropping: list[asyncio.Task[None]] = []

        async def cancelled_while_it_closes(self: Any) -> None:
            if self._sync_task is None:  # a client that has connected has one
                self._sync_task = asyncio.create_task(asyncio.sleep(3600))
            if not cancelled:
                cancelled.append(self)
                dropping.append(asyncio.create_task(partition.drop()))  # it cancels in the next turn of the loop
            await close(self)

        monkeypatch.setattr(AIOKafkaClient, "close", cancelled_while_it_closes)
        try:
            while not dropping:  # noqa: ASYNC110 - the producer comes there by itself
                await asyncio.sleep(0.05)
            done, _ = await asyncio.wait(dropping, timeout=_DROPPED_S)
            assert done, "the partition is not dropped"
            assert task.done()
        finally:
            for one in (task, *dropping):
                one.cancel()
            with contextlib.suppress(asyncio.CancelledError):
                await asyncio.wait({task, *dropping}, timeout=30)
            server.close()
            for writer in writers:
                writer.close()
            await asyncio.gather(*(writer.wait_closed() for writer in writers), return_exceptions=True)

    asyncio.run(run())
