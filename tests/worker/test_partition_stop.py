"""A partition that has stopped at foreign messages looks for a readable bundle, also after more than its queue holds."""

import asyncio
from collections.abc import Sequence
from types import SimpleNamespace
from typing import Any

import pytest

from streamgauge.core.assembly.assembler import Assembler
from streamgauge.core.capture.bundles import encode_bundle
from streamgauge.core.capture.segments import Bundle
from streamgauge.kafka.producer import Message
from streamgauge.kafka.topics import Topics
from streamgauge.metrics.prometheus import Metrics
from streamgauge.worker import partition as partition_module
from streamgauge.worker.dead_letters import DeadLetters
from streamgauge.worker.faults import WorkerError
from streamgauge.worker.partition import Partition, PartitionContext
from streamgauge.worker.partition_offsets import ReadContext

NUMBER, LIMIT = 3, 2
READABLE = encode_bundle(Bundle(b"i" * 16, 0, 0, 1_000))


class SegmentsLog:
    """The partition's log, as Faust's consumer and `Log` show it. `feed` gives its messages to the partition."""

    topic = "segments"

    def __init__(self, values: Sequence[bytes]) -> None:
        self.values = list(values)
        self.position, self.paused, self.most_queued = 0, False, 0

    async def feed(self, partition: Partition) -> None:
        while True:
            await asyncio.sleep(0)
            if not self.paused and self.position < len(self.values):
                self.put_next(partition)

    def put_next(self, partition: Partition) -> None:
        offset, self.position = self.position, self.position + 1
        value = self.values[offset]
        partition.put(
            SimpleNamespace(
                topic=self.topic, partition=NUMBER, offset=offset, timestamp=1.0, key=None, value=value, headers=()
            )
        )
        self.most_queued = max(self.most_queued, len(partition.queue))

    def pause(self, _: int) -> None:
        self.paused = True

    def resume(self, _: int) -> None:
        self.paused = False

    def end(self, _: int) -> int:
        return len(self.values)

    async def seek(self, _: int, offset: int) -> None:
        self.position = offset

    async def begins(self, topic: str, partitions: Any) -> dict[int, int]:
        return {NUMBER: 0}

    async def has_message(self, topic: str, partition: int, start: int, end: int) -> bool:
        return start < end


class Broker:
    """Confirms everything at once."""

    tries = generation = 0

    def __init__(self) -> None:
        self.letters: list[bytes | None] = []

    async def renew(self, _: int) -> bool:
        return True

    async def send(self, message: Message) -> "asyncio.Future[None]":
        if message.topic == Topics().deadletter:
            self.letters.append(message.value)
        confirmed: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        confirmed.set_result(None)
        return confirmed

    async def confirmed(self) -> None:
        pass


async def processed(
    log: Any, broker: Any, upto: int, assembler: Assembler, within_s: float = 30.0, fetched: int = 0
) -> None:
    """Run a partition until everything below an offset is acknowledged. `fetched`: how many messages are there before.

    Raises TimeoutError.
    """
    reached = asyncio.Event()
    failures: list[WorkerError] = []
    metrics: Any = Metrics()
    letters = DeadLetters(broker, Topics(), metrics, LIMIT, alone_s=0.0)

    def acknowledge(_: int, offset: int) -> None:
        if offset >= upto:
            reached.set()

    context = PartitionContext(
        Topics(), ReadContext(log, log), letters, metrics, acknowledge, failures.append, checkpoint_s=0.05, tick_s=60.0
    )
    partition = Partition(NUMBER, assembler, broker, context, acknowledged=0, next_offset=0, lost=0, known=[])
    for _ in range(fetched):
        log.put_next(partition)
    partition.start()
    feeding = asyncio.create_task(log.feed(partition))
    try:
        async with asyncio.timeout(within_s):
            await reached.wait()
    finally:
        feeding.cancel()
        await asyncio.wait({feeding})
        await partition.finish()
    assert failures == []


def test_a_readable_bundle_is_found_after_more_than_the_queue_holds(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """A client can stop a partition that no tap uses, and write more than the queue holds. The next tap must end that."""
    monkeypatch.setattr(partition_module, "FULL_BYTES", 20_000)
    monkeypatch.setattr(partition_module, "LOW_BYTES", 5_000)
    foreign = [b"SG\x02 %d" % number for number in range(100)]
    log, broker = SegmentsLog([*foreign, READABLE, READABLE]), Broker()
    asyncio.run(processed(log, broker, len(log.values), Assembler()))
    assert broker.letters == foreign, "a message is missing, or there twice"
    assert log.most_queued < 30
    assert f"partition {NUMBER} of segments stops at offset {LIMIT} " in caplog.text
    assert f"continues at offset {LIMIT}:" in caplog.text
    assert caplog.text.count("stops at offset") == 1, "it stops again before the bundle that it has found"


@pytest.mark.slow
def test_without_a_readable_bundle_it_stays_stopped_and_holds_little(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(partition_module, "FULL_BYTES", 20_000)
    monkeypatch.setattr(partition_module, "LOW_BYTES", 5_000)
    log, broker = SegmentsLog([b"SG\x02 %d" % number for number in range(1_000)]), Broker()
    with pytest.raises(TimeoutError):
        asyncio.run(processed(log, broker, LIMIT + 1, Assembler(), within_s=4.0))
    assert len(broker.letters) == LIMIT
    assert log.position == len(log.values)
    assert log.most_queued < 30


@pytest.mark.filterwarnings("ignore")
def test_bundles_on_which_the_assembler_fails_do_not_stop_it(caplog: pytest.LogCaptureFixture) -> None:
    class Failing(Assembler):
        def apply(self, *_: Any) -> Any:
            raise KeyError

    log, broker = SegmentsLog([READABLE] * 10), Broker()
    asyncio.run(processed(log, broker, 10, Failing()))
    assert len(broker.letters) == 10
    assert "stops at offset" not in caplog.text


class SlowBroker(Broker):
    """Confirms dead letters when nothing else is to be done. `round_trips`: how often it was waited for."""

    def __init__(self) -> None:
        super().__init__()
        self.round_trips, self._open = 0, list[asyncio.Future[None]]()

    async def send(self, message: Message) -> "asyncio.Future[None]":
        if message.topic != Topics().deadletter:
            return await super().send(message)
        self.letters.append(message.value)
        if not self._open:
            self.round_trips += 1
            asyncio.get_running_loop().call_later(0.005, self._confirm)
        self._open.append(asyncio.get_running_loop().create_future())
        return self._open[-1]

    def _confirm(self) -> None:
        for one in self._open:
            if not one.cancelled():
                one.set_result(None)
        self._open.clear()


def test_messages_of_another_program_are_put_aside_together() -> None:
    """A producer that may write to the topic delays its partition by a round trip for some hundreds of them."""
    junk = [b"junk %d" % number for number in range(1_200)]
    log, broker = SegmentsLog([READABLE, *junk[:100], READABLE, *junk[100:], READABLE]), SlowBroker()
    asyncio.run(processed(log, broker, len(log.values), Assembler(), fetched=len(log.values)))
    assert broker.letters == junk, "a message is missing, or there twice"
    assert broker.round_trips < 12
