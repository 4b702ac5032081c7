"""D3: a partition in which too many messages are unreadable stops, says why, and loses nothing. With a real Kafka."""

import asyncio
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from tests.faults.test_poison import committed
from tests.integration.synthetic import SyntheticTap, assembled
from tests.integration.test_worker import collect, log_of, records_of, same, write
from tests.integration.workers import worker
from tests.running import Running, start, wait_for, wait_until_ready

pytestmark = pytest.mark.kafka

LIMIT, FLOOD = 20, 50
# After this time without progress a worker is stuck (seconds); it retries once a second.
STUCK_S = 10.0
WAITING = "streamgauge_dead_letters_waiting"


@contextmanager
def limited(kafka: str, prefix: str, folder: Path, limit: int) -> Iterator[Running]:
    data_dir = folder / "data"
    flags = ["--kafka", kafka, "--topic-prefix", prefix, "--admin", "127.0.0.1:0", "--data-dir", str(data_dir)]
    with start("worker", [*flags, "--dead-letter-limit", str(limit)], data_dir) as running:
        wait_until_ready(running)
        yield running
        assert running.stop() == 0, running.log


def test_d3_a_partition_stops_at_too_many_and_a_worker_with_another_limit_continues(
    kafka: str, prefix: str, tmp_path: Path
) -> None:
    bad, good = SyntheticTap(61, slots=(0,)), SyntheticTap(62, slots=(1,))
    bundles = list(bad.bundles(20))
    half = len(bundles) // 2
    poison = [(0, b"poison %d" % number) for number in range(FLOOD)]
    write(kafka, prefix, [*bundles[:half], *poison, *bundles[half:], *good.bundles(20)])
    with limited(kafka, prefix, tmp_path, LIMIT) as running:
        wait_for(lambda: running.metrics()[WAITING] == 1, "a partition that has stopped")
        wait_for(lambda: committed(kafka, prefix, 0) == half + LIMIT, "the offset at which it stopped")
        assert set(good.ids) <= records_of(kafka, prefix, len(good.ids)).keys(), "another partition was affected"
        assert running.get("/health/live")[0] == running.get("/health/ready")[0] == 200
        assert len(asyncio.run(collect(kafka, prefix))) == LIMIT
        sentence = f"partition 0 of {prefix}.segments stops at offset {half + LIMIT} (decode: frame)"
        assert running.log.count(sentence) == 1, running.log
    assert committed(kafka, prefix, 0) == half + LIMIT
    with limited(kafka, prefix, tmp_path, 0) as running:
        found = records_of(kafka, prefix, 40)
        wait_for(lambda: committed(kafka, prefix, 0) == len(bundles) + FLOOD, "the offset after all")
        assert running.metrics()[WAITING] == 0
    letters = asyncio.run(collect(kafka, prefix))
    assert [letter.value for letter in letters] == [value for _, value in poison], (
        "a message is missing, or there twice"
    )
    assert same(found, assembled(log_of(kafka, f"{prefix}.segments")))
    assert len(found) == 40


def test_d3_it_is_the_share_that_counts(kafka: str, prefix: str, tmp_path: Path) -> None:
    """Two unreadable messages after each good one stop the partition. One after each good one never does."""
    bundles = [*SyntheticTap(63, slots=(0, 1)).bundles(200, segments=10, a_bundle=5)]
    sent: list[tuple[int, bytes]] = []
    before = {0: 0, 1: 0}
    for number, (partition, bundle) in enumerate(bundles):
        sent += [(partition, bundle), *[(partition, b"poison %d" % number)] * (1 + partition)]
        before[partition] += 1
    assert min(before.values()) > 2 * LIMIT
    write(kafka, prefix, sent)
    with limited(kafka, prefix, tmp_path, LIMIT) as running:
        wait_for(lambda: committed(kafka, prefix, 0) == 2 * before[0], "all of partition 0")
        wait_for(lambda: running.metrics()[WAITING] == 1, "a partition that has stopped")
        assert f"partition 1 of {prefix}.segments stops at" in running.log
        assert 0 < committed(kafka, prefix, 1) < 3 * before[1]


def test_d3_a_partition_that_has_stopped_is_not_stuck(kafka: str, prefix: str, tmp_path: Path) -> None:
    """The watchdog ends a worker whose offset stays although messages wait, unless it waits for a good reason."""
    write(kafka, prefix, [(0, b"poison %d" % number) for number in range(FLOOD)])
    with worker(tmp_path, bootstrap=kafka, prefix=prefix, dead_letter_limit=LIMIT, stuck_s=STUCK_S) as process:
        wait_for(lambda: "stops at offset" in process.log, "a partition that has stopped")
        time.sleep(2 * STUCK_S)
        assert process.process.poll() is None, process.log
        assert process.stop() == 0, process.log
