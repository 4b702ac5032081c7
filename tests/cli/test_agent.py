"""`up --agent` and `tap --agent`: an agent for taps in applications. These tests send to its collector by hand."""

import contextlib
import os
import re
import signal
import socket
import stat
import time
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import pytest

from streamgauge.core.capture.segments import Ending
from streamgauge.recorder.protocol import (
    ExchangeEnding,
    Message,
    RequestStarted,
    ResponseHead,
    ResponseRead,
    encode_batch,
)
from tests.cli.test_tap import UNREACHABLE
from tests.processes import children
from tests.running import PATIENCE_S, Running, start, wait_for, wait_until_ready
from tests.taps.talk import EVENTS

pytestmark = pytest.mark.slow

ANY_ADMIN = ("--admin", "127.0.0.1:0")
# For a stop that nothing delays, and for one that open streams delay (seconds).
QUICK_S, LONG_S = 3.0, 60.0


@contextlib.contextmanager
def agent(
    data_dir: Path,
    *options: str,
    name: str = "up",
    environment: Mapping[str, str] = {},
    admin: tuple[str, ...] = ANY_ADMIN,
) -> Iterator[Running]:
    with start(name, ["--agent", *admin, "--data-dir", str(data_dir), *options], data_dir, environment) as running:
        wait_until_ready(running)
        yield running


class Application:
    """A tap in an application, as its collector sees it."""

    def __init__(self, data_dir: Path) -> None:
        self.connection = socket.socket(socket.AF_UNIX)
        self.connection.settimeout(PATIENCE_S)
        path = str((data_dir / "run").readlink() / "recorder.sock")
        # The socket's file exists shortly before the collector listens on it.
        wait_for(lambda: self.connection.connect_ex(path) == 0, "a collector that listens")

    def tell(self, *messages: Message) -> None:
        self.connection.sendall(encode_batch(list(messages)))

    def begin(self, stream: int, events: int = len(EVENTS), **request: Any) -> None:
        now = time.monotonic_ns()
        head = ResponseHead(stream, now, 200, [("content-type", "text/event-stream")])
        self.tell(
            RequestStarted(stream, now, time.time_ns(), "app", "POST", "/v1/chat/completions", tap="asgi", **request),
            head,
        )
        self.tell(*(ResponseRead(stream, now, event) for event in EVENTS[:events]))

    def end(self, stream: int, ending: Ending = Ending.COMPLETE) -> None:
        self.tell(ExchangeEnding(stream, time.monotonic_ns(), ending))

    def __enter__(self) -> "Application":
        return self

    def __exit__(self, *_: object) -> None:
        self.connection.close()


def outcomes(running: Running, count: int) -> list[str]:
    return sorted(record["outcome"] for record in running.wait_for_records(count))


def test_an_agent_relays_nothing_and_logs_its_place(tmp_path: Path) -> None:
    data_dir = tmp_path / "data"
    with agent(data_dir) as up:
        assert f"agent for taps in applications, at {data_dir}/run/recorder.sock" in up.log
        assert f"STREAMGAUGE_DATA_DIR={data_dir}" in up.log
        assert "->" not in up.log
        [(collector, line)] = children(up.process.pid).items()
        assert "streamgauge.cli.collector" in line
        assert tcp_ports(collector) == tcp_ports(up.process.pid)
        assert len(tcp_ports(collector)) == 1, "only the admin port"
        place = data_dir / "run"
        assert stat.S_IMODE(place.readlink().stat().st_mode) == 0o700
        assert up.stop() == 0
        assert not place.is_symlink()


def tcp_ports(pid: int) -> list[str]:
    """The ports on which a process listens, as reported by Linux."""
    inodes = set()
    for place in Path(f"/proc/{pid}/fd").iterdir():
        with contextlib.suppress(OSError):
            inodes |= set(re.findall(r"socket:\[(\d+)\]", str(place.readlink())))
    lines = [line.split() for line in Path(f"/proc/{pid}/net/tcp").read_text().splitlines()[1:]]
    return [line[1] for line in lines if line[3] == "0A" and line[9] in inodes]


def test_applications_may_start_and_end_and_have_their_records(tmp_path: Path) -> None:
    with agent(tmp_path / "data") as up:
        with Application(up.data_dir) as one, Application(up.data_dir) as other:
            for application in (one, other):
                application.begin(7)  # each application has its own numbers
            one.end(7)
            assert outcomes(up, 1) == ["completed"]
            other.end(7)
            assert outcomes(up, 2) == ["completed", "completed"]
            other.begin(8, events=2)
            wait_for(lambda: up.metrics()["streamgauge_open_streams"], "an open stream")
        assert outcomes(up, 3) == ["abandoned", "completed", "completed"], "it disconnected with an open stream"
        with Application(up.data_dir) as again:
            again.begin(7)
            again.end(7, Ending.RESET)
            records = up.wait_for_records(4)
        assert {record["tap"] for record in records} == {"asgi"}
        assert all(record["upstream"] == "app" for record in records)
        assert up.get("/health/ready")[0] == 200


