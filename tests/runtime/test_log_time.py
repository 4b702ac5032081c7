"""Each line of a command that stays has its time, in UTC as RFC 3339, whichever of its processes writes it."""

import json
import logging
import re
import socket
from datetime import UTC, datetime
from pathlib import Path

import pytest

from streamgauge.runtime.log_time import TimedLine, log_with_times, rfc3339
from tests.running import command, start_up

STAMP = re.compile(r"(\d{4}-\d\d-\d\dT\d\d:\d\d:\d\dZ) (streamgauge|relay): \S")


def test_times() -> None:
    assert rfc3339(1_700_000_000.9) == "2023-11-14T22:13:20Z"
    assert rfc3339(1_700_000_000.9, 3) == "2023-11-14T22:13:20.900Z"
    assert abs(datetime.fromisoformat(rfc3339()).timestamp() - datetime.now(UTC).timestamp()) < 60


def test_a_log_record_with_more_lines_has_one_time(capsys: pytest.CaptureFixture[str]) -> None:
    record = logging.LogRecord("streamgauge", logging.ERROR, __file__, 1, "a fault\n  its frame", None, None)
    record.created = 1_700_000_000.0
    assert TimedLine().format(record) == "2023-11-14T22:13:20Z streamgauge: a fault\n  its frame"
    root = logging.getLogger()
    before, root.handlers = root.handlers, []
    try:
        log_with_times()
        logging.getLogger("streamgauge.ledger").warning("no disk")
    finally:
        root.handlers = before
    assert re.fullmatch(r"\S+Z streamgauge: no disk\n", capsys.readouterr().err)


@pytest.mark.slow
def test_each_line_of_up_and_of_its_relay(tmp_path: Path) -> None:
    import urllib.error
    import urllib.request

    with start_up({"away": "http://127.0.0.1:1"}, tmp_path / "data") as up:
        with pytest.raises(urllib.error.HTTPError):
            urllib.request.urlopen(f"{up.url}/away/v1/models", timeout=60)
        up.stop()
        lines = up.log.splitlines()
    assert [line for line in lines if not STAMP.match(line)] == []
    assert any(" relay: answered a request with 502 " in line for line in lines)
    assert any("open streams may go on for up to " in line for line in lines)


@pytest.mark.slow
def test_the_sentence_that_ends_a_command_that_stays_has_its_time(tmp_path: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as server:
        taken = f"127.0.0.1:{server.getsockname()[1]}"
        up = command("up", "--upstream", "a=http://x", "--listen", taken, "--data-dir", str(tmp_path))
        worker = command("worker", "--kafka", "127.0.0.1:1", "--admin", taken, "--data-dir", str(tmp_path / "worker"))
    assert (up.returncode, worker.returncode) == (3, 3)
    assert STAMP.match(up.stderr)
    assert f"streamgauge: up: the address {taken} is in use" in up.stderr
    line = json.loads(worker.stderr.splitlines()[-1])
    assert (line["level"], line["message"].partition(":")[0]) == ("error", "worker")
    assert datetime.fromisoformat(line["at"]).tzinfo is not None
