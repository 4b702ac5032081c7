"""One upstream or model: slow to begin or slow to go on, how streams end and why, and for which tenant.

A choice of upstream, model and tenant above the panels says what they show; without one it is everything.
"""

from collections.abc import Mapping

from dashboards.source.dashboard import Dashboard, Row
from dashboards.source.panel import OBJECTIVE, Column, Heatmap, Panel, Query, Table, TimeSeries
from dashboards.source.queries import (
    RANGE,
    TENANT,
    broke,
    gauge,
    increase,
    most,
    objective,
    quantile,
    rate,
    seldom,
    share,
)
from streamgauge.metrics.rules_slo import FAST_ENOUGH, MAY_BREAK

_FIRST_TOKEN, _FIRST_BYTE = "time_to_first_token_seconds", "time_to_first_byte_seconds"
# The pauses have no exemplars: a stream has many of them.
_GAPS, _PER_TOKEN = "inter_chunk_latency_seconds", "inter_token_latency_seconds"
_WHOLE, _LONGEST = "stream_duration_seconds", "longest_gap_seconds"
_NO_ERRORS = "no errors"
_FAILED, _OF_FAILED = 'call_error!=""', "upstream, call_method, call_tool, call_error"
_SHARES = (0.5, 0.95, 0.99)


def _percentiles(title: str, help: str, histogram: str, *more: Query, alerts: tuple[str, ...] = ()) -> Panel:
    """p50, p95 and p99 of a histogram beside each other."""
    single = histogram != _GAPS
    lines = (
        Query(quantile(part, histogram), f"p{part:.0%}"[:-1], exemplars=single and part == _SHARES[-1])
        for part in _SHARES
    )
    return TimeSeries(title=title, help=help, unit="s", alerts=alerts, queries=(*lines, *more))


def _heatmap(title: str, help: str, histogram: str) -> Heatmap:
    single = histogram != _GAPS
    query = Query(rate(f"{histogram}_bucket", by="le"), "{{le}}", exemplars=single)
    text = f"{help} The stronger the colour of a field, the more of them."
    if single:
        text += " A point is one stream: its tooltip leads to it."
    return Heatmap(title=title, help=text, unit="s", width=8, queries=(query,))


_SLOW = Row(
    "Is it slow?",
    (
        _percentiles(
            "Time to first token, reasoning included",
            "Time from the request to the first generated output. The objective is that of the alert rules.",
            _FIRST_TOKEN,
            Query(objective(FAST_ENOUGH), OBJECTIVE),
            alerts=("TimeToFirstTokenHigh", "CacheShareFallen"),
        ),
        _percentiles(
            "Time to first byte",
            "Time from the request to the first byte of the response. If it is late, the provider queues or throttles "
            "requests. If it is early and the first token late, the model thinks, or the prompt is long.",
            _FIRST_BYTE,
        ),
        _percentiles(
            "Time per output token",
            "(last token - first token) / (output tokens - 1) of each stream, by the reported usage, without reasoning that "
            "was hidden or summarised.",
            _PER_TOKEN,
        ),
        _percentiles(
            "Pauses between tokens",
            "Time between successive token events. If only the first token is late, requests wait in a queue. If pauses are "
            "long too, the provider is slow altogether. If only pauses are long, something stalls or buffers.",
            _GAPS,
        ),
        _percentiles(
            "Longest pause of a stream",
            "The longest time between successive token events of each stream.",
            _LONGEST,
            alerts=("StreamsStall",),
        ),
        TimeSeries(
            title="First reasoning, text and tool call",
            help="Time from the request to the first token of each kind, which 95 % of the streams keep.",
            unit="s",
            queries=(
                Query(quantile(0.95, "time_to_first_reasoning_seconds"), "first reasoning"),
                Query(quantile(0.95, "time_to_first_content_seconds"), "first text"),
                Query(quantile(0.95, "time_to_first_tool_seconds"), "first tool call"),
            ),
        ),
        _heatmap("First tokens over time", "Time to the first token of each stream.", _FIRST_TOKEN),
        _heatmap("Pauses over time", "Time between successive token events.", _GAPS),
        _heatmap(
            "Longest pauses over time", "The longest time between successive token events of each stream.", _LONGEST
        ),
    ),
)

