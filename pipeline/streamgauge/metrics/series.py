"""The counts: the series of each metric, within the budgets of the page (`budgets.py`).

The gaps of a stream are added in one pass over its buckets, whatever their number. Not thread-safe: `prometheus.Metrics`
holds the lock.
"""

import math
from bisect import bisect_left
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from datetime import datetime
from itertools import product
from typing import NamedTuple, Self, cast

from streamgauge.core.record import Record
from streamgauge.metrics.budgets import Key, PageBudgets, clean
from streamgauge.metrics.declarations import UNKNOWN, Metric

# Native buckets have the bounds 2^(index / 8), 9 % apart: schema 3 of Prometheus' native histograms. Values up to
# ZERO_THRESHOLD are in a bucket of their own, values above MAX_NATIVE in the last one, so a series has at most 321.
NATIVE_SCHEMA = 3
ZERO_THRESHOLD = 2.0**-20
MAX_NATIVE = 2.0**20

# An exemplar of a slow stream is shown until a slower one comes, or this many streams of its series have come.
SLOWEST_OF = 100


class ObservedStream(NamedTuple):
    """The stream of an observation: its ids, when it began (RFC 3339), and how long it took (s). Cut, but not clean."""

    stream_id: str
    trace_id: str | None
    started_at: str | None
    end_s: float | None

    @classmethod
    def of(cls, record: Record) -> Self:
        """The stream of a record. Ids and times are cut: only a forged record has longer ones."""
        trace_id, started_at = record.trace_id, record.started_at
        return cls(
            record.stream_id[:36],
            None if trace_id is None else trace_id[:32],
            None if started_at is None else started_at[:40],
            record.timing.end_s,
        )

    def labels(self) -> list[tuple[str, str]]:
        """The labels of an exemplar."""
        labels = [("stream_id", clean(self.stream_id, len(self.stream_id)))]
        return labels if self.trace_id is None else [*labels, ("trace_id", clean(self.trace_id, len(self.trace_id)))]

    def ended_at(self) -> float | None:
        """The end of the stream, or its beginning if the end is unknown (Unix time, seconds)."""
        if self.started_at is None:
            return None
        try:
            return datetime.fromisoformat(self.started_at).timestamp() + (self.end_s or 0.0)
        except (ValueError, OverflowError):  # a forged record
            return None


class Exemplar(NamedTuple):
    """A stream that a bucket counts, with the observed value."""

    value: float
    stream: ObservedStream


@dataclass(slots=True)
class Histogram:
    """Counts of each bucket (not cumulative; the last is above every bound), and the sum of the values.

    `native`: counts by the index of their native bucket, and `zeros` of those without one; empty if the values themselves
    are not known, but their buckets (`add_buckets`).
    """

    counts: list[int]
    total: float = 0.0
    zeros: int = 0
    native: dict[int, int] = field(default_factory=dict)
    latest: Exemplar | None = None
    slowest: Exemplar | None = None
    slowest_age: int = 0

    def add(self, bounds: tuple[float, ...], value: float, stream: ObservedStream | None) -> None:
        """Adds one value >= 0. Without a stream it is no exemplar."""
        self.counts[bisect_left(bounds, value)] += 1
        self.total += value
        if value <= ZERO_THRESHOLD:
            self.zeros += 1
        else:
            index = math.ceil(math.log2(min(value, MAX_NATIVE)) * 2**NATIVE_SCHEMA)
            self.native[index] = self.native.get(index, 0) + 1
        if stream is None:
            return
        exemplar = self.latest = Exemplar(value, stream)
        self.slowest_age += 1
        if self.slowest is None or value >= self.slowest.value or self.slowest_age >= SLOWEST_OF:
            self.slowest, self.slowest_age = exemplar, 0

    def add_buckets(
        self, bounds: tuple[float, ...], cumulative: Iterable[tuple[float | None, int]], total: float
    ) -> None:
        """Adds many values: (upper bound, cumulative count) pairs, the last bound None, and the sum of the values."""
        before = 0
        for bound, count in cumulative:
            if count != before:  # most buckets of a stream are empty
                index = len(bounds) if bound is None else bisect_left(bounds, bound)
                self.counts[index] += count - before
                before = count
        self.total += total

    def exemplars(self, bounds: tuple[float, ...]) -> dict[int, Exemplar]:
        """The exemplars by the index of their bucket: the latest, and the slowest of the last SLOWEST_OF streams."""
        return {
            bisect_left(bounds, exemplar.value): exemplar
            for exemplar in (self.latest, self.slowest)
            if exemplar is not None
        }


