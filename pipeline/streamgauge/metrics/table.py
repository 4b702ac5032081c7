"""Every metric, declared once. The exporter, METRICS.md, dashboards and alert rules use this table.

To add a metric: a row below, in the section of the part that sets it, its name in TABLE, and its line in `observe.py` (or an
`add`, a `set` or a source). Then `make generated` writes METRICS.md, and a dashboard needs a panel of it.

Alerts compare how counters grow. The growth of a series with an open label (model, error type) lacks what was counted
before the first scrape that shows it. So what alerts need has a counter without open labels, too, and its series exist
with 0 as soon as the upstream is known (`starts`).
"""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import get_args

from streamgauge.core.assembly.timing import GAP_BOUNDS_S
from streamgauge.core.capture.segments import TransportFault
from streamgauge.core.outcome import Outcome
from streamgauge.metrics.declarations import UNKNOWN, Kind, Metric, MetricSource, counter, gauge, histogram

_STREAM, _TAP, _WORKER = MetricSource.STREAM, MetricSource.TAP, MetricSource.WORKER

# Finished streams: `observe.py` sets these from their records.

OUTCOMES: tuple[str, ...] = get_args(Outcome)
PHASES = ("before_stream", "in_stream", "transport")
# `error.code` of a record whose error is one of transport.
TRANSPORT_CAUSES = (*map(str, TransportFault), UNKNOWN)
# Sources of usage that a record has; `estimated` is reserved.
SOURCES = ("final", "partial", "absent")
UNREAD_KINDS = ("unparsed", "unterminated", "oversized")
ANOMALIES = ("bad_value", "identity", "part_above_whole", "parts_overlap")

# Upper bounds in seconds. First tokens take 50 ms (a local server) to five minutes (reasoning, or a queue); bounds are
# dense near the limits of alerts.
FIRST_TOKEN_BOUNDS_S = (
    0.025, 0.05, 0.1, 0.15, 0.2, 0.25, 0.3, 0.35, 0.4, 0.45, 0.5, 0.75, 1.0, 1.5, 2.0, 3.0, 5.0, 7.5, 10.0, 15.0, 30.0,
    60.0, 120.0, 300.0,
)  # fmt: skip
# The first token of one kind: some of the bounds above, since three metrics have them.
FIRST_OF_A_KIND_BOUNDS_S = (0.1, 0.2, 0.3, 0.5, 1.0, 2.0, 5.0, 10.0, 30.0, 60.0, 300.0)
# A response starts at once or after a queue; an error page within milliseconds.
FIRST_BYTE_BOUNDS_S = (0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0)
# Time per output token: 1 ms (1,000 tokens/s, the fastest hardware) to 1 s.
TOKEN_BOUNDS_S = (0.001, 0.0025, 0.005, 0.0075, 0.01, 0.015, 0.02, 0.03, 0.04, 0.05, 0.075, 0.1, 0.2, 0.5, 1.0)
# The longest gap of a stream: usually some pace, in a bad stream a stall (5 s), at most the idle timeout (900 s).
LONGEST_GAP_BOUNDS_S = (0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0, 60.0, 300.0)
# 5 (a small machine) to 1,000 (the fastest hardware).
TOKENS_PER_SECOND_BOUNDS = (5.0, 10.0, 20.0, 30.0, 50.0, 75.0, 100.0, 150.0, 200.0, 500.0, 1000.0)
# OpenTelemetry's advice for calls of tools.
CALL_BOUNDS_S = (0.01, 0.02, 0.05, 0.1, 0.2, 0.5, 1.0, 2.0, 5.0, 10.0, 30.0, 60.0, 120.0, 300.0)
# A short answer takes a second, an agent's long one ten minutes; the upstream's idle timeout is 900 s.
DURATION_BOUNDS_S = (0.5, 1.0, 2.5, 5.0, 10.0, 20.0, 30.0, 60.0, 120.0, 300.0, 900.0)


def _seconds(name: str, help: str, bounds: tuple[float, ...], *labels: str) -> Metric:
    return histogram(_STREAM, f"{name}_seconds", help, "seconds", bounds, *labels)


