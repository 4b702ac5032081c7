"""K6: the spool is full, the disk is full or read-only, the file is damaged or deleted under a running tap.

Traffic is not affected; losses are counted by reason; every stream has its record, which says if it is incomplete.
"""

import asyncio
import os
import random
import re
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import msgspec
import pytest

from streamgauge.errors import UNAVAILABLE
from streamgauge.spool import NewRow, Spool
from streamgauge.spool.read_counters import Balance, Counters, DropReason, read_balance, read_incidents
from tests.faults.mock_kafka import MockCluster, mock_cluster
from tests.faults.rig import PARTITIONS, Rig, assert_whole, records_on, tap_rig
from tests.faults.small_disk import SmallDisk, small_disk
from tests.faults.traffic import ask, provider
from tests.running import Running, command, off_loop, start_tap, wait_for

__all__ = ["small_disk"]
PREFIX = "streamgauge"
# Text of an event that fills the smallest spool within seconds, if it is captured (bytes).
LARGE = 4000
# The gauge for a disk that refuses writes, and the bundles that wait.
REFUSED = "streamgauge_spool_writes_refused"
OPEN_ROWS = "streamgauge_spool_rows"
# Streams before the disk is full, and all of them.
WHOLE, STREAMS = 15, 90


@pytest.fixture
def broker() -> Iterator[MockCluster]:
    with mock_cluster() as cluster:
        cluster.create_topic(f"{PREFIX}.segments", PARTITIONS)
        cluster.down()
        yield cluster


async def judge(rig: Rig, broker: MockCluster, reason: str) -> int:
    """The broker returns, and everything that was kept arrives. Gives the dropped reads, which all have `reason`."""
    broker.up()
    await rig.deliver_all()
    rig.traffic.judge()
    dropped = {name: reads for name, reads in rig.tap.reads().items() if name not in ("seen", "delivered", "waiting")}
    assert set(dropped) <= {reason}
    records = await records_on(broker.bootstrap, PREFIX)
    assert len({record.stream_id for record in records}) == len(records) == len(rig.traffic.pairs)
    assert {record.outcome for record in records if record.integrity.complete} <= {"completed"}
    lost = sum(record.integrity.dropped_reads for record in records)
    assert lost == sum(dropped.values()), "the records report the dropped reads"
    return int(lost)


