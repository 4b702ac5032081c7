"""The benchmark of taps runs against real proxies and reports problems; the speed itself is not tested."""

import contextlib
import os
import re
import shutil
import socket
import ssl
import sys
import time
from collections.abc import Callable
from contextlib import AbstractContextManager
from pathlib import Path

import bench.measure
import bench.tap
import pytest
from bench.load.answer import LAST_CHUNK, LLM_PATH, MARK, marks, parse_request, request
from bench.load.client import BrokenError, Result, burst, paced, sequential
from bench.measure import Others, cpu_seconds, peak_mib, tree
from bench.peers.peer import MissingError, Origin, Peer, started
from bench.peers.servers import haproxy, nginx
from bench.peers.streamgauge import faults_of
from bench.peers.tls_upstream import UPSTREAM_NAME, tls_upstream
from bench.tap import ALL_ROUNDS, BUDGET_S, PEERS, UNCAPTURED, put, rounds, running
from bench.tap_loads import TLS_LOADS, Figure, Load, Results, Sizes
from bench.tap_table import DIRECT, TLS, ratio, report

from streamgauge.spool.read_counters import Balance
from tests.integration.provider import provider
from tests.ports import free_port

TINY = Sizes(bursts=1, seconds=0.1, requests=3, share=0.04)
PYTHON_PEER = "aiohttp"


def test_the_upstream_sends_what_was_requested_and_the_client_counts_it() -> None:
    with running([], Results()) as peers:
        port = peers[DIRECT].port
        result = burst(port, concurrent=3, streams=7, events=20)
        assert (result.streams, result.events) == (7, 140)
        result = paced(port, concurrent=4, events=5, pace_s=0.01)
        assert (result.events, len(result.late), len(result.widest)) == (20, 20, 4)
        assert min(result.late) >= 0
        assert result.seconds >= 0.04
        assert len(sequential(port, 3, captured=False).first) == 3


def test_a_request_is_parsed() -> None:
    head = request(20_000, 7).partition(b"\r\n\r\n")[0]
    assert parse_request(head) == (20_000, 7, True)
    assert LLM_PATH.encode() in head
    assert parse_request(request(0, 1, captured=False)) == (0, 1, False)


def test_an_unexpected_response_gives_no_figure() -> None:
    with provider() as other, pytest.raises((BrokenError, OSError)):
        burst(int(other.url.rpartition(":")[2]), concurrent=1, streams=1, events=3)


def skip_without(name: str) -> None:
    if not shutil.which(name, path="/usr/bin:/usr/sbin:/usr/local/bin:/usr/local/sbin"):
        pytest.skip(f"{name} is not installed: apt-get install {name}")


@pytest.mark.parametrize("name", [PYTHON_PEER, "nginx", "haproxy", "C, bytes alone"])
def test_a_proxy_is_measured_under_every_load(name: str) -> None:
    if name in ("nginx", "haproxy"):
        skip_without(name)
    if name.startswith("C,") and not shutil.which("cc"):
        pytest.skip("there is no C compiler 'cc': install gcc")
    results = Results()
    with running([name], results) as peers:
        rounds(peers, TINY, 1, results, warm=TINY)
    assert results.faults == []  # what a busy machine did not complete in time is not a fault
    assert all(figure.total > 0 for figures in results.figures.values() for figure in figures)
    assert ratio(results, "burst", name, name) == 1
    assert results.memory[name] > 1
    text = report(results, [name])
    assert f"| {name} " in text
    assert "Fault" not in text


def test_a_worker_that_starts_after_its_server_listens_is_measured(tmp_path: Path) -> None:
    port = free_port()
    server = (
        f"import os, socket, time; listener = socket.create_server(('127.0.0.1', {port})); time.sleep(0.3); os.fork();"
        " time.sleep(3)"
    )
    with started([sys.executable, "-c", server], port, tmp_path / "log", processes=2) as peer:
        assert len(peer.pids) == 2


def test_proxies_with_tls_to_the_upstream_are_measured_under_its_loads() -> None:
    names = [f"{name}{TLS}" for name in ("nginx", "haproxy")]
    for name in ("nginx", "haproxy"):
        skip_without(name)
    results = Results()
    with running(["nginx", *names], results) as peers:
        rounds(peers, TINY, 1, results, warm=TINY)
    assert results.faults == []
    for name in names:
        measured = {load for load, peer in results.figures if peer == name}
        assert measured | {load for load in TLS_LOADS if f"{name}, {load}" in results.missing} == set(TLS_LOADS)
        assert results.memory[name] > 1
    assert min(figure.total for figures in results.figures.values() for figure in figures) > 0
    text = report(results, ["nginx", *names])
    plain, separator, tls = text.partition("\n\nTLS to the upstream, ")
    assert separator
    assert re.search(r"\| nginx +\| 1\.00 ", plain)
    assert TLS not in plain
    assert re.search(rf"\| nginx{TLS} +\| 1\.00 ", tls)
    assert re.search(rf"\| haproxy{TLS} +\| \d", tls)