_UNMEASURED = (
    "streams with an incomplete capture, requests that resume or poll a response, and those where this time is unknown."
)
_MEASURED = f"Excludes {_UNMEASURED}"
_SINCE_REQUEST = "Time from the first byte of the request to the first"

STREAMS = counter(
    _STREAM, "streams", "Finished streams.", "upstream", "dialect", "model", "outcome", starts={"outcome": OUTCOMES},
)  # fmt: skip
STREAM_OUTCOMES = counter(
    _STREAM, "stream_outcomes",
    "Finished streams by outcome, for alerts: all series of an upstream start at 0 before its first stream.",
    "upstream", "outcome", starts={"outcome": OUTCOMES},
)  # fmt: skip
FIRST_BYTE = _seconds(
    "time_to_first_byte", f"{_SINCE_REQUEST} byte of the response body. {_MEASURED}",
    FIRST_BYTE_BOUNDS_S, "upstream",
)  # fmt: skip
FIRST_TOKEN = _seconds(
    "time_to_first_token", f"{_SINCE_REQUEST} token event: generated output of any kind, reasoning included. {_MEASURED}",
    FIRST_TOKEN_BOUNDS_S, "upstream", "model",
)  # fmt: skip
FIRST_REASONING = _seconds(
    "time_to_first_reasoning", f"{_SINCE_REQUEST} token event with reasoning. {_MEASURED}",
    FIRST_OF_A_KIND_BOUNDS_S, "upstream", "model",
)  # fmt: skip
FIRST_CONTENT = _seconds(
    "time_to_first_content", f"{_SINCE_REQUEST} token event with text: not reasoning, not a tool call. {_MEASURED}",
    FIRST_OF_A_KIND_BOUNDS_S, "upstream", "model",
)  # fmt: skip
FIRST_TOOL = _seconds(
    "time_to_first_tool", f"{_SINCE_REQUEST} token event of a tool call. {_MEASURED}",
    FIRST_OF_A_KIND_BOUNDS_S, "upstream", "model",
)  # fmt: skip
INTER_CHUNK = _seconds(
    "inter_chunk_latency",
    f"Time between successive token events of a stream, one observation for each gap. Excludes bursts, {_UNMEASURED}",
    GAP_BOUNDS_S, "upstream", "model",
)  # fmt: skip
LONGEST_GAP = _seconds(
    "longest_gap",
    "The longest time between successive token events of a stream, one observation for each stream with a gap. "
    f"Excludes bursts, {_UNMEASURED}",
    LONGEST_GAP_BOUNDS_S, "upstream",
)  # fmt: skip
INTER_TOKEN = _seconds(
    "inter_token_latency",
    "Time per output token: (last token - first token) / (output tokens - 1), one observation for each stream with final "
    "usage. Reasoning that was hidden or summarised is left out: then time and tokens are those of the answer. "
    f"Excludes bursts, {_UNMEASURED}",
    TOKEN_BOUNDS_S, "upstream", "model",
)  # fmt: skip
TOKENS_PER_SECOND = histogram(
    _STREAM, "output_tokens_per_second",
    "Output tokens a second, once the first has come: 1 / time per output token, one observation for each stream with "
    "final usage. Tokens of hidden or summarised reasoning are left out. "
    f"Excludes bursts, {_UNMEASURED}",
    "tokens/s", TOKENS_PER_SECOND_BOUNDS, "upstream", "model",
)  # fmt: skip
DURATION = _seconds(
    "stream_duration", f"Time from the first byte of the request to the end of the stream. {_MEASURED}",
    DURATION_BOUNDS_S, "upstream", "outcome",
)  # fmt: skip
FINISH_REASONS = counter(
    _STREAM, "finish_reasons",
    "Streams that reported a finish reason, by normalised finish reason; unknown: the provider's own has no normal form.",
    "upstream", "model", "finish_reason",
)  # fmt: skip
ERRORS = counter(
    _STREAM, "stream_errors",
    "Errors that ended streams. Phase in_stream: an error event after the status 200.",
    "upstream", "phase", "error_type", starts={"phase": PHASES},
)  # fmt: skip
FAILED_STREAMS = counter(
    _STREAM, "failed_streams",
    "Streams that an error ended, by phase, for alerts: all series of an upstream start at 0 before its first stream.",
    "upstream", "phase", starts={"phase": PHASES},
)  # fmt: skip
TRANSPORT_ERRORS = counter(
    _STREAM, "transport_errors",
    "Connections to an upstream that failed, by cause: before the response or in the middle of it.",
    "upstream", "cause", starts={"cause": TRANSPORT_CAUSES},
)  # fmt: skip
RETRIED = counter(
    _STREAM, "retried_streams",
    "Requests that a client sent again after a failure, as its library reports it (x-stainless-retry-count).",
    "upstream", starts={},
)  # fmt: skip
USAGE_TOKENS = counter(
    _STREAM, "usage_tokens",
    "Tokens that providers reported, by kind. The kinds are disjoint: their sum is input + output. output_text is all "
    "output that is not reasoning or audio. Streams without usage add nothing, a kind that is not reported has no series. "
    "Requests that resume or poll one response count once in each process that observes any of them, and once in the ledger.",
    "upstream", "model", "kind",
)  # fmt: skip
USAGE_REPORTED = counter(
    _STREAM, "usage_reported_streams",
    "Streams whose usage reported this kind of token, 0 included. input_uncached and output_text: input and output at all.",
    "upstream", "model", "kind",
)  # fmt: skip
USAGE_SOURCES = counter(
    _STREAM, "usage_sources", "Streams by the source of their usage: final, partial, estimated or absent.",
    "upstream", "source", starts={"source": SOURCES},
)  # fmt: skip
USAGE_ANOMALIES = counter(
    _STREAM, "usage_anomalies",
    "Invalid usage numbers: bad values, totals that do not match, a part above its whole (more cached tokens than input); "
    "and parts that overlap (cached audio). Parts then count up to their whole, cache before audio.",
    "upstream", "kind", starts={"kind": ANOMALIES},
)  # fmt: skip
WITHOUT_TOKEN = counter(
    _STREAM, "streams_without_token",
    "Finished streams without a token event. No histogram of token latency includes them.",
    "upstream", "outcome", "streaming",
)  # fmt: skip
BURSTS = counter(
    _STREAM, "bursts",
    "Streams whose token events came in one or two arrivals (reads less than 5 ms apart), because something buffered the "
    "response.",
    "upstream", starts={},
)  # fmt: skip
STALLS = counter(
    _STREAM, "stalls", "Gaps between token events longer than --stall-seconds.", "upstream", starts={},
)  # fmt: skip
RESUMED = counter(
    _STREAM, "resumed_streams", "Requests that resume an earlier stream, including rejected ones.",
    "upstream", starts={},
)  # fmt: skip
TOKEN_EVENTS = counter(
    _STREAM, "token_events", "Events with generated output.", "upstream", starts={},
)  # fmt: skip
UNREAD_EVENTS = counter(
    _STREAM, "unread_events", "Events that could not be parsed: unparsed, unterminated or oversized.",
    "upstream", "kind", starts={"kind": UNREAD_KINDS},
)  # fmt: skip
BODY_BYTES = counter(
    _STREAM, "body_bytes", "Bytes of response bodies, before content decoding.", "upstream", starts={},
)  # fmt: skip
INCOMPLETE = counter(
    _STREAM, "incomplete_records", "Records of streams with an incomplete capture.",
    "upstream", starts={},
)  # fmt: skip
INCOMPLETE_REASONS = counter(
    _STREAM, "incomplete_reasons", "Reasons for incomplete captures. A record may have several.", "reason"
)

