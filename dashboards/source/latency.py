"""Latency: whether streams are slow to begin or slow to go on, where, and since when."""

from dashboards.source.dashboard import Dashboard, Row
from dashboards.source.panel import Heatmap, Panel, Query, TimeSeries
from dashboards.source.queries import EACH, quantile, rate, ratio, within_tpot, within_ttft

_TTFT, _TTFB = "time_to_first_token_seconds", "time_to_first_byte_seconds"
_GAPS, _TPOT = "inter_chunk_latency_seconds", "inter_token_latency_seconds"


def _heatmap(title: str, help: str, histogram: str) -> Heatmap:
    query = Query(rate(f"{histogram}_bucket", by="le"), "{{le}}", exemplars=True)
    return Heatmap(title=title, help=f"{help} The colour is the number of them a second.", unit="s", queries=(query,))


def _by(label: str, title: str, help: str, histogram: str, *shares: float, alerts: tuple[str, ...] = ()) -> Panel:
    """Quantiles of a histogram for each value of a label. A tenant may have no name: its legend says what it is."""
    name = "tenant " if label == "tenant" else ""
    return TimeSeries(
        title=title,
        help=help,
        unit="s",
        alerts=alerts,
        queries=tuple(
            Query(quantile(share, histogram, by=label), f"{name}{{{{{label}}}}} p{round(share * 100)}")
            for share in shares
        ),
    )


_DISTRIBUTIONS = Row(
    "Distributions",
    (
        _heatmap(
            "Time to first token",
            "Time from the first byte of the request to the first generated output, reasoning included. A point is one "
            "stream: its tooltip leads to it.",
            _TTFT,
        ),
        _heatmap(
            "Gaps between token events",
            "Time between successive token events. An event may hold several tokens.",
            _GAPS,
        ),
        TimeSeries(
            title="First token against gaps",
            help="If only the first token is late, requests wait in a queue, or the model thinks unseen. If gaps are long "
            "too, the provider is slow altogether. If only gaps are long, something stalls or buffers.",
            unit="s",
            width=12,
            right="p95 of gaps (right axis)",
            queries=(
                Query(quantile(0.95, _TTFT), "p95 of the time to first token", exemplars=True),
                Query(quantile(0.95, _GAPS), "p95 of gaps (right axis)"),
            ),
        ),
        TimeSeries(
            title="Within the objectives",
            help="Share of first tokens, reasoning included, within the variable TTFT objective, and of streams whose "
            "mean time per output token is within the variable TPOT objective.",
            unit="percentunit",
            width=12,
            maximum=1,
            alerts=("TimeToFirstTokenHigh",),
            queries=(
                Query(within_ttft(window=EACH), "first token within $objective s"),
                Query(within_tpot(window=EACH), "time per token within $tpot_objective s"),
            ),
        ),
    ),
)

_UPSTREAMS = Row(
    "By upstream",
    (
        _by(
            "upstream",
            "First token by upstream",
            "Time to the first token, reasoning included: median and p95.",
            _TTFT,
            0.5,
            0.95,
        ),
        _by(
            "upstream",
            "First byte by upstream",
            "Time from the first byte of the request to the first byte of the response. If it is late, the provider queues "
            "or throttles requests. If it is early and the first token late, the model thinks, or the prompt is long.",
            _TTFB,
            0.5,
            0.95,
        ),
        _by("upstream", "Gaps by upstream", "Time between successive token events: p95 and p99.", _GAPS, 0.95, 0.99),
    ),
)