@dataclass
class Family:
    """One metric's series: `numbers` of a counter or gauge, `histograms` of a histogram.

    `attributes`: how many of the metric's labels, the last ones, are attributes.
    """

    metric: Metric
    budgets: PageBudgets
    attributes: int = 0
    numbers: dict[Key, float] = field(default_factory=dict)
    histograms: dict[Key, Histogram] = field(default_factory=dict)
    _used: dict[Key, float] = field(default_factory=dict)  # when each key was last asked for (`PageBudgets.now`)
    _detail_series: int = 0

    def key_of(self, labels: Mapping[str, object]) -> Key:
        """The key of a series. Its open labels become `other` where a budget is full.

        Raises ValueError if the labels differ from the metric's.
        """
        names = self.metric.labels[: len(self.metric.labels) - self.attributes]
        if len(labels) != len(names) or any(name not in labels for name in names):
            raise ValueError(f"{self.metric.name} has the labels {names}, not {tuple(labels)}")
        return self.key_of_values(tuple(labels[name] for name in names))

    def key_of_values(self, values: tuple[object, ...]) -> Key:
        """As `key_of`, for values in the order of the metric's labels. Values of attributes may be left out, as unknown."""
        if values in self._used:  # the usual, cheap case
            known = cast("Key", values)
            self._used[known] = self.budgets.now
            return known
        if self.attributes and len(values) == len(self.metric.labels) - self.attributes:
            values = (*values, *[None] * self.attributes)
        key = self.budgets.key_of(self.metric.labels, values)
        return key if key in self._used else self._new_key(key)

    def _new_key(self, key: Key) -> Key:
        budgets, names, lines = self.budgets, self.metric.labels, self.metric.lines
        is_detail = budgets.is_detailed(names, key)
        if is_detail and not budgets.has_room_for_detail(lines, self._detail_series):
            return self._known_or_new(budgets.without_details(names, key))
        if not budgets.has_room(lines) and (general := budgets.without_open(names, key)) != key:
            return self._known_or_new(general)
        budgets.add(lines, detail=is_detail)
        self._detail_series += lines * is_detail
        self._used[key] = budgets.now
        return key

    def _known_or_new(self, key: Key) -> Key:
        return key if key in self._used else self._new_key(key)

    def used(self) -> Mapping[Key, float]:
        """The time of last use of each of the metric's series, by its label values."""
        return self._used

    def remove(self, key: Key) -> None:
        """Removes a series, and releases its part of the budgets."""
        del self._used[key]
        self.numbers.pop(key, None)
        self.histograms.pop(key, None)
        is_detail = self.budgets.is_detailed(self.metric.labels, key)
        self.budgets.add(-self.metric.lines, detail=is_detail)
        self._detail_series -= self.metric.lines * is_detail

    def add(self, key: Key, value: float) -> None:
        """Add to the number of these label values, which starts at 0."""
        self.numbers[key] = self.numbers.get(key, 0) + value

    @property
    def has_zeros(self) -> bool:
        """Whether series of 0 are added that nothing else needs: with labels of attributes they would use up their budget."""
        return not self.attributes

    def start(self, key: Key) -> None:
        """Lets a series of a counter exist with 0."""
        self.numbers.setdefault(key, 0)

    def start_upstream(self, upstream: str) -> None:
        """Lets the series of an upstream exist with 0, with the values that the metric's row names; others are unknown."""
        if self.metric.starts is not None:
            values = {"upstream": (upstream,), **self.metric.starts}
            for key in product(*(values.get(label, (UNKNOWN,)) for label in self.metric.labels)):
                self.start(self.key_of_values(key))

    def observe(self, key: Key, value: float, stream: ObservedStream | None) -> None:
        """Adds one observation >= 0, of this stream, if it is one of a stream."""
        self._histogram(key).add(self.metric.bounds, value, stream)

    def observe_all(self, key: Key, cumulative: Iterable[tuple[float | None, int]], total: float) -> None:
        """Adds many observations, as `Histogram.add_buckets`."""
        self._histogram(key).add_buckets(self.metric.bounds, cumulative, total)

    def _histogram(self, key: Key) -> Histogram:
        histogram = self.histograms.get(key)
        if histogram is None:
            histogram = self.histograms[key] = Histogram([0] * (len(self.metric.bounds) + 1))
        return histogram
