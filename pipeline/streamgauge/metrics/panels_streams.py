"""The panels about streams: outcomes, latency, usage. `panels.py` joins them with the others."""

from streamgauge.metrics.panel import Panel, Row
from streamgauge.metrics.panel_queries import BOTH, BROKEN, OUTPUT, UP, quantile, quantiles, rate, seldom

WELL = Row(
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
            "Streams that did not complete, by upstream",
            "Finished streams per second with another outcome than completed. Series exist from the start: none is 0.",
            "reqps",
            (
                (
                    rate("stream_outcomes_total", "upstream, outcome", f'{UP},outcome!="completed"'),
                    "{{upstream}} {{outcome}}",
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
            "Errors by phase, transport errors by cause",
            "Streams per second that an error ended, and connections to upstreams that failed.",
            "reqps",
            (
                (rate("failed_streams_total", "upstream, phase", UP), "{{upstream}} {{phase}}"),
                (rate("transport_errors_total", "upstream, cause", UP), "{{upstream}} transport: {{cause}}"),
            ),
        ),
        Panel(
            "Finish reasons",
            "Streams per second by normalised finish reason. unknown: the provider's reason has no normal form.",
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

SLOW = Row(
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
            "First reasoning, text and tool call, p95",
            "Time from the first byte of the request to the first token event of each kind.",
            "s",
            (
                (quantile(0.95, "time_to_first_reasoning_seconds"), "reasoning"),
                (quantile(0.95, "time_to_first_content_seconds"), "text"),
                (quantile(0.95, "time_to_first_tool_seconds"), "tool call"),
            ),
        ),
        Panel(
            "Longest gap of a stream, by upstream, p50 and p95",
            "The longest time between successive token events of each stream.",
            "s",
            (
                (quantile(0.5, "longest_gap_seconds", "upstream", UP), "{{upstream}} p50"),
                (quantile(0.95, "longest_gap_seconds", "upstream", UP), "{{upstream}} p95"),
            ),
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
            "Output tokens a second by model, p5 and p50",
            "Pace of single streams after their first token. p5: the slowest streams.",
            "short",
            (
                (quantile(0.05, "output_tokens_per_second", "model"), "{{model}} p5"),
                (quantile(0.5, "output_tokens_per_second", "model"), "{{model}} p50"),
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
            "Bursts, stalls, resumed streams, retries",
            "Burst: all events arrived in one or two reads, because something buffers. Stall: a gap above --stall-seconds.",
            "reqps",
            (
                (seldom(rate("bursts_total", "upstream", UP)), "bursts {{upstream}}"),
                (seldom(rate("stalls_total", "upstream", UP)), "stalls {{upstream}}"),
                (seldom(rate("resumed_streams_total", "upstream", UP)), "resumed {{upstream}}"),
                (seldom(rate("retried_streams_total", "upstream", UP)), "retried {{upstream}}"),
            ),
        ),
    ),
)

USAGE = Row(
    "Token usage",
    (
        Panel(
            "Tokens by kind",
            "Tokens that providers reported, per second. The kinds are disjoint and add up to input and output.",
            "short",
            ((rate("usage_tokens_total", "kind", BOTH), "{{kind}}"),),
        ),
        Panel(
            "Output tokens by model",
            "Output tokens that providers reported, per second.",
            "short",
            ((rate("usage_tokens_total", "model", f'{BOTH},kind=~"{OUTPUT}"'), "{{model}}"),),
        ),
        Panel(
            "Prompt cache",
            "Share of the input tokens that providers read from their caches, as a ratio of sums, by model. Not reported: "
            "share of the streams with usage that report no number of cached tokens.",
            "percentunit",
            (
                (
                    rate("usage_tokens_total", "upstream, model", f'{BOTH},kind="input_cached"')
                    + " / "
                    + rate("usage_tokens_total", "upstream, model", f'{BOTH},kind=~"input_.*"'),
                    "{{upstream}} {{model}}",
                ),
                (
                    "1 - ("
                    + rate("usage_reported_streams_total", "upstream", f'{BOTH},kind="input_cached"')
                    + " or 0 * "
                    + rate("usage_reported_streams_total", "upstream", f'{BOTH},kind="input_uncached"')
                    + ") / "
                    + rate("usage_reported_streams_total", "upstream", f'{BOTH},kind="input_uncached"'),
                    "not reported {{upstream}}",
                ),
            ),
        ),
        Panel(
            "Streams by what their usage reports",
            "Streams per second that reported a kind of token, 0 included.",
            "reqps",
            ((rate("usage_reported_streams_total", "kind", BOTH), "{{kind}}"),),
        ),
        Panel(
            "Source of usage",
            "Streams per second: final, partial, estimated or absent. Token counts exclude streams without usage.",
            "reqps",
            ((rate("usage_sources_total", "source", UP), "{{source}}"),),
        ),
        Panel(
            "Invalid usage",
            "Bad values, totals that do not match, parts above their whole, and parts that overlap.",
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
