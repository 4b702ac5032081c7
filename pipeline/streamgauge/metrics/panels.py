"""The panels of the on-call dashboard, as data: what is asked of Prometheus, and how it is shown.

Read from the top: are streams well, are they slow, what do they use, is the capture whole, do the workers keep up. Every
metric of the table is shown somewhere. `$upstream` and `$model` are the dashboard's own choices.
"""

from dataclasses import dataclass


@dataclass(frozen=True)
class Panel:
    """One panel: (PromQL, legend) pairs. `unit` in Grafana's words."""

    title: str
    help: str
    unit: str
    queries: tuple[tuple[str, str], ...]


@dataclass(frozen=True)
class Row:
    title: str
    panels: tuple[Panel, ...]


_UP = 'upstream=~"$upstream"'
_BOTH = 'upstream=~"$upstream",model=~"$model"'
_BROKEN = "stream_error|upstream_reset|timeout|truncated"
_EVERY = "[$__rate_interval]"


def _rate(metric: str, by: str, where: str = "") -> str:
    return f"sum by ({by}) (rate(streamgauge_{metric}{{{where}}}{_EVERY}))"


def _seldom(query: str) -> str:
    """A query whose series begin with the first of what they count: a zero until then, and not "No data"."""
    return f"{query} or on() vector(0)"


def _quantile(share: float, metric: str, by: str = "", where: str = _BOTH) -> str:
    labels = f"le, {by}" if by else "le"
    return f"histogram_quantile({share}, {_rate(f'{metric}_bucket', labels, where)})"


def _quantiles(metric: str) -> tuple[tuple[str, str], ...]:
    return tuple((_quantile(share, metric), f"p{round(share * 100)}") for share in (0.5, 0.95, 0.99))


_WELL = Row(
    "Are streams well?",
    (
        Panel(
            "Streams by outcome",
            "Finished streams a second. Anything but completed is a stream that did not end as its protocol says.",
            "reqps",
            ((_rate("streams_total", "outcome", _BOTH), "{{outcome}}"),),
        ),
        Panel(
            "Share that broke, by upstream",
            "Ended by an in-band error, a reset, a timeout or without a terminal. Clients that left are not in.",
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
            "in_stream: the head said 200, the error came as an event.",
            "reqps",
            ((_seldom(_rate("stream_errors_total", "phase, error_type", _UP)), "{{phase}} {{error_type}}"),),
        ),
        Panel(
            "Finish reasons",
            "Why models stopped.",
            "reqps",
            ((_rate("finish_reasons_total", "finish_reason", _BOTH), "{{finish_reason}}"),),
        ),
        Panel(
            "Streams without a token",
            "Finished without any generated output; they are in no latency below.",
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
            "Begun and not ended.",
            "short",
            (("sum by (instance) (streamgauge_open_streams)", "{{instance}}"),),
        ),
    ),
)

