"""A real Prometheus scrapes a real admin port."""

import asyncio
import json
import subprocess
import time
import urllib.request
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import get_args
from urllib.parse import quote

import pytest
import yaml

from streamgauge.core.record import Error
from streamgauge.metrics.admin_access import Access, Token
from streamgauge.metrics.declarations import IDLE_S, MODEL_SERIES, RESERVED_SERIES, SERIES_OF_A_PAIR, Kind
from streamgauge.metrics.http_server import AdminServer
from streamgauge.metrics.otel_names import OtelNames
from streamgauge.metrics.prometheus import Metrics, Sample
from streamgauge.metrics.table import TABLE
from streamgauge.runtime.certificates import ServerCertificate
from tests.metrics.records import make_record, make_timing
from tests.ports import free_port
from tests.taps.proxy.pki import make_pki

pytestmark = pytest.mark.slow

ROOT = Path(__file__).parents[2]
LATENCIES = [metric.name for metric in TABLE if metric.kind is Kind.HISTOGRAM and "model" in metric.labels]
RULES = ROOT / "dashboards" / "prometheus" / "rules"
PATIENCE_S = 90  # with a slow machine's share of CPU; usually it takes 3 s


@contextmanager
def prometheus(folder: Path, target: str, *features: str, scrape: Mapping[str, object] = {}) -> Iterator[str]:
    """A Prometheus that scrapes `target` every second, with the project's rules; gives its base URL.

    `features`: those of Prometheus that are switched on; `scrape`: further settings of its scrape.
    """
    config = {
        "global": {"scrape_interval": "1s", "evaluation_interval": "1s"},
        "rule_files": [f"{RULES}/*.yml"],
        "scrape_configs": [{"job_name": "streamgauge", "static_configs": [{"targets": [target]}], **scrape}],
    }
    (folder / "prometheus.yml").write_text(yaml.safe_dump(config))
    address = f"127.0.0.1:{free_port()}"
    arguments = ["prometheus", f"--config.file={folder}/prometheus.yml", f"--storage.tsdb.path={folder}/data"]
    arguments += [f"--enable-feature={feature}" for feature in features]
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


def test_prometheus_scrapes_with_the_token_over_tls_as_the_guide_says(tmp_path: Path, prometheus_tools: None) -> None:
    pki, token = make_pki(tmp_path), tmp_path / "token"
    token.write_text("0123456789abcdef-secret\n")
    guide = (
        (ROOT / "docs" / "guides" / "deployment.md").read_text().partition("With a token and TLS each job also has:")[2]
    )
    scrape = yaml.safe_load(guide.partition("```yaml")[2].partition("```")[0])
    scrape["tls_config"]["ca_file"] = str(pki.ca)
    right = scrape | {"authorization": {"credentials_file": str(token)}}
    wrong = scrape | {"authorization": {"credentials": "another-token-of-someone"}}
    assert scrape.keys() == right.keys()

    async def run() -> None:
        access = Access(Token(file=token), ServerCertificate(pki.server, None))
        async with AdminServer(Metrics(), lambda: True, access=access) as server:
            await server.start("127.0.0.1:0")
            with prometheus(tmp_path, server.address, scrape=right) as base:
                await until(base, "up", 1)
            (tmp_path / "refused").mkdir()
            with prometheus(tmp_path / "refused", server.address, scrape=wrong) as base:
                await until(base, "up", 0)

    asyncio.run(run())


