"""`top` over a tap and two workers with one ledger: each stream counts once, also those that a worker read at its start."""

import json
from pathlib import Path

import pytest

from tests.integration.provider import BEGIN, REST, provider
from tests.running import Running, here, start_tap, start_worker, wait_for, wait_until_ready

BODY = json.dumps({"model": "small-1", "stream": True, "messages": []})
HEADERS = {"content-type": "application/json"}
STREAMS = 8


def send(tap: Running) -> None:
    for _ in range(STREAMS):
        with tap.post(BODY, HEADERS) as answer:
            assert answer.read() == BEGIN + REST


@pytest.mark.kafka
def test_a_tap_and_two_workers(kafka: str, prefix: str, tmp_path: Path) -> None:
    def top(*processes: Running) -> str:
        addresses = [one.admin.removeprefix("http://") for one in processes]
        done = here("top", *addresses, environment={"COLUMNS": "120"})
        assert (done.returncode, done.stderr) == (0, "")
        return " ".join(done.stdout.split())

    broker = ["--kafka", kafka, "--topic-prefix", prefix]
    ledger = ["--ledger", f"sqlite:///{tmp_path / 'shared.sqlite'}"]
    with (
        provider() as small,
        start_tap("tap", {"small": small.url}, tmp_path / "tap", *broker) as tap,
        start_worker(kafka, prefix, tmp_path / "one", *ledger) as one,
    ):
        wait_until_ready(one)
        alone = top(tap)
        assert "No stream has finished since " in alone
        assert "the workers have all of them" in alone
        send(tap)
        wait_for(lambda: f" {STREAMS} finished " in top(one), "streams at the first worker")
        with start_worker(kafka, prefix, tmp_path / "two", *ledger) as two:
            wait_until_ready(two)
            wait_for(lambda: json.loads(one.get("/streams")[1])["partitions"], "partitions after the rebalance")
            assert f" {STREAMS} finished " in top(two), "from the ledger"
            send(tap)
            wait_for(lambda: f" {2 * STREAMS} finished " in top(tap, one, two), "sum of the workers")
            picture = top(tap, one, two)
            assert picture.startswith("3 addresses: 1 tap, 2 workers")
            assert f"100.0 % completed: {2 * STREAMS} completed" in picture
            listed = {
                row["id"] for each in (one, two) for row in json.loads(each.get("/streams")[1])["worst"]["recent"]
            }
            assert len(listed) == 2 * STREAMS
            assert all(f" {stream[-8:]} " in picture for stream in listed)
            assert one.stop() == 0
            left = top(tap, one, two)
            assert "nothing answers at " in left
            assert "Its streams are missing here." in left
            assert two.stop() == 0
