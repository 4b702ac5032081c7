"""What a PromQL expression names: metrics, and the labels that it matches and groups by. Enough for the expressions
here.
"""

import re
from dataclasses import dataclass

from streamgauge.metrics.declarations import Kind
from streamgauge.metrics.table import BY_NAME

# Labels that Prometheus itself adds to what it scrapes.
SCRAPED = {"instance", "job"}

_SELECTOR = re.compile(r"\b((?:streamgauge|process)_[a-z_]+)(?:\{([^}]*)\})?")
_MATCHER = re.compile(r'([a-z_]+)\s*(?:=~|!~|!=|=)\s*"[^"]*"')
_GROUPING = re.compile(r"\b(?:by|without|on|ignoring)\s*\(([^)]*)\)")
_RECORDED = re.compile(r"\w+:\w+:\w+")
_SUFFIX = re.compile(r"_(?:bucket|sum|count)$")


@dataclass(frozen=True)
class Named:
    """A metric as an expression names it, and the labels it matches there."""

    metric: str
    labels: frozenset[str]


def recorded_names(expression: str) -> set[str]:
    """The series of recording rules that an expression uses: LABELS:METRIC:OPERATION."""
    return set(_RECORDED.findall(expression))


def check_recorded(expression: str, known: set[str]) -> None:
    """Fails for a series that no recording rule makes, and for a metric beside recorded series."""
    assert recorded_names(expression) <= known, expression
    assert "streamgauge_" not in _RECORDED.sub("", expression), expression


def named(expression: str) -> list[Named]:
    """Every selector of an expression, with the table's name of its metric. Fails for a metric that is not in the table."""
    found = []
    for name, matchers in _SELECTOR.findall(expression):
        metric = name if name in BY_NAME else _SUFFIX.sub("", name)
        assert metric in BY_NAME, f"no metric {name}: {expression}"
        assert (metric == name) != (BY_NAME[metric].kind is Kind.HISTOGRAM), f"{name} is no series: {expression}"
        found.append(Named(metric, frozenset(_MATCHER.findall(matchers))))
    assert found, expression
    return found


def grouped_by(expression: str) -> set[str]:
    """Every label that an expression groups by."""
    return {label.strip() for labels in _GROUPING.findall(expression) for label in labels.split(",") if label.strip()}


def check(expression: str) -> None:
    """Fails for a metric or label that no exporter has."""
    selectors = named(expression)
    for selector in selectors:
        allowed = {*BY_NAME[selector.metric].labels, *SCRAPED, "le"}
        assert selector.labels <= allowed, f"{selector.metric} has no {selector.labels - allowed}: {expression}"
    histogram = {"le"} if any(BY_NAME[selector.metric].bounds for selector in selectors) else set()
    shared = set.intersection(*({*BY_NAME[selector.metric].labels} for selector in selectors))
    assert grouped_by(expression) <= shared | SCRAPED | histogram, expression
