"""`streamgauge worker` while its broker is unreachable: it waits, logs this, and ends on SIGTERM. And its ledger."""

import json
import signal
from pathlib import Path

import msgspec
import pytest

from streamgauge.cli.admin_port import with_worker_admin_port
from streamgauge.cli.worker import LedgerStore
from streamgauge.core.record import encode_record
from streamgauge.ledger import open_ledger
from streamgauge.settings.sources import load
from tests.running import start, wait_for
from tests.taps.packets.talking import WHOLE, asking
from tests.taps.packets.wire import Line, pcap, read, records

pytestmark = pytest.mark.slow

# A port on which no broker listens.
UNREACHABLE = "127.0.0.1:1"


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_it_waits_for_a_broker_and_is_not_ready(tmp_path: Path, number: int) -> None:
    data_dir = tmp_path / "data"
    flags = ["--kafka", UNREACHABLE, "--admin", "127.0.0.1:0", "--data-dir", str(data_dir)]
    with start("worker", flags, data_dir) as worker:
        wait_for(lambda: "metrics at" in worker.log, "address")
        worker.admin = worker.log.partition("metrics at ")[2].partition("/metrics")[0]
        wait_for(lambda: UNREACHABLE in worker.log.replace(worker.admin, ""), "a word on the broker")
        assert worker.get("/health/ready")[0] == 503
        assert worker.get("/health/live")[0] == 200
        assert worker.stop(number) == 0
        assert "Traceback" not in worker.log
        for line in worker.log.splitlines():
            assert json.loads(line)["part"].startswith("streamgauge.")
    assert (data_dir / "ledger.sqlite").exists()


def test_f13_a_second_worker_on_a_data_directory_is_refused(tmp_path: Path) -> None:
    data_dir = tmp_path / "data"
    flags = ["--kafka", UNREACHABLE, "--admin", "127.0.0.1:0", "--data-dir", str(data_dir)]
    with start("worker", flags, data_dir) as first:
        wait_for(lambda: "does not answer" in first.log, "the first one")
        with start("worker", flags, data_dir) as second:
            wait_for(lambda: f"1 or more other workers use {data_dir}" in second.log, "a word on the first one")


def test_a_worker_and_a_tap_on_one_host_have_different_metrics_ports(tmp_path: Path) -> None:
    file = tmp_path / "streamgauge.toml"
    file.write_text('admin = "127.0.0.1:9001"\n')
    assert str(load({}).admin) == "127.0.0.1:9464"
    assert str(with_worker_admin_port(load({})).admin) == "127.0.0.1:9465"
    assert str(with_worker_admin_port(load({}, file)).admin) == "127.0.0.1:9001"
    assert str(with_worker_admin_port(load({"admin": "127.0.0.1:9464"})).admin) == "127.0.0.1:9464"


def test_t12_records_of_a_capture_file_that_was_shipped_twice_are_stored_once(tmp_path: Path) -> None:
    """Each run of a tap is a separate instance, so the second record differs: it is counted, and not stored."""
    line = Line().open()
    for _ in range(2):
        line.ask(asking()).answer(*WHOLE).acknowledge()
    file = pcap(line.sent)
    first = [encode_record(record) for record in records(read(file))]
    again = records(read(file))
    shipped = [encode_record(msgspec.structs.replace(record, tap_instance="another")) for record in again]
    with open_ledger(f"sqlite:///{tmp_path}/ledger.sqlite") as ledger:
        store = LedgerStore(ledger)
        assert store.insert(first).new == 2
        totals = ledger.totals(["day"])
        assert totals[0].streams == 2
        stored = store.insert(shipped)
        assert (stored.new, stored.same, stored.different) == (0, 0, 2)
        stored = store.insert([encode_record(record) for record in again])
        assert (stored.new, stored.same, stored.different) == (0, 2, 0)
        assert ledger.totals(["day"]) == totals
