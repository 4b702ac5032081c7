"""A real Prometheus that has every series of the table executes every query of every dashboard.

It has them with traffic, then nothing for a while, then the same series idle, with gauges of 0. `test_panel_data.py` asks
for real data.
"""

import itertools
import json
import re
import subprocess
import urllib.error
from collections.abc import Iterator
from typing import Any

import pytest
from dashboards.source.dashboard import Dashboard
from dashboards.source.generate import DASHBOARDS

from streamgauge.core.token_kinds import token_kinds
from streamgauge.metrics import table
from streamgauge.metrics.declarations import Kind, Metric
from streamgauge.metrics.rule_files import PAGE
from streamgauge.metrics.rules_slo import FAST_ENOUGH, MAY_BE_SLOW, MAY_BREAK
from streamgauge.metrics.table import TABLE
from tests.dashboards.demo_system import ask_prometheus, filled
from tests.dashboards.monitoring import prometheus_with_rules
from tests.dashboards.queries import OF_PROMETHEUS, labels_of
from tests.dashboards.test_panels import panels_of, small
from tests.each import each

pytestmark = pytest.mark.slow

Json = Any
# Two stretches of time with a sample each STEP_S seconds, in one block of Prometheus (two hours), and times of queries.
BEGIN_S, STEP_S, STRETCH_S = 1_750_003_200, 15, 600
IDLE_S = BEGIN_S + 6_000
WITH_TRAFFIC, WITHOUT_SERIES, WITHOUT_TRAFFIC = BEGIN_S + STRETCH_S, IDLE_S - 600, IDLE_S + STRETCH_S

TOKEN_KINDS = token_kinds(
    dict.fromkeys(("input", "cached", "cache_write", "audio_input", "output", "reasoning", "audio_output"), 1)
)
# The values of labels that queries match. Labels of alerts have their values in the table (`starts`).
VALUES = {"outcome": table.OUTCOMES, "side": table.SIDES, "kind": (*TOKEN_KINDS.input, *TOKEN_KINDS.output)}


def series_of(metric: Metric) -> Iterator[tuple[str, float]]:
    """The series of a metric, and how much each grows from sample to sample."""
    names = sorted(labels_of(f"{metric.name}_count" if metric.kind is Kind.HISTOGRAM else metric.name))
    values = [(metric.starts or {}).get(name, VALUES.get(name, (f"some-{name}",))) for name in names]
    for combination in itertools.product(*values):
        labels = dict(zip(names, combination, strict=True))
        if metric.kind is not Kind.HISTOGRAM:
            more = 10 if "outcome" in labels else 1  # streams are more than their transport errors
            yield written(metric.name, labels), more if metric.kind is Kind.COUNTER else 0
            continue
        bounds = (*map(str, metric.bounds), "+Inf")
        for number, bound in enumerate(bounds, 1):
            yield written(f"{metric.name}_bucket", {**labels, "le": bound}), number
        yield written(f"{metric.name}_sum", labels), len(bounds)
        yield written(f"{metric.name}_count", labels), len(bounds)


def written(name: str, labels: dict[str, str]) -> str:
    pairs = ",".join(f'{label}="{value}"' for label, value in labels.items())
    return f"{name}{{{pairs}}}"


def open_metrics() -> str:
    """The samples of all series, in OpenMetrics' text."""
    alert = {"alertname": "TapDown"}  # one of ours
    growing = [series for metric in TABLE for series in series_of(metric)]
    for name in ("ALERTS", "ALERTS_FOR_STATE"):
        growing.append((written(name, {**dict.fromkeys(OF_PROMETHEUS[name], "some"), **alert}), 0))
    growing += [
        (f'{FAST_ENOUGH}{{le="5.0"}}', 0),
        (MAY_BE_SLOW, 0),
        (MAY_BREAK, 0),
        (f'{PAGE}{{page="http://page"}}', 0),
    ]
    lines = []
    for series, growth in growing:
        idle = 100 + growth * STRETCH_S / STEP_S if growth else 0  # a counter stays, a gauge is 0
        seconds = range(0, STRETCH_S + 1, STEP_S)
        lines += [f"{series} {100 + growth * second / STEP_S} {BEGIN_S + second}" for second in seconds]
        lines += [f"{series} {idle} {IDLE_S + second}" for second in seconds]
    return "\n".join([*lines, "# EOF", ""])


