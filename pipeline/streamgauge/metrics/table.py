"""Every metric, declared once. The exporter, METRICS.md, dashboards and alert rules use this table.

To add a metric: a row here, and its line in `observe.py` (or an `add`, a `set` or a source). Then `python -m
streamgauge.metrics.generate_docs` writes METRICS.md, and `panels.py` needs a panel.
"""

from collections.abc import Mapping

from streamgauge.core.assembly.timing import GAP_BOUNDS_S
from streamgauge.metrics.declarations import DEFAULT_PAGE_BYTES, Kind, Metric, MetricSource
from streamgauge.metrics.table_added_time import TAP_HEADS, TAP_HEADS_SECONDS
from streamgauge.metrics.table_health import (
    CLOCK_SKEW,
    COMMITS,
    DATA_FREE,
    EXPECTED_PARTITIONS,
    SILENT_STREAMS,
)
from streamgauge.metrics.table_limits import RATE_LIMIT_LIMIT, RATE_LIMIT_REMAINING, RATE_LIMIT_RESET

# Upper bounds in seconds. First tokens take 50 ms (a local server) to a minute (reasoning); bounds are dense near the
# limits of alerts.
FIRST_TOKEN_BOUNDS_S = (
    0.025, 0.05, 0.1, 0.15, 0.2, 0.3, 0.4, 0.5, 0.75, 1.0, 1.5, 2.0, 3.0, 5.0, 7.5, 10.0, 15.0, 30.0, 60.0,
)  # fmt: skip
# A response starts at once or after a queue; an error page within milliseconds.
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


_UNMEASURED = "streams with an incomplete capture, resumed streams, and streams where this time is unknown."
_MEASURED = f"Excludes {_UNMEASURED}"

# Metrics of finished streams, set by `observe`.
STREAMS = _counter(
    MetricSource.STREAM, "streams", "Finished streams.", "upstream", "dialect", "model", "outcome", page=83_000
)
FIRST_BYTE = _seconds(
    "time_to_first_byte",
    f"Time from the first byte of the request to the first byte of the response body. {_MEASURED}",
    FIRST_BYTE_BOUNDS_S, "upstream", page=45_000,
)  # fmt: skip
FIRST_TOKEN = _seconds(
    "time_to_first_token",
    f"Time from the first byte of the request to the first token event: generated output of any kind. {_MEASURED}",
    FIRST_TOKEN_BOUNDS_S, "upstream", "model", page=150_000,
)  # fmt: skip
INTER_CHUNK = _seconds(
    "inter_chunk_latency",
    f"Time between successive token events of a stream, one observation for each gap. Excludes bursts, {_UNMEASURED}",
    GAP_BOUNDS_S, "upstream", "model", page=150_000,
)  # fmt: skip
INTER_TOKEN = _seconds(
    "inter_token_latency",
    "Time per output token: (last token - first token) / (output tokens - 1), one observation for each stream with final "
    f"usage. Excludes bursts, {_UNMEASURED}",
    TOKEN_BOUNDS_S, "upstream", "model", page=130_000,
)  # fmt: skip
DURATION = _seconds(
    "stream_duration",
    f"Time from the first byte of the request to the end of the stream. {_MEASURED}",
    DURATION_BOUNDS_S, "upstream", "outcome", page=60_000,
)  # fmt: skip
FINISH_REASONS = _counter(
    MetricSource.STREAM,
    "finish_reasons",
    "Streams that reported a finish reason, by finish reason.",
    "upstream",
    "model",
    "finish_reason",
    page=50_000,
)
ERRORS = _counter(MetricSource.STREAM, "stream_errors",
    "Errors that ended streams. Phase in_stream: an error event after the status 200.",
    "upstream", "phase", "error_type", page=40_000,
)  # fmt: skip
USAGE_TOKENS = _counter(MetricSource.STREAM, "usage_tokens",
    "Tokens that providers reported. input includes cached and cache_write, output includes reasoning: do not add the kinds. "
    "Streams without usage add nothing. A resumed stream counts once, if this process knows all of its requests.",
    "upstream", "model", "kind", page=70_000,
)  # fmt: skip
USAGE_SOURCES = _counter(
    MetricSource.STREAM,
    "usage_sources",
    "Streams by the source of their usage: final, partial, estimated or absent.",
    "upstream",
    "source",
    page=16_000,
)
USAGE_ANOMALIES = _counter(
    MetricSource.STREAM,
    "usage_anomalies",
    "Invalid usage numbers: bad values, and totals that do not match.",
    "upstream",
    "kind",
    page=8_000,
)
WITHOUT_TOKEN = _counter(MetricSource.STREAM, "streams_without_token",
    "Finished streams without a token event. No histogram of token latency includes them.",
    "upstream", "outcome", "streaming", page=20_000,
)  # fmt: skip
BURSTS = _counter(
    MetricSource.STREAM,
    "bursts",
    "Streams whose token events arrived in one or two reads, because something buffered the response.",
    "upstream",
    page=6_000,
)
STALLS = _counter(
    MetricSource.STREAM, "stalls", "Gaps between token events longer than --stall-seconds.", "upstream", page=6_000
)
RESUMED = _counter(
    MetricSource.STREAM,
    "resumed_streams",
    "Requests that resume an earlier stream, including rejected ones.",
    "upstream",
    page=6_000,
)
TOKEN_EVENTS = _counter(MetricSource.STREAM, "token_events", "Events with generated output.", "upstream", page=6_000)
UNREAD_EVENTS = _counter(
    MetricSource.STREAM,
    "unread_events",
    "Events that could not be parsed: unparsed, unterminated or oversized.",
    "upstream",
    "kind",
    page=12_000,
)
BODY_BYTES = _counter(
    MetricSource.STREAM, "body_bytes", "Bytes of response bodies, before content decoding.", "upstream", page=6_000
)
INCOMPLETE = _counter(
    MetricSource.STREAM, "incomplete_records", "Records of streams with an incomplete capture.", "upstream", page=6_000
)
INCOMPLETE_REASONS = _counter(
    MetricSource.STREAM,
    "incomplete_reasons",
    "Reasons for incomplete captures. A record may have several.",
    "reason",
    page=5_000,
)

