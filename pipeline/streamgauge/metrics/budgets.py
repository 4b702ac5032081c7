"""The budgets of a page: which label values have series of their own, and which are counted under `other`.

All metrics of a page share the budgets, so a model has series in every metric or in none:

model        a pair of upstream and model is given SERIES_OF_A_PAIR of MODEL_SERIES; beyond that the model is `other`. The
             last RESERVED_SERIES are for upstreams with few models
detail       an error's type, a key, an attribute: series with one are counted in DETAIL_SERIES; beyond that it is `other`
upstream     and any other label: the values that its declaration allows
the page     PAGE_SERIES, beyond which all open labels are `other`; the series of `other` itself are reserved

Where a budget is full, values that were not used for IDLE_S are removed, and their series leave the page. Not thread-safe.
"""

import math
import re
from collections import Counter
from collections.abc import Collection, Iterable, Mapping, Sequence
from math import prod
from typing import TYPE_CHECKING

from streamgauge.metrics.declarations import (
    DETAIL_SERIES,
    DETAIL_SERIES_OF_A_METRIC,
    FEW_MODELS,
    IDLE_S,
    LABELS,
    MODEL_SERIES,
    OTHER,
    PAGE_SERIES,
    RESERVED_SERIES,
    SERIES_OF_A_PAIR,
    UNKNOWN,
    UNSERVED_SERIES,
    Metric,
    label_of,
)

if TYPE_CHECKING:
    from streamgauge.metrics.series import Family  # it imports this module

Key = tuple[str, ...]
Pair = tuple[str, str]

_UPSTREAM, _MODEL = "upstream", "model"

# While a budget is full, idle values are searched for at most this often (seconds). A search takes some 20 ms.
_SEARCH_EVERY_S = 60.0

# Anything but printable ASCII without quote and backslash. The rest needs no escape in any format.
_NOT_PLAIN = re.compile(r"[^ !#-\[\]-~]")


def clean(value: object, max_chars: int) -> str:
    """A label value as text: cut, with characters other than plain ASCII replaced; `unknown` for None and empty text."""
    text = "" if value is None else str(value)
    return _NOT_PLAIN.sub("_", text[:max_chars].strip()) or UNKNOWN