_SLOW = Row(
    "Are they slow?",
    (
        Panel(
            "Time to first token",
            "From the request's first byte to the first generated output.",
            "s",
            _quantiles("time_to_first_token_seconds"),
        ),
        Panel(
            "Time to first token by model, p95",
            "Which model is slow.",
            "s",
            ((_quantile(0.95, "time_to_first_token_seconds", "model"), "{{model}}"),),
        ),
        Panel(
            "Gaps between chunks",
            "Between successive token events. An event may hold many tokens.",
            "s",
            _quantiles("inter_chunk_latency_seconds"),
        ),
        Panel(
            "Time per output token by model, p50 and p95",
            "By the provider's own count of tokens.",
            "s",
            (
                (_quantile(0.5, "inter_token_latency_seconds", "model"), "{{model}} p50"),
                (_quantile(0.95, "inter_token_latency_seconds", "model"), "{{model}} p95"),
            ),
        ),
        Panel(
            "Time to first byte by upstream, p95",
            "Of the answer's body.",
            "s",
            ((_quantile(0.95, "time_to_first_byte_seconds", "upstream", _UP), "{{upstream}}"),),
        ),
        Panel(
            "Duration by outcome, p50 and p95",
            "Whole streams.",
            "s",
            (
                (_quantile(0.5, "stream_duration_seconds", "outcome", _UP), "{{outcome}} p50"),
                (_quantile(0.95, "stream_duration_seconds", "outcome", _UP), "{{outcome}} p95"),
            ),
        ),
        Panel(
            "Bursts, stalls, resumed",
            "A burst came in one or two reads: something buffers. A stall is a gap above --stall-seconds.",
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
    "What do they use?",
    (
        Panel(
            "Tokens by kind",
            "As providers report them: input holds cached and cache_write, output holds reasoning.",
            "short",
            ((_rate("usage_tokens_total", "kind", _BOTH), "{{kind}}"),),
        ),
        Panel(
            "Output tokens by model",
            "A second.",
            "short",
            ((_rate("usage_tokens_total", "model", f'{_BOTH},kind="output"'), "{{model}}"),),
        ),
        Panel(
            "What usage is",
            "final, partial, estimated or absent. Absent is not zero: those streams are in no token count.",
            "reqps",
            ((_rate("usage_sources_total", "source", _UP), "{{source}}"),),
        ),
        Panel(
            "Usage that cannot be",
            "Bad values, and sums that do not hold.",
            "reqps",
            ((_seldom(_rate("usage_anomalies_total", "upstream, kind", _UP)), "{{upstream}} {{kind}}"),),
        ),
        Panel(
            "Token events and bytes",
            "How much came.",
            "short",
            (
                (_rate("token_events_total", "upstream", _UP), "token events {{upstream}}"),
                (_rate("body_bytes_total", "upstream", _UP), "bytes {{upstream}}"),
            ),
        ),
    ),
)

_CAPTURE = Row(
    "Is the capture whole?",
    (
        Panel(
            "Reads",
            "Seen = delivered + waiting + dropped, always.",
            "short",
            (
                (_rate("tap_reads_seen_total", "instance"), "seen {{instance}}"),
                (_rate("tap_reads_delivered_total", "instance"), "delivered {{instance}}"),
            ),
        ),
        Panel(
            "Reads dropped, by reason",
            "What was seen and will be in no record.",
            "short",
            ((_seldom(_rate("tap_reads_dropped_total", "instance, reason")), "{{instance}} {{reason}}"),),
        ),
        Panel(
            "On their way",
            "Reads that wait for the next part, and bundles in the spool.",
            "short",
            (
                ("sum by (instance) (streamgauge_tap_reads_waiting)", "reads {{instance}}"),
                ("sum by (instance) (streamgauge_spool_rows)", "bundles {{instance}}"),
            ),
        ),
        Panel(
            "Spool",
            "How full it is; and 100 % while its disk refuses writes.",
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
            "1 or 0, by tap and worker; and whether a tap waits for something to be put right: its log says what.",
            "short",
            (
                ("min by (instance) (streamgauge_broker_connected)", "{{instance}}"),
                ("max by (instance) (streamgauge_broker_problem)", "{{instance}} has a problem"),
                ("min by (instance) (streamgauge_worker_broker_connected)", "{{instance}}, a worker"),
            ),
        ),
        Panel(
            "Incomplete records",
            "Whose capture is not whole; they are in no latency.",
            "reqps",
            (
                (_seldom(_rate("incomplete_records_total", "upstream", _UP)), "{{upstream}}"),
                (_seldom(_rate("incomplete_reasons_total", "reason")), "because of {{reason}}"),
            ),
        ),
        Panel(
            "Events that could not be read",
            "Unparsed, unterminated, oversized.",
            "short",
            ((_seldom(_rate("unread_events_total", "upstream, kind", _UP)), "{{upstream}} {{kind}}"),),
        ),
        Panel(
            "Incidents of taps, ignored streams",
            "What was survived; event streams that are not an LLM's.",
            "short",
            (
                (_seldom(_rate("tap_incidents_total", "instance, kind")), "{{instance}} {{kind}}"),
                (_seldom(_rate("ignored_streams_total", "instance")), "ignored {{instance}}"),
            ),
        ),
        Panel(
            "Requests that the relay answered by itself",
            "Refused, or the upstream could not be asked: no answer of an upstream reached the client.",
            "short",
            ((_seldom(_rate("tap_refused_total", "instance, reason")), "{{instance}} {{reason}}"),),
        ),
    ),
)

_WORKERS = Row(
    "Do the workers keep up?",
    (
        Panel(
            "Lag",
            "Messages behind what is acknowledged.",
            "short",
            (("sum by (instance) (streamgauge_worker_lag_messages)", "{{instance}}"),),
        ),
        Panel(
            "Partitions",
            "That each worker holds.",
            "short",
            (("sum by (instance) (streamgauge_worker_partitions)", "{{instance}}"),),
        ),
        Panel(
            "What workers do",
            "Seconds per second, by activity; together as many as the worker has partitions. decoding and applying near "
            "1: the worker's event loop is full. sending and committing include waiting for the broker.",
            "short",
            ((_rate("worker_seconds_total", "instance, activity"), "{{instance}} {{activity}}"),),
        ),
        Panel(
            "Bundles",
            "Applied, and those that came again.",
            "short",
            (
                (_rate("bundles_total", "instance"), "applied {{instance}}"),
                (_seldom(_rate("duplicate_bundles_total", "instance")), "again {{instance}}"),
            ),
        ),
        Panel(
            "Segments skipped",
            "That came again, or after their stream was closed.",
            "short",
            (
                (_seldom(_rate("duplicate_segments_total", "instance")), "again {{instance}}"),
                (_seldom(_rate("late_segments_total", "instance")), "late {{instance}}"),
            ),
        ),
        Panel(
            "Dead letters",
            "Messages that could not be read; waiting: the dead letter topic takes none, and their partitions stand.",
            "short",
            (
                (_seldom(_rate("dead_letters_total", "stage, error_class")), "{{stage}} {{error_class}}"),
                ("sum by (instance) (streamgauge_dead_letters_waiting)", "waiting {{instance}}"),
            ),
        ),
        Panel(
            "Gaps in the log",
            "Deleted before they were read.",
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
            "That ended themselves, by cause; whoever supervises them starts them again.",
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
            "different: other bytes for a known stream, a bug or a forgery.",
            "reqps",
            ((_rate("ledger_rows_total", "result"), "{{result}}"),),
        ),
        Panel(
            "The exporter itself",
            "Label values beyond their budget, parts that could not say their numbers, versions.",
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
