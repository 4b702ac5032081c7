"""The page as text, which prometheus_client writes: Prometheus' classic format, or OpenMetrics, which has exemplars.

prometheus_client is given names as the scraper reads them, and writes them as they are (ALLOWUTF8). Its other ways to
escape look at each character of each name, which takes half of the time of a page. A label that a series does not have is
written with an empty value, which Prometheus reads as none.
"""

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from itertools import accumulate

from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, HistogramMetricFamily
from prometheus_client.exposition import CONTENT_TYPE_PLAIN_0_0_4, CONTENT_TYPE_PLAIN_1_0_0
from prometheus_client.exposition import generate_latest as classic_text
from prometheus_client.metrics_core import Metric as Exposed
from prometheus_client.openmetrics.exposition import ALLOWUTF8
from prometheus_client.openmetrics.exposition import CONTENT_TYPE_LATEST as CONTENT_TYPE_OPENMETRICS
from prometheus_client.openmetrics.exposition import generate_latest as openmetrics_text
from prometheus_client.registry import Collector
from prometheus_client.samples import Exemplar as ExposedExemplar

from streamgauge.metrics.declarations import Kind
from streamgauge.metrics.series import Exemplar, Family, Histogram, Key

# A family, and numbers that sources gave for this page, by series.
Shown = tuple[Family, Mapping[Key, float]]

_Bucket = tuple[str, float] | tuple[str, float, ExposedExemplar]

_openmetrics_text: Callable[[Collector, str], bytes] = openmetrics_text


@dataclass(frozen=True)
class TextFormat:
    """A text format. `dots`: the scraper reads names with dots, in quotes; else dots become underscores."""

    openmetrics: bool = False
    dots: bool = False

    @property
    def content_type(self) -> str:
        """The Content-Type of a page in this format."""
        classic = CONTENT_TYPE_PLAIN_1_0_0 if self.dots else CONTENT_TYPE_PLAIN_0_0_4
        plain = CONTENT_TYPE_OPENMETRICS if self.openmetrics else classic
        return f"{plain}; escaping={ALLOWUTF8}" if self.dots else plain

    def name(self, name: str) -> str:
        """The name of a metric or label as the scraper reads it."""
        return name if self.dots else name.replace(".", "_")

    def write(self, page: Iterable[Exposed]) -> bytes:
        """The page of these families."""
        write = _openmetrics_text if self.openmetrics else classic_text
        return write(_Collected(page), ALLOWUTF8)


@dataclass(frozen=True)
class _Collected(Collector):
    """Families that are collected already."""

    families: Iterable[Exposed]

    def collect(self) -> Iterable[Exposed]:
        return self.families


def exposed_families(shown: Sequence[Shown], form: TextFormat) -> list[Exposed]:
    """The families with their present values, as prometheus_client writes them."""
    return [_exposed(family, sampled, form) for family, sampled in shown]


def _exposed(family: Family, sampled: Mapping[Key, float], form: TextFormat) -> Exposed:
    metric = family.metric
    name, labels = form.name(metric.name), [form.name(label) for label in metric.labels]
    if metric.kind is Kind.HISTOGRAM:
        histograms = HistogramMetricFamily(name, metric.help, labels=labels)
        bounds = [*map(str, metric.bounds), "+Inf"]
        for key, histogram in family.histograms.items():
            exemplars = histogram.exemplars(metric.bounds) if form.openmetrics else {}
            histograms.add_metric(key, _buckets(bounds, histogram, exemplars), sum_value=histogram.total)
        return histograms
    made = CounterMetricFamily if metric.kind is Kind.COUNTER else GaugeMetricFamily
    numbers = made(name, metric.help, labels=labels)
    for key, value in {**family.numbers, **sampled}.items():
        numbers.add_metric(key, value)
    return numbers


def _buckets(bounds: Sequence[str], histogram: Histogram, exemplars: Mapping[int, Exemplar]) -> list[_Bucket]:
    """The cumulative counts by bound, with their exemplars."""
    cumulative = zip(bounds, accumulate(histogram.counts), strict=True)
    if not exemplars:
        return list(cumulative)
    return [
        (bound, count, _exemplar(exemplars[place])) if place in exemplars else (bound, count)
        for place, (bound, count) in enumerate(cumulative)
    ]


def _exemplar(exemplar: Exemplar) -> ExposedExemplar:
    return ExposedExemplar(dict(exemplar.stream.labels()), exemplar.value)
