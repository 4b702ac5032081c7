"""The panels of the on-call dashboard, as data: the queries to Prometheus, and how results are shown.

In order from the top: outcomes of streams, latency, usage, completeness of the capture, progress of the workers. Every
metric of the table has a panel. `$upstream` and `$model` are variables of the dashboard.
"""

from streamgauge.metrics.panel import Panel, Row

_UP = 'upstream=~"$upstream"'
_BOTH = 'upstream=~"$upstream",model=~"$model"'
_BROKEN = "stream_error|upstream_reset|timeout|truncated"
_EVERY = "[$__rate_interval]"


def _rate(metric: str, by: str, where: str = "") -> str:
    return f"sum by ({by}) (rate(streamgauge_{metric}{{{where}}}{_EVERY}))"


def _seldom(query: str) -> str:
    """A query whose series appear only with the first event: shows zero until then instead of "No data"."""
    return f"{query} or on() vector(0)"


def _quantile(share: float, metric: str, by: str = "", where: str = _BOTH) -> str:
    labels = f"le, {by}" if by else "le"
    return f"histogram_quantile({share}, {_rate(f'{metric}_bucket', labels, where)})"


def _quantiles(metric: str) -> tuple[tuple[str, str], ...]:
    return tuple((_quantile(share, metric), f"p{round(share * 100)}") for share in (0.5, 0.95, 0.99))


_WELL = Row(
    "Outcomes",
    (
        Panel(
            "Streams by outcome",
            "Finished streams per second. Every outcome except completed is a stream that failed or was cut short.",
            "reqps",
            ((_rate("streams_total", "outcome", _BOTH), "{{outcome}}"),),
        ),
        Panel(
            "Share of broken streams, by upstream",
            "Ended by an error event, a reset, a timeout, or without an end-of-stream marker. Excludes client aborts.",
            "percentunit",
            (
                (
                    "("
                    + _rate("streams_total", "upstream", f'{_BOTH},outcome=~"{_BROKEN}"')
                    + " or 0 * "
                    + _rate("streams_total", "upstream", _BOTH)
                    + ") / "
                    + _rate("streams_total", "upstream", _BOTH),
                    "{{upstream}}",
                ),
            ),
        ),
        Panel(
            "Errors by phase and type",
            "in_stream: an error event after the status 200.",
            "reqps",
            ((_seldom(_rate("stream_errors_total", "phase, error_type", _UP)), "{{phase}} {{error_type}}"),),
        ),
        Panel(
            "Finish reasons",
            "Streams per second by normalised finish reason.",
            "reqps",
            ((_rate("finish_reasons_total", "finish_reason", _BOTH), "{{finish_reason}}"),),
        ),
        Panel(
            "Streams without a token event",
            "Finished without any generated output. The panels of token latency exclude them.",
            "reqps",
            (
                (
                    _seldom(_rate("streams_without_token_total", "outcome, streaming", _UP)),
                    "{{outcome}}, streaming: {{streaming}}",
                ),
            ),
        ),
        Panel(
            "Open streams",
            "Streams that have started and not ended.",
            "short",
            (("sum by (instance) (streamgauge_open_streams)", "{{instance}}"),),
        ),
    ),
)

_SLOW = Row(
    "Latency",
    (
        Panel(
            "Time to first token",
            "Time from the first byte of the request to the first generated output.",
            "s",
            _quantiles("time_to_first_token_seconds"),
        ),
        Panel(
            "Time to first token by model, p95",
            "95th percentile of each model.",
            "s",
            ((_quantile(0.95, "time_to_first_token_seconds", "model"), "{{model}}"),),
        ),
        Panel(
            "Gaps between chunks",
            "Time between successive token events. An event may contain many tokens.",
            "s",
            _quantiles("inter_chunk_latency_seconds"),
        ),
        Panel(
            "Time per output token by model, p50 and p95",
            "Uses the output tokens that the provider reported.",
            "s",
            (
                (_quantile(0.5, "inter_token_latency_seconds", "model"), "{{model}} p50"),
                (_quantile(0.95, "inter_token_latency_seconds", "model"), "{{model}} p95"),
            ),
        ),
        Panel(
            "Time to first byte by upstream, p95",
            "Time from the first byte of the request to the first byte of the response body.",
            "s",
            ((_quantile(0.95, "time_to_first_byte_seconds", "upstream", _UP), "{{upstream}}"),),
        ),
        Panel(
            "Duration by outcome, p50 and p95",
            "Time from the first byte of the request to the end of the stream.",
            "s",
            (
                (_quantile(0.5, "stream_duration_seconds", "outcome", _UP), "{{outcome}} p50"),
                (_quantile(0.95, "stream_duration_seconds", "outcome", _UP), "{{outcome}} p95"),
            ),
        ),
        Panel(
            "Bursts, stalls, resumed streams",
            "Burst: all events arrived in one or two reads, because something buffers. Stall: a gap above --stall-seconds.",
            "reqps",
            (
                (_seldom(_rate("bursts_total", "upstream", _UP)), "bursts {{upstream}}"),
                (_seldom(_rate("stalls_total", "upstream", _UP)), "stalls {{upstream}}"),
                (_seldom(_rate("resumed_streams_total", "upstream", _UP)), "resumed {{upstream}}"),
            ),
        ),
    ),
)