def test_an_agent_that_does_not_read_an_applications_tenant_header_logs_it_once(tmp_path: Path) -> None:
    request: dict[str, Any] = {"headers": [("x-tenant", "blue")], "tenant_header": "x-tenant"}
    with agent(tmp_path / "data") as up, Application(up.data_dir) as application:
        for stream in range(3):
            application.begin(stream, **request)
            application.end(stream)
        assert [record["tenant"] for record in up.wait_for_records(3)] == [None] * 3
        assert up.log.count("Start the agent with --tenant-header x-tenant") == 1
    with agent(tmp_path / "data", "--tenant-header", "X-Tenant") as up, Application(up.data_dir) as application:
        application.begin(9, **request)
        application.end(9)
        assert up.wait_for_records(4)[-1]["tenant"] == "blue"
        assert "reads tenants from the header" not in up.log


def test_a_stop_waits_for_open_streams_and_not_for_applications_that_stay_connected(tmp_path: Path) -> None:
    with agent(tmp_path / "data", "--drain-timeout", str(LONG_S)) as up, Application(up.data_dir) as application:
        application.begin(1, events=2)
        wait_for(lambda: up.metrics()["streamgauge_open_streams"], "an open stream")
        up.process.send_signal(signal.SIGTERM)
        wait_for(lambda: "stopping" in up.log, "word that it ends")
        assert up.get("/health/ready")[0] == 503
        application.tell(*(ResponseRead(1, time.monotonic_ns(), event) for event in EVENTS[2:]))
        application.end(1)
        began = time.monotonic()
        assert up.process.wait(PATIENCE_S) == 0
        assert time.monotonic() - began < LONG_S / 2, "it did not wait for its deadline"
        assert up.records()[0]["outcome"] == "completed"
        with pytest.raises(OSError):
            for _ in range(2):
                application.begin(2)


def test_a_stop_cuts_open_streams_at_its_deadline(tmp_path: Path) -> None:
    with agent(tmp_path / "data", "--drain-timeout", str(QUICK_S)) as up, Application(up.data_dir) as application:
        application.begin(1, events=2)
        wait_for(lambda: up.metrics()["streamgauge_open_streams"], "an open stream")
        began = time.monotonic()
        assert up.stop() == 0
        assert time.monotonic() - began < QUICK_S + 5, "a few seconds more for a shared machine"
        [record] = up.records()
        assert record["outcome"] == "abandoned"


def test_an_agent_needs_no_broker(tmp_path: Path) -> None:
    options = ("--kafka", UNREACHABLE, "--drain-timeout", str(QUICK_S))
    with agent(tmp_path / "data", *options, name="tap") as tap, Application(tap.data_dir) as application:
        application.begin(1)
        application.end(1)
        wait_for(lambda: tap.metrics()["streamgauge_spool_rows"], "rows in the spool")
        assert tap.get("/health/ready")[0] == 200
        assert tap.stop() == 0
    with agent(tmp_path / "data") as up:
        assert outcomes(up, 1) == ["completed"]


def test_a_collector_that_is_killed_is_started_again_at_the_same_place(tmp_path: Path) -> None:
    with agent(tmp_path / "data") as up:
        [collector] = children(up.process.pid)
        with Application(up.data_dir) as application:
            application.begin(1)
            os.kill(collector, signal.SIGKILL)
            wait_for(lambda: children(up.process.pid).keys() - {collector}, "another")
            wait_for(lambda: up.get("/health/ready")[0] == 200, "another that is ready")
        with Application(up.data_dir) as application:
            application.begin(2)
            application.end(2)
            wait_for(lambda: "completed" in outcomes(up, 1), "a record")


def test_an_agent_without_its_socket_does_not_start(tmp_path: Path) -> None:
    data_dir = tmp_path / "data"
    (data_dir / "run").mkdir(parents=True)  # another file has the name
    with start("up", ["--agent", *ANY_ADMIN, "--data-dir", str(data_dir)], data_dir) as running:
        assert running.process.wait(PATIENCE_S) == 3
        assert f"the data directory {data_dir} cannot be used" in running.log
