"""A real `streamgauge tap` whose broker, disk or collector fails: what it keeps, what it reports, and what arrives.

At its end each rig is checked for what holds under every fault: I1, I2, I3, I5, I6 and I7 (docs/reliability.md).
`assert_whole` checks I4.
"""

import asyncio
import contextlib
from collections import Counter, defaultdict
from collections.abc import AsyncIterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from streamgauge.core.assembly.assembler import Assembler
from streamgauge.core.capture.bundles import decode_bundle
from streamgauge.core.record import Record
from streamgauge.kafka.topics import Topics
from streamgauge.spool.read_counters import read_balance
from tests.faults.traffic import EVENTS, SECRET, TEXT_BYTES, Traffic, provider
from tests.kafka_broker.reading import read_all
from tests.running import Running, off_loop, start_tap, wait_for

PARTITIONS = 4
# By how much the memory of all processes of a tap may be larger after a fault than before (bytes): several times its buffers.
MEMORY_BYTES = 96 * 1024 * 1024


@dataclass
class Rig:
    """A tap under traffic."""

    tap: Running
    traffic: Traffic
    prefix: str

    def all_delivered(self) -> bool:
        reads = self.tap.reads()
        return reads["waiting"] == 0 and reads["seen"] > 0

    async def deliver_all(self) -> None:
        await asyncio.to_thread(wait_for, self.all_delivered, "empty spool", 120)


@contextlib.asynccontextmanager
async def tap_rig(
    folder: Path,
    bootstrap: str,
    prefix: str = "streamgauge",
    *options: str,
    text_bytes: int = TEXT_BYTES,
    events: int = EVENTS,
    environment: Mapping[str, str] = {},
) -> AsyncIterator[Rig]:
    """A tap in front of a provider that ships to `bootstrap`; stopped in order at the end."""
    async with provider(text_bytes, events) as upstream:
        flags = ["--kafka", bootstrap, "--topic-prefix", prefix, *options]
        command = start_tap("tap", {"p": upstream.url}, folder / "data", *flags, environment=environment)
        async with off_loop(command) as tap:
            rig = Rig(tap, Traffic(upstream.url, f"{tap.url}/p"), prefix)
            before = tap.memory()
            yield rig
            if tap.process.poll() is None:
                assert tap.memory() - before < MEMORY_BYTES
                assert await asyncio.to_thread(tap.stop) == 0, tap.log
            if rig.traffic.pairs:
                rig.traffic.judge()
            assert_balanced(tap.data_dir)
            assert_no_secret(folder)


async def records_on(bootstrap: str, prefix: str) -> list[Record]:
    """The records from the segments topic, by the assembler: each partition in offset order."""
    return assembled(await read_all(bootstrap, Topics(prefix).segments))


def assembled(messages: list[Any]) -> list[Record]:
    return assembled_messages(messages)[0]


def assembled_messages(messages: list[Any]) -> tuple[list[Record], int]:
    """The records of a log, and how many of its bundles were duplicates."""
    by_partition: dict[int, list[Any]] = defaultdict(list)
    for message in messages:
        by_partition[message.partition].append(message)
    records, duplicates = [], 0
    for log in by_partition.values():
        assembler = Assembler()
        for message in log:
            records += assembler.apply(message.offset, 0, decode_bundle(message.value))
        duplicates += assembler.counts["duplicate_bundles"]
    return records, duplicates


def assert_whole(records: list[Record], streams: int) -> None:
    """One complete record per stream: nothing is missing, reordered or duplicated."""
    assert len({record.stream_id for record in records}) == len(records) == streams
    assert Counter((record.outcome, record.integrity.complete) for record in records) == {("completed", True): streams}


def assert_balanced(data_dir: Path) -> None:
    """I5, of the counters in a data directory."""
    balance = read_balance(data_dir / "counters")
    assert balance.seen == balance.delivered + balance.waiting + sum(balance.dropped.values())


def assert_no_secret(folder: Path, secret: str = SECRET) -> None:
    """I6: no file below a folder has the API key of the requests."""
    files = [path for path in folder.rglob("*") if path.is_file()]
    assert [path for path in files if secret.encode() in path.read_bytes()] == []
