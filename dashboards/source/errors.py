"""Errors: how streams end, and why."""

from dashboards.source.dashboard import Dashboard, Row
from dashboards.source.panel import Column, Query, Table, TimeSeries
from dashboards.source.queries import EACH, broke, increase, rate, seldom, share
from streamgauge.metrics.rules_slo import BROKEN

_NO_ERRORS = "no errors"

_OUTCOMES = Row(
    "How streams end",
    (
        TimeSeries(
            title="Streams by outcome",
            help="Finished streams per second that did not complete.",
            unit="reqps",
            stacked=True,
            queries=(Query(rate("streams_total", 'outcome!="completed"', by="outcome"), "{{outcome}}"),),
        ),
        TimeSeries(
            title="Broke after 200, by upstream",
            help="Share of the streams that began, and ended by an error event, a reset, a timeout, or without their "
            "end marker.",
            unit="percentunit",
            alerts=("StreamsBreakMidway", "StreamsTruncated"),
            queries=(Query(broke("upstream", EACH), "{{upstream}}"),),
        ),
        TimeSeries(
            title="Broke, by model",
            help="Share of the streams without an error status that got no connection, or broke after they had begun.",
            unit="percentunit",
            queries=(
                Query(
                    share(
                        rate("streams_total", f'outcome=~"{BROKEN}"', by="model"),
                        rate("streams_total", 'outcome!="http_error"', by="model"),
                    ),
                    "{{model}}",
                ),
            ),
        ),
        TimeSeries(
            title="Share of each outcome, by upstream",
            help="Share of each outcome except completed among the finished streams of an upstream.",
            unit="percentunit",
            queries=(
                Query(
                    rate("stream_outcomes_total", 'outcome!="completed"', by="upstream, outcome")
                    + f" / on (upstream) group_left () ({rate('stream_outcomes_total', by='upstream')} > 0)",
                    "{{upstream}} {{outcome}}",
                ),
            ),
        ),
        TimeSeries(
            title="Streams without a token event",
            help="Finished without any generated output. No latency of tokens includes them. streaming: whether the response "
            "was an event stream.",
            unit="reqps",
            no_value="every stream had a token",
            queries=(
                Query(
                    seldom(rate("streams_without_token_total", by="outcome, streaming")),
                    "no token {{outcome}} streaming {{streaming}}",
                ),
            ),
        ),
        TimeSeries(
            title="Streams by API format",
            help="Finished streams per second by their API format and outcome, those that completed left out.",
            unit="reqps",
            queries=(
                Query(rate("streams_total", 'outcome!="completed"', by="dialect, outcome"), "{{dialect}} {{outcome}}"),
            ),
        ),
    ),
)

_CAUSES = Row(
    "Why",
    (
        TimeSeries(
            title="Errors by phase",
            help="Streams per second that an error ended. before_stream: an error status. in_stream: an error event "
            "after the status 200. transport: the connection failed.",
            unit="reqps",
            alerts=("ProviderAnswersErrors",),
            queries=(Query(rate("failed_streams_total", by="upstream, phase"), "{{upstream}} {{phase}}"),),
        ),
        TimeSeries(
            title="Transport errors by cause",
            help="Connections to an upstream that failed, before the response or in the middle of it.",
            unit="reqps",
            alerts=("UpstreamUnreachable",),
            queries=(Query(rate("transport_errors_total", by="upstream, cause"), "{{upstream}} {{cause}}"),),
        ),
        TimeSeries(
            title="Error responses of the relay",
            help="Requests per second that the relay answered itself: it rejected them, or their upstream failed before it "
            "responded.",
            unit="reqps",
            no_value=_NO_ERRORS,
            queries=(Query(seldom(rate("tap_refused_total", by="instance, reason")), "relay {{instance}} {{reason}}"),),
        ),
        Table(
            title="Errors by type",
            help="Errors in the time range by upstream, phase and the provider's own type, code or status.",
            unit="short",
            width=12,
            no_value=_NO_ERRORS,
            queries=(
                Query(f"{increase('stream_errors_total', by='upstream, phase, error_type')} > 0", "{{error_type}}"),
            ),
            labels={name: Column(name) for name in ("upstream", "phase", "error_type")},
            values=(Column("errors", "short", decimals=0),),
        ),
        TimeSeries(
            title="Errors by type over time",
            help="Streams per second that an error ended, by the provider's own type, code or status.",
            unit="reqps",
            width=12,
            no_value=_NO_ERRORS,
            queries=(
                Query(seldom(rate("stream_errors_total", by="phase, error_type")), "error {{phase}} {{error_type}}"),
            ),
        ),
    ),
)

_FINISHES = Row(
    "Finish reasons",
    (
        TimeSeries(
            title="Finish reasons",
            help="Streams per second by normalised finish reason. unknown: the provider's reason has no normal form.",
            unit="reqps",
            stacked=True,
            queries=(Query(rate("finish_reasons_total", by="finish_reason"), "{{finish_reason}}"),),
        ),
        Table(
            title="Finish reasons by model",
            help="Streams in the time range by model and normalised finish reason. length: the answer was cut at its "
            "limit of tokens. content_filter: the provider withheld it.",
            unit="short",
            width=16,
            queries=(
                Query(
                    f"{increase('finish_reasons_total', by='model, finish_reason')} > 0", "{{model}} {{finish_reason}}"
                ),
            ),
            labels={"model": Column("model"), "finish_reason": Column("finish reason")},
            values=(Column("streams", "short", decimals=0),),
        ),
    ),
)

ERRORS = Dashboard(
    name="errors",
    title="Errors",
    help="How streams end, by outcome, phase, type and finish reason.",
    rows=(_OUTCOMES, _CAUSES, _FINISHES),
)
