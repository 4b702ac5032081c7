"""A whole installation that works has no finding but ok, while it runs: a tap, a worker, and a real Kafka."""

import json
import socket
from pathlib import Path

import pytest

from tests.doctor.test_upstreams import answer, plain
from tests.ports import free_port
from tests.running import here, start, start_tap, wait_until_ready
from tests.taps.proxy.rig import RawUpstream

pytestmark = pytest.mark.slow


def dated(one: socket.socket) -> None:
    """Answers with the date of the answer, not with that of the test's beginning."""
    plain(answer())(one)


def findings(*words: str) -> list[tuple[str, str, str]]:
    done = here("doctor", *words, "--output", "json")
    found = json.loads(done.stdout)["findings"]
    assert done.returncode == any(one["level"] == "fail" for one in found)
    return [(one["check"], one["level"], one["says"]) for one in found]


@pytest.mark.kafka
def test_a_running_tap_and_worker_are_ok(kafka: str, prefix: str, tmp_path: Path) -> None:
    topics = ["--kafka", kafka, "--topic-prefix", prefix]
    small = ["--spool-bytes", str(1024**2)]
    with RawUpstream(dated, dated) as upstream:
        upstreams = {"a": upstream.url, "doctor": f"http://127.0.0.1:{free_port()}"}
        with start_tap("tap", upstreams, tmp_path / "tap", *topics, *small) as tap:
            given = [word for name, url in upstreams.items() for word in ("--upstream", f"{name}={url}")]
            places = ["--listen", tap.url[7:], "--admin", tap.admin[7:], "--data-dir", str(tmp_path / "tap")]
            of_tap = findings("tap", *given, *places, *topics, *small)
    # The upstreams are on this host, whose clock is the same.
    assert [name for name, level, _ in of_tap if level != "ok"] == ["clock"]
    assert [name for name, _, _ in of_tap] == [
        "settings", "upstreams", "ports", "ports", "buffering", "broker", "topics", "rights", "disk", "key", "formats",
        "coverage", "clock",
    ]  # fmt: skip
    data = ["--data-dir", str(tmp_path / "worker")]
    with start("worker", ["--admin", "127.0.0.1:0", *data, *topics], tmp_path / "worker") as worker:
        wait_until_ready(worker)
        of_worker = findings("worker", "--admin", worker.admin[7:], *data, *topics)
    # A worker has no upstream whose time it could compare.
    assert [name for name, level, _ in of_worker if level != "ok"] == ["clock"]
    assert {name for name, _, _ in of_worker} >= {"broker", "topics", "rights", "ledger", "formats", "ports"}
