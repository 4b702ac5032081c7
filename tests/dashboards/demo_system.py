"""The demo with its failures, and a tap with a worker on Kafka, scraped by a real Prometheus: every panel has data."""

import contextlib
import http.client
import json
import threading
import urllib.request
from collections.abc import Iterator, Mapping
from contextlib import ExitStack, contextmanager
from http.server import BaseHTTPRequestHandler
from pathlib import Path
from typing import Any
from urllib.parse import urlencode

from streamgauge.metrics.dashboards.panel import Dashboard
from streamgauge.metrics.dashboards.variables import TPOT_OBJECTIVE
from streamgauge.metrics.objectives import Objectives
from streamgauge.metrics.rule_files import prometheus_rules
from streamgauge.metrics.rules import Durations
from tests.dashboards.monitoring import free_port, prometheus_with_rules
from tests.http_serving import LocalServer, Quiet, serving
from tests.integration.provider import BEGIN, event
from tests.running import start, wait_until_ready

_EVERY_S = 0.5
_PATIENCE_S = 60.0
# Alerts come after seconds instead of minutes.
_FACTOR = 1 / 30

# All kinds of tokens, and a limit.
_USAGE = {
    "prompt_tokens": 900,
    "completion_tokens": 120,
    "total_tokens": 1020,
    "prompt_tokens_details": {"cached_tokens": 500, "cache_write_tokens": 100, "audio_tokens": 50},
    "completion_tokens_details": {"reasoning_tokens": 40, "audio_tokens": 20},
}
_REST = (
    event(delta={"content": " world"})
    + event(delta={}, finish_reason="stop")
    + b"data: "
    + json.dumps({"id": "chat-1", "model": "small-1", "choices": [], "usage": _USAGE}).encode()
    + b"\n\ndata: [DONE]\n\n"
)
_LIMITS = {
    "x-ratelimit-limit-requests": "500",
    "x-ratelimit-remaining-requests": "41",
    "x-ratelimit-reset-requests": "120s",
    "x-ratelimit-limit-tokens": "100000",
    "x-ratelimit-remaining-tokens": "64000",
    "x-ratelimit-reset-tokens": "60s",
}


class _Provider(Quiet, BaseHTTPRequestHandler):
    def do_POST(self) -> None:
        self.rfile.read(int(self.headers["content-length"]))
        body = BEGIN + _REST
        self.send_response(200)
        for name, value in {"content-type": "text/event-stream", "content-length": str(len(body)), **_LIMITS}.items():
            self.send_header(name, value)
        self.end_headers()
        self.wfile.write(body)


@contextmanager
def watched_demo(folder: Path, kafka: str | None, prefix: str = "") -> Iterator[str]:
    """Prometheus' address. It scrapes the demo (job `demo`), and with `kafka`, a broker's address, a tap and a worker."""
    folder.mkdir(parents=True, exist_ok=True)
    with ExitStack() as stack:
        admin = f"127.0.0.1:{free_port()}"
        flags = ["--serve", "--admin", admin, "--data-dir", str(folder / "demo")]
        wait_until_ready(stack.enter_context(start("demo", flags, folder / "demo")))
        targets = {"demo": [admin]}
        if kafka is not None:
            targets |= _tap_and_worker(folder, kafka, prefix, stack)
        rules = prometheus_rules(Objectives(ttft=0.5), Durations(_FACTOR))
        yield stack.enter_context(prometheus_with_rules(folder, targets, rules))


def _tap_and_worker(folder: Path, kafka: str, prefix: str, stack: ExitStack) -> dict[str, list[str]]:
    provider = stack.enter_context(serving(LocalServer(_Provider)))
    at = {name: f"127.0.0.1:{free_port()}" for name in ("tap", "worker", "clients")}
    common = ["--kafka", kafka, "--topic-prefix", prefix]
    tap = ["--upstream", f"small={provider.url}", "--upstream", f"away=http://127.0.0.1:{free_port()}"]
    tap += ["--listen", at["clients"], "--tenant-header", "X-Team"]
    commands = {"tap": tap, "worker": ["--metric-attribute", "tenant"]}
    for name, more in commands.items():
        flags = [*common, *more, "--admin", at[name], "--data-dir", str(folder / name)]
        wait_until_ready(stack.enter_context(start(name, flags, folder / name)))
    stack.enter_context(_traffic(at["clients"]))
    return {"streamgauge-tap": [at["tap"]], "streamgauge-worker": [at["worker"]]}


@contextmanager
def _traffic(address: str) -> Iterator[None]:
    """Requests of two teams to an upstream that answers, and to one that refuses connections."""
    stop = threading.Event()

    def run() -> None:
        number = 0
        while not stop.wait(_EVERY_S):
            number += 1
            _ask(address, "away" if number % 10 == 0 else "small", ("search", "support")[number % 2])

    thread = threading.Thread(target=run)
    thread.start()
    try:
        yield
    finally:
        stop.set()
        thread.join(_PATIENCE_S)


def _ask(address: str, upstream: str, team: str) -> None:
    connection = http.client.HTTPConnection(address, timeout=_PATIENCE_S)
    with contextlib.closing(connection), contextlib.suppress(OSError, http.client.HTTPException):
        body = json.dumps({"model": f"{upstream}-1", "stream": True, "messages": []})
        headers = {"X-Team": team, "Authorization": "Bearer demo"}
        connection.request("POST", f"/{upstream}/v1/chat/completions", body, headers)
        connection.getresponse().read()


# What the variables of dashboards stand for: everything, and windows of several rounds of the demo. A week ago is some
# seconds ago.
FILLED = {
    "$__rate_interval": "2m",
    "$__range": "2m",
    "offset 1w": "offset 20s",
    "$objective": str(Objectives().ttft),
    "$tpot_objective": str(TPOT_OBJECTIVE),
    **{f'=~"${name}"': '=~".*"' for name in ("job", "instance", "upstream", "model", "tenant")},
}


def filled(expression: str) -> str:
    """A query with values for its variables."""
    for variable, value in FILLED.items():
        expression = expression.replace(variable, value)
    assert "$" not in expression, expression
    return expression


def ask_prometheus(base: str, path: str, **parameters: object) -> Any:
    """`data` of an answer of Prometheus' API. Raises OSError."""
    with urllib.request.urlopen(f"{base}/api/v1/{path}?{urlencode(parameters)}", timeout=20) as answer:
        return json.load(answer)["data"]


def results(base: str, dashboard: Dashboard) -> Mapping[tuple[str, str], list[Any]]:
    """What each query gives now, by panel and legend."""
    return {
        (panel.title, query.legend): ask_prometheus(base, "query", query=filled(query.expression))["result"]
        for panel in dashboard.panels
        for query in panel.queries
    }
