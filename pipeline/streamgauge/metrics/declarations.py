"""The types of metrics and labels, and their limits.

Every label has a budget of values (LABELS), and every metric a share of the page (`page_bytes`). What goes beyond is
counted under the value `other`. So neither clients nor providers can make the page, or Prometheus, grow without limit.
`counter`, `gauge` and `histogram` make the rows of the table.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from enum import StrEnum
from math import prod

# The whole page stays below this, in bytes: at a scrape every 15 s that is 70 KB/s, read well within a second.
PAGE_BYTES = 1_000_000

# Values from outside are cut to this many characters: the longest model names in use have about 70.
MAX_OPEN_CHARS = 80
# Our own values are cut to this many characters: the longest has 20.
MAX_CLOSED_CHARS = 32

OTHER = "other"  # a value beyond a budget
UNKNOWN = "unknown"  # a missing value


@dataclass(frozen=True)
class Label:
    """A label: its meaning, and how many values it may take, including `other` and `unknown`.

    `open`: its values come from outside, and become `other` when a metric's share of the page is full. `optional`: a
    series has the label only where it has a value; else a missing value is `unknown`.
    """

    help: str
    budget: int
    open: bool = False
    optional: bool = False

    @property
    def max_chars(self) -> int:
        """The longest value that is kept (characters); longer values are cut."""
        return MAX_OPEN_CHARS if self.open else MAX_CLOSED_CHARS


# Budgets (numbers of values), shared by all metrics of a page. Those of open labels are far above what an installation
# has. Those of closed labels exceed the number of values that all metrics use.
LABELS: Mapping[str, Label] = {
    "upstream": Label(
        "the name of the provider endpoint from the settings; without a name its host and port", 64, open=True
    ),
    "model": Label("the requested model; the model of the response if the request is unknown", 200, open=True),
    "credential_id": Label("the keyed hash of the API key: `credential_id` of the record", 100, open=True),
    "dialect": Label("the API format", 16),
    "outcome": Label("the outcome of the stream", 12),
    "finish_reason": Label("the normalised finish reason of the record", 12),
    "phase": Label("where the error occurred: before_stream, in_stream, transport", 5),
    "error_type": Label("the provider's error type, else its code or status", 100, open=True),
    "kind": Label("the kind of token, number, event or capture error", 40),
    "source": Label("the source of the usage: final, partial, estimated, absent", 6),
    "side": Label("input or output; undivided for a cost that the provider reported", 5),
    "cost_unknown": Label("why a cost is not known: the ledger's key of this name", 10),
    "budget_key": Label("the key of a budget: tenant, or an attribute", 100, open=True),
    "budget_value": Label("the value of a budget's key", 100, open=True),
    "provider": Label("a provider that bills, as the audit's map names it", 20, open=True),
    "reason": Label("the reason", 40),
    "cause": Label(
        "why the worker was stuck (loop, commit, group, stop), or why the connection to an upstream failed", 20
    ),
    # A page has the one of its worker.
    "member": Label(
        "a worker's member id in the consumer group: that of its data directory, and its slot", 3, open=True
    ),
    "activity": Label("what a partition of a worker does: waiting, decoding, applying, sending, committing", 7),
    "streaming": Label("whether the response was an event stream: true, false, unknown", 4),
    "result": Label("the result", 12),
    "stage": Label("the step that failed on a message", 8),
    "error_class": Label("the kind of failure", 16),
    "partition": Label("a partition of the segments topic", 66),
    "label": Label("the name of the label", 40),
    "version": Label("the version of this program", 3),
    "process": Label("main (it serves this page), relay, recorder or packet tap; all relays together", 6),
    # Of OpenTelemetry's names.
    "gen_ai.operation.name": Label("chat, text_completion or generate_content, by the API format", 6, open=True),
    "gen_ai.provider.name": Label("the provider that defined the API format", 16, open=True),
    "gen_ai.request.model": Label("as `model`", 200, open=True),
    "gen_ai.token.type": Label("input or output", 4),
    "gen_ai.token.modality": Label("audio, where the provider counts it apart; else unknown", 4),
    "error.type": Label(
        "the error's type, code or status, else the outcome; absent if the stream completed", 100, True, True
    ),
}


# The label of an attribute (`--metric-attribute`), of which there may be MAX_ATTRIBUTES. Its values come from clients: 50
# are more than a panel can show.
ATTRIBUTE = Label("an attribute of the request (`--metric-attribute`)", 50, open=True)


def label_of(name: str) -> Label:
    """The declaration of a label; that of an attribute if the table has none of this name."""
    return LABELS.get(name, ATTRIBUTE)


class Kind(StrEnum):
    """A metric's type, as Prometheus names it."""

    COUNTER = "counter"
    GAUGE = "gauge"
    HISTOGRAM = "histogram"


