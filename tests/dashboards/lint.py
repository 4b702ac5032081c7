"""The lint of dashboards: the rules of Grafana's dashboard-linter, for panels of every kind, and our own.

Rules have the names of dashboard-linter where it has them; its own skip some kinds of panels.
"""

import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from dashboards.source.queries import metric_of

from streamgauge.metrics.declarations import Kind
from tests.dashboards.queries import (
    OF_PROMETHEUS,
    RANGE_S,
    RATE_INTERVAL_S,
    Expr,
    Unparsed,
    kind_of,
    labels_of,
    labels_of_series,
    legend_labels,
    matchers,
    parsed,
    selectors,
    walk,
)

Json = Mapping[str, Any]
# Units of Grafana that our panels use, from its list of value formats.
UNITS = {"bool_yes_no", "bytes", "currencyUSD", "dateTimeFromNow", "none", "percentunit", "reqps", "s", "short"}
# Columns of a table that show a label need no unit.
RATES = {"rate", "irate", "increase"}
GRAFANA_COLUMNS = 24


@dataclass(frozen=True, order=True)
class Finding:
    """What a rule found. `panel`: the title of the panel, empty for the dashboard itself."""

    rule: str
    panel: str
    text: str


def panels_of(dashboard: Json) -> list[Json]:
    """The panels that are no headings."""
    return [panel for panel in dashboard["panels"] if panel["type"] != "row"]


def lint(dashboard: Json) -> list[Finding]:
    found = [Finding(name, "", text) for name, rule in DASHBOARD_RULES.items() for text in rule(dashboard)]
    for panel in panels_of(dashboard):
        title = panel.get("title", "")
        found += [Finding(name, title, text) for name, rule in PANEL_RULES.items() for text in rule(panel)]
        for target in panel.get("targets", ()):
            try:
                tree = parsed(target["expr"])
            except Unparsed as error:
                found.append(Finding("target-promql-rule", title, f"{error}: {target['expr']}"))
                continue
            found += [
                Finding(name, title, text)
                for name, rule in TARGET_RULES.items()
                for text in rule(tree, target, dashboard)
            ]
    return found


# --- the dashboard ------------------------------------------------------------------------------------------------------


def _variable(dashboard: Json, name: str) -> Json | None:
    return next((one for one in dashboard["templating"]["list"] if one["name"] == name), None)


def _datasource_variable(dashboard: Json) -> Iterator[str]:
    sources = [one for one in dashboard["templating"]["list"] if one["type"] == "datasource"]
    if len(sources) != 1 or (sources[0]["name"], sources[0]["label"]) != ("datasource", "Data source"):
        yield "one data source variable is needed, named datasource and labelled Data source"


def _scope_variable(name: str) -> Callable[[Json], Iterator[str]]:
    def rule(dashboard: Json) -> Iterator[str]:
        variable = _variable(dashboard, name)
        if variable is None:
            yield f"there is no variable {name}"
            return
        wanted = {"type": "query", "label": name, "multi": True, "includeAll": True, "allValue": ".+"}
        yield from (f"{key} of {name} is not {value}" for key, value in wanted.items() if variable.get(key) != value)

    return rule


def _variables_of_labels(dashboard: Json) -> Iterator[str]:
    for variable in dashboard["templating"]["list"]:
        if variable["type"] != "query":
            continue
        asked = re.fullmatch(r"label_values\((.+), (\w+)\)", variable["query"]["query"])
        if asked is None:
            yield f"{variable['name']} asks for no label_values"
            continue
        try:
            (selector,) = selectors(parsed(asked[1]))
            known = labels_of_series(selector.name)
        except (Unparsed, KeyError, ValueError) as error:
            yield f"{variable['name']}: {error}"
            continue
        if not {asked[2], *matchers(selector)} <= known:
            yield f"{variable['name']} asks for labels that {selector.name} does not have"


def _variables_reload(dashboard: Json) -> Iterator[str]:
    yield from (
        f"{one['name']} does not reload with the time range"
        for one in dashboard["templating"]["list"]
        if one["type"] == "query" and one.get("refresh") != 2
    )


