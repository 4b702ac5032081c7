"""The read position of a partition, if its log was recreated or the known end is outdated."""

import asyncio
from types import SimpleNamespace
from typing import Any

import pytest

from streamgauge.worker import partition_offsets
from streamgauge.worker.faults import NEW_LOG_REMEDY, LogRecreatedError
from streamgauge.worker.partition_offsets import OffsetTracker, ReadContext


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


@pytest.fixture(autouse=True)
def without_patience(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(partition_offsets, "_PATIENCE_S", 0.0)


def test_a_log_that_ends_below_what_was_read_is_named_with_a_remedy() -> None:
    with pytest.raises(LogRecreatedError) as raised:
        asyncio.run(nudged(heard=0, end=0))
    sentence = str(raised.value)
    assert sentence.startswith("topic sg.records was recreated while the worker ran: partition 3 ends at offset 0")
    assert sentence.endswith(f"but was read up to offset 7. {NEW_LOG_REMEDY}")


def test_outdated_log_end_is_requested_again() -> None:
    asyncio.run(nudged(heard=5, end=7))
