"""`streamgauge up` as a user runs it, in front of a small provider: its records, its health, and how it ends."""

import contextlib
import csv
import json
import os
import shutil
import signal
import sqlite3
import threading
import time
from collections.abc import Iterator
from contextlib import closing, suppress
from pathlib import Path
from urllib.parse import urlsplit

import pytest

from streamgauge.metrics.table import OUTCOMES
from streamgauge.spool.read_counters import read_balance
from tests.integration.provider import BEGIN, REST, Provider, provider
from tests.processes import children, runs
from tests.running import PATIENCE_S, Running, command, start_up, wait_for

# Drain timeouts that are shorter, and longer, than an open stream (seconds).
SHORT_S = 2
LONG_S = 30


class Stream:
    """A chat through the tap; `read` gives what has arrived since the last call, `rest` everything to its end."""

    def __init__(self, up: Running, prefix: str = "/small", **more: str) -> None:
        body = json.dumps({"model": "small-1", "stream": True, "messages": [{"role": "user", "content": "A SECRET"}]})
        headers = {"content-type": "application/json", "authorization": "Bearer ANOTHER-SECRET", **more}
        self._stack = contextlib.ExitStack()
        self._answer = self._stack.enter_context(up.post(body, headers, f"{prefix}/v1/chat/completions"))

    def read(self, size: int) -> bytes:
        return self._answer.read(size)

    def rest(self) -> bytes:
        return self._answer.read()

    def close(self) -> None:
        self._stack.close()


@pytest.fixture
def small() -> Iterator[Provider]:
    with provider() as started:
        yield started


@pytest.fixture
def data_dir(tmp_path: Path) -> Path:
    return tmp_path / "data"


def ask(up: Running) -> bytes:
    stream = Stream(up)
    try:
        return stream.rest()
    finally:
        stream.close()


def open_stream(up: Running, small: Provider) -> Stream:
    """A stream that has begun and is counted as open."""
    small.go_on.clear()
    stream = Stream(up)
    assert stream.read(len(BEGIN)) == BEGIN
    wait_for(lambda: up.metrics().get("streamgauge_open_streams"), "open stream")
    return stream


def balance(up: Running) -> dict[str, float]:
    """The tap's metrics once no read waits; asserts that the reads are in balance."""
    up.settled()
    return up.metrics()


def child_of(up: Running, module: str) -> int:
    [found] = [pid for pid, line in children(up.process.pid).items() if module in line]
    return found


class Held:
    """A process that stays stopped, even if its parent ends: the kernel wakes stopped processes when that happens."""

    def __init__(self, pid: int) -> None:
        self._pid = pid
        self._over = threading.Event()
        self._stopping = threading.Thread(target=self._stop, daemon=True)
        self._stopping.start()

    def release(self) -> None:
        """Raises ProcessLookupError if it has ended."""
        self._over.set()
        self._stopping.join()
        os.kill(self._pid, signal.SIGCONT)

    def _stop(self) -> None:
        with suppress(ProcessLookupError):
            os.kill(self._pid, signal.SIGSTOP)
            while not self._over.wait(0.001):
                os.kill(self._pid, signal.SIGSTOP)


def test_a_stream_becomes_a_record(small: Provider, data_dir: Path) -> None:
    with start_up({"small": small.url}, data_dir) as up:
        assert ask(up) == BEGIN + REST
        [record] = up.wait_for_records(1)
        assert (record["upstream"], record["dialect"], record["outcome"]) == ("small", "openai-chat", "completed")
        assert record["request"]["host"] == "127.0.0.1"
        assert record["finish_reason"] == "stop"
        assert record["usage"]["output_tokens"] == 2
        assert record["timing"]["first_token_s"] > 0
        page = balance(up)
        labels = 'dialect="openai-chat",model="small-1",outcome="completed",upstream="small"'
        assert page[f"streamgauge_streams_total{{{labels}}}"] == 1
        assert page["streamgauge_open_streams"] == 0
        assert up.get("/health/live")[0] == up.get("/health/ready")[0] == 200
        assert up.get("/settings")[0] == 404
        assert up.stop() == 0
    assert b"SECRET" not in b"".join(path.read_bytes() for path in data_dir.iterdir() if path.is_file())
    assert "SECRET" not in up.log


