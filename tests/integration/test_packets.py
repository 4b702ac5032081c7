"""`streamgauge up packets` and `tap packets` as a user runs them: on loopback, next to the relay, and with capture
files.
"""

import asyncio
import os
import re
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import pytest

from streamgauge_demo.driver import Clients, drive
from streamgauge_demo.scenarios import SCENARIOS, UPSTREAMS
from tests.demo.running import simulator
from tests.integration.provider import BEGIN, REST, Provider, provider
from tests.integration.test_up import Stream, balance, child_of, kill
from tests.processes import runs
from tests.running import PATIENCE_S, Running, command, start, start_up, wait_for, wait_until_ready
from tests.taps.packets.privileged import captures_packets
from tests.taps.packets.test_conversation import WHOLE, asking
from tests.taps.packets.wire import Line, pcap

BOTH_WAYS = [scenario for scenario in SCENARIOS if not scenario.tap_only]


def start_packets(name: str, data_dir: Path, *flags: str) -> Any:
    return start(name, ["packets", "--admin", "127.0.0.1:0", "--data-dir", str(data_dir), *flags], data_dir)


def port_of(url: str) -> str:
    return str(urlsplit(url).port)


@pytest.fixture
def small() -> Iterator[Provider]:
    with provider() as started:
        yield started


# Beside the relay.


@pytest.fixture(scope="module")
def both(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[list[dict[str, Any]], list[dict[str, Any]]]]:
    """Every scenario once by the official clients through the relay, and what the packets between relay and server
    contain.
    """
    folder = tmp_path_factory.mktemp("both")
    with (
        simulator() as server,
        start_up(dict.fromkeys(UPSTREAMS, server.url), folder / "relay") as relay,
        start_packets("up", folder / "packets", "--interface", "lo", "--port", port_of(server.url)) as packets,
    ):
        wait_until_ready(packets)

        async def play() -> None:
            clients = Clients(sync=False)
            for scenario in BOTH_WAYS:
                await drive(clients, scenario, relay.url, lambda _, item: None)
            await clients.close()

        asyncio.run(play())
        relayed = relay.wait_for_records(len(BOTH_WAYS))
        captured = packets.wait_for_records(len(relayed))
        yield relayed, captured


# Where two taps differ for one exchange: their names, whose key makes digests, and what only the relay does.
OWN = {"stream_id", "tap", "tap_instance", "upstream", "started_at", "credential_id", "request_digest"}
OWN_COUNTS = {"reads", "segments"}
# And the gap between two reads, where a busy machine may give all in one.
OF_RELAY = {"upstream_connect_s", "client_blocked_s", "wire_max_gap_s"}
# If a client left, the server may have sent more until the relay closed the connection.
AFTER_LEAVING = {"choices", "counts", "timing", "gaps"}
# Both stamp the same bytes on one host: the relay when it has read them, the packets when they arrived (seconds). On a
# shared machine the bound only shows that the stamps belong to the same bytes, not that they are close.
NEAR_S = 0.5


def comparable(record: dict[str, Any]) -> dict[str, Any]:
    kept = {name: value for name, value in record.items() if name not in OWN | {"timing", "counts", "choices"}}
    counts = {name: value for name, value in record["counts"].items() if name not in OWN_COUNTS}
    choices = [
        {name: value for name, value in choice.items() if name != "first_token_s"} for choice in record["choices"]
    ]
    times = {name: value is not None for name, value in record["timing"].items() if name not in OF_RELAY}
    return {**kept, "counts": counts, "choices": choices, "timing": times, "gaps": record["timing"]["gaps"]["count"]}


@captures_packets
def test_packets_and_relay_give_the_same_record_for_every_scenario(
    both: tuple[list[dict[str, Any]], list[dict[str, Any]]],
) -> None:
    relayed, captured = both
    assert len(relayed) == len(captured) == len(BOTH_WAYS)
    for one, other in zip(relayed, captured, strict=True):
        leaves = one["timing"]["client_gone_s"] or other["timing"]["client_gone_s"]
        left = AFTER_LEAVING if leaves else set()
        here, there = comparable(one), comparable(other)
        assert {name: there[name] for name in there.keys() - left} == {name: here[name] for name in here.keys() - left}
        assert other["tap"] == "packets"
        assert other["integrity"]["complete"]
        assert (other["timing"]["upstream_connect_s"], other["timing"]["client_blocked_s"]) == (None, None)
    assert {one["outcome"] for one in captured} >= {
        "completed", "http_error", "stream_error", "truncated", "upstream_reset", "client_abort",
    }  # fmt: skip


@captures_packets
def test_packets_and_relay_stamp_the_same_moments(both: tuple[list[dict[str, Any]], list[dict[str, Any]]]) -> None:
    compared = 0
    for one, other in zip(*both, strict=True):
        for name in ("first_byte_s", "first_token_s", "last_token_s", "end_s"):
            here, there = one["timing"][name], other["timing"][name]
            if here is not None and there is not None:
                assert abs(here - there) < NEAR_S, name
                compared += 1
    assert compared > 100