# Money: costs of streams, budgets, and the last kept audit.

# `undivided`: a cost that the provider reported, which it does not divide into sides.
SIDES = ("input", "output", "undivided")

COST = counter(
    _STREAM, "cost_usd",
    "What streams cost: what the provider reported, else their tokens by list prices or the operator's (--prices), by side. "
    "Requests that resume or poll one response count once in each process that observes any of them, and once in the ledger.",
    "upstream", "model", "side", unit="USD",
)  # fmt: skip
UPSTREAM_COST = counter(
    _STREAM, "upstream_cost_usd",
    "The cost of streams by side, for alerts: all series of an upstream start at 0 before its first stream.",
    "upstream", "side", unit="USD", starts={"side": SIDES},
)  # fmt: skip
CACHE_SAVED = counter(
    _STREAM, "cache_saved_usd",
    "What reading input from a prompt cache saved, compared with the price of other input.",
    "upstream", "model", unit="USD",
)  # fmt: skip
CACHE_ADDED = counter(
    _STREAM, "cache_added_usd",
    "What writing input to a prompt cache cost above the price of other input.",
    "upstream", "model", unit="USD",
)  # fmt: skip
UNPRICED = counter(
    _STREAM, "unpriced_streams",
    "Streams with usage whose cost is not known, by reason: no_seller is an upstream without a known seller, such as an own "
    "server. No cost includes them.",
    "upstream", "model", "cost_unknown",
)  # fmt: skip