# Metrics of taps. The four of reads are one snapshot: seen = delivered + waiting + dropped, always.
READS_SEEN = _counter(MetricSource.TAP, "tap_reads_seen", "Socket reads from upstreams that the tap captured.")
READS_DELIVERED = _counter(
    MetricSource.TAP, "tap_reads_delivered", "Reads that the broker confirmed, or that `up` assembled."
)
READS_DROPPED = _counter(
    MetricSource.TAP, "tap_reads_dropped", "Reads that were discarded, by reason.", "reason", page=5_000
)
READS_WAITING = _gauge(
    MetricSource.TAP, "tap_reads_waiting", "Reads that were seen, but not yet delivered or dropped.", "reads"
)
TAP_INCIDENTS = _counter(
    MetricSource.TAP, "tap_incidents", "Capture errors that the tap handled, by kind.", "kind", page=3_500
)
TAP_REFUSED = _counter(
    MetricSource.TAP,
    "tap_refused",
    "Requests that the relay answered with an error of its own, by the code in that response.",
    "reason",
    page=4_500,
)
SPOOL_BYTES = _gauge(MetricSource.TAP, "spool_bytes", "Size of the spool's file, with its free pages.", "bytes")
SPOOL_LIMIT = _gauge(MetricSource.TAP, "spool_limit_bytes", "Size limit of the spool.", "bytes")
SPOOL_ROWS = _gauge(MetricSource.TAP, "spool_rows", "Bundles that wait in the spool.", "bundles")
SPOOL_WRITES_REFUSED = _gauge(
    MetricSource.TAP, "spool_writes_refused", "1 while writes to the spool fail, else 0.", "bool"
)
BROKER_CONNECTED = _gauge(MetricSource.TAP, "broker_connected", "1 if the broker is reachable, else 0.", "bool")

BROKER_PROBLEM = _gauge(
    MetricSource.TAP,
    "broker_problem",
    "1 while an operator must fix the Kafka connection (TLS, credentials, ACLs or topics), else 0.",
    "bool",
)