def test_attributes_and_rate_limits_reach_records_totals_and_metrics(small: Provider, data_dir: Path) -> None:
    small.headers = {"x-ratelimit-limit-requests": "500", "x-ratelimit-remaining-requests": "499"}
    options = ("--attribute", "agent=X-Agent", "--metric-attribute", "agent", "--strip-attributes")
    with start_up({"small": small.url}, data_dir, *options) as up:
        stream = Stream(up, **{"X-Agent": "planner", "X-Other": "kept"})
        assert stream.rest() == BEGIN + REST
        stream.close()
        [record] = up.wait_for_records(1)
        page = balance(up)
        assert up.stop() == 0
    assert "x-agent" not in small.asked[0]
    assert small.asked[0]["x-other"] == "kept"
    assert record["attributes"] == {"agent": "planner"}
    limits = record["rate_limit"]
    assert (limits["requests_limit"], limits["requests_remaining"], limits["tokens_limit"]) == (500, 499, None)
    labels = 'agent="planner",dialect="openai-chat",model="small-1",outcome="completed",upstream="small"'
    assert page[f"streamgauge_streams_total{{{labels}}}"] == 1
    labels = f'credential_id="{record["credential_id"]}",kind="requests",upstream="small"'
    assert page[f"streamgauge_rate_limit_remaining{{{labels}}}"] == 499
    done = command("ledger", "query", "--data-dir", str(data_dir), "--by", "agent", "--output", "csv")
    assert [row["agent"] for row in csv.DictReader(done.stdout.splitlines())] == ["planner"]


def test_a_label_of_no_attribute_is_refused(small: Provider, data_dir: Path) -> None:
    words = ("up", "--upstream", f"small={small.url}", "--data-dir", str(data_dir), "--metric-attribute", "agent")
    done = command(*words)
    assert done.returncode == 2
    assert "--metric-attribute agent requires --attribute agent=HEADER" in done.stderr
    done = command(*words[:-1], "tenant")
    assert done.returncode == 2
    assert "--metric-attribute tenant requires --tenant-header or --tenants" in done.stderr


def test_a_single_upstream_has_no_prefix(small: Provider, data_dir: Path) -> None:
    with start_up(small.url, data_dir) as up:
        stream = Stream(up, prefix="")
        assert stream.rest() == BEGIN + REST
        stream.close()
        assert up.wait_for_records(1)[0]["upstream"] == urlsplit(small.url).netloc


def test_counters_of_an_upstream_begin_at_0_and_names_of_opentelemetry_are_shown(
    small: Provider, data_dir: Path
) -> None:
    with start_up(small.url, data_dir, "--otel-names", "latest") as up:
        name = urlsplit(small.url).netloc
        outcomes = [
            f'streamgauge_stream_outcomes_total{{outcome="{outcome}",upstream="{name}"}}' for outcome in OUTCOMES
        ]
        page = up.metrics()
        assert [page[outcome] for outcome in outcomes] == [0] * len(OUTCOMES)
        assert page[f'streamgauge_transport_errors_total{{cause="refused",upstream="{name}"}}'] == 0
        with closing(Stream(up, prefix="")) as stream:
            assert stream.rest() == BEGIN + REST
        up.wait_for_records(1)
        page = balance(up)
        assert sum(page[outcome] for outcome in outcomes) == 1
        labels = 'gen_ai_operation_name="chat",gen_ai_provider_name="openai",gen_ai_request_model="small-1"'
        assert page[f"gen_ai_client_inference_duration_seconds_count{{{labels}}}"] == 1  # without an error_type


def test_the_data_directory_is_private(small: Provider, data_dir: Path) -> None:
    with start_up({"small": small.url}, data_dir.parent / "made" / "here") as up:
        ask(up)
        up.wait_for_records(1)
        files = [path for path in up.data_dir.rglob("*") if path.is_file()]
        assert len(files) > 5
        assert {path.name: path.stat().st_mode & 0o077 for path in files if path.stat().st_mode & 0o077} == {}


def test_ready_reports_whether_requests_are_accepted(small: Provider, data_dir: Path) -> None:
    with start_up({"small": small.url}, data_dir) as up:
        stream = open_stream(up, small)
        killed = child_of(up, "streamgauge.taps.proxy")
        wait_for(lambda: kill(killed) or up.get("/health/ready")[0] == 503, "a tap that is not ready")  # type: ignore[func-returns-value]
        assert up.get("/health/live")[0] == 200
        wait_for(lambda: up.get("/health/ready")[0] == 200, "a tap that is ready again")
        stream.close()
        small.go_on.set()
        assert ask(up) == BEGIN + REST
        records = up.wait_for_records(2)
        assert sorted(record["outcome"] for record in records) == ["abandoned", "completed"]
        balance(up)
        assert "the relay ended unexpectedly (signal 9); restarting it" in up.log


