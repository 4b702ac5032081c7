"""One record while it is added to the metrics: its label values, and the stream of its exemplars."""

from collections.abc import Mapping

from streamgauge.core.record import Gaps, Record, Timing
from streamgauge.metrics import table
from streamgauge.metrics.budgets import Key, PageBudgets
from streamgauge.metrics.declarations import Metric
from streamgauge.metrics.series import Family, ObservedStream


class Observation:
    """Adds one record to the families. Label values are given in the order of the metric's labels."""

    def __init__(self, families: Mapping[str, Family], budgets: PageBudgets, record: Record, upstream: str) -> None:
        self._families = families
        self.upstream = upstream
        self.served = record.response_model is not None or record.counts.token_events > 0
        self.model = budgets.model_of(upstream, record.request_model or record.response_model, served=self.served)
        self._stream = ObservedStream.of(record)
        streams = families[table.STREAMS.name]
        names = streams.metric.labels[len(streams.metric.labels) - streams.attributes :]
        self._attributes = tuple([_attribute_of(record, name) for name in names])

    def count(self, metric: Metric, value: float, *labels: object) -> None:
        """Adds to a counter; 0 creates no series."""
        if value:
            self.add(metric, value, *labels)

    def add(self, metric: Metric, value: float, *labels: object) -> bool:
        """Adds to a counter; 0 creates a series of 0. Returns whether the series is new."""
        family = self._families[metric.name]
        key = self._key(family, labels)
        is_new = key not in family.numbers
        family.add(key, value)
        return is_new

    def start(self, metric: Metric, *labels: object) -> None:
        """Lets a series of a counter exist with 0, unless attributes are labels of the metric."""
        if self._families[metric.name].has_zeros:
            self.add(metric, 0, *labels)

    def time(self, metric: Metric, value: float | None, *labels: object) -> None:
        """Observes a duration in seconds, or another number >= 0, unless it is None."""
        if value is not None:
            family = self._families[metric.name]
            family.observe(self._key(family, labels), value, self._stream)

    def gaps(self, metric: Metric, gaps: Gaps, total_s: float | None, *labels: object) -> None:
        """Observes all gaps of a stream at once."""
        if gaps.buckets and gaps.buckets[-1][1] and total_s is not None:
            family = self._families[metric.name]
            family.observe_all(self._key(family, labels), gaps.buckets, total_s)

    def _key(self, family: Family, labels: tuple[object, ...]) -> Key:
        return family.key_of_values((*labels, *self._attributes) if family.attributes else labels)


def _attribute_of(record: Record, name: str) -> str | None:
    """The value of an attribute's label; None if the request had none. No attribute is named `tenant`."""
    return record.tenant if name == "tenant" else record.attributes.get(name)


def sum_of_gaps(timing: Timing) -> float | None:
    """The gaps cover the time from the first to the last token event, so their sum is that time (seconds)."""
    if timing.first_token_s is None or timing.last_token_s is None:
        return None
    return timing.last_token_s - timing.first_token_s