def _variables_use_the_datasource(dashboard: Json) -> Iterator[str]:
    yield from (
        f"{one['name']} has another data source"
        for one in dashboard["templating"]["list"]
        if one["type"] == "query" and one["datasource"]["uid"] != "${datasource}"
    )


def _uneditable(dashboard: Json) -> Iterator[str]:
    if dashboard.get("editable") is not False:
        yield "provisioned dashboards are not editable"


def _links_keep_scope(dashboard: Json) -> Iterator[str]:
    if not dashboard.get("links"):
        yield "there are no links to the other dashboards"
    for link in dashboard.get("links", ()):
        if not (link["includeVars"] and link["keepTime"]):
            yield f"the link {link['title']} loses the time range or the variables"


def _cell_links_keep_scope(dashboard: Json) -> Iterator[str]:
    names = [one["name"] for one in dashboard["templating"]["list"]]
    for panel in panels_of(dashboard):
        for override in panel.get("fieldConfig", {}).get("overrides", ()):
            for one in override["properties"]:
                for link in one["value"] if one["id"] == "links" else ():
                    carried = {"${__url_time_range}", *(f"${{{name}:queryparam}}" for name in names)}
                    lost = {
                        part
                        for part in carried
                        if part not in link["url"] and f"&var-{part[2:].partition(':')[0]}=" not in link["url"]
                    }
                    if lost:
                        yield f"the link {link['title']} loses {sorted(lost)}"


def _ids(dashboard: Json) -> Iterator[str]:
    numbers = [panel.get("id") for panel in dashboard["panels"]]
    if None in numbers or len(set(numbers)) != len(numbers):
        yield "each panel needs an id of its own"


def _no_overlap(dashboard: Json) -> Iterator[str]:
    taken: dict[tuple[int, int], str] = {}
    for panel in dashboard["panels"]:
        place = panel["gridPos"]
        if place["x"] + place["w"] > GRAFANA_COLUMNS:
            yield f"{panel['title']} is wider than the grid"
        for x in range(place["x"], place["x"] + place["w"]):
            for y in range(place["y"], place["y"] + place["h"]):
                if taken.setdefault((x, y), panel["title"]) != panel["title"]:
                    yield f"{panel['title']} covers {taken[x, y]}"
                    return


def _known_variables(dashboard: Json) -> Iterator[str]:
    names = {one["name"] for one in dashboard["templating"]["list"]}
    for panel in panels_of(dashboard):
        for target in panel.get("targets", ()):
            used = set(re.findall(r"\$\{?([a-z]\w*)", target["expr"]))
            yield from (f"{panel['title']} uses ${name}, which is no variable" for name in sorted(used - names))


DASHBOARD_RULES: Mapping[str, Callable[[Json], Iterator[str]]] = {
    "template-datasource-rule": _datasource_variable,
    "template-job-rule": _scope_variable("job"),
    "template-instance-rule": _scope_variable("instance"),
    "template-label-promql-rule": _variables_of_labels,
    "template-on-time-change-reload-rule": _variables_reload,
    "template-uneditable-rule": _uneditable,
    "variable-datasource": _variables_use_the_datasource,
    "variable-known": _known_variables,
    "links-keep-scope": _links_keep_scope,
    "cell-links-keep-scope": _cell_links_keep_scope,
    "panel-ids": _ids,
    "panel-places": _no_overlap,
}

# --- panels -------------------------------------------------------------------------------------------------------------


def _is_text(panel: Json) -> bool:
    return panel["type"] == "text"


def _titled(panel: Json) -> Iterator[str]:
    if not panel.get("title", "").strip() or not panel.get("description", "").strip():
        yield "a panel needs a title and a description"


def _panel_datasource(panel: Json) -> Iterator[str]:
    used = [panel.get("datasource"), *(target.get("datasource") for target in panel.get("targets", ()))]
    if not _is_text(panel) and any(one is None or one.get("uid") != "${datasource}" for one in used):
        yield "the panel and its queries use the variable datasource"