_BUDGET_LABELS = ("budget_key", "budget_value")
BUDGET_LIMIT = gauge(
    _WORKER, "budget_limit_usd", "What a budget (--budgets) allows in a month.", "USD", *_BUDGET_LABELS
)
BUDGET_SPENT = gauge(
    _WORKER, "budget_spent_usd", "What the ledger's records of this month cost, for each budget.", "USD", *_BUDGET_LABELS,
)  # fmt: skip
BUDGET_FORECAST = gauge(
    _WORKER, "budget_forecast_usd",
    "What the month will have cost at its end if it goes on as before, for each budget. Absent on a month's first day.",
    "USD", *_BUDGET_LABELS,
)  # fmt: skip
BUDGET_UNKNOWN = gauge(
    _WORKER, "budget_unknown_streams",
    "Streams of this month without usage or without a price, for each budget: what is spent does not include them.",
    "1", *_BUDGET_LABELS,
)  # fmt: skip

AUDIT_AGE = gauge(_WORKER, "audit_age_seconds", "Time since the last audit was kept in the ledger.", "seconds")
AUDIT_AGREES = gauge(_WORKER, "audit_agrees", "1 if the last kept audit agrees with the bill, else 0.", "1")
AUDIT_TOKENS = gauge(
    _WORKER, "audit_unexplained_tokens",
    "Tokens of the last kept audit that no cause explains: theirs less ours. Absent if its invoices have no tokens.", "1",
)  # fmt: skip
AUDIT_USD = gauge(
    _WORKER, "audit_unexplained_usd",
    "Money of the last kept audit that no cause explains: theirs less ours. Absent if a price or the bill's money is "
    "missing, also in a part of the lines.",
    "USD",
)  # fmt: skip
AUDIT_COVERAGE = gauge(
    _WORKER, "audit_coverage_ratio",
    "The share of the billed tokens that have a record, by provider, in the last kept audit. Absent if it is unknown.",
    "1", "provider",
)  # fmt: skip
LEDGER_READ_FAILURES = counter(
    _WORKER, "ledger_read_failures", "Failed reads of budgets and audits from the ledger. Their gauges are absent then."
)

# Rate limits of providers, which `rate_limits.py` sets.

_LIMIT_LABELS = ("upstream", "credential_id", "kind")
_LIMIT_EXPIRY = "Absent from 5 minutes after that response, or from its reset if that is later."


def _rate_limit(name: str, unit: str, help: str) -> Metric:
    return gauge(_STREAM, f"rate_limit_{name}", help, unit, *_LIMIT_LABELS)


RATE_LIMIT_LIMIT = _rate_limit(
    "limit", "1", f"The provider's rate limit, by the newest response for an API key. {_LIMIT_EXPIRY}"
)
RATE_LIMIT_REMAINING = _rate_limit(
    "remaining",
    "1",
    f"What was left of the provider's rate limit, by the newest response for an API key. {_LIMIT_EXPIRY}",
)
RATE_LIMIT_RESET = _rate_limit(
    "reset_seconds",
    "seconds",
    f"Time from the newest response for an API key until the provider's rate limit is whole again. {_LIMIT_EXPIRY}",
)

