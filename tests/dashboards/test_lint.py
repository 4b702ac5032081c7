"""The dashboards pass the lint, and each rule of the lint finds its fault."""

import copy
import json
from typing import Any

import pytest
from dashboards.source.dashboard import Dashboard
from dashboards.source.generate import DASHBOARDS

from tests.dashboards.lint import RULES, Finding, lint
from tests.each import each

# Rule and panel -> why the rule does not hold there.
_OF_ALL = "an alert on what is missing has no labels to select by, so the table shows those of the whole installation"
_TOTALS = "the balance holds for totals at each scrape, not for rates, whose windows begin at different reads"
EXCEPTIONS = {
    ("target-job-rule", "Alerts"): _OF_ALL,
    ("target-instance-rule", "Alerts"): _OF_ALL,
    ("target-counter-agg-rule", "Reads out of balance"): _TOTALS,
}


def unexpected(found: list[Finding]) -> list[Finding]:
    return [one for one in found if (one.rule, one.panel) not in EXCEPTIONS]


@each(DASHBOARDS, lambda one: one.name)
def test_a_dashboard_passes_the_lint(dashboard: Dashboard) -> None:
    assert unexpected(lint(json.loads(dashboard.json()))) == []


def test_every_exception_is_needed() -> None:
    found = {(one.rule, one.panel) for dashboard in DASHBOARDS for one in lint(json.loads(dashboard.json()))}
    assert found == set(EXCEPTIONS)


# --- each rule finds its fault ------------------------------------------------------------------------------------------

_SCOPE = 'job=~"$job",instance=~"$instance"'
_STREAMS = f'streamgauge_streams_total{{{_SCOPE},upstream=~"$upstream",model=~"$model",tenant=~"$tenant"}}'
_GOOD = f"sum by (outcome) (rate({_STREAMS}[$__rate_interval]))"


def small() -> Any:
    """The overview with one panel of one query."""
    content: Any = json.loads(DASHBOARDS[0].json())
    panel = next(one for one in content["panels"] if one["title"] == "Streams by outcome")
    assert panel["targets"][0]["expr"] == _GOOD
    content["panels"] = [panel]
    return content


def rules_that_find(content: Any) -> set[str]:
    return {one.rule for one in lint(content)}


def test_the_small_dashboard_is_good() -> None:
    assert lint(small()) == []


def _histogram(le: str) -> str:
    name = f'streamgauge_time_to_first_token_seconds_bucket{{{_SCOPE},upstream=~"$upstream",model=~"$model"'
    return f'{name},tenant=~"$tenant",le="{le}"}}'


# Rule -> queries that it finds, each in place of the good one, with its legend.
QUERIES = {
    "target-promql-rule": [(f"{_GOOD})", "{{outcome}}")],
    "target-rate-interval-rule": [(_GOOD.replace("$__rate_interval", "5m"), "{{outcome}}")],
    "target-job-rule": [(_GOOD.replace('job=~"$job",', ""), "{{outcome}}")],
    "target-instance-rule": [(_GOOD.replace("instance=~", "instance="), "{{outcome}}")],
    "target-counter-agg-rule": [(f"sum by (outcome) ({_STREAMS})", "{{outcome}}")],
    "target-scope": [(_GOOD.replace(',model=~"$model"', ""), "{{outcome}}")],
    "target-metric-declared": [
        (_GOOD.replace("streams_total", "streems_total"), "{{outcome}}"),
        (_GOOD.replace("streamgauge_streams_total", "go_goroutines"), "{{outcome}}"),
        (_GOOD.replace("streams_total", "time_to_first_token_seconds"), "{{outcome}}"),
        (_GOOD.replace('tenant=~"$tenant"', 'tenant=~"$tenant",colour="red"'), "{{outcome}}"),
    ],
    "target-labels": [
        (_GOOD, "{{upstream}}"),
        (_GOOD, "all"),
        (_GOOD.replace("by (outcome)", "by (outcome, colour)"), "{{outcome}}"),
        (f"{_GOOD} / ({_GOOD.replace('by (outcome)', 'by (model)')} > 0)", "{{outcome}}"),
        (f"{_GOOD} / on (model) ({_GOOD} > 0)", "{{outcome}}"),
    ],
    "target-legend": [(_GOOD, ""), (_GOOD, "__auto"), (f"{_GOOD} or on () vector(0)", "{{outcome}}")],
    "target-no-nan": [
        (f"{_GOOD} / {_GOOD}", "{{outcome}}"),
        (f"{_GOOD} / ({_GOOD} >= 0)", "{{outcome}}"),
        (f"histogram_quantile(0.5, sum by (le) (rate({_histogram('+Inf')}[$__rate_interval])))", "p50"),
    ],
    "target-objective-is-a-bound": [
        (f"sum(rate({_histogram('4.0')}[$__rate_interval]))", "within"),
        (f"sum(rate({_histogram('$tpot_objective')}[$__rate_interval]))", "within"),
    ],
    "variable-known": [(_GOOD.replace("$model", "$modell"), "{{outcome}}")],
    "panel-describes-metrics": [(_GOOD.replace("streams_total", "stream_errors_total"), "{{outcome}}")],
}
_CASES = [(rule, query, legend) for rule, some in QUERIES.items() for query, legend in some]


