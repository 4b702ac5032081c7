"""Every metric, declared once. The exporter, METRICS.md, dashboards and alert rules follow this table.

To add one: a row here, and its line in `observe.py` (or an `add`, a `set` or a source where it happens). Then
`python -m streamgauge.metrics.generate_docs` writes METRICS.md anew, and a panel in `panels.py` shows it.
"""

from collections.abc import Mapping

from streamgauge.core.assembly.timing import GAP_BOUNDS_S
from streamgauge.metrics.declarations import DEFAULT_PAGE_BYTES, Kind, Metric, MetricSource

# Upper bounds in seconds. First tokens take 50 ms (a local server) to a minute (reasoning); dense where alerts stand.
FIRST_TOKEN_BOUNDS_S = (
    0.025, 0.05, 0.1, 0.15, 0.2, 0.3, 0.4, 0.5, 0.75, 1.0, 1.5, 2.0, 3.0, 5.0, 7.5, 10.0, 15.0, 30.0, 60.0,
)  # fmt: skip
# A head comes at once or after a queue; an error page within milliseconds.
FIRST_BYTE_BOUNDS_S = (0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0)
# Time per output token: 1 ms (1,000 tokens/s, the fastest hardware) to 1 s.
TOKEN_BOUNDS_S = (0.001, 0.0025, 0.005, 0.0075, 0.01, 0.015, 0.02, 0.03, 0.04, 0.05, 0.075, 0.1, 0.2, 0.5, 1.0)
# A short answer takes a second, an agent's long one ten minutes; the upstream's idle timeout is 900 s.
DURATION_BOUNDS_S = (0.5, 1.0, 2.5, 5.0, 10.0, 20.0, 30.0, 60.0, 120.0, 300.0, 900.0)


def _counter(
    part: MetricSource,
    name: str,
    help: str,
    *labels: str,
    page: int = DEFAULT_PAGE_BYTES,
    counted_as: str | None = None,
    unit: str = "1",
) -> Metric:
    return Metric(f"streamgauge_{name}_total", Kind.COUNTER, help, unit, labels, (), page, part, counted_as)


def _gauge(part: MetricSource, name: str, help: str, unit: str, *labels: str, page: int = DEFAULT_PAGE_BYTES) -> Metric:
    return Metric(f"streamgauge_{name}", Kind.GAUGE, help, unit, labels, (), page, part)


def _seconds(name: str, help: str, bounds: tuple[float, ...], *labels: str, page: int) -> Metric:
    return Metric(
        f"streamgauge_{name}_seconds", Kind.HISTOGRAM, help, "seconds", labels, bounds, page, MetricSource.STREAM
    )


_MEASURED = "Left out: incomplete captures, legs that continue another stream, and what was not seen."