_USAGE = Row(
    "Token usage",
    (
        Panel(
            "Tokens by kind",
            "Tokens that providers reported, per second. input includes cached and cache_write, output includes reasoning.",
            "short",
            ((_rate("usage_tokens_total", "kind", _BOTH), "{{kind}}"),),
        ),
        Panel(
            "Output tokens by model",
            "Output tokens that providers reported, per second.",
            "short",
            ((_rate("usage_tokens_total", "model", f'{_BOTH},kind="output"'), "{{model}}"),),
        ),
        Panel(
            "Source of usage",
            "Streams per second: final, partial, estimated or absent. Token counts exclude streams without usage.",
            "reqps",
            ((_rate("usage_sources_total", "source", _UP), "{{source}}"),),
        ),
        Panel(
            "Invalid usage",
            "Bad values, and totals that do not match.",
            "reqps",
            ((_seldom(_rate("usage_anomalies_total", "upstream, kind", _UP)), "{{upstream}} {{kind}}"),),
        ),
        Panel(
            "Rate-limit headroom",
            "Share of the provider's rate limit that is left, of the API key with the least.",
            "percentunit",
            (
                (
                    f"min by (upstream, kind) (streamgauge_rate_limit_remaining{{{_UP}}}"
                    f" / streamgauge_rate_limit_limit{{{_UP}}})",
                    "{{upstream}} {{kind}}",
                ),
            ),
        ),
        Panel(
            "Rate-limit reset",
            "Longest time until a rate limit of the provider is whole again.",
            "s",
            ((f"max by (upstream, kind) (streamgauge_rate_limit_reset_seconds{{{_UP}}})", "{{upstream}} {{kind}}"),),
        ),
        Panel(
            "Token events and bytes",
            "Token events and bytes of response bodies, per second.",
            "short",
            (
                (_rate("token_events_total", "upstream", _UP), "token events {{upstream}}"),
                (_rate("body_bytes_total", "upstream", _UP), "bytes {{upstream}}"),
            ),
        ),
    ),
)

_CAPTURE = Row(
    "Capture",
    (
        Panel(
            "Reads",
            "Reads per second. Always: seen = delivered + waiting + dropped.",
            "short",
            (
                (_rate("tap_reads_seen_total", "instance"), "seen {{instance}}"),
                (_rate("tap_reads_delivered_total", "instance"), "delivered {{instance}}"),
            ),
        ),
        Panel(
            "Discarded reads, by reason",
            "Reads that were seen and are missing in their records.",
            "short",
            ((_seldom(_rate("tap_reads_dropped_total", "instance, reason")), "{{instance}} {{reason}}"),),
        ),
        Panel(
            "Waiting reads and bundles",
            "Reads that are not delivered yet, and bundles in the spool.",
            "short",
            (
                ("sum by (instance) (streamgauge_tap_reads_waiting)", "reads {{instance}}"),
                ("sum by (instance) (streamgauge_spool_rows)", "bundles {{instance}}"),
            ),
        ),
        Panel(
            "Spool",
            "Used share of the size limit; 100 % while writes to the spool fail.",
            "percentunit",
            (
                (
                    "sum by (instance) (streamgauge_spool_bytes) / sum by (instance) (streamgauge_spool_limit_bytes)",
                    "{{instance}}",
                ),
                ("max by (instance) (streamgauge_spool_writes_refused)", "{{instance}}, writes refused"),
            ),
        ),
        Panel(
            "Broker connected",
            "1 if the broker is reachable. Problem: 1 while an operator must fix the connection, see the tap's log.",
            "short",
            (
                ("min by (instance) (streamgauge_broker_connected)", "{{instance}}"),
                ("max by (instance) (streamgauge_broker_problem)", "{{instance}} has a problem"),
                ("min by (instance) (streamgauge_worker_broker_connected)", "{{instance}}, a worker"),
            ),
        ),
        Panel(
            "Incomplete records",
            "Records of streams with an incomplete capture. Latency panels exclude them.",
            "reqps",
            (
                (_seldom(_rate("incomplete_records_total", "upstream", _UP)), "{{upstream}}"),
                (_seldom(_rate("incomplete_reasons_total", "reason")), "because of {{reason}}"),
            ),
        ),
        Panel(
            "Events that could not be parsed",
            "Unparsed, unterminated or oversized events.",
            "short",
            ((_seldom(_rate("unread_events_total", "upstream, kind", _UP)), "{{upstream}} {{kind}}"),),
        ),
        Panel(
            "Capture errors, ignored streams",
            "Errors that taps handled, and event streams that are not LLM responses.",
            "short",
            (
                (_seldom(_rate("tap_incidents_total", "instance, kind")), "{{instance}} {{kind}}"),
                (_seldom(_rate("ignored_streams_total", "instance")), "ignored {{instance}}"),
            ),
        ),
        Panel(
            "Time that the relay adds",
            "Mean time from reading the head of a response to having written it to the client.",
            "s",
            (
                (
                    f"{_rate('tap_response_heads_seconds_total', 'instance')}"
                    f" / {_rate('tap_response_heads_total', 'instance')}",
                    "{{instance}}",
                ),
            ),
        ),
        Panel(
            "Error responses of the relay",
            "Requests that the relay rejected, and requests to an upstream that failed before it responded.",
            "short",
            ((_seldom(_rate("tap_refused_total", "instance, reason")), "{{instance}} {{reason}}"),),
        ),
    ),
)

