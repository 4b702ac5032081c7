"""The standard metrics of this process as a source, which prometheus_client reads from /proc, where that exists."""

from collections.abc import Iterator

from prometheus_client.process_collector import ProcessCollector

from streamgauge.metrics.prometheus import Sample
from streamgauge.metrics.table_process import PROCESS_METRICS

_COLLECTOR = ProcessCollector(registry=None)
_NAMES = frozenset(metric.name for metric in PROCESS_METRICS)


def process_samples() -> Iterator[Sample]:
    """The present values."""
    for family in _COLLECTOR.collect():
        for sample in family.samples:
            if sample.name in _NAMES:
                yield Sample(sample.name, sample.value, {})