def kill(pid: int) -> None:
    with suppress(ProcessLookupError):
        os.kill(pid, signal.SIGKILL)


def test_a_collector_that_is_killed_costs_no_stream(small: Provider, data_dir: Path) -> None:
    with start_up({"small": small.url}, data_dir) as up:
        stream = open_stream(up, small)
        killed = child_of(up, "streamgauge.cli.collector")
        kill(killed)
        wait_for(lambda: not runs(killed), "end of the collector")
        small.go_on.set()
        assert stream.rest() == REST
        stream.close()
        sentence = "the collector ended unexpectedly (signal 9); restarting it"
        wait_for(lambda: sentence in up.log and len(children(up.process.pid)) == 2, "restart")
        wait_for(lambda: up.get("/health/ready")[0] == 200, "a tap that is ready again")
        # The relay reconnects to the new collector within moments; reads before that are dropped and counted.
        wait_for(lambda: ask(up) == BEGIN + REST and "completed" in outcomes(up), "a record again")
        assert outcomes(up).count("abandoned") == 1
        assert up.stop() == 0


def test_a_collector_that_is_started_again_captures_while_its_ledger_is_unavailable(
    small: Provider, data_dir: Path
) -> None:
    with start_up({"small": small.url}, data_dir) as up:
        assert ask(up) == BEGIN + REST
        up.wait_for_records(1)
        ledger, away = data_dir / "ledger.sqlite", data_dir / "away"
        kill(child_of(up, "streamgauge.cli.collector"))
        ledger.rename(away)
        ledger.mkdir()
        wait_for(lambda: "captured data waits in the spool" in up.log, "a sentence about the ledger")
        assert ask(up) == BEGIN + REST
        wait_for(lambda: up.metrics()["streamgauge_spool_rows"], "rows in the spool")
        assert (up.get("/health/live")[0], up.get("/health/ready")[0]) == (200, 503)
        ledger.rmdir()
        away.rename(ledger)
        assert {record["outcome"] for record in up.wait_for_records(2)} == {"completed"}
        assert up.stop() == 0


def test_a_collector_that_is_started_again_captures_with_the_last_usable_prices(
    small: Provider, data_dir: Path, tmp_path: Path
) -> None:
    prices = tmp_path / "prices.toml"
    prices.write_text('[[price]]\nmodel = "small-1"\nfrom = 2020-01-01\ninput = 1000\noutput = 1000\n')
    with start_up({"small": small.url}, data_dir, "--prices", str(prices)) as up:
        assert ask(up) == BEGIN + REST
        up.wait_for_records(1)
        prices.write_text("not = [toml")
        kill(child_of(up, "streamgauge.cli.collector"))
        wait_for(lambda: "its content at the start of the tap is used" in up.log, "a sentence about the prices")
        wait_for(lambda: up.get("/health/ready")[0] == 200, "a tap that is ready again")
        assert up.get("/health/ready")[1].startswith("ok\n--prices: the file cannot be used")
        assert up.metrics()['streamgauge_settings_file_unusable{setting="prices"}'] == 1
        wait_for(lambda: ask(up) == BEGIN + REST and len(up.records()) > 1, "a record again")
        assert {record["cost"] and record["cost"]["price_source"] for record in up.records()} == {
            "prices.toml: small-1"
        }
        assert up.stop() == 0


def test_a_collector_that_is_started_again_captures_without_the_token_of_its_admin_port(
    small: Provider, data_dir: Path, tmp_path: Path
) -> None:
    token, away = tmp_path / "token", tmp_path / "away"
    token.write_text("a-token-of-the-admin-port-0123456789\n")
    token.chmod(0o600)
    with start_up({"small": small.url}, data_dir, "--admin-token-file", str(token)) as up:
        assert ask(up) == BEGIN + REST
        up.wait_for_records(1)
        token.rename(away)
        kill(child_of(up, "streamgauge.cli.collector"))
        wait_for(lambda: "the admin port stays closed" in up.log, "a sentence about the token")
        wait_for(lambda: ask(up) == BEGIN + REST and read_balance(data_dir / "counters").waiting, "captured reads")
        away.rename(token)
        wait_for(lambda: up.get("/health/ready")[0] == 200, "an open admin port")
        assert up.get("/metrics")[0] == 401
        assert len(up.wait_for_records(2)) >= 2
        assert up.stop() == 0