# Taps: reads, responses, connections, spool, broker and disk.

# The four of reads are one snapshot: seen = delivered + waiting + dropped, always.
READS_SEEN = counter(_TAP, "tap_reads_seen", "Socket reads from upstreams that the tap captured.")
READS_DELIVERED = counter(_TAP, "tap_reads_delivered", "Reads that the broker confirmed, or that `up` assembled.")
READS_DROPPED = counter(_TAP, "tap_reads_dropped", "Reads that were discarded, by reason.", "reason")
READS_WAITING = gauge(_TAP, "tap_reads_waiting", "Reads that were seen, but not yet delivered or dropped.", "reads")
TAP_INCIDENTS = counter(_TAP, "tap_incidents", "Capture errors that the tap handled, by kind.", "kind")
TAP_REFUSED = counter(
    _TAP,
    "tap_refused",
    "Requests that the relay answered with an error of its own, by the code in that response. `upstream_invalid` also counts "
    "responses that it ended by a reset, because clients could read their framing differently.",
    "reason",
)
# By upstream: seen = records + not captured, once all streams have ended and are delivered.
RESPONSES_SEEN = counter(
    _TAP,
    "tap_responses_seen",
    "Responses that passed the tap: those that have a record, or will have one, and those that are not captured.",
    "upstream",
)
NOT_CAPTURED = counter(
    _TAP,
    "tap_responses_not_captured",
    "Responses that have no record, by reason: a path or content that is no model's (not_llm), a model's endpoint or format "
    "that is not read (format), the relay's own answer (refused), no HTTP (protocol), and what was lost. Workers count "
    "the event streams that are not_llm or format by their content.",
    "upstream",
    "reason",
)
CLIENT_CONNECTIONS = gauge(
    _TAP, "tap_client_connections", "Connections of clients that the relays have.", "connections"
)
CLIENT_CONNECTIONS_LIMIT = gauge(
    _TAP,
    "tap_client_connections_limit",
    "Connections of clients that the relays may have (--max-connections, or what the file descriptors allow).",
    "connections",
)
SPOOL_BYTES = gauge(_TAP, "spool_bytes", "Size of the spool's file, with its free pages.", "bytes")
SPOOL_LIMIT = gauge(_TAP, "spool_limit_bytes", "Size limit of the spool.", "bytes")
SPOOL_ROWS = gauge(_TAP, "spool_rows", "Bundles that wait in the spool.", "bundles")
SPOOL_WRITES_REFUSED = gauge(_TAP, "spool_writes_refused", "1 while writes to the spool fail, else 0.", "bool")
BROKER_CONNECTED = gauge(_TAP, "broker_connected", "1 if the broker is reachable, else 0.", "bool")