_MODELS = Row(
    "By model",
    (
        _by(
            "model",
            "First token by model",
            "Time to the first token, reasoning included: p95.",
            _TTFT,
            0.95,
            alerts=("TimeToFirstTokenHigh", "CacheShareFallen"),
        ),
        _by("model", "Gaps by model", "Time between successive token events: p95.", _GAPS, 0.95),
        _by(
            "model",
            "Time per output token by model",
            "Median and p95, by the usage that the provider reported, without reasoning that was hidden or summarised.",
            _TPOT,
            0.5,
            0.95,
        ),
        TimeSeries(
            title="Output tokens per second by model",
            help="Pace of single streams after their first token, without hidden reasoning: median, and the slowest 5 %.",
            unit="short",
            queries=(
                Query(quantile(0.5, "output_tokens_per_second", by="model"), "{{model}} p50"),
                Query(quantile(0.05, "output_tokens_per_second", by="model"), "{{model}} p5"),
            ),
        ),
        TimeSeries(
            title="First reasoning, text and tool call",
            help="Time from the first byte of the request to the first token event of each kind: p95.",
            unit="s",
            queries=(
                Query(quantile(0.95, "time_to_first_reasoning_seconds"), "reasoning"),
                Query(quantile(0.95, "time_to_first_content_seconds"), "text"),
                Query(quantile(0.95, "time_to_first_tool_seconds"), "tool call"),
            ),
        ),
        TimeSeries(
            title="Within the TTFT objective, by model",
            help="Share of first tokens, reasoning included, within the variable TTFT objective.",
            unit="percentunit",
            maximum=1,
            queries=(Query(within_ttft("model", EACH), "{{model}}"),),
        ),
    ),
)

_TENANTS = Row(
    "By tenant",
    (
        _by(
            "tenant",
            "First token by tenant",
            "Time to the first token, reasoning included: p95. Without --metric-attribute tenant all streams are one tenant "
            "without a name.",
            _TTFT,
            0.95,
        ),
        TimeSeries(
            title="Within the TTFT objective, by tenant",
            help="Share of first tokens, reasoning included, within the variable TTFT objective.",
            unit="percentunit",
            maximum=1,
            queries=(Query(within_ttft("tenant", EACH), "tenant {{tenant}}"),),
        ),
    ),
)

_WHOLE = Row(
    "Whole streams",
    (
        _by(
            "outcome",
            "Duration by outcome",
            "Time from the first byte of the request to the end: p95.",
            "stream_duration_seconds",
            0.95,
        ),
        _by(
            "upstream",
            "Longest gap of a stream",
            "The longest time between successive token events of each stream: median and p95.",
            "longest_gap_seconds",
            0.5,
            0.95,
        ),
        TimeSeries(
            title="Stalls and bursts",
            help="Stall: a gap above --stall-seconds. Burst: all token events of a stream came in one or two arrivals, "
            "because something buffers the response.",
            unit="reqps",
            alerts=("StreamsStall",),
            queries=(
                Query(rate("stalls_total", by="upstream"), "stalls {{upstream}}"),
                Query(rate("bursts_total", by="upstream"), "bursts {{upstream}}"),
            ),
        ),
        TimeSeries(
            title="Resumed and retried requests",
            help="Requests that resume an earlier stream, and requests that a client library sent again after a failure.",
            unit="reqps",
            queries=(
                Query(rate("resumed_streams_total", by="upstream"), "resumed {{upstream}}"),
                Query(rate("retried_streams_total", by="upstream"), "retried {{upstream}}"),
            ),
        ),
        TimeSeries(
            title="Time that the relay adds",
            help="Mean time from reading the head of a response to having written it to the client.",
            unit="s",
            queries=(
                Query(
                    ratio(
                        rate("tap_response_heads_seconds_total", by="instance"),
                        rate("tap_response_heads_total", by="instance"),
                    ),
                    "{{instance}}",
                ),
            ),
        ),
        TimeSeries(
            title="Token events and bytes",
            help="Token events and bytes of response bodies, per second.",
            unit="short",
            right="bytes (right axis)",
            queries=(
                Query(rate("token_events_total"), "token events"),
                Query(rate("body_bytes_total"), "bytes (right axis)"),
            ),
        ),
    ),
)

LATENCY = Dashboard(
    name="latency",
    title="Latency",
    help="Slow to begin or slow to go on, for which upstream, model and tenant? Points on graphs are single streams.",
    rows=(_DISTRIBUTIONS, _UPSTREAMS, _MODELS, _TENANTS, _WHOLE),
)
