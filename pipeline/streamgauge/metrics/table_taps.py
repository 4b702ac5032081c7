"""The metrics of taps: reads, spool and broker. `table.py` joins them."""

from streamgauge.metrics.declarations import Metric, MetricSource, counter, gauge

# The four of reads are one snapshot: seen = delivered + waiting + dropped, always.
READS_SEEN = counter(MetricSource.TAP, "tap_reads_seen", "Socket reads from upstreams that the tap captured.")
READS_DELIVERED = counter(
    MetricSource.TAP, "tap_reads_delivered", "Reads that the broker confirmed, or that `up` assembled."
)
READS_DROPPED = counter(MetricSource.TAP, "tap_reads_dropped", "Reads that were discarded, by reason.", "reason")
READS_WAITING = gauge(
    MetricSource.TAP, "tap_reads_waiting", "Reads that were seen, but not yet delivered or dropped.", "reads"
)
TAP_INCIDENTS = counter(MetricSource.TAP, "tap_incidents", "Capture errors that the tap handled, by kind.", "kind")
TAP_REFUSED = counter(
    MetricSource.TAP,
    "tap_refused",
    "Requests that the relay answered with an error of its own, by the code in that response. `upstream_invalid` also counts "
    "responses that it ended by a reset, because clients could read their framing differently.",
    "reason",
)
# By upstream: seen = records + not captured, once all streams have ended and are delivered.
RESPONSES_SEEN = counter(
    MetricSource.TAP,
    "tap_responses_seen",
    "Responses that passed the tap: those that have a record, or will have one, and those that are not captured.",
    "upstream",
)
NOT_CAPTURED = counter(
    MetricSource.TAP,
    "tap_responses_not_captured",
    "Responses that have no record, by reason: a path or content that is no model's (not_llm), a model's endpoint or format "
    "that is not read (format), the relay's own answer (refused), a WebSocket (protocol), and what was lost. Workers count "
    "the event streams that are not_llm or format by their content.",
    "upstream",
    "reason",
)
CLIENT_CONNECTIONS = gauge(
    MetricSource.TAP, "tap_client_connections", "Connections of clients that the relays have.", "connections"
)
CLIENT_CONNECTIONS_LIMIT = gauge(
    MetricSource.TAP,
    "tap_client_connections_limit",
    "Connections of clients that the relays may have (--max-connections, or what the file descriptors allow).",
    "connections",
)
SPOOL_BYTES = gauge(MetricSource.TAP, "spool_bytes", "Size of the spool's file, with its free pages.", "bytes")
SPOOL_LIMIT = gauge(MetricSource.TAP, "spool_limit_bytes", "Size limit of the spool.", "bytes")
SPOOL_ROWS = gauge(MetricSource.TAP, "spool_rows", "Bundles that wait in the spool.", "bundles")
SPOOL_WRITES_REFUSED = gauge(
    MetricSource.TAP, "spool_writes_refused", "1 while writes to the spool fail, else 0.", "bool"
)
BROKER_CONNECTED = gauge(MetricSource.TAP, "broker_connected", "1 if the broker is reachable, else 0.", "bool")

BROKER_PROBLEM = gauge(
    MetricSource.TAP,
    "broker_problem",
    "1 while an operator must fix the Kafka connection (TLS, credentials, ACLs or topics), else 0.",
    "bool",
)

TAP_METRICS: tuple[Metric, ...] = (
    READS_SEEN, READS_DELIVERED, READS_DROPPED, READS_WAITING, TAP_INCIDENTS, TAP_REFUSED, RESPONSES_SEEN, NOT_CAPTURED,
    CLIENT_CONNECTIONS, CLIENT_CONNECTIONS_LIMIT, SPOOL_BYTES, SPOOL_LIMIT, SPOOL_ROWS, SPOOL_WRITES_REFUSED,
    BROKER_CONNECTED, BROKER_PROBLEM,
)  # fmt: skip
