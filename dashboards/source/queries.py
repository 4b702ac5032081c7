"""Parts of the panels' PromQL queries. Each selects the series that the dashboard's variables select.

A name is that of a metric in the table, without `streamgauge_`; that of a histogram has its suffix. A selector has a matcher
for each variable whose label the metric has: `streamgauge_stalls_total` has no model, so the variable `model` does not
apply.

A query gives no NaN: without traffic it has no series, and the panel says so.
"""

import re
from collections.abc import Callable, Iterable

from streamgauge.metrics.declarations import Kind, Metric
from streamgauge.metrics.rules_slo import BROKEN, FAST_ENOUGH, UNREACHABLE
from streamgauge.metrics.table import ATTRIBUTED, BY_NAME

# Windows: of a line in a graph, and of the whole time range of the dashboard.
EACH, RANGE = "$__rate_interval", "$__range"
# How many lines of upstreams, models or tenants a graph has.
TOP = 5
# What a query looks back for a comparison: the same time a week ago.
WEEK = "1w"

# Kinds of output tokens and of input tokens. The kinds are disjoint.
OUTPUT = "output_text|reasoning|output_audio"
INPUT = "input_uncached|input_cached|input_cache_write|input_audio"

# The unit of money, by Grafana's name.
USD = "currencyUSD"

_PREFIX = "streamgauge_"
_SUFFIX = re.compile(r"_(?:bucket|sum|count)$")
_NAME = re.compile(rf"\b(?:{_PREFIX}|process_)[a-z0-9_]+")
_RECORDED = re.compile(rf"\b{_PREFIX[:-1]}:[a-z_]+:[a-z_]+")
# Labels with a variable, besides those that every series has.
_SCOPED = ("upstream", "model")
TENANT = "tenant"


def metric_of(name: str) -> Metric:
    """The metric of a series: its own name, or that of its histogram. Raises KeyError if the table has none."""
    metric = BY_NAME.get(name)
    if metric is not None and metric.kind is not Kind.HISTOGRAM:
        return metric
    histogram = BY_NAME[_SUFFIX.sub("", name)]
    if histogram.kind is not Kind.HISTOGRAM or histogram.name == name:
        raise KeyError(f"{name} is no series: give a histogram's _bucket, _sum or _count")
    return histogram


def metrics_of(queries: Iterable[str]) -> tuple[str, ...]:
    """The names of the metrics in queries, each once, in their order."""
    return tuple(dict.fromkeys(metric_of(name).name for query in queries for name in _NAME.findall(query)))


def variables_of(metric: Metric) -> tuple[str, ...]:
    """The variables that select series of a metric."""
    tenant = (TENANT,) if metric.name in ATTRIBUTED else ()
    return ("job", "instance", *(label for label in _SCOPED if label in metric.labels), *tenant)


def recorded_of(queries: Iterable[str]) -> tuple[str, ...]:
    """The names of recording rules in queries, each once."""
    return tuple(dict.fromkeys(name for query in queries for name in _RECORDED.findall(query)))


def series(name: str, *where: str) -> str:
    """The series of a metric in the dashboard's scope. `where`: further matchers, such as `outcome="completed"`."""
    whole = name if name in BY_NAME else _PREFIX + name  # metrics of processes have no prefix
    scope = (f'{label}=~"${label}"' for label in variables_of(metric_of(whole)))
    return f"{whole}{{{','.join((*scope, *where))}}}"


def rate(name: str, *where: str, by: str = "", window: str = EACH, ago: str = "") -> str:
    """The increase of a counter a second, summed by labels. `ago`: the window ends so long before."""
    return _summed("rate", name, where, by, window, ago)


def an_hour(name: str, by: str, *where: str, window: str = EACH, ago: str = "") -> str:
    """Money an hour."""
    return f"3600 * {rate(name, *where, by=by, window=window, ago=ago)}"


def increase(name: str, *where: str, by: str = "", window: str = RANGE, ago: str = "") -> str:
    """The increase of a counter in a window, summed by labels."""
    return _summed("increase", name, where, by, window, ago)


def _summed(function: str, name: str, where: tuple[str, ...], by: str, window: str, ago: str) -> str:
    offset = f" offset {ago}" if ago else ""
    return f"sum{f' by ({by}) ' if by else ''}({function}({series(name, *where)}[{window}]{offset}))"


def quantile(share: float, name: str, *where: str, by: str = "", window: str = EACH, ago: str = "") -> str:
    """A quantile of a histogram, by labels. `>= 0` removes NaN, the quantile of nothing."""
    labels = f"le, {by}" if by else "le"
    return f"histogram_quantile({share}, {rate(f'{name}_bucket', *where, by=labels, window=window, ago=ago)}) >= 0"


def ratio(part: str, whole: str) -> str:
    """One sum divided by another. It has a series only where the divisor is positive, and both have one."""
    return f"{part} / ({whole} > 0)"


def share(part: str, whole: str) -> str:
    """A part of a whole: 0 where the whole has a series and the part has none."""
    return ratio(f"({part} or 0 * {whole})", whole)


def seldom(query: str) -> str:
    """A query whose series appear only with their first event: 0 until then."""
    return f"{query} or on () vector(0)"


def gauge(name: str, *where: str, by: str = "", of: str = "sum") -> str:
    """A gauge, combined by labels: `of` is sum, min or max."""
    return f"{of}{f' by ({by}) ' if by else ''}({series(name, *where)})"


def slow(by: str = "", window: str = RANGE, ago: str = "") -> str:
    """The share of first tokens that took longer than the objective of the rules: the bucket that counts it is chosen by
    their series.
    """
    bucket, count = "time_to_first_token_seconds_bucket", "time_to_first_token_seconds_count"
    offset = f" offset {ago}" if ago else ""
    labels = f" by ({by}) " if by else ""
    fast = f"sum{labels}(increase({series(bucket)}[{window}]{offset}) and on (le) {FAST_ENOUGH})"
    return f"(1 - {ratio(fast, increase(count, by=by, window=window, ago=ago))})"


def objective(name: str, by: str = "") -> str:
    """A number of the objectives, which the rules record."""
    return f"max{f' by ({by}) ' if by else ''}({name})"


def most(query: Callable[[str], str], by: str, among: Callable[[str], str] | None = None) -> str:
    """The lines of the TOP values of a label that are highest over the whole time range: the same ones at each point.

    `query` makes the query for a window; `among` the one that chooses, else it is `query`. What is 0 all the time has no
    line.
    """
    chosen = (among or query)(RANGE).replace(f"[{RANGE}]", f"[{RANGE}] @ end()")
    return f"{query(EACH)} and on ({by}) topk({TOP}, {chosen} > 0)"


def broke(by: str = "", window: str = RANGE, ago: str = "") -> str:
    """The share of streams that broke after they had begun: the objective of the alert StreamsBreakMidway.

    Streams that got no connection are in neither number, nor are error statuses.
    """

    def counted(name: str, where: str) -> str:
        return increase(name, where, by=by, window=window, ago=ago)

    answered = counted("stream_outcomes_total", 'outcome!="http_error"')
    broken = counted("stream_outcomes_total", f'outcome=~"{BROKEN}"')
    refused = counted("transport_errors_total", f'cause=~"{UNREACHABLE}"')
    unreachable = f"({refused} or 0 * {answered})"
    return ratio(f"clamp_min({broken} - {unreachable}, 0)", f"({answered} - {unreachable})")
