"""The standard metrics of processes as a source, which prometheus_client reads from /proc, where that exists."""

from collections.abc import Callable, Iterable

from prometheus_client.process_collector import ProcessCollector

from streamgauge.metrics.declarations import MetricSource
from streamgauge.metrics.prometheus import Sample, Source
from streamgauge.metrics.table import TABLE

# The name of the process that serves the page.
MAIN = "main"
_BY_NAME = {metric.name: metric for metric in TABLE if metric.part is MetricSource.PROCESS}


def process_metrics(children: Callable[[], Iterable[tuple[str, int]]] = tuple) -> Source:
    """A source of the metrics of this process and of others: `children` gives their names and process ids at each scrape.

    Processes of one name are added up, except for the start, which is of this process alone.
    """

    def read() -> Iterable[Sample]:
        yield from _samples(MAIN, "self")
        for name, pid in children():
            yield from (sample for sample in _samples(name, str(pid)) if sample.labels)

    return read


def _samples(process: str, pid: str) -> Iterable[Sample]:
    for family in ProcessCollector(pid=lambda: pid, registry=None).collect():
        for sample in family.samples:
            if (metric := _BY_NAME.get(sample.name)) is not None:
                yield Sample(sample.name, sample.value, {"process": process} if metric.labels else {})
