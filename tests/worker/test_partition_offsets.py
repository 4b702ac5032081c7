"""The read position of a partition: messages that were lost, a log that was recreated, a known end that is outdated."""

import asyncio
from types import SimpleNamespace
from typing import Any

import pytest

from streamgauge.worker import partition_offsets
from streamgauge.worker.faults import NEW_LOG_REMEDY, LogRecreatedError
from streamgauge.worker.partition_offsets import OffsetTracker, ReadContext


class Lost:
    """A log and a consumer that lost the messages from the due offset on. `requests`: how many the tracker made."""

    topic = "sg.segments"

    def __init__(self) -> None:
        self.requests = 0
        self.holes: set[int] = set()  # legal offsets without a message
        self.sought: list[int] = []

    async def begins(self, topic: str, partitions: list[int]) -> dict[int, int]:
        self.requests += 1
        return dict.fromkeys(partitions, 0)

    async def has_message(self, topic: str, partition: int, start: int, end: int) -> bool:
        self.requests += 1
        return any(offset not in self.holes for offset in range(start, end))

    async def seek(self, partition: int, offset: int) -> None:
        self.sought.append(offset)


def lost_from(next_offset: int) -> tuple[Any, OffsetTracker]:
    lost: Any = Lost()
    return lost, OffsetTracker(ReadContext(lost, lost), 3, next_offset, report_gap=lambda messages: None)


def test_a_loss_is_sought_once_although_many_messages_are_queued_after_it() -> None:
    """Each of them asked the broker with a client of its own, and sought again."""

    async def run() -> None:
        lost, tracker = lost_from(7)
        assert [await tracker.accept(offset) for offset in range(10, 60)] == [False] * 50
        assert (lost.sought, lost.requests) == ([7], 2)
        assert [await tracker.accept(offset) for offset in range(7, 60)] == [True] * 53
        assert await tracker.accept(70) is False  # the next loss
        assert lost.sought == [7, 60]

    asyncio.run(run())


def test_the_first_message_after_a_seek_may_lie_above_the_due_offset() -> None:
    """The log may have no message at the due offset."""

    async def run() -> None:
        lost, tracker = lost_from(7)
        lost.holes = {7, 8}
        assert [await tracker.accept(offset) for offset in (10, 11)] == [False] * 2
        assert [await tracker.accept(offset) for offset in (9, 10, 11)] == [True] * 3
        assert lost.sought == [7]

    asyncio.run(run())


@pytest.mark.usefixtures("without_patience")
def test_a_message_that_does_not_come_after_a_seek_is_sought_again() -> None:
    """Otherwise a partition in which messages keep arriving would never advance."""

    async def run() -> None:
        lost, tracker = lost_from(7)
        assert [await tracker.accept(offset) for offset in (10, 11)] == [False] * 2
        assert lost.sought == [7, 7]

    asyncio.run(run())


class Ends:
    """A log that ends at `end`, at least by the broker's own word."""

    def __init__(self, end: int) -> None:
        self._end = end

    async def ends(self, topic: str, partitions: list[int]) -> dict[int, int]:
        return dict.fromkeys(partitions, self._end)


async def nudged(heard: int, end: int) -> None:
    consumer: Any = SimpleNamespace(topic="sg.records", end=lambda partition: heard)
    log: Any = Ends(end)
    await OffsetTracker(ReadContext(consumer, log), 3, 7, report_gap=lambda messages: None).check_for_missed_messages()


@pytest.fixture
def without_patience(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(partition_offsets, "PATIENCE_S", 0.0)


@pytest.mark.usefixtures("without_patience")
def test_a_log_that_ends_below_what_was_read_is_named_with_a_remedy() -> None:
    with pytest.raises(LogRecreatedError) as raised:
        asyncio.run(nudged(heard=0, end=0))
    sentence = str(raised.value)
    assert sentence.startswith("topic sg.records was recreated while the worker ran: partition 3 ends at offset 0")
    assert sentence.endswith(f"but was read up to offset 7. {NEW_LOG_REMEDY}")


@pytest.mark.usefixtures("without_patience")
def test_outdated_log_end_is_requested_again() -> None:
    asyncio.run(nudged(heard=5, end=7))
