"""L3: gauges of what a worker no longer has leave its page, with real workers that share the partitions."""

from contextlib import AbstractContextManager
from pathlib import Path

import pytest

from tests.integration.synthetic import SyntheticTap
from tests.integration.test_worker import write
from tests.kafka_broker.fixtures import PARTITIONS
from tests.running import Running, start_worker, wait_for, wait_until_ready

pytestmark = pytest.mark.kafka

LAG = "streamgauge_worker_lag_messages"
EVERY = frozenset(map(str, range(PARTITIONS)))


def lag_of(worker: Running) -> set[str]:
    """The partitions whose lag is on the page."""
    return {name.split('"')[1] for name in worker.metrics() if name.startswith(f"{LAG}{{")}


def test_l3_the_gauges_of_partitions_that_move_leave_the_page(kafka: str, prefix: str, tmp_path: Path) -> None:
    write(kafka, prefix, list(SyntheticTap(51).bundles(20)))

    def worker(name: str) -> AbstractContextManager[Running]:
        return start_worker(kafka, prefix, tmp_path / name)

    with worker("one") as one:
        wait_until_ready(one)
        wait_for(lambda: lag_of(one) == EVERY, "the lag of all partitions")
        with worker("two") as two:
            wait_until_ready(two)
            wait_for(lambda: lag_of(one) and lag_of(two) and lag_of(one) | lag_of(two) == EVERY, "partitions of both")
            wait_for(lambda: not lag_of(one) & lag_of(two), "each partition on one page alone")
            wait_for(
                lambda: one.metrics()["streamgauge_worker_partitions"] == len(lag_of(one)), "the number of partitions"
            )
            assert two.stop() == 0, two.log
        wait_for(lambda: lag_of(one) == EVERY, "the lag of all partitions again")
        assert one.stop() == 0, one.log
