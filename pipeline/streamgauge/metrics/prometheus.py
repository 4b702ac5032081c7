"""The exporter: our own counts, as a page for each scrape.

Values come in three ways: `observe` for a finished stream; `add` and `set` from the code where something happens; and
*sources*, functions that each scrape calls for counts that another part keeps (the tap's balance, a lag).
"""

import time
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from threading import Lock

import streamgauge
from streamgauge.core.formats.json_rpc import CallResult
from streamgauge.core.record import Record
from streamgauge.metrics import protobuf_format, table
from streamgauge.metrics.budgets import Key, PageBudgets
from streamgauge.metrics.calls import CallObserver
from streamgauge.metrics.declarations import Kind, MetricSource, label_of
from streamgauge.metrics.observe import CostOf, Observer, StreamCost
from streamgauge.metrics.otel_names import OtelNames, otel_metrics
from streamgauge.metrics.rate_limits import RateLimitGauges
from streamgauge.metrics.series import Family
from streamgauge.metrics.text_format import Shown, TextFormat
from streamgauge.runtime.faults import report_fault

# The media types of the formats that a scraper can ask for.
_PROTOBUF = "application/vnd.google.protobuf"
_OPENMETRICS = "application/openmetrics-text"
_CLASSIC = "text/plain"


@dataclass(frozen=True)
class Sample:
    """One value of a source: a metric's name, its present value, its labels."""

    name: str
    value: float
    labels: Mapping[str, object]


# Called at each scrape. Samples of one call are one snapshot; equal series of several sources are summed.
Source = Callable[[], Iterable[Sample]]


@dataclass(frozen=True)
class Page:
    """The response to a scrape."""

    body: bytes
    content_type: str


class UnknownMetricError(LookupError):
    """A metric that is not in the table, or of a kind that does not allow this use: an error of the caller."""