# On loopback.


def chat(server: Provider) -> str:
    import openai

    with openai.OpenAI(base_url=f"{server.url}/v1", api_key="SECRET-KEY", max_retries=0) as client:
        stream = client.chat.completions.create(
            model="small-1", messages=[{"role": "user", "content": "A SECRET"}], stream=True
        )
        return "".join(chunk.choices[0].delta.content or "" for chunk in stream if chunk.choices)


@captures_packets
def test_a_clients_stream_has_its_record_although_no_byte_passes_through_the_tap(
    small: Provider, tmp_path: Path
) -> None:
    port = port_of(small.url)
    with start_packets("up", tmp_path / "data", "--interface", "lo", "--port", f"small={port}") as up:
        wait_until_ready(up)
        assert [chat(small) for _ in range(3)] == ["Hello world"] * 3
        records = up.wait_for_records(3)
        assert [record["outcome"] for record in records] == ["completed"] * 3
        assert [record["usage"]["output_tokens"] for record in records] == [2] * 3
        assert {(record["upstream"], record["tap"], record["request_model"]) for record in records} == {
            ("small", "packets", "small-1")
        }
        assert all(0 < record["timing"]["first_token_s"] <= record["timing"]["end_s"] for record in records)
        page = balance(up)
        assert page["streamgauge_tap_reads_delivered_total"] == sum(record["counts"]["reads"] for record in records)
        assert up.stop() == 0
        assert f"packets on lo, servers at port small={port}" in up.log
    assert b"SECRET" not in b"".join(path.read_bytes() for path in (tmp_path / "data").iterdir() if path.is_file())
    assert "SECRET" not in up.log


def open_stream(up: Running, small: Provider) -> Stream:
    """A stream that has begun, on a separate connection, and is counted as open."""
    small.go_on.clear()
    direct = Running(up.process, Path(os.devnull), 0, up.data_dir)
    direct.url = small.url
    stream = Stream(direct, prefix="")
    assert stream.read(len(BEGIN)) == BEGIN
    wait_for(lambda: up.metrics().get("streamgauge_open_streams"), "open stream")
    return stream


@captures_packets
def test_a_stop_lets_an_open_stream_end(small: Provider, tmp_path: Path) -> None:
    flags = ("--interface", "lo", "--port", port_of(small.url), "--drain-timeout", "30")
    with start_packets("up", tmp_path / "data", *flags) as up:
        wait_until_ready(up)
        stream = open_stream(up, small)
        up.process.send_signal(signal.SIGTERM)
        wait_for(lambda: up.get("/health/ready")[0] == 503, "a tap that says that it ends")
        small.go_on.set()
        assert stream.rest() == REST
        stream.close()
        assert up.process.wait(PATIENCE_S) == 0
        assert [record["outcome"] for record in up.records()] == ["completed"]


@captures_packets
def test_a_stop_ends_within_its_time_and_open_streams_are_reported(small: Provider, tmp_path: Path) -> None:
    flags = ("--interface", "lo", "--port", port_of(small.url), "--drain-timeout", "2")
    with start_packets("up", tmp_path / "data", *flags) as up:
        wait_until_ready(up)
        stream = open_stream(up, small)
        assert up.stop() == 0
        [record] = up.records()
        assert (record["outcome"], record["counts"]["token_events"]) == ("abandoned", 1)
        small.go_on.set()
        assert stream.rest() == REST, "nothing delays it"
        stream.close()


@captures_packets
def test_a_capture_that_is_killed_is_restarted_without_the_capability(small: Provider, tmp_path: Path) -> None:
    flags = ("--interface", "lo", "--port", port_of(small.url))
    with start_packets("up", tmp_path / "data", *flags) as up:
        wait_until_ready(up)
        killed = child_of(up, "streamgauge.taps.packets.process")
        status = Path(f"/proc/{killed}/status").read_text()
        assert {int(line.split()[1], 16) >> 13 & 1 for line in status.splitlines() if line.startswith("Cap")} == {0}
        kill(killed)
        wait_for(lambda: not runs(killed), "end of the capture")
        wait_for(lambda: up.get("/health/ready")[0] == 200, "a capture again")
        wait_for(lambda: chat(small) and up.records(), "a record again")
        assert "the packet tap ended unexpectedly (signal 9); restarting it" in up.log
        balance(up)
        assert up.stop() == 0


@captures_packets
def test_an_unreachable_broker_stops_nothing(small: Provider, tmp_path: Path) -> None:
    flags = ("--interface", "any", "--port", port_of(small.url), "--kafka", "127.0.0.1:9", "--drain-timeout", "3")
    with start_packets("tap", tmp_path / "data", *flags) as tap:
        wait_until_ready(tap)
        assert chat(small) == "Hello world"
        # The request's start, what the server sent (one read or more) and the end.
        wait_for(lambda: tap.metrics()["streamgauge_tap_reads_waiting"] >= 3, "reads that wait")
        assert tap.stop() == 0
        kept = re.search(r"(\d+) reads stay in the spool; the next start with", tap.log)
        assert kept is not None
        assert int(kept[1]) >= 3