_WORKERS = Row(
    "Workers",
    (
        Panel(
            "Lag",
            "Messages in the segments topic after the committed offset.",
            "short",
            (("sum by (instance) (streamgauge_worker_lag_messages)", "{{instance}}"),),
        ),
        Panel(
            "Partitions",
            "Partitions that are assigned to each worker and have their state recovered.",
            "short",
            (("sum by (instance) (streamgauge_worker_partitions)", "{{instance}}"),),
        ),
        Panel(
            "Time by activity",
            "Seconds per second of each activity; their sum is the number of partitions. decoding and applying near 1: the "
            "worker's event loop is full. sending and committing include waiting for the broker.",
            "short",
            ((_rate("worker_seconds_total", "instance, activity"), "{{instance}} {{activity}}"),),
        ),
        Panel(
            "Bundles",
            "Bundles per second: processed, and duplicates that were skipped.",
            "short",
            (
                (_rate("bundles_total", "instance"), "processed {{instance}}"),
                (_seldom(_rate("duplicate_bundles_total", "instance")), "duplicates {{instance}}"),
            ),
        ),
        Panel(
            "Skipped segments",
            "Duplicates, and segments that arrived after their stream was closed.",
            "short",
            (
                (_seldom(_rate("duplicate_segments_total", "instance")), "duplicates {{instance}}"),
                (_seldom(_rate("late_segments_total", "instance")), "late {{instance}}"),
            ),
        ),
        Panel(
            "Dead letters",
            "Messages that could not be read. waiting: writes to the dead letter topic fail, so partitions are blocked.",
            "short",
            (
                (_seldom(_rate("dead_letters_total", "stage, error_class")), "{{stage}} {{error_class}}"),
                ("sum by (instance) (streamgauge_dead_letters_waiting)", "waiting {{instance}}"),
            ),
        ),
        Panel(
            "Messages deleted unread",
            "Messages that were deleted from Kafka before a worker read them, in 1 hour.",
            "short",
            (
                (_seldom("sum by (instance) (increase(streamgauge_log_gaps_total[1h]))"), "gaps {{instance}}"),
                (
                    _seldom("sum by (instance) (increase(streamgauge_log_gap_messages_total[1h]))"),
                    "messages {{instance}}",
                ),
            ),
        ),
        Panel(
            "Stuck workers",
            "Times in 1 hour that the watchdog ended a worker because it was stuck, by cause. A supervisor must restart it.",
            "short",
            (
                (
                    _seldom("sum by (instance, cause) (increase(streamgauge_worker_stuck_exits_total[1h]))"),
                    "{{instance}} {{cause}}",
                ),
            ),
        ),
        Panel(
            "Ledger",
            "Records per second. different: another record for a known stream id, which is an error or a forgery.",
            "reqps",
            ((_rate("ledger_rows_total", "result"), "{{result}}"),),
        ),
        Panel(
            "Exporter",
            "Label values beyond their limit, failed metric sources, running versions.",
            "short",
            (
                (_seldom(_rate("metric_labels_cut_total", "label")), "cut {{label}}"),
                (_seldom(_rate("metric_source_failures_total", "instance")), "failed sources {{instance}}"),
                ("count by (version) (streamgauge_build_info)", "version {{version}}"),
            ),
        ),
    ),
)

ROWS: tuple[Row, ...] = (_WELL, _SLOW, _USAGE, _CAPTURE, _WORKERS)