def _units(panel: Json) -> Iterator[str]:
    if _is_text(panel):
        return
    fields = panel["fieldConfig"]
    units = [fields["defaults"].get("unit")]
    units += [one["value"] for override in fields["overrides"] for one in override["properties"] if one["id"] == "unit"]
    if panel["type"] == "heatmap":
        units.append(panel["options"]["yAxis"].get("unit"))
    yield from (f"{unit} is no unit that Grafana knows" for unit in units if unit not in UNITS)
    if panel["type"] != "table" and fields["defaults"].get("unit") == "none":
        yield "values need a unit"


def _has_targets(panel: Json) -> Iterator[str]:
    if not _is_text(panel) and not panel.get("targets"):
        yield "the panel has no query"


def _describes_its_metrics(panel: Json) -> Iterator[str]:
    names: dict[str, None] = {}
    for target in panel.get("targets", ()):
        try:
            found = [selector.name for selector in selectors(parsed(target["expr"]))]
            names |= dict.fromkeys(name if name in OF_PROMETHEUS else metric_of(name).name for name in found)
        except (Unparsed, KeyError):
            return  # other rules say so
    ending = re.fullmatch(r".+\. Metrics: (.+)", panel.get("description", ""))
    if ending is None or set(ending[1].split(", ")) != set(names or ["none"]):
        yield f"the description does not end with the metrics {', '.join(names) or 'none'}"


def _says_no_value(panel: Json) -> Iterator[str]:
    if not _is_text(panel) and not panel["fieldConfig"]["defaults"].get("noValue"):
        yield "the panel does not say what it means to have no value"


PANEL_RULES: Mapping[str, Callable[[Json], Iterator[str]]] = {
    "panel-title-description-rule": _titled,
    "panel-datasource-rule": _panel_datasource,
    "panel-units-rule": _units,
    "panel-no-targets-rule": _has_targets,
    "panel-describes-metrics": _describes_its_metrics,
    "panel-no-value": _says_no_value,
}

# --- queries ------------------------------------------------------------------------------------------------------------


def _declared(tree: Expr, target: Json, dashboard: Json) -> Iterator[str]:
    for selector in selectors(tree):
        try:
            unknown = matchers(selector).keys() - labels_of_series(selector.name)
        except KeyError:
            yield f"no table declares {selector.name}"
        else:
            yield from (f"{selector.name} has no label {label}" for label in sorted(unknown))


def _labels_match(tree: Expr, target: Json, dashboard: Json) -> Iterator[str]:
    try:
        labels = labels_of(tree) or set()
    except KeyError:
        return  # another rule says so
    except AssertionError as error:
        yield str(error)
        return
    if lost := legend_labels(target["legendFormat"]) - labels:
        yield f"the legend has {sorted(lost)}, which the query drops"
    shown = labels - {"le"} if target["format"] == "heatmap" else labels
    if target["format"] == "time_series" and (hidden := shown - legend_labels(target["legendFormat"])):
        yield f"the legend does not show {sorted(hidden)}, so several series have one name"


def _has_legend(tree: Expr, target: Json, dashboard: Json) -> Iterator[str]:
    if not target.get("legendFormat") or target["legendFormat"] == "__auto":
        yield "a query needs a legend"
    elif "vector(0)" in target["expr"] and target["legendFormat"].startswith("{{"):
        yield "the 0 of a query without series has no labels: the legend begins with a word"


def _rate_interval(tree: Expr, target: Json, dashboard: Json) -> Iterator[str]:
    for node, parents in walk(tree):
        if kind_of(node) != "MatrixSelector" or kind_of(parents[-1]) != "Call":
            continue
        seconds = node.range.total_seconds()
        whole_range = seconds == RANGE_S and target["instant"]
        if parents[-1].func.name in ("rate", "irate") and seconds != RATE_INTERVAL_S and not whole_range:
            yield "a rate needs $__rate_interval, or $__range in an instant query"


