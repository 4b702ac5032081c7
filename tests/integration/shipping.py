"""A spool to ship from, and what arrived: for tests of the shipper with any broker."""

import asyncio
import contextlib
import logging
from collections import defaultdict
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

from streamgauge.kafka.log_throttle import throttle_logs
from streamgauge.kafka.shipper import Shipper
from streamgauge.spool import NewRow, Spool
from streamgauge.spool.read_counters import Counters
from tests.kafka_broker.fixtures import PARTITIONS


class Tap:
    """A data directory with a spool and counters like those of a tap."""

    def __init__(self, directory: Path) -> None:
        self.path = directory / "counters"
        self.recorder = Counters(self.path, "recorder")
        self.delivery = Counters(self.path, "delivery")
        self.spool = Spool(directory / "spool.sqlite", counters=self.delivery)
        self.put = 0

    def fill(self, rows: int, size: int = 1000, slots: int = 8) -> None:
        """Rows whose value begins with their slot and number."""
        new = []
        for _ in range(rows):
            slot = self.put % slots
            new.append(NewRow(slot, 3, b"%d %d " % (slot, self.put) + b"x" * size))
            self.put += 1
        self.recorder.seen(3 * rows)
        assert self.spool.put(new).failure is None

    def close(self) -> None:
        self.spool.close()
        self.recorder.close()
        self.delivery.close()


def by_slot(messages: list[Any]) -> dict[int, list[int]]:
    """The numbers of the rows that arrived, for each slot in the order of its partition's log."""
    found: dict[int, list[int]] = defaultdict(list)
    for message in messages:
        slot, number, _ = message.value.split(b" ", 2)
        assert int(slot) % PARTITIONS == message.partition
        found[int(slot)].append(int(number))
    return found


def in_order(numbers: list[int]) -> bool:
    """Asserts that first occurrences are in rising order; resent rows may follow."""
    firsts = list(dict.fromkeys(numbers))
    return firsts == sorted(firsts)


async def shipping(shipper: Shipper, meanwhile: Callable[[], Any], deadline_s: float = 30.0) -> None:
    """Runs the shipper, does something during that, and stops it."""
    running = asyncio.create_task(shipper.run())
    try:
        await meanwhile()
    finally:
        await shipper.stop(deadline_s)
        await running


async def until(true: Callable[[], bool], timeout_s: float = 60.0) -> None:
    deadline = asyncio.get_running_loop().time() + timeout_s
    while not true():
        assert asyncio.get_running_loop().time() < deadline, "this did not happen in time"
        await asyncio.sleep(0.05)


class Heard(logging.Handler):
    """What reaches the root logger, as an operator would read it."""

    def __init__(self) -> None:
        super().__init__()
        self.lines: list[str] = []

    def emit(self, record: logging.LogRecord) -> None:
        self.lines.append(record.getMessage())


@contextlib.contextmanager
def hearing() -> Iterator[Heard]:
    """What is logged inside of the context; without what aiokafka logged for an earlier test of this process."""
    throttle_logs().forget()
    heard = Heard()
    logging.getLogger().addHandler(heard)
    try:
        yield heard
    finally:
        logging.getLogger().removeHandler(heard)