def test_prometheus_takes_native_histograms_and_exemplars(tmp_path: Path, prometheus_tools: None) -> None:
    """With its feature for native histograms it asks for protobuf, and without it for OpenMetrics."""

    async def run() -> None:
        metrics = Metrics(otel_names="latest")
        for seconds in (0.2, 0.21, 3.0):
            metrics.observe(make_record(timing=make_timing(first_token_s=seconds), trace_id="4bf9"))
        async with AdminServer(metrics, lambda: True) as server:
            await server.start("127.0.0.1:0")
            for name, features in (("native", ("native-histograms",)), ("bounded", ())):
                folder = tmp_path / name
                folder.mkdir()
                with prometheus(folder, server.address, *features, "exemplar-storage") as base:
                    await until(base, "up", 1)
                    await until(base, "sum(streamgauge_streams_total)", 3)
                    if features:
                        await until(base, "histogram_count(streamgauge_time_to_first_token_seconds)", 3)
                        slow = "histogram_fraction(2, 4, streamgauge_time_to_first_token_seconds)"
                        await until(base, f"round({slow} * 1000)", 333)
                        await until(base, 'sum(streamgauge_inter_chunk_latency_seconds_bucket{le="0.02"})', 9)
                    else:
                        await until(base, 'sum(streamgauge_time_to_first_token_seconds_bucket{le="0.25"})', 2)
                        assert {"stream_id": make_record().stream_id, "trace_id": "4bf9"} in exemplars(base)
                    await until(base, "sum(gen_ai_client_inference_usage_output_tokens_total)", 15)

    asyncio.run(run())


def test_prometheus_takes_a_page_of_500_pairs_and_names_that_come_and_go(
    tmp_path: Path, prometheus_tools: None
) -> None:
    """In both formats: every pair in each histogram, upstreams that stay, and new names once old ones are idle."""
    clock = [0.0]
    metrics = Metrics(clock=lambda: clock[0])
    kinds = make_timing(first_reasoning_s=0.2, first_content_s=0.3, first_tool_s=0.4)

    def send(upstream: int, model: str) -> None:
        name = f"upstream-{upstream}"
        metrics.observe(make_record(upstream=name, request_model=model, response_model=model, timing=kinds))

    pairs = (MODEL_SERIES - RESERVED_SERIES) // SERIES_OF_A_PAIR
    streams, of_upstream_3 = 100_000 + pairs, 5_000 + len(range(3, pairs, 20))
    for number in range(pairs):
        send(number % 20, f"model-{number}")
    for number in range(100_000):
        send(number % 20, f"hostile-{number}")

    async def run() -> None:
        async with AdminServer(metrics, lambda: True) as server:
            await server.start("127.0.0.1:0")
            for name, features in (("native", ("native-histograms",)), ("bounded", ())):
                folder = tmp_path / name
                folder.mkdir()
                with prometheus(folder, server.address, *features) as base:
                    await until(base, "sum(streamgauge_streams_total)", streams)
                    for histogram in LATENCIES:
                        of_metric = histogram if features and "chunk" not in histogram else f"{histogram}_count"
                        shown = f'count(count by (upstream, model) ({of_metric}{{model!="other"}}))'
                        await until(base, shown, pairs)
                    await until(base, "count(count by (upstream) (streamgauge_streams_total))", 20)
                    await until(base, 'sum(streamgauge_streams_total{upstream="upstream-3"})', of_upstream_3)
                    if not features:
                        clock[0] += IDLE_S + 1
                        send(3, "model-new")
                        await until(base, 'sum(streamgauge_streams_total{model="model-new"})', 1)
                        await until(base, 'count(streamgauge_streams_total{model="model-7"}) or vector(0)', 0)

    asyncio.run(run())


def exemplars(base: str) -> list[dict[str, str]]:
    """The labels of the stored exemplars of the time to first token, from the last hour."""
    name, now = quote("streamgauge_time_to_first_token_seconds_bucket"), time.time()
    data = get(f"{base}/api/v1/query_exemplars?query={name}&start={now - 3600}&end={now + 60}")
    assert isinstance(data, list)
    return [exemplar["labels"] for series in data for exemplar in series["exemplars"]]


@pytest.mark.parametrize("names", get_args(OtelNames))
def test_promtool_has_nothing_to_say_about_a_page(names: OtelNames, prometheus_tools: None) -> None:
    metrics = Metrics(otel_names=names)
    metrics.start_upstream("nimbus")
    metrics.observe(make_record(error=Error("transport"), attempt=2))
    done = subprocess.run(["promtool", "check", "metrics"], input=metrics.render(), capture_output=True, check=False)
    assert (done.returncode, done.stdout + done.stderr) == (0, b"")