# Metrics of assemblers. `counted_as` is the key in `Assembler.counts`.
OPEN_STREAMS = _gauge(MetricSource.WORKER, "open_streams", "Streams that have started and not ended.", "streams")
IGNORED = _counter(
    MetricSource.WORKER,
    "ignored_streams",
    "Event streams that were ignored, because they are not LLM responses.",
    counted_as="not_llm",
)
BUNDLES = _counter(MetricSource.WORKER, "bundles", "Bundles that were processed.", counted_as="bundles")
DUPLICATE_BUNDLES = _counter(
    MetricSource.WORKER, "duplicate_bundles", "Duplicate bundles, which are skipped.", counted_as="duplicate_bundles"
)
DUPLICATE_SEGMENTS = _counter(
    MetricSource.WORKER, "duplicate_segments", "Duplicate segments, which are skipped.", counted_as="duplicate_segments"
)
LATE_SEGMENTS = _counter(
    MetricSource.WORKER,
    "late_segments",
    "Skipped segments of streams that are closed, were never opened, or belong to another run on the same capture file.",
    counted_as="late_segments",
)
DEAD_LETTERS = _counter(
    MetricSource.WORKER,
    "dead_letters",
    "Messages that could not be read and were written to the dead letter topic.",
    "stage",
    "error_class",
    page=20_000,
)
DEAD_LETTERS_WAITING = _gauge(
    MetricSource.WORKER,
    "dead_letters_waiting",
    "Unreadable messages that block their partitions, because writes to the dead letter topic fail.",
    "messages",
)
LOG_GAPS = _counter(
    MetricSource.WORKER,
    "log_gaps",
    "Times that messages expired in Kafka before a worker read them.",
    counted_as="log_gaps",
)
LOG_GAP_MESSAGES = _counter(
    MetricSource.WORKER,
    "log_gap_messages",
    "Messages that were deleted from Kafka before a worker read them: by retention, or with a recreated topic.",
)
WORKER_LAG = _gauge(
    MetricSource.WORKER,
    "worker_lag_messages",
    "Messages in the segments topic after the committed offset.",
    "messages",
    "partition",
    page=7_000,
)
WORKER_PARTITIONS = _gauge(
    MetricSource.WORKER,
    "worker_partitions",
    "Partitions that are assigned to this worker and have their state recovered.",
    "partitions",
)
WORKER_BROKER = _gauge(
    MetricSource.WORKER, "worker_broker_connected", "1 if the broker is reachable from this worker, else 0.", "bool"
)
WORKER_SECONDS = _counter(
    MetricSource.WORKER,
    "worker_seconds",
    "Time that partitions of a worker spend in each activity; all activities of a partition add up to 1 second per second. "
    "waiting is for messages or for the partition's turn. sending and committing include waiting for the broker.",
    "activity",
    page=2_000,
    unit="seconds",
)
STUCK_EXITS = _counter(
    MetricSource.WORKER,
    "worker_stuck_exits",
    "Times that the watchdog ended this worker because it was stuck, by cause. The count survives restarts.",
    "cause",
)
LEDGER_ROWS = _counter(
    MetricSource.WORKER,
    "ledger_rows",
    "Records written to the ledger: new, same (a duplicate), different (another record for a known stream id).",
    "result",
)

# Metrics of the exporter itself.
LABELS_CUT = _counter(
    MetricSource.SELF,
    "metric_labels_cut",
    "Observations with the label value `other`, because the label had reached its limit of values.",
    "label",
    page=5_000,
)
SOURCE_FAILURES = _counter(MetricSource.SELF, "metric_source_failures", "Failures of metric sources during scrapes.")
BUILD_INFO = _gauge(MetricSource.SELF, "build_info", "Always 1. The label holds the version.", "1", "version")

TABLE: tuple[Metric, ...] = (
    STREAMS, FIRST_BYTE, FIRST_TOKEN, INTER_CHUNK, INTER_TOKEN, DURATION, FINISH_REASONS, ERRORS,
    USAGE_TOKENS, USAGE_SOURCES, USAGE_ANOMALIES, WITHOUT_TOKEN, BURSTS, STALLS, RESUMED,
    TOKEN_EVENTS, UNREAD_EVENTS, BODY_BYTES, INCOMPLETE, INCOMPLETE_REASONS,
    RATE_LIMIT_LIMIT, RATE_LIMIT_REMAINING, RATE_LIMIT_RESET, TAP_HEADS, TAP_HEADS_SECONDS,
    READS_SEEN, READS_DELIVERED, READS_DROPPED, READS_WAITING, TAP_INCIDENTS, TAP_REFUSED,
    SPOOL_BYTES, SPOOL_LIMIT, SPOOL_ROWS, SPOOL_WRITES_REFUSED, BROKER_CONNECTED, BROKER_PROBLEM,
    OPEN_STREAMS, IGNORED, BUNDLES, DUPLICATE_BUNDLES, DUPLICATE_SEGMENTS, LATE_SEGMENTS,
    DEAD_LETTERS, DEAD_LETTERS_WAITING, LOG_GAPS, LOG_GAP_MESSAGES, WORKER_LAG, WORKER_PARTITIONS, WORKER_BROKER,
    WORKER_SECONDS, STUCK_EXITS, LEDGER_ROWS,
    DATA_FREE, CLOCK_SKEW, SILENT_STREAMS, COMMITS, EXPECTED_PARTITIONS,
    LABELS_CUT, SOURCE_FAILURES, BUILD_INFO,
)  # fmt: skip

BY_NAME: Mapping[str, Metric] = {metric.name: metric for metric in TABLE}
BY_COUNT: Mapping[str, Metric] = {metric.counted_as: metric for metric in TABLE if metric.counted_as is not None}
