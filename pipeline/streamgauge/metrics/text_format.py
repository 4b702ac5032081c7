"""The page as text: Prometheus' classic format, or OpenMetrics, which has exemplars.

Label values and help texts are plain ASCII without quotes (`series.clean`), so nothing is escaped. Labels are sorted by
name.
"""

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

from streamgauge.metrics.declarations import Kind
from streamgauge.metrics.series import Exemplar, Family, Histogram, Key

_CLASSIC = "text/plain; version={}; charset=utf-8"
_OPENMETRICS = "application/openmetrics-text; version=1.0.0; charset=utf-8"

# A family, and numbers that sources gave for this page, by series.
Shown = tuple[Family, Mapping[Key, float]]


@dataclass(frozen=True)
class TextFormat:
    """A text format. `dots`: the scraper reads names with dots, in quotes; else dots become underscores."""

    openmetrics: bool = False
    dots: bool = False

    @property
    def content_type(self) -> str:
        """The Content-Type of a page in this format."""
        plain = _OPENMETRICS if self.openmetrics else _CLASSIC.format("1.0.0" if self.dots else "0.0.4")
        return f"{plain}; escaping=allow-utf-8" if self.dots else plain

    def name(self, name: str) -> str:
        """The name of a metric or label as it stands in this format."""
        if "." not in name:
            return name
        return f'"{name}"' if self.dots else name.replace(".", "_")


def text_page(shown: Sequence[Shown], form: TextFormat) -> bytes:
    """The page in a text format."""
    lines = [line for family, sampled in shown for line in _family(family, sampled, form)]
    if form.openmetrics:
        lines.append("# EOF\n")
    return "".join(lines).encode("ascii")


def _family(family: Family, sampled: Mapping[Key, float], form: TextFormat) -> Iterator[str]:
    metric = family.metric
    is_counter = metric.kind is Kind.COUNTER
    named = form.name(metric.name.removesuffix("_total") if is_counter and form.openmetrics else metric.name)
    yield f"# HELP {named} {metric.help}\n# TYPE {named} {metric.kind}\n"
    labels = [(form.name(label), label) for label in metric.labels]
    if metric.kind is Kind.HISTOGRAM:
        bounds = [f'le="{bound}"' for bound in (*metric.bounds, "+Inf")]
        for key, histogram in family.histograms.items():
            pairs = _pairs(labels, key)
            yield from _histogram(family, histogram, pairs, bounds, form)
        return
    for key, value in {**family.numbers, **sampled}.items():
        pairs = _pairs(labels, key)
        yield f"{_series(metric.name, [pair for _, pair in sorted(pairs)], form)} {_number(value)}\n"


def _pairs(labels: list[tuple[str, str]], key: Key) -> list[tuple[str, str]]:
    """The labels of a series as they stand, each with its name. A label without a value is left out."""
    return [(label, f'{name}="{value}"') for (name, label), value in zip(labels, key, strict=True) if value]


def _histogram(
    family: Family, histogram: Histogram, pairs: list[tuple[str, str]], bounds: list[str], form: TextFormat
) -> Iterator[str]:
    name = family.metric.name
    exemplars = histogram.exemplars(family.metric.bounds) if form.openmetrics else {}
    # `le` stands where the order of names puts it; the rest of the line is the same for each bucket.
    series = _series(f"{name}_bucket", [pair for _, pair in sorted([*pairs, ("le", "\0")])], form)
    head, _, tail = series.partition("\0")
    cumulative = 0
    for place, (bound, count) in enumerate(zip(bounds, histogram.counts, strict=True)):
        cumulative += count
        exemplar = _exemplar(exemplars[place]) if place in exemplars else ""
        yield f"{head}{bound}{tail} {cumulative}.0{exemplar}\n"
    plain = [pair for _, pair in sorted(pairs)]
    yield f"{_series(f'{name}_count', plain, form)} {cumulative}.0\n"
    yield f"{_series(f'{name}_sum', plain, form)} {_number(histogram.total)}\n"


def _series(name: str, pairs: list[str], form: TextFormat) -> str:
    """A series as it stands before its value. A name in quotes stands among the labels."""
    named = form.name(name)
    if named.startswith('"'):
        return f"{{{','.join([named, *pairs])}}}"
    return f"{named}{{{','.join(pairs)}}}" if pairs else named


def _exemplar(exemplar: Exemplar) -> str:
    labels = ",".join(f'{name}="{text}"' for name, text in exemplar.stream.labels())
    return f" # {{{labels}}} {_number(exemplar.value)}"


def _number(value: float) -> str:
    if math.isfinite(value):
        return repr(float(value))
    return "NaN" if math.isnan(value) else "+Inf" if value > 0 else "-Inf"