# What finished streams say, by `observe`.
STREAMS = _counter(
    MetricSource.STREAM, "streams", "Finished streams.", "upstream", "dialect", "model", "outcome", page=127_000
)
FIRST_BYTE = _seconds(
    "time_to_first_byte",
    f"From the request's first byte to the first byte of the answer's body. {_MEASURED}",
    FIRST_BYTE_BOUNDS_S, "upstream", page=45_000,
)  # fmt: skip
FIRST_TOKEN = _seconds(
    "time_to_first_token",
    f"From the request's first byte to the first event with generated output of any kind. {_MEASURED}",
    FIRST_TOKEN_BOUNDS_S, "upstream", "model", page=150_000,
)  # fmt: skip
INTER_CHUNK = _seconds(
    "inter_chunk_latency",
    f"Between successive token events of a stream: one observation a gap. Bursts are left out. {_MEASURED}",
    GAP_BOUNDS_S, "upstream", "model", page=150_000,
)  # fmt: skip
INTER_TOKEN = _seconds(
    "inter_token_latency",
    "Time per output token: (last token - first token) / (output tokens - 1), once a stream with final usage. "
    f"Bursts are left out. {_MEASURED}",
    TOKEN_BOUNDS_S, "upstream", "model", page=140_000,
)  # fmt: skip
DURATION = _seconds(
    "stream_duration",
    f"From the request's first byte to the stream's end. {_MEASURED}",
    DURATION_BOUNDS_S, "upstream", "outcome", page=60_000,
)  # fmt: skip
FINISH_REASONS = _counter(
    MetricSource.STREAM,
    "finish_reasons",
    "Streams that gave a reason for their end, by it.",
    "upstream",
    "model",
    "finish_reason",
    page=50_000,
)
ERRORS = _counter(MetricSource.STREAM, "stream_errors",
    "Errors that ended streams. Phase in_stream: after the head said 200, as an event of the stream.",
    "upstream", "phase", "error_type", page=40_000,
)  # fmt: skip
USAGE_TOKENS = _counter(MetricSource.STREAM, "usage_tokens",
    "Tokens as providers report them: input holds cached and cache_write, output holds reasoning. Absent adds nothing. "
    "A stream and the legs that continue it count once, as far as this process knows them.",
    "upstream", "model", "kind", page=70_000,
)  # fmt: skip
USAGE_SOURCES = _counter(
    MetricSource.STREAM,
    "usage_sources",
    "Streams by what their usage is: final, partial, estimated, absent.",
    "upstream",
    "source",
    page=16_000,
)
USAGE_ANOMALIES = _counter(
    MetricSource.STREAM,
    "usage_anomalies",
    "Numbers of usage that cannot be: bad values, sums that do not hold.",
    "upstream",
    "kind",
    page=8_000,
)
WITHOUT_TOKEN = _counter(MetricSource.STREAM, "streams_without_token",
    "Finished streams without a token event: they are in no latency histogram.",
    "upstream", "outcome", "streaming", page=20_000,
)  # fmt: skip
BURSTS = _counter(
    MetricSource.STREAM,
    "bursts",
    "Streams that came in one or two reads: something buffered them.",
    "upstream",
    page=6_000,
)
STALLS = _counter(
    MetricSource.STREAM, "stalls", "Gaps between token events above --stall-seconds.", "upstream", page=6_000
)
RESUMED = _counter(
    MetricSource.STREAM,
    "resumed_streams",
    "Legs that continue an earlier stream, refused ones included.",
    "upstream",
    page=6_000,
)
TOKEN_EVENTS = _counter(MetricSource.STREAM, "token_events", "Events with generated output.", "upstream", page=6_000)
UNREAD_EVENTS = _counter(
    MetricSource.STREAM,
    "unread_events",
    "Events that could not be read: unparsed, unterminated, oversized.",
    "upstream",
    "kind",
    page=12_000,
)
BODY_BYTES = _counter(
    MetricSource.STREAM, "body_bytes", "Bytes of answers' bodies, before content decoding.", "upstream", page=6_000
)
INCOMPLETE = _counter(
    MetricSource.STREAM, "incomplete_records", "Records of streams whose capture is not whole.", "upstream", page=6_000
)
INCOMPLETE_REASONS = _counter(
    MetricSource.STREAM,
    "incomplete_reasons",
    "Why captures are not whole; a record may have several.",
    "reason",
    page=5_000,
)

# What taps say. The four of reads are one snapshot: seen = delivered + waiting + dropped, always.
READS_SEEN = _counter(MetricSource.TAP, "tap_reads_seen", "Socket reads that the tap took from upstreams.")
READS_DELIVERED = _counter(MetricSource.TAP, "tap_reads_delivered", "Reads whose bundle the next part has confirmed.")
READS_DROPPED = _counter(
    MetricSource.TAP, "tap_reads_dropped", "Reads that were given up, by reason.", "reason", page=5_000
)
READS_WAITING = _gauge(
    MetricSource.TAP, "tap_reads_waiting", "Reads on their way: seen, neither delivered nor dropped.", "reads"
)
TAP_INCIDENTS = _counter(
    MetricSource.TAP, "tap_incidents", "What went wrong in a capture and was survived.", "kind", page=3_500
)
TAP_REFUSED = _counter(
    MetricSource.TAP,
    "tap_refused",
    "Requests that the relay answered by itself, by the code in its answer.",
    "reason",
    page=4_500,
)
SPOOL_BYTES = _gauge(MetricSource.TAP, "spool_bytes", "Size of what waits in the spool.", "bytes")
SPOOL_LIMIT = _gauge(MetricSource.TAP, "spool_limit_bytes", "The spool's limit.", "bytes")
SPOOL_ROWS = _gauge(MetricSource.TAP, "spool_rows", "Bundles that wait in the spool.", "bundles")
SPOOL_WRITES_REFUSED = _gauge(
    MetricSource.TAP, "spool_writes_refused", "1 while the disk refuses what is put into the spool, else 0.", "bool"
)
BROKER_CONNECTED = _gauge(
    MetricSource.TAP, "broker_connected", "1 if the broker took the last message or answers, else 0.", "bool"
)

BROKER_PROBLEM = _gauge(
    MetricSource.TAP,
    "broker_problem",
    "1 while the tap waits for somebody to put something right about its broker: TLS, log-in, rights, topics; else 0.",
    "bool",
)