def outcomes(up: Running) -> list[str]:
    return [record["outcome"] for record in up.records()]


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_a_stop_lets_an_open_stream_end(small: Provider, data_dir: Path, number: int) -> None:
    with start_up({"small": small.url}, data_dir, "--drain-timeout", str(LONG_S)) as up:
        stream = open_stream(up, small)
        up.process.send_signal(number)
        wait_for(lambda: up.get("/health/ready")[0] == 503, "a tap that says that it ends")
        small.go_on.set()
        assert stream.rest() == REST
        stream.close()
        assert up.process.wait(PATIENCE_S) == 0
        [record] = up.records()
        assert record["outcome"] == "completed"


def test_a_stop_of_all_processes_at_once_loses_no_stream(small: Provider, data_dir: Path) -> None:
    """As a service manager stops a group of processes."""
    with start_up({"small": small.url}, data_dir, "--drain-timeout", str(LONG_S)) as up:
        stream = open_stream(up, small)
        for pid in (up.process.pid, *children(up.process.pid)):
            os.kill(pid, signal.SIGTERM)
        time.sleep(0.5)
        small.go_on.set()
        assert stream.rest() == REST
        stream.close()
        assert up.process.wait(PATIENCE_S) == 0
        assert [record["outcome"] for record in up.records()] == ["completed"]


def test_a_stop_ends_within_the_drain_timeout(small: Provider, data_dir: Path) -> None:
    with start_up({"small": small.url}, data_dir, "--drain-timeout", str(SHORT_S)) as up:
        stream = open_stream(up, small)
        began = time.monotonic()
        assert up.stop() == 0
        took = time.monotonic() - began
        stream.close()
        assert took < SHORT_S + 5, "some seconds more for a shared machine, but not the ten of a hung child"
        [record] = up.records()
        assert record["outcome"] != "completed"
        assert record["counts"]["token_events"] == 1


def test_the_next_run_continues_with_the_same_ledger(small: Provider, data_dir: Path) -> None:
    for lives in (1, 2, 3):
        with start_up({"small": small.url}, data_dir) as up:
            ask(up)
            assert len(up.wait_for_records(lives)) == lives
            assert balance(up)["streamgauge_tap_reads_seen_total"] >= lives
            assert up.stop() == 0
    totals = command("ledger", "query", "--data-dir", str(data_dir), "--by", "outcome", "--output", "csv")
    [line] = csv.DictReader(totals.stdout.splitlines())
    assert (line["outcome"], line["streams"], line["with_usage"]) == ("completed", "3", "3")
    assert (line["input_tokens"], line["output_tokens"], line["total_tokens"]) == ("9", "6", "15")


def test_killed_it_leaves_no_process_and_its_address_is_free_at_once(small: Provider, data_dir: Path) -> None:
    with start_up({"small": small.url}, data_dir) as up:
        ask(up)
        up.wait_for_records(1)
        stream = open_stream(up, small)
        left = children(up.process.pid)
        assert len(left) == 2
        runtime = (data_dir / "run").readlink()
        places = ("--listen", urlsplit(up.url).netloc, "--admin", urlsplit(up.admin).netloc)
        assert up.stop(signal.SIGKILL) == -signal.SIGKILL
    with start_up({"small": small.url}, data_dir, *places) as again:
        assert not any(map(runs, left)), "it has waited for them"
        assert not runtime.exists()
        assert (data_dir / "run").readlink() != runtime
        stream.close()
        small.go_on.set()
        assert ask(again) == BEGIN + REST
        records = again.wait_for_records(3)
        assert sorted(record["outcome"] for record in records) == ["abandoned", "completed", "completed"]
        balance(again)
        last = (data_dir / "run").readlink()
        assert again.stop() == 0
    assert not last.exists()
    assert not (data_dir / "run").is_symlink()


