"""Messages that expired before they were read: reported once, and acknowledged although no message is processed."""

import asyncio
from collections import Counter
from types import SimpleNamespace
from typing import Any

from streamgauge.core.assembly.assembler import PRODUCERS, Assembler
from streamgauge.kafka.producer import Message
from streamgauge.kafka.topics import Topics
from streamgauge.metrics import table
from streamgauge.worker.faults import WorkerError
from streamgauge.worker.faust.store import key_of
from streamgauge.worker.partition import Partition, PartitionContext
from streamgauge.worker.partition_offsets import ReadContext


class Outbox:
    """A sender whose sends are confirmed at once."""

    tries = 0

    def __init__(self) -> None:
        self.sent: list[Message] = []

    async def send(self, message: Message) -> None:
        self.sent.append(message)

    async def confirmed(self) -> None:
        pass


def test_expired_messages_are_counted_at_the_start_and_acknowledged_without_further_messages() -> None:
    """They were counted at the recovery, and again at each further one until a message was processed."""
    counts: Counter[str] = Counter()
    failures: list[WorkerError] = []

    async def run() -> None:
        acknowledged: asyncio.Queue[tuple[int, int]] = asyncio.Queue()
        metrics: Any = SimpleNamespace(
            add=lambda name, value, **_: counts.update({name: value}),
            add_counts=counts.update,
            set=lambda *_, **__: None,
            unset=lambda *_, **__: None,
        )
        consumer: Any = SimpleNamespace(topic="segments", end=lambda number: 5000)
        anything: Any = SimpleNamespace(limit=0, alone_s=0.0)
        context = PartitionContext(
            Topics(),
            ReadContext(consumer, anything),
            anything,
            metrics,
            lambda number, offset: acknowledged.put_nowait((number, offset)),
            failures.append,
            0.05,
            60.0,
        )
        sender: Any = Outbox()
        partition = Partition(3, Assembler(), sender, context, acknowledged=1000, next_offset=5000, lost=4000, known=[])
        assert counts[table.LOG_GAP_MESSAGES.name] == 0, "the assignment may be discarded before its start"
        partition.start()
        assert await asyncio.wait_for(acknowledged.get(), 5) == (3, 5000)
        assert [message.key for message in sender.sent] == [key_of(3, PRODUCERS)], "acknowledged messages need state"
        await partition.finish()

    asyncio.run(run())
    assert failures == []
    assert counts[table.LOG_GAP_MESSAGES.name] == 4000
    assert counts["log_gaps"] == 1