BROKER_PROBLEM = gauge(
    _TAP,
    "broker_problem",
    "1 while an operator must fix the Kafka connection (TLS, credentials, ACLs or topics), else 0.",
    "bool",
)
TAP_HEADS = counter(_TAP, "tap_response_heads", "Heads of responses that the relay passed on to clients.")
TAP_HEADS_SECONDS = counter(
    _TAP,
    "tap_response_heads_seconds",
    "Time from reading the head of a response to having written it to the client's socket: what the relay adds to the time "
    "to the first byte of the response. Excludes the time that data waits in the kernel.",
    unit="seconds",
)
ENVOY_HEADS = counter(
    _TAP,
    "tap_envoy_heads",
    "Heads of responses that Envoy reported, whose arrival at the tap was compared with the time in Envoy's access log.",
)
ENVOY_DELAY_SECONDS = counter(
    _TAP,
    "tap_envoy_delay_seconds",
    "Time from the upstream's first byte, by Envoy's access log, to the arrival of Envoy's report of it: by so much the "
    "times of records are late. If Envoy runs on another host, the difference of both clocks is in it.",
    unit="seconds",
)
CALL_DURATION = histogram(
    _TAP,
    "call_duration_seconds",
    "Time from a call's request to the last read of its answer, of calls over JSON-RPC: of tools (Model Context Protocol) "
    "and of other agents (Agent2Agent). They have no record.",
    "seconds",
    CALL_BOUNDS_S,
    "upstream",
    "call_protocol",
    "call_method",
    "call_tool",
    "call_error",
)
UNMEASURED_CALLS = counter(
    _TAP,
    "calls_unmeasured",
    "Calls whose end, or whether they failed, is not known: a part of the answer found no room (recorder_behind), it is too "
    "long (too_large) or could not be decoded (undecodable), it comes in another response (answered_elsewhere), there were "
    "too many at once (limit), the collector was started again (recorder_gone), the tap stopped (tap_stopped), or a bug of "
    "ours (capture_fault).",
    "upstream",
    "call_protocol",
    "reason",
)
DATA_FREE = gauge(_TAP, "data_free_bytes", "Free space on the disk of the data directory.", "bytes")
DATA_DISK = gauge(_TAP, "data_disk_bytes", "Size of the disk of the data directory.", "bytes")
SETTINGS_FILE_UNUSABLE = gauge(
    _TAP,
    "settings_file_unusable",
    "1 if a collector that started again could not use a file of the settings (prices, budgets or tenants), and uses its "
    "content at the start of the tap, or none; else 0.",
    "bool",
    "setting",
)
CLOCK_SKEW = gauge(
    _TAP,
    "clock_skew_seconds",
    "Wall clock of this host minus that of the broker, by the times of confirmed bundles: the smallest difference of the "
    "last 1 to 2 minutes, since each includes the broker's answering time. Exists once a bundle is confirmed.",
    "seconds",
)

# Workers, and assemblers with or without Kafka.

