"""The demo with its failures, and a tap with a worker on Kafka, scraped by a real Prometheus: every panel has data."""

import contextlib
import http.client
import json
import threading
import urllib.request
from collections.abc import Iterator, Mapping
from contextlib import ExitStack, contextmanager
from datetime import UTC, datetime
from pathlib import Path
from typing import Any
from urllib.parse import urlencode
from zoneinfo import ZoneInfo

import msgspec
from dashboards.source.dashboard import Dashboard

from streamgauge.audit.result import Amount, Days, Result, TokenCounts, Tolerance, Verdict, Verdicts, encode
from streamgauge.audit.runs import Run, Runs
from streamgauge.ledger import open_ledger
from streamgauge.metrics.objectives import Objectives
from streamgauge.metrics.rule_files import prometheus_rules
from streamgauge.metrics.rules import Durations
from streamgauge_demo.provider import Exchange, Provider, whole
from tests.dashboards.monitoring import prometheus_with_rules
from tests.http_serving import serving
from tests.integration.provider import BEGIN, event
from tests.ports import free_port
from tests.running import start, wait_until_ready
from tests.spans.receiver import Receiver

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


# Prices of one model: another one has none.
_PRICES = """
[[price]]
model = "small-1"
from = 2026-01-01
input = 2
input_cached = 0.5
cache_write = 2.5
output = 8
"""


# A model whose provider reports the cost of each response.
_SOLD = "sold-1"


async def _play(exchange: Exchange) -> None:
    asked = json.loads(await exchange.read_body())
    if "jsonrpc" in asked:
        result = {"content": [], "isError": asked["params"]["name"] == "broken"}
        await whole(json.dumps({"jsonrpc": "2.0", "id": 1, "result": result}).encode())(exchange)
        return
    model = asked["model"]
    body = (BEGIN + _REST).replace(b"small-1", model.encode())
    if model == _SOLD:
        body = body.replace(b'"usage": {', b'"usage": {"cost": 0.0012, "is_byok": false, ')
    await whole(body, kind="text/event-stream", headers=_LIMITS)(exchange)


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
    provider = stack.enter_context(Provider(_play, keeps=False))
    at = {name: f"127.0.0.1:{free_port()}" for name in ("tap", "worker", "clients")}
    common = ["--kafka", kafka, "--topic-prefix", prefix]
    tap = ["--upstream", f"small={provider.url}", "--upstream", f"away=http://127.0.0.1:{free_port()}"]
    tap += ["--listen", at["clients"], "--tenant-header", "X-Team"]
    receiver = stack.enter_context(serving(Receiver()))
    commands = {"tap": tap, "worker": ["--metric-attribute", "tenant", "--otlp", receiver.url, *_money(folder)]}
    for name, more in commands.items():
        flags = [*common, *more, "--admin", at[name], "--data-dir", str(folder / name)]
        wait_until_ready(stack.enter_context(start(name, flags, folder / name)))
    stack.enter_context(_traffic(at["clients"]))
    return {"streamgauge-tap": [at["tap"]], "streamgauge-worker": [at["worker"]]}


def _money(folder: Path) -> list[str]:
    """Options of a worker that knows prices and a budget, and whose ledger has an audit already."""
    (folder / "prices.toml").write_text(_PRICES)
    # A forecast needs a month that is older than a day. While the easternmost zone has the first day of a month, the
    # westernmost is still in the month before.
    timezone = "Etc/GMT-14" if datetime.now(ZoneInfo("Etc/GMT-14")).day > 1 else "Etc/GMT+12"
    (folder / "budgets.toml").write_text(f'timezone = "{timezone}"\n[[budget]]\ntenant = "search"\nmonth_usd = 1\n')
    (folder / "worker").mkdir(mode=0o700)
    with open_ledger(f"sqlite:///{folder}/worker/ledger.sqlite") as ledger:
        Runs(ledger).add(an_audit())
    return ["--prices", str(folder / "prices.toml"), "--budgets", str(folder / "budgets.toml")]


def an_audit() -> Run:
    """A kept audit that agrees, but for a few tokens within its tolerance."""
    few = Amount(TokenCounts(10, 0, 0, 2, 12), "0.01")
    result = Result(
        period=Days("2026-10-01", "2026-11-01", "UTC"),
        agrees=True,
        tolerance=Tolerance(20, "0.01"),
        coverage={"nimbus": "0.97"},
        causes=[],
        lines=[],
        unexplained=few,
        findings=[],
        verdicts=Verdicts(tokens=Verdict("agrees", None), money=Verdict("agrees", None)),
    )
    now = datetime.now(UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
    return Run(now, "2026-10-01", "2026-11-01", "UTC", True, False, "", [], msgspec.Raw(encode(result)))


@contextmanager
def _traffic(address: str) -> Iterator[None]:
    """Requests of two teams to an upstream that answers, and to one that refuses connections."""
    stop = threading.Event()

    def run() -> None:
        number = 0
        while not stop.wait(_EVERY_S):
            number += 1
            upstream = "away" if number % 10 == 0 else "small"
            model = "new-1" if number % 7 == 0 else _SOLD if number % 5 == 0 else f"{upstream}-1"
            asked = {"model": model, "stream": True, "messages": []}
            _ask(address, f"/{upstream}/v1/chat/completions", asked, ("search", "support")[number % 2])
            called = {"name": "broken" if number % 4 == 0 else "level"}
            _ask(address, "/small/mcp", {"jsonrpc": "2.0", "id": 1, "method": "tools/call", "params": called}, "search")

    thread = threading.Thread(target=run)
    thread.start()
    try:
        yield
    finally:
        stop.set()
        thread.join(_PATIENCE_S)


def _ask(address: str, target: str, asked: Mapping[str, Any], team: str) -> None:
    connection = http.client.HTTPConnection(address, timeout=_PATIENCE_S)
    with contextlib.closing(connection), contextlib.suppress(OSError, http.client.HTTPException):
        headers = {"X-Team": team, "Authorization": "Bearer demo", "Content-Type": "application/json"}
        connection.request("POST", target, json.dumps(asked), headers)
        connection.getresponse().read()


# What the variables of dashboards stand for: everything, and windows of several rounds of the demo. A week ago is some
# seconds ago.
FILLED = {
    "$__rate_interval": "2m",
    "$__range": "2m",
    "offset 1w": "offset 20s",
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
