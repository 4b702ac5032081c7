"""The counts: the series of each metric, within the budgets of their labels and their share of the page.

Buckets are counted here, not in prometheus_client: the gaps of a stream are then added in one pass over its buckets,
whatever their number. Not thread-safe: `prometheus.Metrics` holds the lock.
"""

import re
from bisect import bisect_left
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field

from streamgauge.metrics.declarations import LABELS, OTHER, UNKNOWN, Kind, Metric, label_of

Key = tuple[str, ...]

# The values of attributes that do not tell streams apart.
_GENERAL = frozenset((OTHER, UNKNOWN))

# Anything but printable ASCII without quote and backslash. The rest needs no escape in any format, so sizes are known
# in advance.
_NOT_PLAIN = re.compile(r"[^ !#-\[\]-~]")


def clean(value: object, max_chars: int) -> str:
    """A label value as text: cut, with characters other than plain ASCII replaced; `unknown` for None and empty text."""
    text = "" if value is None else str(value)
    return _NOT_PLAIN.sub("_", text[:max_chars].strip()) or UNKNOWN


class LabelBudgets:
    """The known values of each label; further ones become `other`. `overflowed` counts by label how many did."""

    def __init__(self, attributes: Sequence[str] = ()) -> None:
        """`attributes`: the labels of attributes (`--metric-attribute`)."""
        self._known: dict[str, set[str]] = {name: {OTHER, UNKNOWN} for name in (*LABELS, *attributes)}
        self.overflowed: Counter[str] = Counter()

    def value_of(self, name: str, value: object, *, proven: bool = True) -> str:
        """The value to use for label `name`. Unproven values may take only half of the budget."""
        known = self._known[name]
        if value.__class__ is str and value in known:  # the usual, cheap case: a known value is clean
            return str(value)
        label = label_of(name)
        text = clean(value, label.max_chars)
        if text in known:
            return text
        if len(known) < (label.budget if proven else label.budget // 2):
            known.add(text)
            return text
        self.overflowed[name] += 1
        return OTHER


@dataclass(slots=True)
class Histogram:
    """Counts of each bucket (not cumulative; the last is above every bound), and the sum of the values."""

    counts: list[int]
    total: float = 0.0


@dataclass
class Family:
    """One metric's series: `numbers` of a counter or gauge, `histograms` of a histogram.

    `attributes`: how many of the metric's labels, the last ones, are attributes. They take at most half of its share of the
    page: beyond that they become `other` first, so that the other labels keep their values.
    """

    metric: Metric
    budgets: LabelBudgets
    attributes: int = 0
    numbers: dict[Key, float] = field(default_factory=dict)
    histograms: dict[Key, Histogram] = field(default_factory=dict)
    _places: set[Key] = field(default_factory=set)
    _bytes: int = 0

    def place(self, labels: Mapping[str, object]) -> Key:
        """The key of a series. Its open labels become `other` if the metric's share of the page is full.

        Raises ValueError if the labels are not exactly those of the metric.
        """
        names = self.metric.labels[: len(self.metric.labels) - self.attributes]
        if len(labels) != len(names) or any(name not in labels for name in names):
            raise ValueError(f"{self.metric.name} has the labels {names}, not {tuple(labels)}")
        return self.place_values(tuple(labels[name] for name in names))

    def place_values(self, values: tuple[object, ...]) -> Key:
        """The same for values in the order of the metric's labels. Those of attributes may be left out: they are unknown."""
        if self.attributes and len(values) == len(self.metric.labels) - self.attributes:
            values = (*values, *[None] * self.attributes)
        value_of = self.budgets.value_of
        key = tuple([value_of(name, value) for name, value in zip(self.metric.labels, values, strict=True)])
        return key if key in self._places else self._make_place(key)

    def _make_place(self, key: Key) -> Key:
        metric = self.metric
        size = metric.bytes_of(key)
        first = len(key) - self.attributes  # the place of the first attribute
        if self._bytes + size > self._share // 2 and not _GENERAL.issuperset(key[first:]):
            self.budgets.overflowed.update(metric.labels[first:])
            general = (*key[:first], *[OTHER] * self.attributes)
            return general if general in self._places else self._make_place(general)
        if self._bytes + size <= self._share:
            self._bytes += size
            self._places.add(key)
            return key
        in_reserve = tuple(
            OTHER if label_of(name).open else value for name, value in zip(metric.labels, key, strict=True)
        )
        if in_reserve != key:
            self.budgets.overflowed.update(name for name in metric.labels if label_of(name).open)
        self._places.add(in_reserve)
        return in_reserve

    @property
    def _share(self) -> int:
        """Bytes of the page for series with all their values."""
        return self.metric.page_bytes - self.metric.reserve_bytes

    def add(self, key: Key, value: float) -> None:
        """Add to the number of these label values, which starts at 0."""
        self.numbers[key] = self.numbers.get(key, 0) + value

    def observe(self, key: Key, value: float) -> None:
        """Adds one observation."""
        histogram = self._histogram(key)
        histogram.counts[bisect_left(self.metric.bounds, value)] += 1
        histogram.total += value

    def observe_all(self, key: Key, cumulative: Iterable[tuple[float | None, int]], total: float) -> None:
        """Adds many observations: (upper bound, cumulative count) pairs, the last bound None, and the sum of the values."""
        histogram, before = self._histogram(key), 0
        for bound, count in cumulative:
            place = len(self.metric.bounds) if bound is None else bisect_left(self.metric.bounds, bound)
            histogram.counts[place] += count - before
            before = count
        histogram.total += total

    def _histogram(self, key: Key) -> Histogram:
        found = self.histograms.get(key)
        if found is None:
            found = self.histograms[key] = Histogram([0] * (len(self.metric.bounds) + 1))
        return found

    @property
    def is_histogram(self) -> bool:
        """Whether observations are added by `observe`, not numbers by `add`."""
        return self.metric.kind is Kind.HISTOGRAM