class MetricSource(StrEnum):
    """The part of Streamgauge that provides a metric. `up` is all of them."""

    STREAM = "stream"  # where streams are assembled and observed: a worker
    TAP = "tap"
    WORKER = "worker"
    SELF = "self"  # every process with a metrics page
    PROCESS = "process"  # the same; of the process, not of its work


# Bytes of the page that a metric may take if its row sets no `page_bytes`: one series, its help and its type.
DEFAULT_PAGE_BYTES = 1_000

# Lengths of a value with its line end: of any number (`1.7976931348623157e+308\n`), and of the count of a bucket, which
# stays below 10^10 (`1.234567891e+09\n`).
_VALUE_BYTES = 24
_COUNT_BYTES = 16
# The length of `_bucket` and `le="0.0025",` in a histogram's line.
_BUCKET_BYTES = 20
# A series of a histogram shows at most two exemplars, each ` # {stream_id="",trace_id=""} ` with the ids and a number.
_EXEMPLARS_BYTES = 2 * (36 + 32 + 54)


@dataclass(frozen=True, eq=False)
class Metric:
    """One metric. `bounds`: a histogram's upper bounds. `counted_as`: its key in `Assembler.counts`.

    `page_bytes`: its share of the page, which is smaller if all shares together are more than a page (`page_shares`).
    `starts`: it has series of 0 as soon as an upstream is known, with these values of its other labels, `unknown` where
    none are named; None: it has no series before its first value.
    """

    name: str
    kind: Kind
    help: str
    unit: str
    labels: tuple[str, ...]
    bounds: tuple[float, ...]
    page_bytes: int
    part: MetricSource
    counted_as: str | None = None
    starts: Mapping[str, tuple[str, ...]] | None = None

    def bytes_of(self, values: tuple[str, ...]) -> int:
        """An upper bound of the size of a series with these label values on the page, in bytes."""
        pairs = sum(len(label) + len(value) + 4 for label, value in zip(self.labels, values, strict=True))
        line = len(self.name) + 2 + pairs
        if self.kind is not Kind.HISTOGRAM:
            return line + _VALUE_BYTES
        return (len(self.bounds) + 3) * (line + _BUCKET_BYTES + _COUNT_BYTES) + _VALUE_BYTES + _EXEMPLARS_BYTES

    @property
    def reserve_bytes(self) -> int:
        """Bytes reserved for the metric's head and for the series whose open labels are all `other`."""
        labels = [label_of(name) for name in self.labels]
        closed = prod(1 + label.optional if label.open else label.budget for label in labels)
        longest = tuple(OTHER if label.open else "x" * label.max_chars for label in labels)
        return 2 * (len(self.name) + 20) + len(self.help) + closed * self.bytes_of(longest)


def page_shares(metrics: Iterable[Metric]) -> dict[str, int]:
    """Bytes of one page for each metric, by name: its `page_bytes`, if all of these fit the page together.

    Else each metric keeps its reserve, and all get the same part of what they want above it.
    """
    reserves = {metric: metric.reserve_bytes for metric in metrics}
    wanted = {metric: metric.page_bytes - reserve for metric, reserve in reserves.items()}
    part = min(1.0, (PAGE_BYTES - sum(reserves.values())) / sum(wanted.values()))
    return {metric.name: reserve + int(wanted[metric] * part) for metric, reserve in reserves.items()}


def counter(
    part: MetricSource,
    name: str,
    help: str,
    *labels: str,
    page: int = DEFAULT_PAGE_BYTES,
    counted_as: str | None = None,
    unit: str = "1",
    starts: Mapping[str, tuple[str, ...]] | None = None,
) -> Metric:
    """A row of the table: a counter."""
    return Metric(f"streamgauge_{name}_total", Kind.COUNTER, help, unit, labels, (), page, part, counted_as, starts)


def gauge(part: MetricSource, name: str, help: str, unit: str, *labels: str, page: int = DEFAULT_PAGE_BYTES) -> Metric:
    """A row of the table: a gauge."""
    return Metric(f"streamgauge_{name}", Kind.GAUGE, help, unit, labels, (), page, part)


def histogram(
    part: MetricSource, name: str, help: str, unit: str, bounds: tuple[float, ...], *labels: str, page: int
) -> Metric:
    """A row of the table: a histogram."""
    return Metric(f"streamgauge_{name}", Kind.HISTOGRAM, help, unit, labels, bounds, page, part)
