"""A real Prometheus scrapes a real admin port, and answers the dashboard's own questions."""

import asyncio
import json
import socket
import subprocess
import time
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from urllib.parse import quote

import yaml

from streamgauge.admin import AdminServer
from streamgauge.metrics.prometheus import Metrics, Sample
from tests.metrics.records import make_record

RULES = Path(__file__).parents[2] / "dashboards" / "prometheus" / "rules"
PATIENCE_S = 90  # a slow machine's share of CPU; usually it takes 3 s


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
    """The one value of an expression now, None while there is none."""
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
