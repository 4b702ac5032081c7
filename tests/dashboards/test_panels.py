"""Every panel says what it shows, and every query names what exists and keeps the dashboard's scope.

The rules are those of Grafana's dashboard-linter and our own, as far as the text of a dashboard answers them.
`test_queries.py` executes the queries.
"""

import copy
import json
import re
from collections.abc import Callable, Iterator
from typing import Any

import promql_parser
import pytest
from dashboards.source.dashboard import Dashboard
from dashboards.source.generate import DASHBOARDS
from dashboards.source.panel import COLUMNS
from dashboards.source.queries import metric_of

from streamgauge.metrics.declarations import Kind
from streamgauge.metrics.rule_files import prometheus_rules
from tests.dashboards.queries import WINDOWS, is_ours, labels_of, metrics, nodes, selectors, unknown_names
from tests.each import each

Json = Any
# Units of Grafana that our panels use, from its list of value formats. The columns of a table need none.
UNITS = {"bool_yes_no", "bytes", "currencyUSD", "dateTimeFromNow", "percentunit", "reqps", "s", "short"}
SCOPE = ("job", "instance", "upstream", "model", "tenant")
ALL = {"type": "query", "multi": True, "includeAll": True, "allValue": ".+"}
RECORDED = frozenset(re.findall(r"record: (\S+)", prometheus_rules()))
EACH_S, RANGE_S = (int(duration.rstrip("s")) for duration in WINDOWS.values())
# The balance holds for totals at each scrape, not for rates, whose windows begin at different reads.
EXCEPTIONS = {
    "pipeline": [
        f"Captured data unaccounted for: streamgauge_tap_reads_{name}_total is a counter and needs rate or increase"
        for name in ("seen", "delivered", "dropped")
    ]
}


def panels_of(content: Json) -> list[Json]:
    """The panels that are no headings, those of collapsed rows included."""
    every = [*content["panels"], *(panel for row in content["panels"] for panel in row.get("panels") or ())]
    return [panel for panel in every if panel["type"] != "row"]


def faults(content: Json) -> list[str]:
    """What is wrong with a dashboard, with the title of the panel."""
    of_panels = [f"{panel['title']}: {text}" for panel in panels_of(content) for text in panel_faults(panel)]
    return [*dashboard_faults(content), *of_panels]


def dashboard_faults(content: Json) -> Iterator[str]:
    variables = {variable["name"]: variable for variable in content["templating"]["list"]}
    sources = [(name, variable["label"]) for name, variable in variables.items() if variable["type"] == "datasource"]
    if sources != [("datasource", "Data source")]:
        yield "one variable of the data source is needed"
    for name in ("job", "instance"):
        if not {**ALL, "label": name}.items() <= variables.get(name, {}).items():
            yield f"the variable {name} does not select several or all"
    for name, variable in variables.items():
        if variable["type"] == "query" and (variable["refresh"], variable["datasource"]["uid"]) != (2, "${datasource}"):
            yield f"{name} does not follow the time range and the data source"
    if content["editable"] is not False:
        yield "provisioned dashboards are not editable"
    others = [link for link in content["links"] if link["type"] == "dashboards"]
    if not others or not all(link["includeVars"] and link["keepTime"] for link in others):
        yield "the links to the other dashboards lose the time range or the variables"
    for panel in panels_of(content):
        for link in _cell_links(panel):
            if link.startswith("${page}/"):  # no dashboard
                continue
            kept = (name for name in variables if name != "page")
            carried = all(f"${{{name}:queryparam}}" in link or f"&var-{name}=" in link for name in kept)
            if "${__url_time_range}" not in link or not carried:
                yield f"{panel['title']}: a link loses the time range or variables"
        for target in panel.get("targets", ()):
            used = set(re.findall(r"\$\{?([a-z]\w*)", target["expr"]))
            yield from (f"{panel['title']}: ${name} is no variable" for name in sorted(used - variables.keys()))
    numbers = [panel.get("id") for panel in content["panels"] if panel["type"] == "row"]
    numbers += [panel.get("id") for panel in panels_of(content)]
    if None in numbers or len(set(numbers)) != len(numbers):
        yield "each panel needs an id of its own"
    yield from _misplaced(content["panels"])
    for row in content["panels"]:
        yield from _misplaced(row.get("panels") or [])


def _cell_links(panel: Json) -> list[str]:
    overrides = panel.get("fieldConfig", {}).get("overrides", ())
    options = [option for override in overrides for option in override["properties"]]
    return [link["url"] for option in options if option["id"] == "links" for link in option["value"]]


def _misplaced(panels: list[Json]) -> Iterator[str]:
    taken: set[tuple[int, int]] = set()
    for panel in panels:
        x, y, w, h = (panel["gridPos"][name] for name in "xywh")
        cells = {(column, row) for column in range(x, x + w) for row in range(y, y + h)}
        if x + w > COLUMNS or cells & taken:
            yield f"{panel['title']} is outside of the grid or covers another panel"
        taken |= cells