@pytest.mark.parametrize("proxy", [nginx, haproxy])
def test_a_proxy_verifies_its_upstream_by_authority_and_by_name(
    proxy: Callable[[Origin, Path], AbstractContextManager[Peer]], tmp_path: Path
) -> None:
    skip_without(proxy.__name__)
    with contextlib.ExitStack() as stack:
        folders = [tmp_path / name for name in ("right", "other-name")]
        for folder in folders:
            folder.mkdir()
        right = stack.enter_context(tls_upstream(folders[0]))
        other_name = stack.enter_context(tls_upstream(folders[1], "other.test"))
        other_authority = Origin(right.port, other_name.ca)
        for origin, status in ((right, b"200"), (other_name, b"50"), (other_authority, b"50")):
            with proxy(origin, tmp_path) as peer, socket.create_connection(("127.0.0.1", peer.port), 30) as client:
                client.sendall(request(0, 1))
                assert client.recv(65536).startswith(b"HTTP/1.1 " + status), origin


def test_nginx_and_haproxy_send_the_upstream_s_name_and_verify_it(tmp_path: Path) -> None:
    for name in ("nginx", "haproxy"):
        skip_without(name)
    with tls_upstream(tmp_path) as origin, nginx(origin, tmp_path), haproxy(origin, tmp_path):
        configured = (tmp_path / "nginx.conf").read_text()
        for line in ("verify on", f"trusted_certificate {origin.ca}", f"name {UPSTREAM_NAME}", "server_name on"):
            assert f"proxy_ssl_{line};" in configured
        assert "proxy_pass https://" in configured
        verified = f" ssl verify required ca-file {origin.ca} sni str({UPSTREAM_NAME})\n"
        assert verified in (tmp_path / "haproxy.cfg").read_text()


def test_the_upstream_with_tls_sends_what_was_requested(tmp_path: Path) -> None:
    """Also if its socket is full, and parts of requests arrive separately."""
    with tls_upstream(tmp_path) as origin:
        context = ssl.create_default_context(cafile=str(origin.ca))
        with (
            socket.create_connection(("127.0.0.1", origin.port), 30) as plain,
            context.wrap_socket(plain, server_hostname=UPSTREAM_NAME) as client,
        ):
            events = 40_000
            message = request(0, events)
            client.sendall(message[:100])
            client.sendall(message[100:])
            time.sleep(0.3)  # its socket is full by then
            received, tail = 0, b""
            while not tail.endswith(LAST_CHUNK):
                data = client.recv(65536)
                assert data
                received, tail = received + data.count(MARK), (tail + data)[-len(LAST_CHUNK) :]
            assert received == marks(events)


def test_the_figures_have_a_sentence_for_users_of_https_upstreams() -> None:
    results, names = (
        Results(),
        ["nginx", *(f"{name}{TLS}" for name in ("nginx", "streamgauge, full", "streamgauge, masked"))],
    )
    for turn in range(2):
        results.add("burst", "nginx", Figure({"proxy": 1.0}, 1, 1), turn)
        for name, used in zip(names[1:], (2.0, 4.0, 8.0), strict=True):
            results.add("burst", name, Figure({"proxy": used}, 1, 1), turn)
    begins = (
        "With an https upstream, a CPU-second of `streamgauge tap` carries, of what one of nginx carries with such an"
    )
    assert f"{begins} upstream: in a burst 0.50 (full) and 0.25 (masked)." in report(results, names)
    for name in names[1:]:
        results.add("paced 200", name, Figure({"proxy": 1.0}, 1, 1), 3)
    both = report(results, names)
    assert (
        f"{begins} upstream: in a burst 0.50 (full) and 0.25 (masked); at 200 paced streams 1.00 (full) and 1.00 (masked)."
        in both
    )
    row = re.search(rf"\| nginx{TLS} .*", both)
    assert row
    cells = [cell.strip() for cell in row[0].split("|")[2:6]]
    assert cells == ["1.00", "1.00", "0.50", ""], (
        "compared with nginx with TLS, and nginx without it, which was not paced"
    )
    assert "https upstream" not in report(results, ["nginx"])
    assert "https upstream" not in report(results, names[:2])


