"""A real `streamgauge tap` whose broker, disk or recorder fails: what it keeps, what it reports, and what arrives.

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
from tests.processes import children
from tests.running import Running, start_tap, wait_for

PARTITIONS = 4
# By how much the memory of all processes of a tap may be larger after a fault than before (bytes): several times its buffers.
MEMORY_BYTES = 96 * 1024 * 1024


@dataclass
class Rig:
    """A tap under traffic."""

    tap: Running
    traffic: Traffic
    prefix: str

    def books(self) -> dict[str, float]:
        """The tap's exported counts, checked: seen, delivered, waiting, and dropped by reason."""
        page = self.tap.metrics()
        found = {name: page[f"streamgauge_tap_reads_{name}_total"] for name in ("seen", "delivered")}
        found["waiting"] = page["streamgauge_tap_reads_waiting"]
        dropped = {
            name.split('"')[1]: value
            for name, value in page.items()
            if name.startswith("streamgauge_tap_reads_dropped_total") and value
        }
        assert found["seen"] == found["delivered"] + found["waiting"] + sum(dropped.values())
        return {**found, **dropped}

    def all_delivered(self) -> bool:
        books = self.books()
        return books["waiting"] == 0 and books["seen"] > 0

    def memory(self) -> int:
        """The memory of the tap's processes (bytes)."""
        return sum(_resident(pid) for pid in (self.tap.process.pid, *children(self.tap.process.pid)))

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
    async with provider(text_bytes, events) as url:
        flags = ["--kafka", bootstrap, "--topic-prefix", prefix, *options]
        context = start_tap("tap", {"p": url}, folder / "data", *flags, environment=environment)
        tap = await asyncio.to_thread(context.__enter__)
        try:
            rig = Rig(tap, Traffic(url, f"{tap.url}/p"), prefix)
            before = rig.memory()
            yield rig
            if tap.process.poll() is None:
                assert rig.memory() - before < MEMORY_BYTES
                assert await asyncio.to_thread(tap.stop) == 0, tap.log
            if rig.traffic.pairs:
                rig.traffic.judge()
            assert_balanced(tap.data_dir)
            assert_no_secret(folder)
        finally:
            await asyncio.to_thread(context.__exit__, None, None, None)


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


def _resident(pid: int) -> int:
    try:
        fields = Path(f"/proc/{pid}/statm").read_text().split()
    except OSError:  # it has ended, or this is not Linux
        return 0
    return int(fields[1]) * 4096