# `counted_as` is the key in `Assembler.counts`.
OPEN_STREAMS = gauge(_WORKER, "open_streams", "Streams that have started and not ended.", "streams")
IGNORED = counter(
    _WORKER,
    "ignored_streams",
    "Event streams that were ignored, because they are not LLM responses.",
    counted_as="not_llm",
)
BUNDLES = counter(_WORKER, "bundles", "Bundles that were processed.", counted_as="bundles")
DUPLICATE_BUNDLES = counter(
    _WORKER, "duplicate_bundles", "Duplicate bundles, which are skipped.", counted_as="duplicate_bundles"
)
DUPLICATE_SEGMENTS = counter(
    _WORKER, "duplicate_segments", "Duplicate segments, which are skipped.", counted_as="duplicate_segments"
)
LATE_SEGMENTS = counter(
    _WORKER,
    "late_segments",
    "Skipped segments of streams that are closed, were never opened, or belong to another run on the same capture file.",
    counted_as="late_segments",
)
DEAD_LETTERS = counter(
    _WORKER,
    "dead_letters",
    "Messages that could not be read and were written to the dead letter topic.",
    "stage",
    "error_class",
)
DEAD_LETTERS_WAITING = gauge(
    _WORKER,
    "dead_letters_waiting",
    "Unreadable messages that block their partitions: dead letters cannot be written, or --dead-letter-limit is reached.",
    "messages",
)
LOG_GAPS = counter(
    _WORKER,
    "log_gaps",
    "Times that messages expired in Kafka before a worker read them.",
    counted_as="log_gaps",
)
LOG_GAP_MESSAGES = counter(
    _WORKER,
    "log_gap_messages",
    "Messages that were deleted from Kafka before a worker read them: by retention, or with a recreated topic.",
)
WORKER_LAG = gauge(
    _WORKER,
    "worker_lag_messages",
    "Messages in the segments topic after the committed offset.",
    "messages",
    "partition",
)
COMMITTED_OFFSET = gauge(
    _WORKER,
    "worker_committed_offset",
    "The offset that is committed in a partition of the segments topic: every message below it is processed.",
    "1",
    "partition",
)
WORKER_PARTITIONS = gauge(
    _WORKER,
    "worker_partitions",
    "Partitions that are assigned to this worker and have their state recovered.",
    "partitions",
)
WORKER_BROKER = gauge(
    _WORKER, "worker_broker_connected", "1 if the broker is reachable from this worker, else 0.", "bool"
)
WORKER_SECONDS = counter(
    _WORKER,
    "worker_seconds",
    "Time that partitions of a worker spend in each activity; all activities of a partition add up to 1 second per second. "
    "waiting is for messages or for the partition's turn. sending and committing include waiting for the broker.",
    "activity",
    unit="seconds",
)
STUCK_EXITS = counter(
    _WORKER,
    "worker_stuck_exits",
    "Times that the watchdog ended this member of the consumer group because it was stuck, by cause. The count survives "
    "restarts, and belongs to the member: another worker of the same data directory may be this member after a restart.",
    "cause",
    "member",
)
# The values of `result`, which are members of what an insert returns.
RESULTS = ("new", "same", "different")
LEDGER_ROWS = counter(
    _WORKER,
    "ledger_rows",
    "Records written to the ledger: new, same (a duplicate), different (another record for a known stream id).",
    "result",
)
LEDGER_BYTES = gauge(_WORKER, "ledger_bytes", "Bytes that a SQLite ledger uses, without its free pages.", "bytes")
LEDGER_LIMIT = gauge(
    _WORKER,
    "ledger_limit_bytes",
    "Largest size of a SQLite ledger (--ledger-bytes, or what leaves a part of its disk free).",
    "bytes",
)
SPANS = counter(
    _WORKER,
    "spans",
    "New records that became spans (--otlp), by what came of them: sent; or lost, since too many waited (queue_full), the "
    "receiver gave no answer (unreachable), put them off too long (busy) or did not take them (refused), the record has no "
    "start (no_span), or the process ended (stopped).",
    "result",
)
SILENT_STREAMS = gauge(
    _WORKER,
    "silent_streams",
    "Open event streams without a token event for more than --silent-seconds, by the clock of their tap.",
    "streams",
    "upstream",
)
COMMITS = counter(
    _WORKER,
    "worker_commits",
    "Successful commits of offsets to the broker. A worker commits while it processes messages.",
)
EXPECTED_PARTITIONS = gauge(
    _WORKER,
    "worker_expected_partitions",
    "Partitions of the segments topic, which the workers of a group share.",
    "partitions",
)

# Processes, with the names that all clients of Prometheus give these metrics. A tap has several processes: a label
# distinguishes them, except in the start time, which must not be added up.


def _process(name: str, kind: Kind, help: str, unit: str, *labels: str) -> Metric:
    return Metric(f"process_{name}", kind, help, unit, labels, (), MetricSource.PROCESS)


CPU_SECONDS = _process("cpu_seconds_total", Kind.COUNTER, "CPU time, user and system.", "seconds", "process")
RESIDENT_MEMORY = _process("resident_memory_bytes", Kind.GAUGE, "Resident memory.", "bytes", "process")
OPEN_FDS = _process("open_fds", Kind.GAUGE, "Open file descriptors.", "1", "process")
MAX_FDS = _process("max_fds", Kind.GAUGE, "Limit of open file descriptors.", "1", "process")
START_TIME = _process(
    "start_time_seconds", Kind.GAUGE, "Start of the process that serves this page, as Unix time.", "seconds"
)

# The exporter itself.

LABELS_CUT = counter(
    MetricSource.SELF,
    "metric_labels_cut",
    "Observations with the label value `other`, because the label had reached its limit of values.",
    "label",
)
SOURCE_FAILURES = counter(MetricSource.SELF, "metric_source_failures", "Failures of metric sources during scrapes.")
ADMIN_REFUSED = counter(
    MetricSource.SELF,
    "admin_refused",
    "Requests that the admin port refused: without its token, limited after wrong tokens, for another host, or malformed.",
    "reason",
)
BUILD_INFO = gauge(MetricSource.SELF, "build_info", "Always 1. The label holds the version.", "1", "version")