_BROKEN = Row(
    "Does it break?",
    (
        TimeSeries(
            title="How streams end",
            help="Finished streams per second. Green: completed. Yellow: the client left, which is no error. Purple: the "
            "provider answered with an error status. Red: the stream broke.",
            unit="reqps",
            stacked=True,
            queries=(Query(rate("streams_total", by="outcome"), "{{outcome}}"),),
        ),
        TimeSeries(
            title="Broken streams, by upstream",
            help="Share of the accepted streams that ended by an error, a reset, a timeout, or without their end, of the "
            "five upstreams with the highest one in the time range. The objective is that of the alert rules.",
            unit="percentunit",
            alerts=("StreamsBreakMidway", "StreamsTruncated"),
            queries=(
                Query(most(lambda window: broke("upstream", window), "upstream"), "{{upstream}}"),
                Query(objective(MAY_BREAK), OBJECTIVE),
            ),
        ),
        TimeSeries(
            title="Streams that are open now",
            help="Streams that have started and not ended. Silent: without a token for more than --silent-seconds.",
            unit="short",
            alerts=("StreamsSilent",),
            queries=(
                Query(gauge("open_streams"), "open"),
                Query(seldom(gauge("silent_streams")), "silent"),
            ),
        ),
        Table(
            title="Errors by type",
            help="Errors in the time range by the provider's own type, code or status. before_stream: an error status. "
            "in_stream: an error after the status 200. transport: the connection failed.",
            unit="short",
            width=12,
            no_value=_NO_ERRORS,
            alerts=("ProviderAnswersErrors",),
            queries=(
                Query(f"{increase('stream_errors_total', by='upstream, phase, error_type')} > 0", "{{error_type}}"),
            ),
            labels={"upstream": Column("upstream"), "phase": Column("when"), "error_type": Column("type")},
            values=(Column("errors", "short", decimals=0),),
        ),
        TimeSeries(
            title="Errors by type over time",
            help="Streams per second that an error ended, of the five types with the most in the time range.",
            unit="reqps",
            width=12,
            no_value=_NO_ERRORS,
            queries=(
                Query(
                    most(lambda window: rate("stream_errors_total", by="error_type", window=window), "error_type"),
                    "{{error_type}}",
                ),
            ),
        ),
        TimeSeries(
            title="Errors by moment",
            help="Streams per second that an error ended, before the response, within it, or by the connection.",
            unit="reqps",
            queries=(Query(rate("failed_streams_total", by="phase"), "{{phase}}"),),
        ),
        TimeSeries(
            title="Failed connections by cause",
            help="Connections to an upstream that failed, before the response or in the middle of it.",
            unit="reqps",
            no_value="no connection failed",
            alerts=("UpstreamUnreachable",),
            queries=(
                Query(
                    most(lambda window: rate("transport_errors_total", by="cause", window=window), "cause"), "{{cause}}"
                ),
            ),
        ),
        TimeSeries(
            title="Stalls and bursts",
            help="Stall: a pause above --stall-seconds. Burst: all tokens of a stream came in one or two arrivals, because "
            "something buffers the response.",
            unit="reqps",
            alerts=("StreamsStall",),
            queries=(
                Query(rate("stalls_total"), "stalls"),
                Query(rate("bursts_total"), "bursts"),
            ),
        ),
    ),
)


def _split(label: str, title: str, more: str, alerts: tuple[str, ...] = ()) -> Table:
    """Percentiles for each value of a label that people have."""
    pauses = {
        f"pause p{part * 100:g}": (
            quantile(part, _GAPS, by=label, window=RANGE),
            Column(f"pause p{part * 100:g}", "s", decimals=3),
        )
        for part in _SHARES[1:]
    }
    numbers: Mapping[str, tuple[str, Column]] = {
        "streams": (f"{increase('streams_total', by=label)} > 0", Column("streams", "short", decimals=0)),
        **{
            f"first token p{part * 100:g}": (
                quantile(part, _FIRST_TOKEN, by=label, window=RANGE),
                Column(f"first token p{part * 100:g}", "s", decimals=2),
            )
            for part in _SHARES
        },
        **(pauses if label != TENANT else {}),  # that histogram has no tenant
        "completed": (
            share(
                increase("streams_total", 'outcome="completed"', by=label),
                increase("streams_total", 'outcome!="client_abort"', by=label),
            ),
            Column("completed", "percentunit", decimals=1),
        ),
    }
    legend = f"{label} {{{{{label}}}}}"
    return Table(
        title=title,
        help=f"Over the time range. completed: without the streams that their clients left. {more}".strip(),
        unit="short",
        width=24,
        height=7,
        alerts=alerts,
        queries=tuple(Query(query, f"{legend} {name}") for name, (query, _) in numbers.items()),
        labels={label: Column(label, width=260)},
        values=tuple(column for _, column in numbers.values()),
    )


_FOR_WHOM = Row(
    "For whom?",
    (
        _split("upstream", "By upstream", ""),
        _split("model", "By model", "", ("TimeToFirstTokenHigh",)),
        _split(
            TENANT,
            "By tenant",
            "Workers and `up` need --metric-attribute tenant; else all streams are one tenant without a name.",
        ),
    ),
)

