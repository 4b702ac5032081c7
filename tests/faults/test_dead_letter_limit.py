"""D3: a partition in which no message can be read stops, says why, and loses nothing; a client that writes messages which
cannot be read stops no partition that a tap uses. With a real Kafka.
"""

import asyncio
import time
from pathlib import Path
from typing import Any

import pytest

from tests.faults.test_poison import committed
from tests.integration.synthetic import SyntheticTap, assembled
from tests.integration.test_worker import collect, log_of, records_of, same, write
from tests.integration.workers import WorkerProcess, worker
from tests.running import wait_for

pytestmark = pytest.mark.kafka

LIMIT, FLOOD = 20, 50
# After this time without progress a worker is stuck (seconds); it retries once a second.
STUCK_S = 8.0
STOPS = "stops at offset"


def foreign(count: int, partition: int = 0) -> list[tuple[int, bytes]]:
    """Messages in a format of a later version."""
    return [(partition, b"SG\x02 %d" % number) for number in range(count)]


def settings(kafka: str, prefix: str, limit: int = LIMIT, **more: Any) -> dict[str, Any]:
    return {"bootstrap": kafka, "prefix": prefix, "dead_letter_limit": limit, **more}


def ends_well(process: WorkerProcess) -> None:
    assert process.stop() == 0, process.log


def letters_of(kafka: str, prefix: str) -> list[bytes | None]:
    return [letter.value for letter in asyncio.run(collect(kafka, prefix))]


def test_d3_a_partition_stops_at_too_many_and_a_worker_with_another_limit_continues(
    kafka: str, prefix: str, tmp_path: Path
) -> None:
    bad, good = SyntheticTap(61, slots=(0,)), SyntheticTap(62, slots=(1,))
    bundles = list(bad.bundles(20))
    half = len(bundles) // 2
    unread = foreign(FLOOD)
    write(kafka, prefix, [*bundles[:half], *unread, *good.bundles(20)])
    with worker(tmp_path, **settings(kafka, prefix, foreign_alone_s=0.0)) as process:
        wait_for(lambda: STOPS in process.log, "a partition that has stopped")
        wait_for(lambda: committed(kafka, prefix, 0) == half + LIMIT, "the offset at which it stopped")
        assert set(good.ids) <= records_of(kafka, prefix, len(good.ids)).keys(), "another partition was affected"
        assert len(letters_of(kafka, prefix)) == LIMIT
        sentence = f"partition 0 of {prefix}.segments stops at offset {half + LIMIT} (decode: version)"
        assert process.log.count(sentence) == 1, process.log
        ends_well(process)
    assert committed(kafka, prefix, 0) == half + LIMIT
    write(kafka, prefix, bundles[half:])
    with worker(tmp_path, **settings(kafka, prefix, limit=0)) as process:
        found = records_of(kafka, prefix, 40)
        wait_for(lambda: committed(kafka, prefix, 0) == len(bundles) + FLOOD, "the offset after all")
        ends_well(process)
    assert letters_of(kafka, prefix) == [value for _, value in unread], "a message is missing, or there twice"
    assert same(found, assembled(log_of(kafka, f"{prefix}.segments")))
    assert len(found) == 40


def test_d3_foreign_messages_beside_those_of_a_tap_stop_nothing(kafka: str, prefix: str, tmp_path: Path) -> None:
    """A client may write as many as it can between two messages of a tap. It delays the partition, and no more."""
    tap = SyntheticTap(63, slots=(0,))
    bundles = list(tap.bundles(30))
    unread = foreign(10 * LIMIT)
    write(kafka, prefix, [*bundles[:2], *unread, *bundles[2:]])
    with worker(tmp_path, **settings(kafka, prefix)) as process:
        assert records_of(kafka, prefix, len(tap.ids)).keys() == set(tap.ids)
        wait_for(lambda: committed(kafka, prefix, 0) == len(bundles) + len(unread), "the offset after all")
        assert STOPS not in process.log
        ends_well(process)
    assert letters_of(kafka, prefix) == [value for _, value in unread]


def test_d3_what_is_no_bundle_stops_nothing(kafka: str, prefix: str, tmp_path: Path) -> None:
    """Also in a partition that no tap uses: the next tap there finds it running."""
    unread = [(0, b"junk")] * FLOOD + [(0, b"SG\x01junk")] * FLOOD
    write(kafka, prefix, unread)
    with worker(tmp_path, **settings(kafka, prefix, foreign_alone_s=0.0)) as process:
        wait_for(lambda: committed(kafka, prefix, 0) == len(unread), "the offset after all")
        assert STOPS not in process.log
        ends_well(process)
    assert letters_of(kafka, prefix) == [value for _, value in unread]


def test_d3_a_partition_that_has_stopped_continues_when_a_readable_bundle_comes(
    kafka: str, prefix: str, tmp_path: Path
) -> None:
    tap = SyntheticTap(64, slots=(0,))
    unread = foreign(FLOOD)
    write(kafka, prefix, unread)
    with worker(tmp_path, **settings(kafka, prefix, foreign_alone_s=0.0)) as process:
        wait_for(lambda: STOPS in process.log, "a partition that has stopped")
        write(kafka, prefix, list(tap.bundles(10)))
        assert records_of(kafka, prefix, len(tap.ids)).keys() == set(tap.ids)
        assert f"continues at offset {LIMIT}" in process.log
        ends_well(process)
    assert letters_of(kafka, prefix) == [value for _, value in unread]


def test_d3_a_readable_bundle_is_found_after_more_than_the_queue_holds(kafka: str, prefix: str, tmp_path: Path) -> None:
    tap = SyntheticTap(65, slots=(0,))
    unread = [(0, b"SG\x02 %d" % number + bytes(200_000)) for number in range(60)]
    write(kafka, prefix, unread)
    with worker(tmp_path, **settings(kafka, prefix, foreign_alone_s=0.0)) as process:
        wait_for(lambda: STOPS in process.log, "a partition that has stopped")
        bundles = list(tap.bundles(10))
        write(kafka, prefix, bundles)
        assert records_of(kafka, prefix, len(tap.ids)).keys() == set(tap.ids)
        wait_for(lambda: committed(kafka, prefix, 0) == len(unread) + len(bundles), "the offset after all")
        assert process.log.count(STOPS) == 1
        ends_well(process)
    assert letters_of(kafka, prefix) == [value for _, value in unread]


def test_d3_a_partition_that_has_stopped_is_not_stuck(kafka: str, prefix: str, tmp_path: Path) -> None:
    """The watchdog ends a worker whose offset stays although messages wait, unless it waits for a good reason."""
    write(kafka, prefix, foreign(FLOOD))
    with worker(tmp_path, **settings(kafka, prefix, foreign_alone_s=0.0, stuck_s=STUCK_S)) as process:
        wait_for(lambda: STOPS in process.log, "a partition that has stopped")
        time.sleep(1.5 * STUCK_S)
        assert process.process.poll() is None, process.log
        ends_well(process)
