"""Queries of dashboards, parsed: the series that they select, and the labels of their results."""

import re
from collections.abc import Iterator
from typing import Any

import promql_parser
from dashboards.source.queries import TENANT, metric_of

from streamgauge.metrics.table import ATTRIBUTED
from tests.dashboards.promql import SCRAPED

Expr = Any

# What Grafana's variables stand for while a query is parsed. No query writes such a duration itself.
RATE_INTERVAL, RANGE = "301s", "3601s"
RATE_INTERVAL_S, RANGE_S = 301, 3601
# Prometheus' own metrics of alerts, with the labels of our alerts.
OF_PROMETHEUS = {
    name: {"alertname", "severity", "job", "instance", "upstream", "model", *more}
    for name, more in (("ALERTS", ("alertstate",)), ("ALERTS_FOR_STATE", ()))
}


class Unparsed(Exception):
    """The text is no PromQL."""


def parsed(expression: str) -> Expr:
    """The syntax tree. Raises Unparsed."""
    filled = expression.replace("$__rate_interval", RATE_INTERVAL).replace("$__range", RANGE)
    try:
        return promql_parser.parse(filled)
    except ValueError as error:
        raise Unparsed(str(error)) from None


def kind_of(node: Expr) -> str:
    return type(node).__name__


def children(node: Expr) -> list[Expr]:
    match kind_of(node):
        case "BinaryExpr":
            return [node.lhs, node.rhs]
        case "AggregateExpr":
            return [node.expr] if node.param is None else [node.expr, node.param]
        case "ParenExpr" | "UnaryExpr" | "SubqueryExpr":
            return [node.expr]
        case "Call":
            return list(node.args)
        case "MatrixSelector":
            return [node.vector_selector]
    return []


def walk(node: Expr, parents: tuple[Expr, ...] = ()) -> Iterator[tuple[Expr, tuple[Expr, ...]]]:
    """Every node with its parents, the nearest last."""
    yield node, parents
    for child in children(node):
        yield from walk(child, (*parents, node))


def selectors(node: Expr) -> list[Expr]:
    return [one for one, _ in walk(node) if kind_of(one) == "VectorSelector"]


def matchers(selector: Expr) -> dict[str, str]:
    return {matcher.name: matcher.value for matcher in selector.matchers.matchers}


def labels_of_series(name: str) -> set[str]:
    """The labels that series of this name may have. Raises KeyError for a name that no table declares."""
    if name in OF_PROMETHEUS:
        return OF_PROMETHEUS[name]
    metric = metric_of(name)
    tenant = {TENANT} if metric.name in ATTRIBUTED else set()
    return {*metric.labels, *SCRAPED, *tenant, *({"le"} if name.endswith("_bucket") else set())}


def labels_of(node: Expr) -> set[str] | None:
    """The labels of a query's result; None for a number. Raises AssertionError if both sides of an operator do not match."""
    match kind_of(node):
        case "NumberLiteral":
            return None
        case "VectorSelector":
            return labels_of_series(node.name)
        case "MatrixSelector":
            return labels_of(node.vector_selector)
        case "ParenExpr" | "UnaryExpr":
            return labels_of(node.expr)
        case "AggregateExpr":
            return _aggregated(node)
        case "Call":
            return _called(node)
        case "BinaryExpr":
            return _combined(node)
    raise AssertionError(f"no rule for {kind_of(node)}")


def _aggregated(node: Expr) -> set[str]:
    inner = labels_of(node.expr)
    assert inner is not None, "a number is aggregated"
    if node.modifier is None:
        return set()
    named = set(node.modifier.labels)
    assert named <= inner, f"grouped by {named - inner}, which the series do not have"
    return named if str(node.modifier.type).endswith("By") else inner - named


def _called(node: Expr) -> set[str]:
    if node.func.name == "vector":
        return set()
    if node.func.name == "histogram_quantile":
        inner = labels_of(node.args[1])
        assert inner is not None and "le" in inner, "a quantile of series without le"
        return inner - {"le"}
    inner = labels_of(node.args[0])
    assert inner is not None, f"{node.func.name} of a number"
    return inner


def _combined(node: Expr) -> set[str] | None:
    left, right = labels_of(node.lhs), labels_of(node.rhs)
    if left is None or right is None:
        return left if right is None else right
    if str(node.op) in ("or", "and", "unless"):
        return left | right if str(node.op) == "or" else left
    matching = node.modifier.matching if node.modifier is not None else None
    if matching is None:
        assert left == right, f"the sides of {node.op} have different labels: {sorted(left ^ right)}"
        return left
    on = set(matching.labels)
    assert on <= left & right, f"matched on {on - (left & right)}, which one side does not have"
    return left if "ManyToOne" in str(node.modifier.card) else on


def legend_labels(legend: str) -> set[str]:
    return set(re.findall(r"{{(\w+)}}", legend))