_MORE = Row(
    "More about the streams",
    (
        _percentiles("Duration of a stream", "Time from the request to the end of the response.", _WHOLE),
        TimeSeries(
            title="Output tokens per second",
            help="Pace of single streams after their first token, without hidden reasoning: median, and the slowest 5 %.",
            unit="short",
            queries=(
                Query(quantile(0.5, "output_tokens_per_second"), "median"),
                Query(quantile(0.05, "output_tokens_per_second"), "slowest 5 %"),
            ),
        ),
        TimeSeries(
            title="Why answers end",
            help="Streams per second by the reason that the provider gave. length: the answer was cut at its limit of "
            "tokens. content_filter: the provider withheld it. unknown: a reason without a common name.",
            unit="reqps",
            stacked=True,
            queries=(Query(rate("finish_reasons_total", by="finish_reason"), "{{finish_reason}}"),),
        ),
        TimeSeries(
            title="Outcomes by upstream",
            help="Streams per second that did not complete, of the five upstreams with the most in the time range.",
            unit="reqps",
            queries=(
                Query(
                    most(
                        lambda window: rate(
                            "stream_outcomes_total",
                            'outcome!~"completed|client_abort"',
                            by="upstream",
                            window=window,
                        ),
                        "upstream",
                    ),
                    "{{upstream}}",
                ),
            ),
        ),
        TimeSeries(
            title="Streams without a token",
            help="Finished without any generated output, per second. No time to a token includes them.",
            unit="reqps",
            no_value="every stream had a token",
            queries=(Query(seldom(rate("streams_without_token_total", by="outcome")), "no token {{outcome}}"),),
        ),
        TimeSeries(
            title="Resumed and retried requests",
            help="Requests that resume an earlier stream, and requests that a client library sent again after a failure.",
            unit="reqps",
            queries=(
                Query(rate("resumed_streams_total"), "resumed"),
                Query(rate("retried_streams_total"), "retried"),
            ),
        ),
        TimeSeries(
            title="Tokens and bytes on the wire",
            help="Token events and bytes of response bodies, per second.",
            unit="short",
            right="bytes (right axis)",
            queries=(
                Query(rate("token_events_total"), "token events"),
                Query(rate("body_bytes_total"), "bytes (right axis)"),
            ),
        ),
    ),
    collapsed=True,
)

_CALLS = Row(
    "Calls of tools (MCP) and of other agents (A2A)",
    (
        TimeSeries(
            title="Duration of calls, by tool",
            help="Time from a call's request to the last read of its answer, which 95 % of the calls keep, of the five "
            "slowest tools in the time range. Taps measure calls; they have no record. Model and tenant do not filter them.",
            unit="s",
            no_value="no calls",
            queries=(
                Query(
                    most(
                        lambda window: quantile(
                            0.95, "call_duration_seconds", 'call_tool!=""', by="call_tool", window=window
                        ),
                        "call_tool",
                    ),
                    "{{call_tool}}",
                ),
            ),
        ),
        TimeSeries(
            title="Calls, by method",
            help="Calls per second that a tap has measured, by protocol and method.",
            unit="reqps",
            stacked=True,
            no_value="no calls",
            queries=(
                Query(
                    rate("call_duration_seconds_count", by="call_protocol, call_method"),
                    "{{call_protocol}} {{call_method}}",
                ),
            ),
        ),
        TimeSeries(
            title="Calls that were not measured",
            help="Calls per second whose end, or whether they failed, is not known, by reason.",
            unit="reqps",
            no_value="every call was measured",
            queries=(Query(seldom(rate("calls_unmeasured_total", by="reason")), "not measured {{reason}}"),),
        ),
        Table(
            title="Failed calls",
            help="Failed calls in the time range. tool_error: the tool's own error (isError). A negative number: the code of "
            "a JSON-RPC error. task_failed, task_rejected: an agent's task. Others: an HTTP status, or how the call ended "
            "without an answer.",
            unit="short",
            width=24,
            height=7,
            no_value=_NO_ERRORS,
            queries=(
                Query(
                    increase("call_duration_seconds_count", _FAILED, by=_OF_FAILED) + " > 0",
                    "{{call_error}}",
                ),
            ),
            labels={
                "upstream": Column("upstream"),
                "call_method": Column("method"),
                "call_tool": Column("tool"),
                "call_error": Column("error"),
            },
            values=(Column("calls", "short", decimals=0),),
        ),
    ),
    collapsed=True,
)

UPSTREAM = Dashboard(
    name="upstream",
    title="One upstream or model",
    help="Slow to begin or slow to go on, how streams end and why, and for whom. Choose an upstream, a model or a tenant "
    "above. Points on graphs are single streams.",
    rows=(_SLOW, _BROKEN, _FOR_WHOM, _MORE, _CALLS),
)