def test_a_round_that_would_end_too_late_is_not_started(monkeypatch: pytest.MonkeyPatch) -> None:
    """Its duration is estimated from the number of peers in it."""
    clock = [0.0]

    def put_one(*_: object) -> Figure:
        clock[0] += BUDGET_S / 9
        return Figure({"x": 1.0}, 1, 1)

    burst_alone = [Load("burst", lambda port, captured: Result(), len)]  # type: ignore[arg-type]
    monkeypatch.setattr(bench.tap, "loads", lambda sizes: burst_alone if sizes is TINY else [])
    monkeypatch.setattr(bench.tap, "put", put_one)
    monkeypatch.setattr(bench.tap, "now", lambda: clock[0])
    results, own = Results(), Peer(1, {os.getpid(): "x"})
    rounds({"nginx": own, "haproxy": own, "aiohttp": own, DIRECT: own}, TINY, 9, results)
    # Two rounds of four take eight ninths of the time; one of two more would be too long.
    assert {name: len(figures) for (_, name), figures in results.figures.items()} == dict.fromkeys(
        ("nginx", "haproxy", "aiohttp", DIRECT), 2
    )


def test_missing_peers_are_reported_and_the_others_continue(monkeypatch: pytest.MonkeyPatch) -> None:
    def missing(upstream: Origin, directory: Path, kafka: str) -> None:
        raise MissingError("it is not installed")

    monkeypatch.setitem(PEERS, "nginx", missing)
    results = Results()
    with running(["nginx"], results) as peers:
        assert list(peers) == [DIRECT]
    assert results.missing == {"nginx": "it is not installed"}


def test_an_incomplete_response_is_reported_and_not_counted() -> None:
    def broken(port: int, captured: bool) -> None:
        raise BrokenError("half of it")

    results = Results()
    with running([], results) as peers:
        load = Load("burst", broken, len)  # type: ignore[arg-type]
        assert put(load, DIRECT, peers, results) is None
    assert results.faults == ["direct, burst: half of it"]
    assert "Fault: direct, burst: half of it." in report(results, [DIRECT])


def test_lost_reads_are_reported() -> None:
    assert faults_of(Balance(seen=5, delivered=5, waiting=0, dropped={})) == []
    lost = Balance(seen=9, delivered=5, waiting=1, dropped={"recorder_behind": 2})
    assert faults_of(lost) == ["2 reads dropped: recorder_behind", "1 reads still wait", "the balance is 1 reads off"]


def test_a_ratio_is_of_one_round() -> None:
    """A peer may have no figure in a round: the ratio is of rounds in which both have one."""
    results = Results()
    for turn, (ours, theirs) in enumerate(((2.0, None), (8.0, 1.0), (None, 2.0), (9.0, 3.0), (40.0, 10.0))):
        if ours is not None:
            results.add("burst", "ours", Figure({"relay": ours / 2, "recorder": ours / 2}, 1, 1, first_p50=ours), turn)
        if theirs is not None:
            results.add("burst", "theirs", Figure({"proxy": theirs}, 1, 1), turn)
            results.add("sequential", DIRECT, Figure({"upstream": 1.0}, 1, 1, first_p50=theirs), turn)
        if ours is not None:
            results.add("sequential", "ours", Figure({"relay": 1.0}, 1, 1, first_p50=ours), turn)
    assert ratio(results, "burst", "ours", "theirs") == pytest.approx(1 / 4)
    assert ratio(results, "paced 50", "ours", "theirs") is None
    times = report(results, ["ours"]).partition("\nTime: ")[2].partition("\nWhere ")[0]
    assert re.search(r"\| ours +\| +7\.00 ", times)


def test_each_load_of_each_round_has_its_own_turn(monkeypatch: pytest.MonkeyPatch) -> None:
    """A load that fails does not take the turn of another."""
    tried = iter(range(6))

    def put_four(*_: object) -> Figure | None:
        return None if next(tried) in (1, 3) else Figure({}, 1, 1)

    bursts = [Load("burst", lambda port, captured: Result(), len)] * 3  # type: ignore[arg-type]
    monkeypatch.setattr(bench.tap, "loads", lambda sizes: bursts if sizes is TINY else [])
    monkeypatch.setattr(bench.tap, "put", put_four)
    results = Results()
    rounds({DIRECT: Peer(1, {os.getpid(): "upstream"})}, TINY, 2, results)
    assert [figure.turn for figure in results.figures["burst", DIRECT]] == [0, 2, 4, 5]


