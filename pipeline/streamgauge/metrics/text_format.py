"""The page as text: Prometheus' classic format, or OpenMetrics, which has exemplars.

A page may have 100,000 lines, and is written in the event loop of a worker: prometheus_client takes 7 us a line, this 0.6. It
can be so short because label values are plain (`budgets.clean`): nothing needs an escape. A label that a series does not have
is left out. Labels stand in the order of their names.

Sources: https://prometheus.io/docs/instrumenting/exposition_formats/, https://prometheus.io/docs/specs/om/open_metrics_spec/;
names in quotes: https://github.com/prometheus/proposals/blob/main/proposals/0028-utf8.md.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import accumulate

from prometheus_client.exposition import CONTENT_TYPE_PLAIN_0_0_4, CONTENT_TYPE_PLAIN_1_0_0
from prometheus_client.openmetrics.exposition import ALLOWUTF8
from prometheus_client.openmetrics.exposition import CONTENT_TYPE_LATEST as CONTENT_TYPE_OPENMETRICS
from prometheus_client.utils import floatToGoString

from streamgauge.metrics.budgets import Key
from streamgauge.metrics.declarations import Kind, Metric
from streamgauge.metrics.series import Exemplar, Family, Histogram

# A family, and numbers that sources gave for this page, by series.
Shown = tuple[Family, Mapping[Key, float]]

_TOTAL = "_total"
_BOUND = "le"
# Writes a number as Go does.
_number: Callable[[float], str] = floatToGoString
# From here on a count has an exponent.
_LONG_COUNT = 1_000_000


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
        """The name of a metric or label as the scraper reads it: in quotes if it has a dot."""
        return name.replace(".", "_") if not self.dots else f'"{name}"' if "." in name else name

    def page(self, shown: Sequence[Shown]) -> bytes:
        """The page of these families."""
        lines = [line for family, sampled in shown for line in self._family(family, sampled)]
        return "".join([*lines, "# EOF\n" if self.openmetrics else ""]).encode()

    def _family(self, family: Family, sampled: Mapping[Key, float]) -> Iterator[str]:
        metric = family.metric
        named = metric.name.removesuffix(_TOTAL) if self.openmetrics and metric.kind is Kind.COUNTER else metric.name
        # A quote in a help text is escaped in OpenMetrics alone.
        help = metric.help.replace("\\", r"\\").replace('"', r"\"" if self.openmetrics else '"')
        yield f"# HELP {self.name(named)} {help}\n# TYPE {self.name(named)} {metric.kind}\n"
        names = sorted([(label, self.name(label), index) for index, label in enumerate(metric.labels)])
        if metric.kind is Kind.HISTOGRAM:
            before = [name for name in names if name[0] < _BOUND]
            for key, histogram in family.histograms.items():
                yield from self._histogram(metric, _labels(before, key), _labels(names[len(before) :], key), histogram)
        else:
            for key, value in {**family.numbers, **sampled}.items():
                yield f"{self._begin(metric.name, _labels(names, key))} {_number(value)}\n"

    def _histogram(self, metric: Metric, before: str, after: str, histogram: Histogram) -> Iterator[str]:
        """The lines of a histogram. `before`, `after`: the labels before and after the label of the bound."""
        begin = self._begin(f"{metric.name}_bucket", f'{before}{"," if before else ""}{_BOUND}="').removesuffix("}")
        end = f'"{"," if after else ""}{after}}} '
        labels = ",".join([part for part in (before, after) if part])
        counts = list(accumulate(histogram.counts))
        exemplars = histogram.exemplars(metric.bounds) if self.openmetrics else {}
        for index, (bound, count) in enumerate(zip((*metric.bounds, "+Inf"), counts, strict=True)):
            exemplar = _exemplar(exemplars[index]) if index in exemplars else ""
            yield f"{begin}{bound}{end}{_count(count)}{exemplar}\n"
        yield f"{self._begin(f'{metric.name}_count', labels)} {_count(counts[-1])}\n"
        yield f"{self._begin(f'{metric.name}_sum', labels)} {_number(histogram.total)}\n"

    def _begin(self, name: str, labels: str) -> str:
        """The name and labels of a line. A name in quotes stands among the labels."""
        shown = self.name(name)
        if shown.startswith('"'):
            return f"{{{shown}{',' if labels else ''}{labels}}}"
        return f"{shown}{{{labels}}}" if labels else shown


def _labels(names: Sequence[tuple[str, str, int]], key: Key) -> str:
    return ",".join([f'{name}="{value}"' for _, name, index in names if (value := key[index])])


def _count(count: int) -> str:
    return f"{count}.0" if count < _LONG_COUNT else _number(count)


def _exemplar(exemplar: Exemplar) -> str:
    labels = ",".join([f'{name}="{value}"' for name, value in exemplar.stream.labels()])
    return f" # {{{labels}}} {_number(exemplar.value)}"
