"""A real Prometheus scrapes a real admin port, and evaluates the dashboard's expressions."""

import asyncio
import http.client
import json
import socket
import subprocess
import time
import urllib.request
from collections.abc import Iterator
from contextlib import closing, contextmanager
from functools import partial
from pathlib import Path
from urllib.parse import quote, urlsplit

import yaml

from streamgauge.metrics.http_server import AdminServer
from streamgauge.metrics.panels import ROWS
from streamgauge.metrics.prometheus import Metrics, Sample
from tests.integration.provider import BEGIN, REST, provider
from tests.metrics.records import make_record
from tests.running import Running, start_up

RULES = Path(__file__).parents[2] / "dashboards" / "prometheus" / "rules"
PATIENCE_S = 90  # with a slow machine's share of CPU; usually it takes 3 s


def free_port() -> int:
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        return int(listener.getsockname()[1])


@contextmanager
def prometheus(folder: Path, target: str) -> Iterator[str]:
    """A Prometheus that scrapes `target` every second, with the project's rules; gives its base URL."""
    config = {
        "global": {"scrape_interval": "1s", "evaluation_interval": "1s"},
        "rule_files": [f"{RULES}/*.yml"],
        "scrape_configs": [{"job_name": "streamgauge", "static_configs": [{"targets": [target]}]}],
    }
    (folder / "prometheus.yml").write_text(yaml.safe_dump(config))
    address = f"127.0.0.1:{free_port()}"
    arguments = ["prometheus", f"--config.file={folder}/prometheus.yml", f"--storage.tsdb.path={folder}/data"]
    with (folder / "log").open("wb") as log:
        process = subprocess.Popen([*arguments, f"--web.listen-address={address}"], stdout=log, stderr=log)
        try:
            yield f"http://{address}"
        finally:
            process.terminate()
            process.wait(60)


def get(url: str) -> object:
    with urllib.request.urlopen(url, timeout=20) as answer:
        return json.load(answer)["data"]


def value_of(base: str, expression: str) -> float | None:
    """The only value of an expression now, None while there is none."""
    try:
        data = get(f"{base}/api/v1/query?query={quote(expression)}")
    except OSError:
        return None  # it is still starting
    assert isinstance(data, dict)
    return float(data["result"][0]["value"][1]) if data["result"] else None


async def until(base: str, expression: str, wanted: float) -> None:
    deadline, seen = time.monotonic() + PATIENCE_S, None
    while time.monotonic() < deadline:
        seen = await asyncio.to_thread(value_of, base, expression)
        if seen == wanted:
            return
        await asyncio.sleep(0.2)
    raise AssertionError(f"{expression} is {seen}, not {wanted}")


def test_prometheus_scrapes_the_admin_port(tmp_path: Path, prometheus_tools: None) -> None:
    async def run() -> None:
        metrics = Metrics()
        metrics.register(lambda: [Sample("streamgauge_tap_reads_dropped_total", 4, {"reason": "crash"})])
        for model in ("gpt-4o", 'we"ird\nmodel\\'):
            metrics.observe(make_record(request_model=model))
        async with AdminServer(metrics, lambda: True) as server:
            await server.start("127.0.0.1:0")
            with prometheus(tmp_path, server.address) as base:
                await until(base, "up", 1)
                await until(base, "sum(streamgauge_streams_total)", 2)
                await until(base, 'streamgauge_tap_reads_dropped_total{reason="crash"}', 4)
                await until(base, 'sum(streamgauge_inter_chunk_latency_seconds_bucket{le="0.02"})', 6)
                metrics.observe(make_record())
                await until(base, "sum(streamgauge_time_to_first_token_seconds_count)", 3)
                rules = await asyncio.to_thread(get, f"{base}/api/v1/rules?type=alert")
                assert isinstance(rules, dict)
                health = {rule["name"]: rule["health"] for group in rules["groups"] for rule in group["rules"]}
                assert set(health.values()) <= {"ok", "unknown"}
                assert "StreamsBreakMidway" in health

    asyncio.run(run())


# Metrics that only a system with a broker has.
WITH_A_BROKER = {"Lag", "Partitions", "Time by activity", "Broker connected", "Clock skew"}


def test_every_panel_of_a_healthy_system_has_data(tmp_path: Path, prometheus_tools: None) -> None:
    """`up` with streams that all complete: rates over a few scrapes, and each panel has a series."""
    with (
        provider() as small,
        start_up({"small": small.url}, tmp_path / "up") as up,
        prometheus(tmp_path, urlsplit(up.admin).netloc) as base,
    ):
        small.headers = {
            "x-ratelimit-limit-requests": "500",
            "x-ratelimit-remaining-requests": "499",
            "x-ratelimit-reset-requests": "120ms",
        }
        deadline = time.monotonic() + PATIENCE_S
        while time.monotonic() < deadline:
            ask_small(up)
            empty = {
                panel.title
                for row in ROWS
                for panel in row.panels
                if not any(map(partial(has_data, base), panel.queries))
            }
            if empty <= WITH_A_BROKER:
                break
    assert empty <= WITH_A_BROKER


def has_data(base: str, query: tuple[str, str]) -> bool:
    expression = query[0].replace("$__rate_interval", "20s").replace("$upstream", ".*").replace("$model", ".*")
    try:
        data = get(f"{base}/api/v1/query?query={quote(expression)}")
    except OSError:
        return False  # it is still starting
    assert isinstance(data, dict)
    return bool(data["result"])


def ask_small(up: Running) -> None:
    """A stream that completes."""
    address = urlsplit(up.url)
    connection = http.client.HTTPConnection(address.hostname or "", address.port, timeout=PATIENCE_S)
    with closing(connection):
        body = json.dumps({"model": "small-1", "stream": True, "messages": []})
        connection.request("POST", "/small/v1/chat/completions", body)
        assert connection.getresponse().read() == BEGIN + REST