def panel_faults(panel: Json) -> Iterator[str]:
    if not panel["title"].strip() or not panel.get("description", "").strip():
        yield "it needs a title and a description"
    if panel["type"] == "text":
        return
    defaults, overrides = panel["fieldConfig"]["defaults"], panel["fieldConfig"]["overrides"]
    axis = [panel["options"]["yAxis"].get("unit")] if panel["type"] == "heatmap" else []
    if panel["type"] != "table" and not {defaults.get("unit"), *axis} <= UNITS:
        yield "values need a unit that Grafana knows"
    columns = [option["value"] for override in overrides for option in override["properties"] if option["id"] == "unit"]
    if not {defaults.get("unit"), *columns} <= {*UNITS, "none"}:
        yield "a column has a unit that Grafana does not know"
    if not defaults.get("noValue"):
        yield "it does not say what it means to have no value"
    targets = panel.get("targets", ())
    if not targets:
        yield "it has no query"
    if any(part.get("datasource", {}).get("uid") != "${datasource}" for part in (panel, *targets)):
        yield "the panel and its queries use the variable datasource"
    for target in targets:
        if not target["legendFormat"] or target["legendFormat"] == "__auto":
            yield "a query needs a legend"
        try:
            yield from query_faults(target)
        except ValueError as error:
            yield f"no PromQL: {error}"
            return
    yield from _undescribed(panel)


def _undescribed(panel: Json) -> Iterator[str]:
    expressions = [target["expr"] for target in panel.get("targets", ())]
    ours = [selector.name for expression in expressions for selector in selectors(expression)]
    try:
        named = {name for name in ours if not is_ours(name)}.union(*map(metrics, expressions))
    except KeyError:
        return  # query_faults() has said so
    ending = re.fullmatch(r".+\. Metrics: (.+)", panel.get("description", ""))
    if ending is None or set(ending[1].split(", ")) != named:
        yield f"the description does not end with the metrics {', '.join(sorted(named))}"


def query_faults(target: Json) -> Iterator[str]:
    """What the text of a query says: names, scope, and how counters are used. Raises ValueError if it is no PromQL."""
    unknown = list(unknown_names(target["expr"], RECORDED))
    yield from unknown
    if unknown:
        return
    for node, parents in nodes(target["expr"]):
        # An alert on what is missing has no labels to select by: tables of alerts show the whole installation.
        if not isinstance(node, promql_parser.VectorSelector) or not is_ours(name := str(node.name)):
            continue
        scope = {matcher.name for matcher in node.matchers.matchers if _is_variable(matcher)}
        yield from (f'{name} needs {label}=~"${label}"' for label in SCOPE if label in labels_of(name) - scope)
        windowed = len(parents) > 1 and isinstance(parents[-1], promql_parser.MatrixSelector)
        function = parents[-2].func.name if windowed and isinstance(parents[-2], promql_parser.Call) else ""
        if metric_of(name).kind is not Kind.GAUGE and function not in ("rate", "irate", "increase"):
            yield f"{name} is a counter and needs rate or increase"
        # The lines that are chosen over the whole time range.
        at_end = windowed and parents[-1].vector_selector.at is not None
        windows = {EACH_S, RANGE_S} if target["instant"] or at_end else {EACH_S}
        if function in ("rate", "irate") and parents[-1].range.total_seconds() not in windows:
            yield "a rate needs $__rate_interval, or $__range in an instant query"


def _is_variable(matcher: promql_parser.Matcher) -> bool:
    return matcher.op == promql_parser.MatchOp.Re and matcher.value == f"${matcher.name}"


@each(DASHBOARDS, lambda dashboard: dashboard.name)
def test_a_dashboard_has_no_fault(dashboard: Dashboard) -> None:
    assert faults(json.loads(dashboard.json())) == EXCEPTIONS.get(dashboard.name, [])


# --- each fault is noticed ----------------------------------------------------------------------------------------------

_GOOD = (
    'sum by (outcome) (rate(streamgauge_streams_total{job=~"$job",instance=~"$instance",upstream=~"$upstream",'
    'model=~"$model",tenant=~"$tenant"}[$__rate_interval]))'
)


def small() -> Json:
    """The overview with one panel of one query."""
    content: Json = json.loads(DASHBOARDS[0].json())
    panel = next(panel for panel in content["panels"] if panel["title"] == "How streams end")
    assert panel["targets"][0]["expr"] == _GOOD
    content["panels"] = [panel]
    return content


def test_the_small_dashboard_is_good() -> None:
    assert faults(small()) == []