def _matcher(label: str) -> Callable[[Expr, Json, Json], Iterator[str]]:
    def rule(tree: Expr, target: Json, dashboard: Json) -> Iterator[str]:
        for selector in selectors(tree):
            found = [one for one in selector.matchers.matchers if one.name == label]
            if not any(str(one.op).endswith("Re") and one.value == f"${label}" for one in found):
                yield f'{selector.name} needs {label}=~"${label}"'

    return rule


def _in_scope(tree: Expr, target: Json, dashboard: Json) -> Iterator[str]:
    """Like those of job and instance, for the labels that not all metrics have."""
    for selector in selectors(tree):
        if selector.name in OF_PROMETHEUS:
            continue
        try:
            labels = labels_of_series(selector.name)
        except KeyError:
            continue
        given = matchers(selector)
        yield from (
            f'{selector.name} needs {label}=~"${label}"'
            for label in ("upstream", "model", "tenant")
            if label in labels and given.get(label) != f"${label}"
        )


def _counters_are_rated(tree: Expr, target: Json, dashboard: Json) -> Iterator[str]:
    for node, parents in walk(tree):
        if kind_of(node) == "VectorSelector" and _is_counter(node.name):
            inside = len(parents) > 1 and kind_of(parents[-1]) == "MatrixSelector" and kind_of(parents[-2]) == "Call"
            if not inside or parents[-2].func.name not in RATES:
                yield f"{node.name} is a counter and needs rate or increase"


def _is_counter(name: str) -> bool:
    if name in OF_PROMETHEUS:
        return False
    try:
        return metric_of(name).kind is not Kind.GAUGE
    except KeyError:
        return False


def _no_nan(tree: Expr, target: Json, dashboard: Json) -> Iterator[str]:
    for node, parents in walk(tree):
        if kind_of(node) == "BinaryExpr" and str(node.op) == "/" and not _is_positive(node.rhs):
            yield "a divisor needs `> 0`: without traffic the quotient is NaN"
        if kind_of(node) == "Call" and node.func.name == "histogram_quantile":
            above = parents[-1] if parents else None
            if above is None or kind_of(above) != "BinaryExpr" or str(above.op) != ">=":
                yield "a quantile needs `>= 0`: without traffic it is NaN"


def _is_positive(divisor: Expr) -> bool:
    if kind_of(divisor) == "NumberLiteral":
        return True
    inner = divisor.expr if kind_of(divisor) == "ParenExpr" else divisor
    return kind_of(inner) == "BinaryExpr" and str(inner.op) == ">" and kind_of(inner.rhs) == "NumberLiteral"


def _bounds(tree: Expr, target: Json, dashboard: Json) -> Iterator[str]:
    """A share within a limit can be counted only if the limit is a bound of the histogram's buckets."""
    for selector in selectors(tree):
        limit = matchers(selector).get("le")
        if limit is None:
            continue
        variable = _variable(dashboard, limit.strip("${}")) if limit.startswith("$") else None
        offered = [limit] if variable is None else _offered(variable)
        bounds = {str(bound) for bound in metric_of(selector.name).bounds}
        yield from (
            f"{value} is no bound of the buckets of {selector.name}" for value in offered if value not in bounds
        )


def _offered(variable: Json) -> Sequence[str]:
    return [*(one["value"] for one in variable["options"]), variable["current"]["value"]]


TARGET_RULES: Mapping[str, Callable[[Expr, Json, Json], Iterator[str]]] = {
    "target-rate-interval-rule": _rate_interval,
    "target-job-rule": _matcher("job"),
    "target-instance-rule": _matcher("instance"),
    "target-counter-agg-rule": _counters_are_rated,
    "target-scope": _in_scope,
    "target-metric-declared": _declared,
    "target-labels": _labels_match,
    "target-legend": _has_legend,
    "target-no-nan": _no_nan,
    "target-objective-is-a-bound": _bounds,
}
RULES = (*DASHBOARD_RULES, *PANEL_RULES, *TARGET_RULES, "target-promql-rule")