# Capture files.


def capture_file(folder: Path, *, broken: bool = False) -> Path:
    line = Line()
    for _ in range(3):
        line.open() if not line.sent else line.wait(1_000_000_000)
        line.ask(asking()).answer(*WHOLE).acknowledge()
    path = folder / "capture.pcap"
    path.write_bytes(pcap(line.sent) + b"\xff" * 16 * broken)
    return path


@pytest.mark.parametrize(("broken", "code"), [(False, 0), (True, 1)])
def test_a_capture_file_is_read_to_its_end(tmp_path: Path, broken: bool, code: int) -> None:
    file = capture_file(tmp_path, broken=broken)
    with start_packets("up", tmp_path / "data", "--pcap", str(file), "--drain-timeout", "60") as up:
        assert up.process.wait(PATIENCE_S) == code
        records = up.records()
        assert [(record["outcome"], record["started_at"][:19]) for record in records] == [
            ("completed", "2023-11-14T22:13:20"),
            ("completed", "2023-11-14T22:13:21"),
            ("completed", "2023-11-14T22:13:22"),
        ]
        assert ("is damaged: a packet of 4294967295 bytes, at byte" in up.log) is broken
        assert ("has been read to its end" in up.log) is not broken


def test_a_capture_file_that_is_read_twice_is_counted_once(tmp_path: Path) -> None:
    """Also if the second run gives the upstream a name, which makes its records differ."""
    file, totals = capture_file(tmp_path), list[str]()
    for flags in ((), (), ("--port", "vllm=8000")):
        with start_packets("up", tmp_path / "data", "--pcap", str(file), "--drain-timeout", "60", *flags) as up:
            assert up.process.wait(PATIENCE_S) == 0
            records = up.records()
            assert len(records) == len({record["stream_id"] for record in records}) == 3
        done = command("ledger", "query", "--by", "upstream", "--output", "jsonl", "--data-dir", str(tmp_path / "data"))
        assert done.returncode == 0, done.stderr
        totals.append(done.stdout)
    assert totals[0].strip()
    assert totals[0] == totals[1] == totals[2]
    assert [record["upstream"] for record in records] == ["10.0.0.2:8000"] * 3, "the record of the first run"


def test_a_port_without_a_server_in_a_file_gives_nothing(tmp_path: Path) -> None:
    with start_packets("up", tmp_path / "data", "--pcap", str(capture_file(tmp_path)), "--port", "81") as up:
        assert up.process.wait(PATIENCE_S) == 0
        assert up.records() == []


# Errors that a user can fix.


@pytest.mark.parametrize(
    ("flags", "says"),
    [
        (("tap", "packets", "--interface", "lo", "--port", "1"), "--kafka HOST:PORT is missing"),
        (("up", "packets", "--port", "1"), "--interface NAME is missing"),
        (("up", "packets", "--interface", "lo"), "--port PORT is missing"),
        (
            ("up", "packets", "--interface", "lo", "--port", "http"),
            "--port (STREAMGAUGE_SERVER_PORTS): 'http' is not a server",
        ),
        (("up", "packets", "--interface", "lo", "--port", "80,80"), "a port is given twice"),
        (("up", "packets", "--interface", "lo", "--port", ",".join(map(str, range(1, 40)))), "at most 32 ports"),
        (("up", "packets", "--interface", "lo", "--pcap", "x.pcap"), "--interface and --pcap exclude each other"),
        (("up", "packets", "--pcap", "nothing.pcap"), "there is no file"),
    ],
)
def test_wrong_usage_is_one_sentence(flags: tuple[str, ...], says: str, tmp_path: Path) -> None:
    done = command(*flags, "--data-dir", str(tmp_path / "data"))
    assert (done.returncode, done.stdout) == (2, "")
    assert says in done.stderr
    assert len(done.stderr.splitlines()) == 1


@captures_packets
def test_an_unknown_interface_is_refused_with_the_existing_ones(tmp_path: Path) -> None:
    done = command("up", "packets", "--interface", "nothing0", "--port", "1", "--data-dir", str(tmp_path / "data"))
    assert done.returncode == 3
    assert "there is no interface 'nothing0': use one of " in done.stderr
    assert "lo" in done.stderr


def test_without_the_capability_the_error_says_how_to_grant_it(tmp_path: Path) -> None:
    """As a user without it sees it; the test drops it first if it has it."""
    code = (
        "from streamgauge.taps.packets.privilege import drop_net_raw as give_up\n"
        "from streamgauge.cli.main import main\n"
        "give_up()\n"
        f"raise SystemExit(main(['up', 'packets', '--interface', 'lo', '--port', '1', '--data-dir', {str(tmp_path)!r}]))"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=PATIENCE_S, check=False)
    assert done.returncode == 3
    assert "CAP_NET_RAW" in done.stderr
    assert "AmbientCapabilities" in done.stderr
    assert "--pcap" in done.stderr
    assert len(done.stderr.splitlines()) == 1