def test_later_rounds_are_for_nginx_and_ours(monkeypatch: pytest.MonkeyPatch) -> None:
    burst_alone = [Load("burst", lambda port, captured: Result(), len)]  # type: ignore[arg-type]
    monkeypatch.setattr(bench.tap, "loads", lambda sizes: burst_alone if sizes is TINY else [])
    monkeypatch.setattr(bench.tap, "put", lambda *_: Figure({"x": 1.0}, 1, 1))
    results, own = Results(), Peer(1, {os.getpid(): "x"})
    rounds({"nginx": own, "haproxy": own, UNCAPTURED: own, DIRECT: own}, TINY, ALL_ROUNDS + 3, results)
    measured = {name: len(figures) for (_, name), figures in results.figures.items()}
    assert measured == {
        "nginx": ALL_ROUNDS + 3,
        "haproxy": ALL_ROUNDS,
        UNCAPTURED: ALL_ROUNDS + 3,
        DIRECT: ALL_ROUNDS + 3,
    }


def test_the_spread_of_rounds_is_reported() -> None:
    results = Results()
    for turn, (theirs, ours) in enumerate([(2.0, 4.0), (3.0, 2.0), (1.0, 1.0)]):
        results.add("paced 800", "theirs", Figure({"proxy": theirs}, 1, 1), turn)
        results.add(
            "paced 800", "streamgauge, full", Figure({"relay": ours, "recorder": 0.0, "shipper": 0.0}, 1, 1), turn
        )
    spread = report(results, ["theirs", "streamgauge, full"]).partition("round by round")[2].partition("\nTime: ")[0]
    assert re.search(r"\| streamgauge, full \| +\| +\| +\| 0\.50 to 1\.50 \| 3 +\|", spread)


def test_a_process_costs_what_it_runs() -> None:
    with running([], Results()) as peers:
        (pid,) = peers[DIRECT].pids
        before = cpu_seconds(pid)
        burst(peers[DIRECT].port, concurrent=2, streams=4, events=200)
        assert cpu_seconds(pid) > before
        assert peak_mib(pid) > 1
        assert list(tree(pid)) == [pid]
        assert Peer(1, {pid: "x"}).cpu().keys() == {"x"}


def test_a_busy_machine_is_reported() -> None:
    results = Results(others=0.4)
    assert "others used 40% of it" in report(results, [DIRECT])
    assert "others used" not in report(Results(others=0.02), [DIRECT])


def test_the_usage_of_others_excludes_our_own(monkeypatch: pytest.MonkeyPatch) -> None:
    """Of 10 s on 2 cores these processes took 12 CPU seconds, and other processes 5."""
    spent = {"machine": 1000.0, "own": 70.0, "clock": 300.0}
    monkeypatch.setattr(bench.measure, "busy_seconds", lambda: spent["machine"])
    monkeypatch.setattr(Others, "_own", staticmethod(lambda: spent["own"]))
    monkeypatch.setattr(time, "monotonic", lambda: spent["clock"])
    monkeypatch.setattr(os, "cpu_count", lambda: 2)
    others = Others()
    assert others.share() == 0  # no time has passed
    spent |= {"machine": 1012.0, "own": 82.0, "clock": 310.0}
    assert others.share() == 0
    spent["machine"] += 5
    assert others.share() == pytest.approx(0.25)


def test_our_own_usage_includes_descendants() -> None:
    with running([], Results()) as peers:
        (pid,) = peers[DIRECT].pids
        began = Others._own()
        mine, theirs = cpu_seconds(os.getpid()), cpu_seconds(pid)
        burst(peers[DIRECT].port, concurrent=2, streams=20, events=1000)
        mine, theirs = cpu_seconds(os.getpid()) - mine, cpu_seconds(pid) - theirs
        assert Others._own() - began >= mine + theirs > mine


@pytest.mark.kafka
def test_ours_ships_every_read_of_every_load(kafka: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("KAFKA_BOOTSTRAP", kafka)
    results = Results()
    with running(["streamgauge, full"], results) as peers:
        assert set(peers["streamgauge, full"].pids.values()) == {"relay", "recorder", "shipper"}
        rounds(peers, TINY, 1, results, warm=TINY)
        names = [name for name in peers if name != DIRECT]
    assert names == ["streamgauge, full", UNCAPTURED]
    assert results.faults == []
    captured, not_captured = (results.figures["burst", name][0].cpu for name in names)
    assert captured["recorder"] > not_captured["recorder"]
    text = report(results, names)
    assert re.search(r"\| full +\| relay ", text)
    assert "No read was lost" in text


@pytest.mark.kafka
def test_ours_ships_every_read_of_upstreams_with_tls(kafka: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("KAFKA_BOOTSTRAP", kafka)
    results, with_tls = Results(), f"streamgauge, full{TLS}"
    with running([with_tls], results) as peers:
        rounds(peers, TINY, 1, results, warm=TINY)
    assert results.faults == []
    text = report(results, [with_tls])
    assert re.search(rf"\| {with_tls} +\| 1\.00 ", text)
    assert "No read was lost" in text