@pytest.mark.parametrize(
    ("rule", "query", "legend"), _CASES, ids=[f"{rule}-{n}" for n, (rule, *_) in enumerate(_CASES)]
)
def test_a_rule_finds_a_wrong_query(rule: str, query: str, legend: str) -> None:
    content = small()
    content["panels"][0]["targets"][0] |= {"expr": query, "legendFormat": legend}
    assert rule in rules_that_find(content)


def _without(key: str) -> Any:
    def change(content: Any) -> None:
        del content["panels"][0][key]

    return change


def _variable(called: str, **changes: object) -> Any:
    def change(content: Any) -> None:
        (variable,) = [one for one in content["templating"]["list"] if one["name"] == called]
        variable.update(changes)

    return change


def _two_panels(**changes: object) -> Any:
    def change(content: Any) -> None:
        content["panels"].append({**copy.deepcopy(content["panels"][0]), "title": "Another", **changes})

    return change


def _cell_link(content: Any) -> None:
    link = [{"id": "links", "value": [{"title": "x", "url": "/d/streamgauge-latency?${__url_time_range}&var-model=a"}]}]
    content["panels"][0]["fieldConfig"]["overrides"] = [{"matcher": {}, "properties": link}]


def _unit(content: Any) -> None:
    content["panels"][0]["fieldConfig"]["defaults"]["unit"] = "furlongs"


def _heatmap_without_a_unit(content: Any) -> None:
    content["panels"] = [one for one in json.loads(DASHBOARDS[1].json())["panels"] if one["type"] == "heatmap"]  # type: ignore[attr-defined]
    del content["panels"][0]["options"]["yAxis"]["unit"]


def _target_source(content: Any) -> None:
    content["panels"][0]["targets"][0]["datasource"] = {"type": "prometheus", "uid": "mine"}


def _long_range(content: Any) -> None:
    content["panels"][0]["targets"][0]["expr"] = _GOOD.replace("$__rate_interval", "$__range")


def _label_query(query: str) -> Any:
    return _variable("model", query={"query": query, "refId": "model"})


CHANGES: list[tuple[str, Any]] = [
    ("template-datasource-rule", _variable("datasource", label="Prometheus")),
    ("template-job-rule", _variable("job", multi=False)),
    ("template-job-rule", _variable("job", name="jobs")),
    ("template-instance-rule", _variable("instance", allValue=".*")),
    ("template-label-promql-rule", _label_query("label_values(streamgauge_streams_total{, model)")),
    ("template-label-promql-rule", _label_query("label_values(streamgauge_streems_total, model)")),
    ("template-label-promql-rule", _label_query("label_values(streamgauge_stalls_total, model)")),
    ("template-label-promql-rule", _label_query("query_result(up)")),
    ("template-on-time-change-reload-rule", _variable("model", refresh=1)),
    ("template-uneditable-rule", lambda content: content.update(editable=True)),
    ("variable-datasource", _variable("model", datasource={"type": "prometheus", "uid": "mine"})),
    ("links-keep-scope", lambda content: content["links"][0].update(keepTime=False)),
    ("links-keep-scope", lambda content: content.update(links=[])),
    ("cell-links-keep-scope", _cell_link),
    ("panel-ids", _without("id")),
    ("panel-ids", _two_panels()),
    ("panel-places", _two_panels(id=99)),
    ("panel-places", lambda content: content["panels"][0]["gridPos"].update(x=20)),
    ("panel-title-description-rule", lambda content: content["panels"][0].update(title=" ")),
    ("panel-title-description-rule", _without("description")),
    ("panel-datasource-rule", _without("datasource")),
    ("panel-datasource-rule", _target_source),
    ("panel-units-rule", _unit),
    ("panel-units-rule", _heatmap_without_a_unit),
    ("panel-no-targets-rule", _without("targets")),
    ("panel-no-value", lambda content: content["panels"][0]["fieldConfig"]["defaults"].pop("noValue")),
    ("target-rate-interval-rule", _long_range),
]


@pytest.mark.parametrize(("rule", "change"), CHANGES, ids=[f"{rule}-{n}" for n, (rule, _) in enumerate(CHANGES)])
def test_a_rule_finds_a_wrong_panel_or_dashboard(rule: str, change: Any) -> None:
    content = small()
    change(content)
    assert rule in rules_that_find(content)


def test_every_rule_is_tested() -> None:
    assert {*QUERIES, *(rule for rule, _ in CHANGES)} == set(RULES)