@pytest.mark.parametrize(
    ("old", "new", "fault"),
    [
        ("sum by", "sum)by", "no PromQL"),
        ("streams_total", "streems_total", "no table declares streamgauge_streems_total"),
        ("streamgauge_streams_total", "go_goroutines", "no table declares go_goroutines"),
        ("streams_total", "time_to_first_token_seconds", "no table declares streamgauge_time_to_first_token_seconds"),
        ('tenant=~"$tenant"', 'tenant=~"$tenant",colour="red"', "streamgauge_streams_total has no label colour"),
        ("by (outcome)", "by (outcome, colour)", "no series has the label colour to group by"),
        ('job=~"$job",', "", 'streamgauge_streams_total needs job=~"$job"'),
        ("instance=~", "instance=", 'streamgauge_streams_total needs instance=~"$instance"'),
        (',model=~"$model"', "", 'streamgauge_streams_total needs model=~"$model"'),
        ("$model", "$modell", "$modell is no variable"),
        ("$__rate_interval", "5m", "a rate needs $__rate_interval"),
        ("$__rate_interval", "$__range", "a rate needs $__rate_interval"),
        ("rate(", "last_over_time(", "is a counter and needs rate or increase"),
        ("streams_total", "stream_outcomes_total", "the description does not end with the metrics"),
    ],
)
def test_a_wrong_query_is_noticed(old: str, new: str, fault: str) -> None:
    content = small()
    target = content["panels"][0]["targets"][0]
    assert old in target["expr"]
    target["expr"] = target["expr"].replace(old, new)
    assert fault in "\n".join(faults(content))


def _panel(change: Callable[[Json], object]) -> Callable[[Json], object]:
    return lambda content: change(content["panels"][0])


def _variable(called: str, **changes: object) -> Callable[[Json], object]:
    def change(content: Json) -> None:
        (variable,) = [variable for variable in content["templating"]["list"] if variable["name"] == called]
        variable.update(changes)

    return change


def _another_panel(**changes: object) -> Callable[[Json], object]:
    return lambda content: content["panels"].append({**copy.deepcopy(content["panels"][0]), **changes})


def _heatmap_without_a_unit(content: Json) -> None:
    content["panels"] = [panel for panel in json.loads(DASHBOARDS[1].json())["panels"] if panel["type"] == "heatmap"]
    del content["panels"][0]["options"]["yAxis"]["unit"]


_LINK = {"id": "links", "value": [{"title": "x", "url": "/d/streamgauge-usage?${__url_time_range}&var-model=a"}]}
_MINE = {"type": "prometheus", "uid": "mine"}
CHANGES: list[tuple[str, Callable[[Json], object]]] = [
    ("one variable of the data source", _variable("datasource", label="Prometheus")),
    ("the variable job", _variable("job", multi=False)),
    ("the variable job", _variable("job", name="jobs")),
    ("the variable instance", _variable("instance", allValue=".*")),
    ("model does not follow", _variable("model", refresh=1)),
    ("model does not follow", _variable("model", datasource=_MINE)),
    ("not editable", lambda content: content.update(editable=True)),
    ("the links to the other", lambda content: content["links"][0].update(keepTime=False)),
    ("the links to the other", lambda content: content.update(links=[])),
    ("a link loses", _panel(lambda panel: panel["fieldConfig"].update(overrides=[{"properties": [_LINK]}]))),
    ("an id of its own", _panel(lambda panel: panel.pop("id"))),
    ("an id of its own", _another_panel(gridPos={"x": 0, "y": 90, "w": 8, "h": 8})),
    ("covers another panel", _another_panel(id=99)),
    ("outside of the grid", _panel(lambda panel: panel["gridPos"].update(x=20))),
    ("a title and a description", _panel(lambda panel: panel.update(title=" "))),
    ("a title and a description", _panel(lambda panel: panel.pop("description"))),
    ("use the variable datasource", _panel(lambda panel: panel.pop("datasource"))),
    ("use the variable datasource", _panel(lambda panel: panel["targets"][0].update(datasource=_MINE))),
    ("need a unit", _panel(lambda panel: panel["fieldConfig"]["defaults"].update(unit="furlongs"))),
    ("need a unit", _panel(lambda panel: panel["fieldConfig"]["defaults"].pop("unit"))),
    ("need a unit", _heatmap_without_a_unit),
    ("it has no query", _panel(lambda panel: panel.pop("targets"))),
    ("a query needs a legend", _panel(lambda panel: panel["targets"][0].update(legendFormat="__auto"))),
    ("to have no value", _panel(lambda panel: panel["fieldConfig"]["defaults"].pop("noValue"))),
]


@pytest.mark.parametrize(("fault", "change"), CHANGES, ids=[f"{text}-{n}" for n, (text, _) in enumerate(CHANGES)])
def test_a_wrong_panel_or_dashboard_is_noticed(fault: str, change: Callable[[Json], object]) -> None:
    content = small()
    change(content)
    assert fault in "\n".join(faults(content))
