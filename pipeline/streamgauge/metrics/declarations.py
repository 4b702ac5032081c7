"""The types of metrics and labels, and their limits.

Every label has a budget of values (LABELS), and a page has one of series (PAGE_SERIES), which all its metrics share. What
goes beyond is counted under the value `other`: details first (an error's type, an attribute), then models, and upstreams
only if nothing else is left. So neither clients nor providers can make the page, or Prometheus, grow without limit.
`counter`, `gauge` and `histogram` make the rows of the table.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from enum import StrEnum

# Series of a page: lines with a value in the text formats, so a histogram has one for each bucket, its sum and its count.
# Prometheus keeps some 4 KiB of memory for a series. The parts below are far from it together; only forged records reach it,
# and then upstreams become `other`, too.
PAGE_SERIES = 250_000
# Series of the metrics by upstream and model. A pair of them takes SERIES_OF_A_PAIR at most: 124 lines of the histograms of
# latency, and the lines of its outcomes, finish reasons, kinds of tokens and costs. So a page has 576 pairs.
SERIES_OF_A_PAIR = 160
MODEL_SERIES = 576 * SERIES_OF_A_PAIR
# Pairs whose model no upstream has served may take this many series: the names that clients alone invent.
UNSERVED_SERIES = 32 * SERIES_OF_A_PAIR
# The last of MODEL_SERIES are for upstreams with fewer than FEW_MODELS served models. So an upstream that serves any name
# that a client invents leaves room for the others.
RESERVED_SERIES = 44 * SERIES_OF_A_PAIR
FEW_MODELS = 4
# Series with a detail, and of these the part that one metric may take.
DETAIL_SERIES = 24_000
DETAIL_SERIES_OF_A_METRIC = DETAIL_SERIES // 4

# A value that was not used for this long is removed when its budget is full (seconds). An hour is the longest window in
# which an alert compares series by model.
IDLE_S = 3_600.0

# Values from outside are cut to this many characters: the longest model names in use have about 70.
MAX_OPEN_CHARS = 80
# Our own values are cut to this many characters: the longest has 20.
MAX_CLOSED_CHARS = 32

OTHER = "other"  # a value beyond a budget
UNKNOWN = "unknown"  # a missing value


@dataclass(frozen=True)
class Label:
    """A label: its meaning, and how many values it may take, including `other` and `unknown`.

    `open`: its values come from outside, and become `other` when a budget is full. `detail`: they do so before others,
    when the page's budget of details is full. `optional`: a series has the label only where it has a value; else a missing
    value is `unknown`.
    """

    help: str
    budget: int
    open: bool = False
    optional: bool = False
    detail: bool = False

    @property
    def max_chars(self) -> int:
        """The longest value that is kept (characters); longer values are cut."""
        return MAX_OPEN_CHARS if self.open else MAX_CLOSED_CHARS


# Budgets (numbers of values), shared by all metrics of a page. Budgets of open labels are far above the values of an
# installation. Budgets of closed labels exceed the number of values that all metrics use.
_MODELS = MODEL_SERIES // SERIES_OF_A_PAIR + 2
LABELS: Mapping[str, Label] = {
    "upstream": Label(
        "the name of the provider endpoint from the settings; without a name its host and port", 128, open=True
    ),
    "model": Label("the requested model; the model of the response if the request is unknown", _MODELS, open=True),
    "credential_id": Label("the keyed hash of the API key: `credential_id` of the record", 100, open=True, detail=True),
    "dialect": Label("the API format", 16),
    "outcome": Label("the outcome of the stream", 12),
    "finish_reason": Label("the normalised finish reason of the record", 12),
    "phase": Label("where the error occurred: before_stream, in_stream, transport", 5),
    "error_type": Label("the provider's error type, else its code or status", 100, open=True, detail=True),
    "setting": Label("the name of a setting", 8),
    "kind": Label("the kind of token, number, event or capture error", 40),
    "source": Label("the source of the usage: final, partial, estimated, absent", 6),
    "side": Label("input or output; undivided for a cost that the provider reported", 5),
    "cost_unknown": Label("why a cost is not known: the ledger's key of this name", 16),
    "budget_key": Label("the key of a budget: tenant, or an attribute", 100, open=True),
    "budget_value": Label("the value of a budget's key", 100, open=True),
    "provider": Label("a provider that bills, as the audit's map names it", 20, open=True),
    "reason": Label("the reason", 40),
    # Of calls of JSON-RPC. Names of tools come from clients.
    "call_protocol": Label("mcp (Model Context Protocol) or a2a (Agent2Agent)", 4),
    "call_method": Label("the method, if its protocol names it; several in one request: batch", 50, open=True),
    "call_tool": Label("the name of the tool, of the method tools/call; else absent", 200, True, True, True),
    "call_error": Label(
        "tool_error (the result has isError), the code of a JSON-RPC error (application_error: a server's own), task_failed, "
        "task_rejected, the status of an HTTP error, or how the exchange ended without an answer; absent if it succeeded",
        350,
        True,
        True,
        True,
    ),
    "cause": Label(
        "why the worker was stuck (loop, commit, group, stop), or why the connection to an upstream failed", 20
    ),
    # A page has the member of its worker.
    "member": Label(
        "a worker's member id in the consumer group: that of its data directory, and its slot", 3, open=True
    ),
    "activity": Label("what a partition of a worker does: waiting, decoding, applying, sending, committing", 7),
    "streaming": Label("whether the response was an event stream: true, false, unknown", 4),
    "result": Label("the result", 12),
    "stage": Label("the step that failed on a message", 8),
    "error_class": Label("the kind of failure", 16),
    "partition": Label("a partition of the segments topic", 66),
    "label": Label("the name of the label", 50),
    "version": Label("the version of this program", 3),
    "process": Label("main (it serves this page), relay, recorder or packet tap; all relays together", 6),
    # Of OpenTelemetry's names.
    "mcp.method.name": Label("as `call_method`", 50, open=True),
    "gen_ai.tool.name": Label("as `call_tool`", 200, True, True, True),
    "gen_ai.operation.name": Label("chat, text_completion or generate_content, by the API format", 6, open=True),
    "gen_ai.provider.name": Label("the provider that defined the API format", 16, open=True),
    "gen_ai.request.model": Label("as `model`", _MODELS, open=True),
    "gen_ai.token.type": Label("input or output", 4),
    "gen_ai.token.modality": Label("audio, where the provider counts it apart; else unknown", 4),
    "error.type": Label(
        "the error's type, code or status, else the outcome; absent if the stream completed", 100, True, True, True
    ),
}


# The label of an attribute (`--metric-attribute`), of which there may be MAX_ATTRIBUTES. Its values come from clients: 50
# are more than a panel can show.
ATTRIBUTE = Label("an attribute of the request (`--metric-attribute`)", 50, open=True, detail=True)


def label_of(name: str) -> Label:
    """The declaration of a label; ATTRIBUTE if the table has none of this name."""
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


@dataclass(frozen=True, eq=False)
class Metric:
    """One metric. `bounds`: a histogram's upper bounds. `counted_as`: its key in `Assembler.counts`.

    `starts`: it has series of 0 as soon as an upstream is known, with these values of its other labels, `unknown` where
    none are named; None: it has no series before its first value.
    """

    name: str
    kind: Kind
    help: str
    unit: str
    labels: tuple[str, ...]
    bounds: tuple[float, ...]
    part: MetricSource
    counted_as: str | None = None
    starts: Mapping[str, tuple[str, ...]] | None = None

    @property
    def lines(self) -> int:
        """The series of the text format for one combination of label values: of a histogram its buckets, sum and count."""
        return len(self.bounds) + 3 if self.kind is Kind.HISTOGRAM else 1


def counter(
    part: MetricSource,
    name: str,
    help: str,
    *labels: str,
    counted_as: str | None = None,
    unit: str = "1",
    starts: Mapping[str, tuple[str, ...]] | None = None,
) -> Metric:
    """A row of the table: a counter."""
    return Metric(f"streamgauge_{name}_total", Kind.COUNTER, help, unit, labels, (), part, counted_as, starts)


def gauge(part: MetricSource, name: str, help: str, unit: str, *labels: str) -> Metric:
    """A row of the table: a gauge."""
    return Metric(f"streamgauge_{name}", Kind.GAUGE, help, unit, labels, (), part)


def histogram(part: MetricSource, name: str, help: str, unit: str, bounds: tuple[float, ...], *labels: str) -> Metric:
    """A row of the table: a histogram."""
    return Metric(f"streamgauge_{name}", Kind.HISTOGRAM, help, unit, labels, bounds, part)