class Metrics:
    """All metrics of one process. Thread-safe: one lock is held for one update or one scrape.

    `parts`: the parts that this process runs. Their counters without labels begin at 0, so that the first increase is
    visible, and so do the counters of an upstream that the table's rows name (`starts`), with the first record of the
    upstream, or with `start_upstream`. All other series appear with their first value. `attributes`: names of attributes
    that are labels (`--metric-attribute`). `clock`: monotonic time in seconds. `otel_names`: the convention of OpenTelemetry
    under whose names metrics of streams are shown, too. `cost_of`: the cost of a stream; without it no metric of streams
    shows money.
    """

    def __init__(
        self,
        parts: Collection[MetricSource] = tuple(MetricSource),
        attributes: Sequence[str] = (),
        clock: Callable[[], float] = time.monotonic,
        *,
        otel_names: OtelNames | None = None,
        cost_of: CostOf | None = None,
    ) -> None:
        self._lock = Lock()
        labelled = [table.with_attributes(metric, attributes) for metric in table.TABLE]
        shown = (*labelled, *otel_metrics(otel_names or "off"))
        self._budgets = PageBudgets(shown, attributes)
        self._families = {
            metric.name: Family(metric, self._budgets, table.attributes_of(metric, attributes)) for metric in shown
        }
        self._budgets.families = self._families.values()
        self._clock = clock
        self._budgets.now = clock()
        self._open_labels = sorted({name for metric in shown for name in metric.labels if label_of(name).open})
        self._observer = Observer(self._families, self._budgets, otel_names or "off", cost_of)
        self._calls = CallObserver(self._families, otel_names or "off")
        self._rate_limits = RateLimitGauges(self._families, clock)
        self._sources: list[Source] = []
        for metric in table.TABLE:
            if metric.kind is Kind.COUNTER and not metric.labels and metric.part in {*parts, MetricSource.SELF}:
                self.add(metric.name, 0)
        self.set(table.BUILD_INFO.name, 1, version=streamgauge.__version__)

    def observe(self, record: Record) -> StreamCost | None:
        """Counts a finished stream. Returns its addition to the cost; None if it is not known."""
        with self._lock:
            self._budgets.now = self._clock()
            self._rate_limits.observe(record)
            return self._observer.observe(record)

    def observe_call(self, result: CallResult) -> None:
        """Counts a call of JSON-RPC that has ended."""
        with self._lock:
            self._budgets.now = self._clock()
            self._calls.observe(result)

    def start_upstream(self, name: str) -> None:
        """Lets the counters of a configured upstream begin at 0, before its first stream."""
        with self._lock:
            self._budgets.now = self._clock()
            self._observer.start_upstream(name)

    def add(self, name: str, value: float = 1, **labels: object) -> None:
        """Adds to a counter. Raises UnknownMetricError, and ValueError for wrong labels or a value that is not finite and
        >= 0.
        """
        if not 0 <= value < float("inf"):
            raise ValueError(f"{name}: a counter cannot grow by {value}")
        with self._lock:
            family = self._family(name, Kind.COUNTER)
            family.add(family.key_of(labels), value)

    def set(self, name: str, value: float, **labels: object) -> None:
        """Sets a gauge. Raises UnknownMetricError, and ValueError for wrong labels."""
        with self._lock:
            family = self._family(name, Kind.GAUGE)
            family.numbers[family.key_of(labels)] = value

    def set_all(self, name: str, values: Mapping[str | None, float]) -> None:
        """Sets every series of a gauge with one label: `values` by label value, 0 for those that have no value now.

        Values beyond the label's limit are added up as `other`. Raises UnknownMetricError.
        """
        with self._lock:
            family = self._family(name, Kind.GAUGE)
            family.numbers = dict.fromkeys(family.numbers, 0.0)
            for label, value in values.items():
                family.add(family.key_of_values((label,)), value)

    def unset(self, name: str, **labels: object) -> None:
        """Removes a gauge's series, as of a partition that another worker has now. Raises as `set`."""
        with self._lock:
            family = self._family(name, Kind.GAUGE)
            family.numbers.pop(family.key_of(labels), None)

    def add_counts(self, counts: Mapping[str, int]) -> None:
        """Adds the increments of an assembler's counts (`Assembler.counts`); counts without a metric are ignored."""
        for name, value in counts.items():
            if name in table.BY_COUNT:
                self.add(table.BY_COUNT[name].name, value)

    def register(self, source: Source) -> None:
        """Calls `source` at each scrape from now on."""
        self._sources.append(source)

    def render(self) -> bytes:
        """The page in Prometheus' classic text format."""
        return self.page("").body

    def page(self, accept: str) -> Page:
        """The page in the format that an Accept header asks for."""
        form = wanted_format(accept)
        samples = [sample for source in list(self._sources) for sample in self._samples_of(source)]
        with self._lock:
            self._budgets.now = self._clock()
            self._rate_limits.remove_expired()
            sampled = self._sampled(samples)
            shown: list[Shown] = [(family, sampled.get(family.metric.name, {})) for family in self._families.values()]
            if form is None:
                return Page(protobuf_format.protobuf_page(shown), protobuf_format.CONTENT_TYPE)
            return Page(form.page(shown), form.content_type)

    def _samples_of(self, source: Source) -> list[Sample]:
        try:
            return list(source())
        except Exception as error:  # noqa: BLE001 - a failing source must not hide the values of others
            report_fault("a source of metrics", error)
            self.add(table.SOURCE_FAILURES.name)
            return []

    def _sampled(self, samples: Iterable[Sample]) -> dict[str, dict[Key, float]]:
        """The values of sources and of the exporter itself, by metric and series."""
        sampled: dict[str, dict[Key, float]] = {}
        for sample in samples:
            try:
                key = self._family(sample.name, Kind.COUNTER, Kind.GAUGE).key_of(sample.labels)
            except (UnknownMetricError, ValueError):
                self._families[table.SOURCE_FAILURES.name].add((), 1)
                continue
            numbers = sampled.setdefault(sample.name, {})
            numbers[key] = numbers.get(key, 0) + sample.value
        overflowed = self._budgets.overflowed
        labels = dict.fromkeys((*self._open_labels, *overflowed))
        sampled[table.LABELS_CUT.name] = {(label,): overflowed[label] for label in labels}
        return sampled

    def _family(self, name: str, *kinds: Kind) -> Family:
        family = self._families.get(name)
        if family is None or family.metric.kind not in kinds:
            raise UnknownMetricError(f"the table has no {' or '.join(kinds)} {name}")
        return family


def wanted_format(accept: str) -> TextFormat | None:
    """The format with the highest weight (q) of those that we have, the first of equal ones; None: protobuf.

    The classic text format is for all other scrapers. Names keep their dots only for a scraper that asks for it
    (`escaping=allow-utf-8`) in a version of its format that can have them.
    """
    best: TextFormat | None = TextFormat()
    weight = 0.0
    for form, quality in _ranges(accept):
        if quality > weight:
            best, weight = form, quality
    return best


def _ranges(accept: str) -> Iterator[tuple[TextFormat | None, float]]:
    for part in accept.split(","):
        media, *rest = [piece.strip().lower() for piece in part.split(";")]
        parameters = {name.strip(): value.strip() for name, _, value in (piece.partition("=") for piece in rest)}
        dots = parameters.get("escaping") == "allow-utf-8" and parameters.get("version", "").startswith("1.")
        if media == _OPENMETRICS:
            yield TextFormat(openmetrics=True, dots=dots), _weight(parameters.get("q"))
        elif media == _CLASSIC:
            yield TextFormat(dots=dots), _weight(parameters.get("q"))
        elif media == _PROTOBUF and parameters.get("encoding", "") == "delimited":
            yield None, _weight(parameters.get("q"))


def _weight(text: str | None) -> float:
    """A quality value between 0 and 1; 1 if it is missing or not valid."""
    try:
        weight = float(text) if text is not None else 1.0
    except ValueError:
        return 1.0
    return weight if 0 <= weight <= 1 else 1.0


__all__ = ["Metrics", "Page", "Sample", "Source", "UnknownMetricError", "wanted_format"]
