"""The panels of the on-call dashboard, as data: the queries to Prometheus, and how results are shown.

In order from the top: outcomes of streams, latency, usage, completeness of the capture, progress of the workers. Every
metric of the table has a panel. `$upstream` and `$model` are variables of the dashboard.
"""

from streamgauge.metrics.panel import Panel, Row
from streamgauge.metrics.panel_queries import BOTH, BROKEN, UP, quantile, quantiles, rate, seldom
from streamgauge.metrics.panels_workers import WORKERS

_WELL = Row(
    "Outcomes",
    (
        Panel(
            "Streams by outcome",
            "Finished streams per second. Every outcome except completed is a stream that failed or was cut short.",
            "reqps",
            ((rate("streams_total", "outcome", BOTH), "{{outcome}}"),),
        ),
        Panel(
            "Share of broken streams, by upstream",
            "Ended by an error event, a reset, a timeout, or without an end-of-stream marker. Excludes client aborts.",
            "percentunit",
            (
                (
                    "("
                    + rate("streams_total", "upstream", f'{BOTH},outcome=~"{BROKEN}"')
                    + " or 0 * "
                    + rate("streams_total", "upstream", BOTH)
                    + ") / "
                    + rate("streams_total", "upstream", BOTH),
                    "{{upstream}}",
                ),
            ),
        ),
        Panel(
            "Errors by phase and type",
            "in_stream: an error event after the status 200.",
            "reqps",
            ((seldom(rate("stream_errors_total", "phase, error_type", UP)), "{{phase}} {{error_type}}"),),
        ),
        Panel(
            "Finish reasons",
            "Streams per second by normalised finish reason.",
            "reqps",
            ((rate("finish_reasons_total", "finish_reason", BOTH), "{{finish_reason}}"),),
        ),
        Panel(
            "Streams without a token event",
            "Finished without any generated output. The panels of token latency exclude them.",
            "reqps",
            (
                (
                    seldom(rate("streams_without_token_total", "outcome, streaming", UP)),
                    "{{outcome}}, streaming: {{streaming}}",
                ),
            ),
        ),
        Panel(
            "Open and silent streams",
            "Streams that have started and not ended. Silent: without a token event for more than --silent-seconds.",
            "short",
            (
                ("sum by (instance) (streamgauge_open_streams)", "{{instance}}"),
                (seldom(f"sum by (upstream) (streamgauge_silent_streams{{{UP}}})"), "silent {{upstream}}"),
            ),
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
            quantiles("time_to_first_token_seconds"),
        ),
        Panel(
            "Time to first token by model, p95",
            "95th percentile of each model.",
            "s",
            ((quantile(0.95, "time_to_first_token_seconds", "model"), "{{model}}"),),
        ),
        Panel(
            "Gaps between chunks",
            "Time between successive token events. An event may contain many tokens.",
            "s",
            quantiles("inter_chunk_latency_seconds"),
        ),
        Panel(
            "Time per output token by model, p50 and p95",
            "Uses the output tokens that the provider reported.",
            "s",
            (
                (quantile(0.5, "inter_token_latency_seconds", "model"), "{{model}} p50"),
                (quantile(0.95, "inter_token_latency_seconds", "model"), "{{model}} p95"),
            ),
        ),
        Panel(
            "Time to first byte by upstream, p95",
            "Time from the first byte of the request to the first byte of the response body.",
            "s",
            ((quantile(0.95, "time_to_first_byte_seconds", "upstream", UP), "{{upstream}}"),),
        ),
        Panel(
            "Duration by outcome, p50 and p95",
            "Time from the first byte of the request to the end of the stream.",
            "s",
            (
                (quantile(0.5, "stream_duration_seconds", "outcome", UP), "{{outcome}} p50"),
                (quantile(0.95, "stream_duration_seconds", "outcome", UP), "{{outcome}} p95"),
            ),
        ),
        Panel(
            "Bursts, stalls, resumed streams",
            "Burst: all events arrived in one or two reads, because something buffers. Stall: a gap above --stall-seconds.",
            "reqps",
            (
                (seldom(rate("bursts_total", "upstream", UP)), "bursts {{upstream}}"),
                (seldom(rate("stalls_total", "upstream", UP)), "stalls {{upstream}}"),
                (seldom(rate("resumed_streams_total", "upstream", UP)), "resumed {{upstream}}"),
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
            ((rate("usage_tokens_total", "kind", BOTH), "{{kind}}"),),
        ),
        Panel(
            "Output tokens by model",
            "Output tokens that providers reported, per second.",
            "short",
            ((rate("usage_tokens_total", "model", f'{BOTH},kind="output"'), "{{model}}"),),
        ),
        Panel(
            "Source of usage",
            "Streams per second: final, partial, estimated or absent. Token counts exclude streams without usage.",
            "reqps",
            ((rate("usage_sources_total", "source", UP), "{{source}}"),),
        ),
        Panel(
            "Invalid usage",
            "Bad values, and totals that do not match.",
            "reqps",
            ((seldom(rate("usage_anomalies_total", "upstream, kind", UP)), "{{upstream}} {{kind}}"),),
        ),
        Panel(
            "Rate-limit headroom",
            "Share of the provider's rate limit that is left, of the API key with the least.",
            "percentunit",
            (
                (
                    f"min by (upstream, kind) (streamgauge_rate_limit_remaining{{{UP}}}"
                    f" / streamgauge_rate_limit_limit{{{UP}}})",
                    "{{upstream}} {{kind}}",
                ),
            ),
        ),
        Panel(
            "Rate-limit reset",
            "Longest time until a rate limit of the provider is whole again.",
            "s",
            ((f"max by (upstream, kind) (streamgauge_rate_limit_reset_seconds{{{UP}}})", "{{upstream}} {{kind}}"),),
        ),
        Panel(
            "Token events and bytes",
            "Token events and bytes of response bodies, per second.",
            "short",
            (
                (rate("token_events_total", "upstream", UP), "token events {{upstream}}"),
                (rate("body_bytes_total", "upstream", UP), "bytes {{upstream}}"),
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
                (rate("tap_reads_seen_total", "instance"), "seen {{instance}}"),
                (rate("tap_reads_delivered_total", "instance"), "delivered {{instance}}"),
            ),
        ),
        Panel(
            "Discarded reads, by reason",
            "Reads that were seen and are missing in their records.",
            "short",
            ((seldom(rate("tap_reads_dropped_total", "instance, reason")), "{{instance}} {{reason}}"),),
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
            "Free disk space",
            "Free space on the disk of each data directory, which the spool shares.",
            "bytes",
            (("min by (instance) (streamgauge_data_free_bytes)", "{{instance}}"),),
        ),
        Panel(
            "Clock skew",
            "Difference between the clocks of each tap and of the broker. `started_at` of records has this error.",
            "s",
            (("max by (instance) (abs(streamgauge_clock_skew_seconds))", "{{instance}}"),),
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
                (seldom(rate("incomplete_records_total", "upstream", UP)), "{{upstream}}"),
                (seldom(rate("incomplete_reasons_total", "reason")), "because of {{reason}}"),
            ),
        ),
        Panel(
            "Events that could not be parsed",
            "Unparsed, unterminated or oversized events.",
            "short",
            ((seldom(rate("unread_events_total", "upstream, kind", UP)), "{{upstream}} {{kind}}"),),
        ),
        Panel(
            "Capture errors, ignored streams",
            "Errors that taps handled, and event streams that are not LLM responses.",
            "short",
            (
                (seldom(rate("tap_incidents_total", "instance, kind")), "{{instance}} {{kind}}"),
                (seldom(rate("ignored_streams_total", "instance")), "ignored {{instance}}"),
            ),
        ),
        Panel(
            "Time that the relay adds",
            "Mean time from reading the head of a response to having written it to the client.",
            "s",
            (
                (
                    f"{rate('tap_response_heads_seconds_total', 'instance')}"
                    f" / {rate('tap_response_heads_total', 'instance')}",
                    "{{instance}}",
                ),
            ),
        ),
        Panel(
            "Error responses of the relay",
            "Requests that the relay rejected, and requests to an upstream that failed before it responded.",
            "short",
            ((seldom(rate("tap_refused_total", "instance, reason")), "{{instance}} {{reason}}"),),
        ),
    ),
)

ROWS: tuple[Row, ...] = (_WELL, _SLOW, _USAGE, _CAPTURE, WORKERS)