def test_a_collector_restarts_if_its_sockets_directory_is_missing(small: Provider, data_dir: Path) -> None:
    """A cleaner of the temporary directory may have removed it."""
    with start_up({"small": small.url}, data_dir) as up:
        ask(up)
        up.wait_for_records(1)
        runtime = (data_dir / "run").readlink()
        shutil.rmtree(runtime)
        os.kill(child_of(up, "streamgauge.cli.collector"), signal.SIGKILL)
        wait_for((runtime / "recorder.sock").exists, "the socket, again")
        assert runtime.stat().st_mode & 0o777 == 0o700
        ask(up)
        up.wait_for_records(2)
        assert up.stop() == 0
    assert not runtime.exists()


def test_s7_a_tap_on_a_copied_data_directory_does_not_affect_the_running_tap(
    small: Provider, data_dir: Path, tmp_path: Path
) -> None:
    """A backup or a clone of a volume also contains the running tap's symbolic link."""
    copied = tmp_path / "copied"
    with start_up({"small": small.url}, data_dir) as up:
        runtime = (data_dir / "run").readlink()
        shutil.copytree(data_dir, copied, symlinks=True)
        with start_up({"small": small.url}, copied) as other:
            assert (copied / "run").readlink() not in (runtime, None)
            assert (runtime / "recorder.sock").exists()
            os.kill(child_of(up, "streamgauge.cli.collector"), signal.SIGKILL)
            wait_for(lambda: "restarting it" in up.log, "the collector's end")
            ask(up)
            ask(other)
            up.wait_for_records(1)
            other.wait_for_records(1)
            assert other.stop() == 0
        assert (runtime / "recorder.sock").exists()
        assert "cannot start" not in up.log
        assert up.stop() == 0


def test_s7_a_directory_to_which_the_link_leads_keeps_its_files(
    small: Provider, data_dir: Path, tmp_path: Path
) -> None:
    precious = tmp_path / "streamgauge-ledgers"
    precious.mkdir(mode=0o700)
    (precious / "ledger.sqlite").write_text("precious")
    data_dir.mkdir()
    (data_dir / "run").symlink_to(precious)
    with start_up({"small": small.url}, data_dir) as up:
        ask(up)
        up.wait_for_records(1)
        assert (data_dir / "run").readlink() != precious
        assert up.stop() == 0
    assert (precious / "ledger.sqlite").read_text() == "precious"


def test_the_next_run_waits_for_a_collector_that_is_still_storing(small: Provider, data_dir: Path) -> None:
    """Otherwise its reads would be counted twice: as lost in the crash, and as delivered."""
    with start_up({"small": small.url}, data_dir) as up:
        collector = Held(child_of(up, "streamgauge.cli.collector"))
        going_on = threading.Timer(1.5, collector.release)
        assert ask(up) == BEGIN + REST
        # They are written to the client before they are counted.
        wait_for(lambda: read_balance(data_dir / "counters").waiting, "reads that wait")
        assert up.stop(signal.SIGKILL) == -signal.SIGKILL
    going_on.start()
    with start_up({"small": small.url}, data_dir) as again:
        going_on.join()
        assert ask(again) == BEGIN + REST
        again.wait_for_records(1)
        page = balance(again)
        assert page["streamgauge_tap_reads_waiting"] == 0
        assert again.stop() == 0
    assert {record["outcome"] for record in again.records()} <= {"completed", "abandoned"}


def reads_in_spool(data_dir: Path) -> int:
    with closing(sqlite3.connect(data_dir / "spool.sqlite")) as file:
        return int(file.execute("SELECT coalesce(sum(reads), 0) FROM rows").fetchone()[0])


def test_rows_that_wait_in_the_spool_are_processed_by_the_next_run(small: Provider, data_dir: Path) -> None:
    """While another process locks the ledger during one run of `up`, its streams are stored by the next run."""
    with start_up({"small": small.url}, data_dir, "--drain-timeout", str(SHORT_S)) as up:
        ask(up)
        up.wait_for_records(1)
        with closing(sqlite3.connect(data_dir / "ledger.sqlite", isolation_level=None)) as blocker:
            blocker.execute("BEGIN IMMEDIATE")
            assert ask(up) == BEGIN + REST
            assert ask(up) == BEGIN + REST
            seen = up.metrics
            wait_for(lambda: 0 < seen()["streamgauge_tap_reads_waiting"] == reads_in_spool(data_dir), "what waits")
            up.stop(signal.SIGKILL)
            blocker.execute("ROLLBACK")
    with start_up({"small": small.url}, data_dir) as again:
        records = again.wait_for_records(3)
        assert {record["outcome"] for record in records} == {"completed"}
        balance(again)