@pytest.mark.parametrize("policy", ["drop-newest", "drop-oldest"])
def test_k6_spool_full(broker: MockCluster, tmp_path: Path, policy: str) -> None:
    options = ["--spool-bytes", str(1024**2), "--spool-policy", policy, "--capture", "full"]

    async def run() -> None:
        async with tap_rig(tmp_path, broker.bootstrap, PREFIX, *options, text_bytes=LARGE) as rig:
            await rig.traffic.run_until(lambda: rig.tap.reads().get("spool_full", 0) > 500, most_s=60)
            size = sum(file.stat().st_size for file in (tmp_path / "data").glob("spool.sqlite*"))
            assert size <= 1024**2 + 64 * 1024
            streams = len(rig.traffic.pairs)
            assert await judge(rig, broker, "spool_full") > 500
            records = await records_on(broker.bootstrap, PREFIX)
            order = sorted(records, key=lambda record: record.stream_id)  # UUIDv7: these are their first digits
            first, last = order[: streams // 4], order[-streams // 4 :]
            kept, given_up = (first, last) if policy == "drop-newest" else (last, first)
            assert sum(one.integrity.complete for one in kept) > sum(one.integrity.complete for one in given_up)

    asyncio.run(run())


def test_k6_disk_full(broker: MockCluster, small_disk: SmallDisk) -> None:
    """Another program fills the disk; later there is room again."""

    async def run() -> None:
        async with tap_rig(small_disk.path, broker.bootstrap, PREFIX) as rig:
            await rig.traffic.run_until(lambda: rig.tap.reads()["waiting"] > 0)
            other = small_disk.path / "other"
            fill(other)
            await rig.traffic.run_for(4)
            assert rig.tap.get("/health/ready")[0] == 200
            assert rig.tap.metrics()[REFUSED] == 1
            assert_refusal_is_reported(rig.tap, small_disk)
            other.unlink()
            await rig.traffic.run_for(2)
            assert rig.tap.metrics()[REFUSED] == 0
            assert rig.tap.log.count("can be written again") == 1
            await judge(rig, broker, "spool_failed")

    asyncio.run(run())


@pytest.mark.parametrize("name", ["up", "tap"])
def test_f9_an_ordered_stop_on_a_full_disk_reports_what_is_lost(
    broker: MockCluster, small_disk: SmallDisk, name: str
) -> None:
    """Reads without room are counted as spool_failed; each stream has its record; the exit code reports the loss."""

    async def run() -> tuple[Running, int]:
        async with provider() as upstream:
            options = ["--kafka", broker.bootstrap, "--topic-prefix", PREFIX] if name == "tap" else []
            async with off_loop(start_tap(name, upstream.url, small_disk.path / "data", *options)) as tap:
                await asyncio.gather(*(ask(tap.url, number) for number in range(WHOLE)))
                await asyncio.to_thread(wait_for, lambda: tap.metrics()[OPEN_ROWS] > 0 or name == "up", "rows")
                fill(small_disk.path / "other")
                for first in range(WHOLE, STREAMS, 15):
                    await asyncio.gather(*(ask(tap.url, number) for number in range(first, first + 15)))
                assert tap.metrics()[REFUSED] == 1
                assert tap.get("/health/ready")[0] == 200
                return tap, await asyncio.to_thread(tap.stop)

    tap, code = asyncio.run(run())
    assert code == UNAVAILABLE, tap.log
    assert_refusal_is_reported(tap, small_disk)
    balance = balance_of(tap)
    assert balance.dropped["crash"] == 0
    lost = balance.dropped["spool_failed"]
    counts = re.findall(
        r"the spool in (\S+) could not store .* (\d+) reads of (\d+) streams are lost and counted as (\w+); free space there",
        tap.log,
    )
    assert counts == [(str(tap.data_dir), str(lost), counts[0][2], "spool_failed")], tap.log
    assert lost > STREAMS
    assert "have no record" not in tap.log
    (small_disk.path / "other").unlink()
    small_disk.resize("64m")
    records = records_after_restart(tap, broker, name)
    assert len({record["stream_id"] for record in records}) == len(records) == STREAMS
    incomplete = [record["integrity"] for record in records if not record["integrity"]["complete"]]
    assert len(incomplete) == int(counts[0][2])
    assert sum(integrity["dropped_reads"] for integrity in incomplete) == lost
    assert Counter(reason for one in incomplete for reason in one["reasons"]) == {"dropped_reads": len(incomplete)}
    assert balance_of(tap).dropped == balance.dropped


def test_k6_a_start_on_a_full_disk_says_to_make_room(small_disk: SmallDisk) -> None:
    fill(small_disk.path / "other")
    done = command("up", "--upstream", "http://127.0.0.1:9", "--data-dir", str(small_disk.path / "data"))
    assert done.returncode == UNAVAILABLE
    assert "its disk is full): free space there, or choose another" in done.stderr
    assert "move the file away" not in done.stderr


def test_k6_a_small_disk_is_not_filled_by_the_spools_own_log(small_disk: SmallDisk) -> None:
    """Delivered rows make room for new ones, although the default log alone is larger than this disk."""
    spool = Spool(small_disk.path / "spool.sqlite")
    for number in range(400):
        assert spool.put([NewRow(1, 1, os.urandom(20_000))]).failure is None, f"row {number} of 20 KB"
        spool.done([row.id for row in spool.take(0, 1)])
        assert spool.failure is None
    spool.close()


def fill(path: Path) -> None:
    """Another program uses all free space of a disk."""
    with open(path, "wb", buffering=0) as file:  # noqa: PTH123 - the test's own
        try:
            while True:
                file.write(os.urandom(4096))
        except OSError:
            pass


def assert_refusal_is_reported(tap: Running, disk: SmallDisk) -> None:
    """Once, with the directory and the error; and no line claims that bundles in memory are in the spool."""
    (line,) = [
        line for line in tap.log.splitlines() if "cannot be written" in line and " streamgauge: the spool" in line
    ]
    assert str(disk.path) in line
    assert "full" in line
    assert "wait in memory" in line
    assert "waits in the spool" not in tap.log


def balance_of(tap: Running) -> Balance:
    balance = read_balance(tap.data_dir / "counters")
    assert balance.seen == balance.delivered + balance.waiting + sum(balance.dropped.values())
    return balance


def records_after_restart(tap: Running, broker: MockCluster, name: str) -> list[dict[str, Any]]:
    """A new tap on the same directory delivers everything that waits."""
    options = ["--kafka", broker.bootstrap, "--topic-prefix", PREFIX] if name == "tap" else []
    broker.up()
    with start_tap(name, "http://127.0.0.1:9", tap.data_dir, *options) as second:
        wait_for(lambda: second.metrics()["streamgauge_tap_reads_waiting"] == 0, "empty spool")
        if name == "up":
            records = second.wait_for_records(STREAMS)
        assert second.stop() == 0, second.log
    if name == "tap":
        found = asyncio.run(records_on(broker.bootstrap, PREFIX))
        records = [msgspec.json.decode(msgspec.json.encode(record)) for record in found]
    return records


def test_k6_file_deleted_under_a_tap(broker: MockCluster, tmp_path: Path) -> None:
    async def run() -> None:
        async with tap_rig(tmp_path, broker.bootstrap) as rig:
            await rig.traffic.run_until(lambda: rig.tap.reads()["waiting"] > 0)
            await asyncio.sleep(0.5)
            for file in (tmp_path / "data").glob("spool.sqlite*"):
                file.unlink()
            await rig.traffic.run_for(1)
            assert await judge(rig, broker, "none") == 0
            assert_whole(await records_on(broker.bootstrap, PREFIX), len(rig.traffic.pairs))

    asyncio.run(run())


@pytest.mark.parametrize("seed", range(3))
def test_k6_file_damaged_under_a_tap(broker: MockCluster, tmp_path: Path, seed: int) -> None:
    """Pages are overwritten while the tap has the file open. The tap continues, and all reads are counted."""
    chance = random.Random(seed)

    async def run() -> None:
        async with tap_rig(tmp_path, broker.bootstrap, PREFIX, "--capture", "full", text_bytes=LARGE) as rig:
            file = tmp_path / "data" / "spool.sqlite"
            await rig.traffic.run_until(lambda: file.stat().st_size > 40 * 4096)
            with open(file, "r+b") as opened:  # noqa: ASYNC230, PTH123 - as above
                for _ in range(4):
                    opened.seek(4096 * chance.randrange(1, 40) + chance.randrange(4000))
                    opened.write(os.urandom(64))
            await rig.traffic.run_for(1)
            broker.up()
            await rig.deliver_all()
            rig.traffic.judge()
            assert set(rig.tap.reads()) <= {"seen", "delivered", "waiting", "spool_damaged"}
            before = rig.tap.reads()["delivered"]
            await rig.traffic.run_for(1)
            await rig.deliver_all()
            assert rig.tap.reads()["delivered"] > before
            records = await records_on(broker.bootstrap, PREFIX)
            assert len({record.stream_id for record in records}) == len(records)
            assert sum(record.integrity.complete for record in records) > 0
            assert rig.tap.process.poll() is None

    asyncio.run(run())


def test_k6_read_only_and_writable_again(small_disk: SmallDisk, tmp_path: Path) -> None:
    """Data on a disk that is read-only for a while is there afterwards; reads captured in between are reported as lost."""
    path, reads = small_disk.path / "spool.sqlite", tmp_path / "counters"
    values = [b"%04d" % number for number in range(50)]
    with Counters(reads, "recorder") as counters:
        spool = Spool(path, counters=counters)
        assert spool.put([NewRow(1, 1, value) for value in values]).failure is None
        spool.close()
        small_disk.read_only()
        assert str(spool.put([NewRow(1, 1, b"refused")]).failure) in ("read_only", "broken")
        spool.discard([1], DropReason.REFUSED)
        spool.close()
        small_disk.writable()
        assert [row.value for row in spool.take(0, 1_000_000)] == values
        assert spool.put([NewRow(1, 1, b"again")]).failure is None
        spool.close()
    assert read_incidents(reads)["spool_damaged"] == 0
    assert not list(small_disk.path.glob("*.damaged-*"))