# What assemblers say. `counted_as` is the key among `Assembler.counts`.
OPEN_STREAMS = _gauge(MetricSource.WORKER, "open_streams", "Streams that have begun and not ended.", "streams")
IGNORED = _counter(
    MetricSource.WORKER, "ignored_streams", "Event streams that are not an LLM's: left alone.", counted_as="not_llm"
)
BUNDLES = _counter(MetricSource.WORKER, "bundles", "Bundles that were applied.", counted_as="bundles")
DUPLICATE_BUNDLES = _counter(
    MetricSource.WORKER, "duplicate_bundles", "Bundles that came again: skipped.", counted_as="duplicate_bundles"
)
DUPLICATE_SEGMENTS = _counter(
    MetricSource.WORKER, "duplicate_segments", "Segments that came again: skipped.", counted_as="duplicate_segments"
)
LATE_SEGMENTS = _counter(
    MetricSource.WORKER,
    "late_segments",
    "Segments of streams that are closed, were never opened, or come from another reading of a capture file: skipped.",
    counted_as="late_segments",
)
DEAD_LETTERS = _counter(
    MetricSource.WORKER,
    "dead_letters",
    "Messages that could not be read and went to the dead letter topic.",
    "stage",
    "error_class",
    page=20_000,
)
DEAD_LETTERS_WAITING = _gauge(
    MetricSource.WORKER,
    "dead_letters_waiting",
    "Messages that cannot be read and wait, with their partitions, because the dead letter topic takes nothing.",
    "messages",
)
LOG_GAPS = _counter(
    MetricSource.WORKER, "log_gaps", "Times that the log began above the next offset needed.", counted_as="log_gaps"
)
LOG_GAP_MESSAGES = _counter(
    MetricSource.WORKER, "log_gap_messages", "Messages that the log had deleted before they were read."
)
WORKER_LAG = _gauge(
    MetricSource.WORKER,
    "worker_lag_messages",
    "Messages in the segments topic behind what is acknowledged.",
    "messages",
    "partition",
    page=7_000,
)
WORKER_PARTITIONS = _gauge(
    MetricSource.WORKER, "worker_partitions", "Partitions that this worker holds, their state recovered.", "partitions"
)
WORKER_BROKER = _gauge(
    MetricSource.WORKER, "worker_broker_connected", "1 if the broker answers this worker, else 0.", "bool"
)
WORKER_SECONDS = _counter(
    MetricSource.WORKER,
    "worker_seconds",
    "How a worker's partitions spend their time, by activity: together one second per second and partition. "
    "waiting: for messages, or for their turn. sending and committing include waiting for the broker.",
    "activity",
    page=2_000,
    unit="seconds",
)
STUCK_EXITS = _counter(
    MetricSource.WORKER,
    "worker_stuck_exits",
    "Times that this worker found itself stuck and ended, earlier lives included, by cause.",
    "cause",
)
LEDGER_ROWS = _counter(
    MetricSource.WORKER,
    "ledger_rows",
    "Records given to the ledger: new, same (known already), different (other bytes for a known id).",
    "result",
)

# About the exporter itself.
LABELS_CUT = _counter(
    MetricSource.SELF,
    "metric_labels_cut",
    "Observations whose label value went to `other`, by label.",
    "label",
    page=5_000,
)
SOURCE_FAILURES = _counter(
    MetricSource.SELF, "metric_source_failures", "Scrapes at which a part could not say its numbers."
)
BUILD_INFO = _gauge(MetricSource.SELF, "build_info", "Always 1; says the version.", "1", "version")

TABLE: tuple[Metric, ...] = (
    STREAMS, FIRST_BYTE, FIRST_TOKEN, INTER_CHUNK, INTER_TOKEN, DURATION, FINISH_REASONS, ERRORS,
    USAGE_TOKENS, USAGE_SOURCES, USAGE_ANOMALIES, WITHOUT_TOKEN, BURSTS, STALLS, RESUMED,
    TOKEN_EVENTS, UNREAD_EVENTS, BODY_BYTES, INCOMPLETE, INCOMPLETE_REASONS,
    READS_SEEN, READS_DELIVERED, READS_DROPPED, READS_WAITING, TAP_INCIDENTS, TAP_REFUSED,
    SPOOL_BYTES, SPOOL_LIMIT, SPOOL_ROWS, SPOOL_WRITES_REFUSED, BROKER_CONNECTED, BROKER_PROBLEM,
    OPEN_STREAMS, IGNORED, BUNDLES, DUPLICATE_BUNDLES, DUPLICATE_SEGMENTS, LATE_SEGMENTS,
    DEAD_LETTERS, DEAD_LETTERS_WAITING, LOG_GAPS, LOG_GAP_MESSAGES, WORKER_LAG, WORKER_PARTITIONS, WORKER_BROKER,
    WORKER_SECONDS, STUCK_EXITS, LEDGER_ROWS,
    LABELS_CUT, SOURCE_FAILURES, BUILD_INFO,
)  # fmt: skip

BY_NAME: Mapping[str, Metric] = {metric.name: metric for metric in TABLE}
BY_COUNT: Mapping[str, Metric] = {metric.counted_as: metric for metric in TABLE if metric.counted_as is not None}