@pytest.fixture(scope="module")
def base(tmp_path_factory: pytest.TempPathFactory, prometheus_tools: None) -> Iterator[str]:
    """The address of a Prometheus with these samples."""
    folder = tmp_path_factory.mktemp("queries")
    (folder / "samples").write_text(open_metrics())
    create = ["promtool", "tsdb", "create-blocks-from", "openmetrics", "--quiet"]
    done = subprocess.run([*create, folder / "samples", folder / "data"], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    with prometheus_with_rules(folder, {}, "groups: []") as address:
        yield address


def faults(base: str, content: Json) -> list[str]:
    """What Prometheus' answers say against a dashboard: its variables offer values, and its queries have results."""
    variables = {variable["name"]: variable for variable in content["templating"]["list"]}
    texts = []
    for name, variable in variables.items():
        if variable["type"] == "query":
            asked = re.fullmatch(r"label_values\((.+), (\w+)\)", variable["query"]["query"])
            if asked is None or not _answer(base, f"label/{asked[2]}/values", **{"match[]": filled(asked[1])}):
                texts.append(f"{name} offers no value")
    for panel in panels_of(content):
        for target in panel.get("targets", ()):
            expression = filled(target["expr"])
            texts += [f"{panel['title']}: {text}: {expression}" for text in _of_query(base, expression, target, panel)]
    return texts


def _answer(base: str, path: str, **parameters: object) -> Json:
    """An answer of Prometheus; None if it refuses the question."""
    try:
        return ask_prometheus(base, path, **parameters)
    except urllib.error.HTTPError:
        return None


def _of_query(base: str, expression: str, target: Json, panel: Json) -> Iterator[str]:
    answers = [
        _answer(base, "query", query=expression, time=time) for time in (WITH_TRAFFIC, WITHOUT_TRAFFIC, WITHOUT_SERIES)
    ]
    if None in answers:
        yield "Prometheus refuses the query"
        return
    busy, idle, empty = (answer["result"] for answer in answers)
    if not busy:
        yield "no data"
    if any(series["value"][1] in ("NaN", "+Inf", "-Inf") for series in (*busy, *idle, *empty)):
        yield "not a number without traffic"
    shown = _shown(panel, target)
    if any(set(series["metric"]) - {"__name__"} != shown for series in busy):
        yield f"the series have other labels than {sorted(shown)}, which are shown"
    if not all(_name(target["legendFormat"], series["metric"]) for series in (*idle, *empty)):
        yield "the 0 of a query without series has no name"


def _name(legend: str, labels: dict[str, str]) -> str:
    """How Grafana names a series."""
    return re.sub(r"{{(\w+)}}", lambda label: labels.get(label[1], ""), legend).strip()


def _shown(panel: Json, target: Json) -> set[str]:
    """The labels that a panel shows: the columns of a table, or those in the legend."""
    if target["format"] == "table":
        (order,) = [step["options"]["renameByName"] for step in panel["transformations"] if step["id"] == "organize"]
        return {field for field in order if not field.startswith("Value")}
    bounds = {"le"} if target["format"] == "heatmap" else set()
    return bounds.union(re.findall(r"{{(\w+)}}", target["legendFormat"]))


@each(DASHBOARDS, lambda dashboard: dashboard.name)
def test_prometheus_answers_every_query(dashboard: Dashboard, base: str) -> None:
    assert faults(base, json.loads(dashboard.json())) == []


# --- each fault is noticed ----------------------------------------------------------------------------------------------

_STREAMS = 'rate(streamgauge_streams_total{job=~"$job"}[$__rate_interval])'
_NO_OUTCOME = _STREAMS.replace('job=~"$job"', 'outcome="broken"')
_BUCKETS = 'rate(streamgauge_time_to_first_token_seconds_bucket{le="4.0"}[$__rate_interval])'


@pytest.mark.parametrize(
    ("query", "legend", "fault"),
    [
        (f"sum by (outcome) ({_STREAMS}))", "{{outcome}}", "refuses"),
        (f"sum by (outcome) (rate({_STREAMS}))", "{{outcome}}", "refuses"),
        (f"sum({_STREAMS.replace('streams', 'streems')})", "all", "no data"),
        (f"sum({_NO_OUTCOME})", "all", "no data"),
        (f"sum({_BUCKETS})", "within", "no data"),
        (f"sum by (outcome) ({_STREAMS}) / sum by (model) ({_STREAMS})", "{{outcome}}", "no data"),
        (f"sum by (outcome) ({_STREAMS})", "{{upstream}}", "other labels"),
        (f"sum by (outcome) ({_STREAMS})", "all", "other labels"),
        (f"sum by (outcome) ({_STREAMS}) / sum by (outcome) ({_STREAMS})", "{{outcome}}", "not a number"),
        (f"sum by (outcome) ({_STREAMS}) / (sum by (outcome) ({_STREAMS}) >= 0)", "{{outcome}}", "not a number"),
        ("sum(streamgauge_spool_bytes) / sum(streamgauge_spool_limit_bytes)", "spool", "not a number"),
        (f"histogram_quantile(0.5, sum by (le) ({_BUCKETS.replace('=', '!=')}))", "p50", "not a number"),
        (f"sum by (outcome) ({_STREAMS}) or on () vector(0)", "{{outcome}}", "no name"),
    ],
)
def test_a_wrong_query_is_noticed(query: str, legend: str, fault: str, base: str) -> None:
    content = small()
    content["panels"][0]["targets"][0] |= {"expr": query, "legendFormat": legend}
    assert fault in "\n".join(faults(base, content))


@pytest.mark.parametrize(
    "query",
    [
        "label_values(streamgauge_streams_total{, model)",
        "label_values(streamgauge_streems_total, model)",
        "label_values(streamgauge_stalls_total, model)",
        "query_result(up)",
    ],
)
def test_a_variable_that_offers_nothing_is_noticed(query: str, base: str) -> None:
    content = small()
    (variable,) = [variable for variable in content["templating"]["list"] if variable["name"] == "model"]
    variable["query"]["query"] = query
    assert faults(base, content) == ["model offers no value"]
