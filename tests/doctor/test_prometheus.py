"""A real Prometheus: with our target up, down, and missing; and a server that is no Prometheus."""

import shutil
from pathlib import Path

import pytest

from tests.dashboards.monitoring import prometheus_with_rules
from tests.doctor.examined import FAIL, OK, WARN, found, installation, only
from tests.doctor.test_upstreams import answer, plain
from tests.ports import free_port
from tests.running import start_up, wait_for
from tests.taps.proxy.rig import RawUpstream

pytestmark = pytest.mark.slow

RULES = Path(__file__).parents[2] / "dashboards" / "prometheus" / "rules" / "streamgauge.yml"

needs_prometheus = pytest.mark.skipif(shutil.which("prometheus") is None, reason="prometheus is not installed")


@needs_prometheus
def test_targets_that_are_up_down_and_missing(tmp_path: Path) -> None:
    away = f"127.0.0.1:{free_port()}"
    with start_up({"a": "http://127.0.0.1:1"}, tmp_path / "running") as running:
        targets = {"streamgauge": [running.admin[7:]], "streamgauge-worker": [away]}
        with prometheus_with_rules(tmp_path, targets, RULES.read_text()) as url:
            ours = installation("up", tmp_path, prometheus=f"{url}/", admin=running.admin[7:])
            up = wait_for(lambda: (one := only("prometheus", ours)).level is OK and one, "scrape")
            theirs = installation("worker", tmp_path, prometheus=url, admin=away)
            down = wait_for(lambda: (one := only("prometheus", theirs)).level is FAIL and one, "failed scrape")
            missing = only("prometheus", installation("worker", tmp_path, prometheus=url, admin="127.0.0.1:1"))
    assert up.says == f"Prometheus scrapes streamgauge at {running.admin[7:]}"
    assert (down.level, f"cannot scrape http://{away}/metrics" in down.says) == (FAIL, True), down
    assert "start the process" in down.cure
    assert (missing.level, "none of them at port 1 (--admin)" in missing.says) == (WARN, True), missing


@needs_prometheus
def test_a_prometheus_that_scrapes_nothing_of_ours(tmp_path: Path) -> None:
    with prometheus_with_rules(tmp_path, {}, "groups: []") as url:
        seen = only("prometheus", installation("up", tmp_path, prometheus=url))
    assert (seen.level, seen.says) == (FAIL, "Prometheus scrapes no target that shows streamgauge_build_info")
    assert "add HOST:9464 to the scrape_configs" in seen.cure


@needs_prometheus
def test_a_prometheus_without_our_rules(tmp_path: Path) -> None:
    with start_up({"a": "http://127.0.0.1:1"}, tmp_path / "running") as running:
        targets = {"streamgauge": [running.admin[7:]]}
        with prometheus_with_rules(tmp_path, targets, "groups: []") as url:
            ours = installation("up", tmp_path, prometheus=url, admin=running.admin[7:])
            up, rules = wait_for(lambda: len(seen := found("prometheus", ours)) > 1 and seen, "scrape")
    assert (up.level, rules.level) == (OK, WARN)
    assert rules.says == "Prometheus has no alert rules of Streamgauge"


def test_what_is_no_prometheus(tmp_path: Path) -> None:
    with (
        RawUpstream(plain(answer())) as other,
        RawUpstream(plain(b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\n{}")) as json,
        RawUpstream(plain(b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nhi")) as text,
    ):
        for url, says in {
            other.url: "answers with 404",
            json.url: "does not answer as Prometheus does",
            text.url: "gives no answer that can be read",
            "http://127.0.0.1:1": "cannot be reached",
            "prometheus:9090": "is no address of HTTP",
            "http://user:CANARY@127.0.0.1:1": "cannot be reached",
        }.items():
            seen = only("prometheus", installation("up", tmp_path, prometheus=url))
            assert (seen.level, says in seen.says, "CANARY" in str(seen)) == (FAIL, True, False), seen


def test_without_an_address_nothing_is_checked(tmp_path: Path) -> None:
    assert found("prometheus", installation("up", tmp_path)) == []


def test_a_port_that_speaks_no_http_is_a_failure(tmp_path: Path) -> None:
    """As that of SSH, whose first line is no status line."""
    with RawUpstream(plain(b"SSH-2.0-OpenSSH_9.2\r\n")) as other:
        seen = only("prometheus", installation("up", tmp_path, prometheus=other.url))
    assert (seen.level, "gives no answer that can be read (BadStatusLine)" in seen.says) == (FAIL, True), seen
