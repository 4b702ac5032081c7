"""`streamgauge tap` while its broker is unreachable: it serves, keeps what it captures, and ends on SIGTERM."""

import time
from pathlib import Path

import pytest

from streamgauge.spool import Spool
from tests.integration.provider import BEGIN, REST, provider
from tests.running import Running, start_tap, start_up, wait_for

pytestmark = pytest.mark.slow

# A port on which no broker listens.
UNREACHABLE = "127.0.0.1:1"

# Of a stop (seconds).
DRAIN_S = 4


def ask(tap: Running) -> bytes:
    with tap.post() as answer:
        return answer.read()


def test_a_tap_needs_no_broker_to_serve_and_to_end(tmp_path: Path) -> None:
    data_dir = tmp_path / "data"
    options = ("--kafka", UNREACHABLE, "--drain-timeout", str(DRAIN_S))
    with provider() as small, start_tap("tap", {"small": small.url}, data_dir, *options) as tap:
        assert ask(tap) == BEGIN + REST
        wait_for(lambda: tap.metrics()["streamgauge_spool_rows"], "rows in the spool")
        page = tap.metrics()
        assert page["streamgauge_tap_reads_waiting"] == page["streamgauge_tap_reads_seen_total"] > 0
        assert tap.get("/health/ready")[0] == 200
        began = time.monotonic()
        assert tap.stop() == 0
        assert time.monotonic() - began < DRAIN_S + 5
        assert "Traceback" not in tap.log
    spool = Spool(data_dir / "spool.sqlite")
    assert spool.waiting().reads > 0
    spool.close()


def test_rows_that_a_tap_kept_are_processed_by_the_next_command(tmp_path: Path) -> None:
    """The spool is the same with and without Kafka: here `up` takes over the data directory."""
    data_dir = tmp_path / "data"
    with provider() as small:
        with start_tap("tap", {"small": small.url}, data_dir, "--kafka", UNREACHABLE, "--drain-timeout", "2") as tap:
            ask(tap)
            assert tap.stop() == 0
        with start_up({"small": small.url}, data_dir) as up:
            [record] = up.wait_for_records(1)
            assert record["outcome"] == "completed"
