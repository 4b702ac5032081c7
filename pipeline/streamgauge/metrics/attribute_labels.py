"""The labels that `--metric-attribute` adds, and the metrics to which it adds them."""

from collections.abc import Sequence
from dataclasses import replace

from streamgauge.core.record import Record
from streamgauge.metrics.declarations import Metric

# The metrics of latency, failures, usage and cost. Labels on more metrics would multiply the series of the page.
ATTRIBUTED = (
    "streamgauge_streams_total",
    "streamgauge_stream_errors_total",
    "streamgauge_time_to_first_token_seconds",
    "streamgauge_usage_tokens_total",
    "streamgauge_cost_usd_total",
)


def with_attributes(metric: Metric, attributes: Sequence[str]) -> Metric:
    """The metric with these further labels, if it takes attributes; else unchanged."""
    return replace(metric, labels=(*metric.labels, *attributes)) if metric.name in ATTRIBUTED else metric


def attributes_of(metric: Metric, attributes: Sequence[str]) -> int:
    """How many of a metric's labels, its last ones, are attributes."""
    return len(attributes) if metric.name in ATTRIBUTED else 0


def attribute_of(record: Record, name: str) -> str | None:
    """The value of an attribute's label; None if the request had none. No attribute is named `tenant`."""
    return record.tenant if name == "tenant" else record.attributes.get(name)