TABLE: tuple[Metric, ...] = (
    STREAMS, STREAM_OUTCOMES, FIRST_BYTE, FIRST_TOKEN, FIRST_REASONING, FIRST_CONTENT, FIRST_TOOL, INTER_CHUNK,
    LONGEST_GAP, INTER_TOKEN, TOKENS_PER_SECOND, DURATION, FINISH_REASONS, ERRORS, FAILED_STREAMS, TRANSPORT_ERRORS,
    RETRIED, USAGE_TOKENS, USAGE_REPORTED, USAGE_SOURCES, USAGE_ANOMALIES, WITHOUT_TOKEN, BURSTS, STALLS, RESUMED,
    TOKEN_EVENTS, UNREAD_EVENTS, BODY_BYTES, INCOMPLETE, INCOMPLETE_REASONS,
    COST, UPSTREAM_COST, CACHE_SAVED, CACHE_ADDED, UNPRICED, BUDGET_LIMIT, BUDGET_SPENT, BUDGET_FORECAST,
    BUDGET_UNKNOWN, AUDIT_AGE, AUDIT_AGREES, AUDIT_TOKENS, AUDIT_USD, AUDIT_COVERAGE, LEDGER_READ_FAILURES,
    RATE_LIMIT_LIMIT, RATE_LIMIT_REMAINING, RATE_LIMIT_RESET,
    READS_SEEN, READS_DELIVERED, READS_DROPPED, READS_WAITING, TAP_INCIDENTS, TAP_REFUSED, RESPONSES_SEEN, NOT_CAPTURED,
    CLIENT_CONNECTIONS, CLIENT_CONNECTIONS_LIMIT, SPOOL_BYTES, SPOOL_LIMIT, SPOOL_ROWS, SPOOL_WRITES_REFUSED,
    BROKER_CONNECTED, BROKER_PROBLEM, TAP_HEADS, TAP_HEADS_SECONDS, ENVOY_HEADS, ENVOY_DELAY_SECONDS,
    CALL_DURATION, UNMEASURED_CALLS,
    DATA_FREE, DATA_DISK, SETTINGS_FILE_UNUSABLE, CLOCK_SKEW,
    OPEN_STREAMS, IGNORED, BUNDLES, DUPLICATE_BUNDLES, DUPLICATE_SEGMENTS, LATE_SEGMENTS, DEAD_LETTERS,
    DEAD_LETTERS_WAITING, LOG_GAPS, LOG_GAP_MESSAGES, WORKER_LAG, COMMITTED_OFFSET, WORKER_PARTITIONS, WORKER_BROKER,
    WORKER_SECONDS, STUCK_EXITS, LEDGER_ROWS, LEDGER_BYTES, LEDGER_LIMIT, SPANS, SILENT_STREAMS, COMMITS,
    EXPECTED_PARTITIONS,
    CPU_SECONDS, RESIDENT_MEMORY, OPEN_FDS, MAX_FDS, START_TIME,
    LABELS_CUT, SOURCE_FAILURES, ADMIN_REFUSED, BUILD_INFO,
)  # fmt: skip

BY_NAME: Mapping[str, Metric] = {metric.name: metric for metric in TABLE}
BY_COUNT: Mapping[str, Metric] = {metric.counted_as: metric for metric in TABLE if metric.counted_as is not None}

# The metrics that take the labels of `--metric-attribute`: latency, failures, usage and cost. Labels on more metrics would
# multiply the series of the page.
ATTRIBUTED = tuple(metric.name for metric in (STREAMS, ERRORS, FIRST_TOKEN, USAGE_TOKENS, COST))


def with_attributes(metric: Metric, attributes: Sequence[str]) -> Metric:
    """The metric with these further labels, if it takes attributes; else unchanged."""
    return replace(metric, labels=(*metric.labels, *attributes)) if metric.name in ATTRIBUTED else metric


def attributes_of(metric: Metric, attributes: Sequence[str]) -> int:
    """The number of a metric's labels that are attributes; they are its last labels."""
    return len(attributes) if metric.name in ATTRIBUTED else 0
