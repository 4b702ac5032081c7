"""A page of metrics, read back by prometheus_client's own parser."""

import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass

from prometheus_client.openmetrics.parser import text_string_to_metric_families as parse_openmetrics
from prometheus_client.parser import text_string_to_metric_families as parse_classic

# The most CPU that a scrape may take (seconds): a full page takes some 100 ms as text, and 160 ms as protobuf.
MOST_S = 0.4

Series = tuple[str, frozenset[tuple[str, str]]]


@dataclass(frozen=True)
class ReadPage:
    """Every sample of a page, by its name and labels."""

    samples: Mapping[Series, float]

    def value(self, name: str, **labels: str) -> float:
        """The one sample with exactly these labels. Raises KeyError."""
        return self.samples[(name, frozenset(labels.items()))]

    def total(self, name: str) -> float:
        """The sum over all samples of a name; 0 if there is none."""
        return sum(value for (found, _), value in self.samples.items() if found == name)

    def names_with_samples(self) -> set[str]:
        return {name for name, _ in self.samples}

    def label_values(self, label: str) -> set[str]:
        return {value for _, labels in self.samples for name, value in labels if name == label}


def cpu_seconds_of(work: Callable[[], object], times: int = 5) -> float:
    """The CPU time of some work on this thread (seconds): the first below MOST_S, else the least of several times."""
    took: list[float] = []
    while len(took) < times and not (took and took[-1] < MOST_S):
        began = time.thread_time()
        work()
        took.append(time.thread_time() - began)
    return min(took)


def read_page(page: bytes, *, openmetrics: bool = False) -> ReadPage:
    """The samples of a page; fails if it does not parse, or names a series twice."""
    parse = parse_openmetrics if openmetrics else parse_classic
    samples: dict[Series, float] = {}
    for family in parse(page.decode()):
        for sample in family.samples:
            labels = {name: value for name, value in sample.labels.items() if value}  # an empty label is none
            series = (sample.name, frozenset(labels.items()))
            assert series not in samples, series
            samples[series] = sample.value
    return ReadPage(samples)


def read_at_once(page: bytes) -> ReadPage:
    """As `read_page`, for a large page of plain lines: without its checks, and in a tenth of the time."""
    samples: dict[Series, float] = {}
    for line in page.decode().splitlines():
        if not line.startswith("#"):
            shown, _, value = line.rpartition(" ")
            name, _, labels = shown.partition("{")
            pairs = (pair.partition('="') for pair in labels.removesuffix('"}').split('",') if pair)
            samples[name, frozenset((label, text) for label, _, text in pairs)] = float(value)
    return ReadPage(samples)


def lines_of(page: bytes) -> int:
    """The lines of a text page that have a value: the series that Prometheus would store."""
    return sum(not line.startswith(b"#") for line in page.splitlines())
