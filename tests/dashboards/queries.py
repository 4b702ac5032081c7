"""What a PromQL expression names: metrics, and the labels that it matches and groups by. promql-parser reads it."""

from collections.abc import Iterator
from typing import Any

import promql_parser
from dashboards.source.queries import TENANT, metric_of

from streamgauge.metrics.table import ATTRIBUTED

Expr = Any
# Labels that Prometheus itself adds to what it scrapes.
SCRAPED = frozenset({"instance", "job"})
# Prometheus' own metrics; those of alerts have the labels of our alerts.
OF_ALERTS = SCRAPED | {"alertname", "severity", "upstream", "model"}
OF_PROMETHEUS = {"up": SCRAPED, "ALERTS": OF_ALERTS | {"alertstate"}, "ALERTS_FOR_STATE": OF_ALERTS}
# Grafana's windows while a query is parsed: durations that no query writes itself.
WINDOWS = {"$__rate_interval": "301s", "$__range": "3601s"}


def nodes(expression: str) -> list[tuple[Expr, tuple[Expr, ...]]]:
    """Every node of the syntax tree with its parents, the nearest last. Raises ValueError."""
    for variable, duration in WINDOWS.items():
        expression = expression.replace(variable, duration)
    visited: list[tuple[Expr, tuple[Expr, ...]]] = []
    above: list[Expr] = []

    def enter(node: Expr) -> None:
        visited.append((node, tuple(above)))
        above.append(node)

    def leave(node: Expr) -> None:
        above.pop()

    promql_parser.walk(promql_parser.parse(expression), enter, leave)
    return visited


def selectors(expression: str) -> list[Expr]:
    """The selectors of an expression. Raises ValueError."""
    return [node for node, _ in nodes(expression) if isinstance(node, promql_parser.VectorSelector)]


def metrics(expression: str) -> set[str]:
    """The metrics of the table that an expression names. Raises KeyError for a name of ours that is in no table."""
    return {metric_of(selector.name).name for selector in selectors(expression) if is_ours(selector.name)}


def is_ours(name: str) -> bool:
    """Whether an exporter of ours would have the series: it is no series of Prometheus or of a recording rule."""
    return name not in OF_PROMETHEUS and ":" not in name


def labels_of(name: str) -> frozenset[str]:
    """The labels that series of this name may have. Raises KeyError for a name that no table declares."""
    if name in OF_PROMETHEUS:
        return OF_PROMETHEUS[name]
    metric = metric_of(name)
    tenant = {TENANT} if metric.name in ATTRIBUTED else set()
    return SCRAPED | {*metric.labels, *tenant, *({"le"} if name.endswith("_bucket") else set())}


def unknown_names(expression: str, recorded: frozenset[str] = frozenset()) -> Iterator[str]:
    """The metrics and labels in an expression that nothing exports or records, each in a sentence.

    `recorded`: the series of recording rules, whose labels the tests of rules check.
    """
    tree = nodes(expression)
    for selector in selectors(expression):
        if ":" in selector.name:
            if selector.name not in recorded:
                yield f"no rule records {selector.name}"
            continue
        try:
            missing = {matcher.name for matcher in selector.matchers.matchers} - labels_of(selector.name)
        except KeyError:
            yield f"no table declares {selector.name}"
            continue
        yield from (f"{selector.name} has no label {label}" for label in sorted(missing))
    for node, _ in tree:
        if isinstance(node, promql_parser.AggregateExpr) and node.modifier is not None:
            yield from _unknown_groups(node, tree)


def _unknown_groups(aggregate: Expr, tree: list[tuple[Expr, tuple[Expr, ...]]]) -> Iterator[str]:
    """The labels that an aggregate groups by, and that no series inside of it has."""
    has: set[str] = set()
    for node, parents in tree:
        if aggregate not in parents:
            continue
        if isinstance(node, promql_parser.Call) and node.func.name in ("label_replace", "label_join"):
            has.add(node.args[1].val)
        if isinstance(node, promql_parser.VectorSelector):
            if ":" in str(node.name):
                return
            try:
                has |= labels_of(str(node.name))
            except KeyError:
                return
    yield from (f"no series has the label {label} to group by" for label in sorted({*aggregate.modifier.labels} - has))