class PageBudgets:
    """The budgets of one page. `now`: monotonic seconds, which the page sets. `series`: the number in use.

    `overflowed` counts by label how many values became `other`. `started`: the upstreams whose counters began at 0.
    """

    def __init__(self, metrics: Iterable[Metric] = (), attributes: Sequence[str] = ()) -> None:
        """`metrics`: of the page. `attributes`: the labels of attributes (`--metric-attribute`)."""
        self.now = 0.0
        self.series = self.details = 0
        self.overflowed: Counter[str] = Counter()
        self.started: set[str] = set()
        self.families: Collection[Family] = ()
        self._limit = PAGE_SERIES - sum(map(reserve_of, metrics))
        # When each value, and each pair of upstream and model, was last used.
        self._known: dict[str, dict[str, float]] = {
            name: {OTHER: math.inf, UNKNOWN: math.inf} for name in (*LABELS, *attributes)
        }
        self._pairs: dict[Pair, float] = {}
        self._unserved: set[Pair] = set()
        self._served: Counter[str] = Counter()  # the other pairs, by upstream
        self._next_search = -math.inf

    # --- values -----------------------------------------------------------------------------------------------------

    def value_of(self, name: str, value: object) -> str:
        """The value to use for a label other than `model`."""
        known = self._known[name]
        if value.__class__ is str and value in known:  # the usual, cheap case: a known value is clean
            text = str(value)
        else:
            label = label_of(name)
            if label.optional and value is None:
                return ""
            text = clean(value, label.max_chars)
            if text not in known and len(known) >= label.budget:
                self._give_back()
            if text not in known and len(known) >= label.budget:
                self.overflowed[name] += 1
                return OTHER
        known[text] = max(self.now, known.get(text, self.now))
        return text

    def model_of(self, upstream: str, value: object, *, served: bool | None = None) -> str:
        """The value to use for the model of an upstream. `served`: whether the upstream served it; None: not known
        here, so that a new model counts as served.
        """
        model = value if (upstream, value) in self._pairs else clean(value, LABELS[_MODEL].max_chars)
        if not isinstance(model, str) or model in (OTHER, UNKNOWN):
            return str(model)
        pair = (upstream, model)
        is_new = pair not in self._pairs
        if is_new and not self._has_room_for_pair(upstream, served=served is not False):
            self.overflowed[_MODEL] += 1
            return OTHER
        if is_new and served is False:
            self._unserved.add(pair)
        elif is_new or (served and pair in self._unserved):
            self._unserved.discard(pair)
            self._served[upstream] += 1
        self._pairs[pair] = self.now
        return model

    def key_of(self, names: Sequence[str], values: Sequence[object]) -> Key:
        """The values to use for these labels."""
        key: list[str] = []
        for name, value in zip(names, values, strict=True):
            is_model = name == _MODEL and _UPSTREAM in names
            key.append(self.model_of(key[names.index(_UPSTREAM)], value) if is_model else self.value_of(name, value))
        return tuple(key)

    def _has_room_for_pair(self, upstream: str, *, served: bool) -> bool:
        if not self._fits_pair(upstream, served=served):
            self._give_back()
        return self._fits_pair(upstream, served=served)

    def _fits_pair(self, upstream: str, *, served: bool) -> bool:
        if not served and (len(self._unserved) + 1) * SERIES_OF_A_PAIR > UNSERVED_SERIES:
            return False
        may_use_reserve = served and self._served[upstream] < FEW_MODELS
        limit = MODEL_SERIES if may_use_reserve else MODEL_SERIES - RESERVED_SERIES
        return (len(self._pairs) + 1) * SERIES_OF_A_PAIR <= limit

    # --- series -----------------------------------------------------------------------------------------------------

    def is_detailed(self, names: Sequence[str], key: Key) -> bool:
        """Whether a series has a value of a label that is a detail."""
        return any(label_of(name).detail and _is_own(value) for name, value in zip(names, key, strict=True))

    def has_room_for_detail(self, lines: int, of_metric: int) -> bool:
        """Whether a series with a detail fits, of a metric that has so many lines with details."""
        if not self._fits_detail(lines, of_metric):
            self._give_back()
        return self._fits_detail(lines, of_metric)

    def _fits_detail(self, lines: int, of_metric: int) -> bool:
        return of_metric + lines <= DETAIL_SERIES_OF_A_METRIC and self.details + lines <= DETAIL_SERIES

    def has_room(self, lines: int) -> bool:
        """Whether a series with a value of its own fits the page."""
        if self.series + lines > self._limit:
            self._give_back()
        return self.series + lines <= self._limit

    def add(self, lines: int, *, detail: bool) -> None:
        """Count the lines of an added series; below 0: of a removed series."""
        self.series += lines
        self.details += lines * detail

    def without_details(self, names: Sequence[str], key: Key) -> Key:
        """The values with `other` for each detail, which is counted."""
        return self._folded(names, key, [label_of(name).detail for name in names])

    def without_open(self, names: Sequence[str], key: Key) -> Key:
        """The values with `other` for each open label, which is counted."""
        return self._folded(names, key, [label_of(name).open for name in names])

    def _folded(self, names: Sequence[str], key: Key, folds: Sequence[bool]) -> Key:
        self.overflowed.update(
            name for name, value, fold in zip(names, key, folds, strict=True) if fold and _is_own(value)
        )
        return tuple([OTHER if fold and value else value for value, fold in zip(key, folds, strict=True)])

    # --- idle values ------------------------------------------------------------------------------------------------

    def _give_back(self) -> None:
        """Remove the open values, pairs and details that were not used for IDLE_S, and remove their series."""
        if self.now < self._next_search:
            return
        self._next_search = self.now + _SEARCH_EVERY_S
        idle = self.now - IDLE_S
        self._note_uses()
        gone = {
            name: {value for value, used in known.items() if used <= idle}
            for name, known in self._known.items()
            if label_of(name).open
        }
        for name, values in gone.items():
            for value in values:
                del self._known[name][value]
        self.started -= gone[_UPSTREAM]
        self._pairs = {
            pair: used for pair, used in self._pairs.items() if used > idle and pair[0] not in gone[_UPSTREAM]
        }
        self._unserved &= self._pairs.keys()
        self._served = Counter(upstream for upstream, _ in self._pairs.keys() - self._unserved)
        for family in self.families:
            self._remove_idle(family, gone, idle)

    def _note_uses(self) -> None:
        """Update the times of last use of values and pairs from their series."""
        for family in self.families:
            names = family.metric.labels
            opened = [(index, self._known[name]) for index, name in enumerate(names) if label_of(name).open]
            for key, used in family.used().items():
                for index, known in opened:
                    if (value := key[index]) in known:
                        known[value] = max(known[value], used)
                pair = _pair_of(names, key)
                if pair in self._pairs:
                    self._pairs[pair] = max(self._pairs[pair], used)

    def _remove_idle(self, family: "Family", gone: Mapping[str, Collection[str]], idle: float) -> None:
        names = family.metric.labels
        opened = [(index, gone[name]) for index, name in enumerate(names) if gone.get(name)]
        for key, used in list(family.used().items()):
            pair = _pair_of(names, key)
            is_gone = pair is not None and _is_own(pair[1]) and pair not in self._pairs
            is_idle_detail = used <= idle and self.is_detailed(names, key)
            if is_gone or is_idle_detail or any(key[index] in values for index, values in opened):
                family.remove(key)


def reserve_of(metric: Metric) -> int:
    """The lines of a metric's series whose open labels are all `other`."""
    labels = [label_of(name) for name in metric.labels]
    return metric.lines * prod(1 + label.optional if label.open else label.budget for label in labels)


def _pair_of(names: Sequence[str], key: Key) -> Pair | None:
    """The upstream and model of a series; None if it has not both labels."""
    if _UPSTREAM not in names or _MODEL not in names:
        return None
    return key[names.index(_UPSTREAM)], key[names.index(_MODEL)]


def _is_own(value: str) -> bool:
    """Whether a value distinguishes series. An optional label without a value is empty."""
    return value not in (OTHER, UNKNOWN, "")
