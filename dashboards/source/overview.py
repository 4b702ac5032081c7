"""The overview: whether it is slow or broken, since when and for whom, and whether the picture can be trusted."""

from collections.abc import Callable
from typing import NamedTuple

from grafana_foundation_sdk.models.dashboard import Threshold

from dashboards.source.dashboard import Dashboard, Row, link_variables
from dashboards.source.panel import (
    AGO,
    ALERTS,
    GREEN,
    NONE_AT_ALL,
    RED,
    SOME,
    YELLOW,
    Column,
    Query,
    Table,
    Tile,
    TimeSeries,
    at_least,
    at_most,
)
from dashboards.source.queries import (
    OUTPUT,
    RANGE,
    USD,
    WEEK,
    an_hour,
    broke,
    gauge,
    increase,
    quantile,
    rate,
    seldom,
    share,
    within_tpot,
    within_ttft,
)
from streamgauge.metrics.objectives import Objectives
from streamgauge.metrics.rule_files import alerts, rule_groups
from streamgauge.metrics.rules_slo import BROKEN
from streamgauge.metrics.rules_streams import without_usage

_OBJECTIVES = Objectives()
# The share of streams within the objective of the time per output token. No alert has it.
_TPOT_SHARE = 0.95
_ALERT_LABELS = ("severity", "job", "instance", "upstream", "model")

# A query for a time that ends so long ago.
_Ago = Callable[[str], str]


class _Compared(NamedTuple):
    """A number of now and of a week ago. width: of its tile."""

    title: str
    help: str
    unit: str
    query: _Ago
    thresholds: tuple[Threshold, ...]
    alert: str = ""
    width: int = 6


def _tile(compared: _Compared) -> Tile:
    return Tile(
        title=compared.title,
        help=f"{compared.help} Over the time range, and over the same time a week ago.",
        unit=compared.unit,
        queries=(Query(compared.query(""), "now"), Query(compared.query(WEEK), AGO)),
        thresholds=compared.thresholds,
        alerts=(compared.alert,) if compared.alert else (),
        decimals=None if compared.unit == "short" else 2,
        width=compared.width,
    )


def _streams(ago: str, by: str = "") -> str:
    return f"{rate('streams_total', by=by, window=RANGE, ago=ago)} > 0"


def _without_usage(ago: str) -> str:
    """As the alert UsageMissing counts them: by upstream."""
    absent, every, completed = (
        increase(name, *where, by="upstream", ago=ago)
        for name, *where in (
            ("usage_sources_total", 'source="absent"'),
            ("stream_outcomes_total",),
            ("stream_outcomes_total", 'outcome="completed"'),
        )
    )
    return f"sum({without_usage(absent, every, completed)})"


_TILES = (
    _Compared("Streams per second", "Finished streams of any outcome.", "reqps", _streams, SOME),
    _Compared(
        "First token within the objective",
        "Share of the streams with a token whose first one, reasoning included, came within the variable TTFT objective. "
        f"Red below {_OBJECTIVES.ttft_share:.0%}.",
        "percentunit",
        lambda ago: within_ttft(ago=ago),
        at_least(_OBJECTIVES.ttft_share),
        "TimeToFirstTokenHigh",
    ),
    _Compared(
        "Time per token within the objective",
        "Share of the streams with final usage whose mean time per output token is within the variable TPOT objective. "
        f"Red below {_TPOT_SHARE:.0%}.",
        "percentunit",
        lambda ago: within_tpot(ago=ago),
        at_least(_TPOT_SHARE),
    ),
    _Compared(
        "Broke after 200",
        "Share of the streams that began, and ended by an error event, a reset, a timeout, or without their end marker. "
        f"Error statuses and refused connections are in neither number. Red from {1 - _OBJECTIVES.unbroken:.1%} on.",
        "percentunit",
        lambda ago: broke(ago=ago),
        at_most(1 - _OBJECTIVES.unbroken),
        "StreamsBreakMidway",
    ),
    _Compared(
        "Error statuses",
        "Share of the streams that the provider answered with an error status, such as 429 or 503.",
        "percentunit",
        lambda ago: share(
            increase("streams_total", 'outcome="http_error"', ago=ago), increase("streams_total", ago=ago)
        ),
        (Threshold(None, GREEN), Threshold(0.05, YELLOW), Threshold(0.5, RED)),
        "ProviderAnswersErrors",
        width=5,
    ),
    _Compared(
        "Usage missing",
        "Share of the completed streams that report no token usage: token counts are too low by these. "
        f"Red from {1 - _OBJECTIVES.usage:.0%} on.",
        "percentunit",
        lambda ago: share(_without_usage(ago), increase("stream_outcomes_total", 'outcome="completed"', ago=ago)),
        at_most(1 - _OBJECTIVES.usage),
        "UsageMissing",
        width=5,
    ),
    _Compared(
        "Money an hour",
        "What the reported tokens cost, in USD for an hour at the rate of this time range. Yellow from 10, red from 100 on: "
        "edit the panel to what is usual for you.",
        USD,
        lambda ago: an_hour("cost_usd_total", "", window=RANGE, ago=ago),
        (Threshold(None, GREEN), Threshold(10.0, YELLOW), Threshold(100.0, RED)),
        "CostAnomaly",
        width=5,
    ),
    _Compared(
        "Reads dropped",
        "Captured reads that were discarded. Their records are incomplete, so the other numbers lack them.",
        "short",
        lambda ago: seldom(increase("tap_reads_dropped_total", ago=ago)),
        NONE_AT_ALL,
        "TapDropsReads",
        width=4,
    ),
    _Compared(
        "Incomplete records",
        "Share of the records with an incomplete capture. No latency includes them.",
        "percentunit",
        lambda ago: share(increase("incomplete_records_total", ago=ago), increase("stream_outcomes_total", ago=ago)),
        at_most(0.01),
        width=5,
    ),
)

_MODELS = (
    _Compared("streams/s", "", "reqps", lambda ago: _streams(ago, "model"), ()),
    _Compared(
        "TTFT p95",
        "",
        "s",
        lambda ago: quantile(0.95, "time_to_first_token_seconds", by="model", window=RANGE, ago=ago),
        at_most(_OBJECTIVES.ttft),
    ),
    _Compared(
        "TPOT p95",
        "",
        "s",
        lambda ago: quantile(0.95, "inter_token_latency_seconds", by="model", window=RANGE, ago=ago),
        (),
    ),
    _Compared(
        "broke",
        "",
        "percentunit",
        lambda ago: share(
            increase("streams_total", f'outcome=~"{BROKEN}"', by="model", ago=ago),
            increase("streams_total", 'outcome!="http_error"', by="model", ago=ago),
        ),
        at_most(1 - _OBJECTIVES.unbroken),
    ),
    _Compared(
        "tokens/s",
        "",
        "short",
        lambda ago: rate("usage_tokens_total", f'kind=~"{OUTPUT}"', by="model", window=RANGE, ago=ago),
        (),
    ),
    _Compared("USD/h", "", USD, lambda ago: an_hour("cost_usd_total", "model", window=RANGE, ago=ago), ()),
)


def _models() -> Table:
    """A row for each model. A click on a model filters by it."""
    columns = [(column, ago) for column in _MODELS for ago in ("", WEEK)]
    names = [f"{column.title}, 1w ago" if ago else column.title for column, ago in columns]
    return Table(
        title="Models",
        help="A row for each model: over the time range, and over the same time a week ago. A click on a model filters this "
        "dashboard by it, or opens its latency or its errors. broke: share of the streams that got no connection, or broke "
        "after they had begun. TTFT: time to the first token of any kind, reasoning included. TPOT: time per output token, "
        "without hidden reasoning. tokens/s: output tokens, as reported. USD/h: what they cost in an hour.",
        queries=tuple(Query(column.query(ago), name) for (column, ago), name in zip(columns, names, strict=True)),
        labels={"model": Column("model", width=230, links=_model_links())},
        values=tuple(
            Column(name, column.unit, () if ago else column.thresholds, decimals=2, width=145 if ago else 115)
            for (column, ago), name in zip(columns, names, strict=True)
        ),
        height=9,
    )


def _model_links() -> dict[str, str]:
    """From a model to dashboards that are filtered by it."""
    chosen = f"{link_variables('model')}&var-model=${{__data.fields.model:percentencode}}"
    titles = {"overview": "Filter by this model", "latency": "Its latency", "errors": "Its errors"}
    return {title: f"/d/streamgauge-{name}?{chosen}" for name, title in titles.items()}


def _quantiles(histogram: str) -> tuple[Query, ...]:
    """Median and p95 of a histogram, and its p95 a week ago."""
    return (
        Query(quantile(0.5, histogram), "p50", exemplars=True),
        Query(quantile(0.95, histogram), "p95"),
        Query(quantile(0.95, histogram, ago=WEEK), f"p95 {AGO}"),
    )


def _alert_table() -> Table:
    """The alerts of our rules, whatever the variables select: an alert on what is missing has no labels to select by."""
    ours = "|".join(sorted({alert.name for alert in alerts(rule_groups())}))
    labels = ", ".join(("alertname", *_ALERT_LABELS))
    states, times = ALERTS
    state = f'max by ({labels}, alertstate) ({states}{{alertname=~"{ours}"}})'
    since = f'max by ({labels}) ({times}{{alertname=~"{ours}"}})'
    return Table(
        title="Alerts",
        help="Alerts of the whole installation that are pending or fire. docs/runbooks has a page for each.",
        queries=(Query(f"{state} * on ({labels}) group_left () {since} * 1000", "{{alertname}} {{alertstate}}"),),
        labels={
            "alertname": Column("alert"),
            "alertstate": Column("state"),
            **{label: Column(label) for label in _ALERT_LABELS},
        },
        values=(Column("since", "dateTimeFromNow"),),
        height=6,
        no_value="no alert is pending or fires",
    )


OVERVIEW = Dashboard(
    name="overview",
    title="Overview",
    help="Is it slow, is it broken, since when and for whom, and can the picture be trusted? Each number has the same time "
    "a week ago beside it.",
    hours=1,
    rows=(
        Row("Now and a week ago", tuple(map(_tile, _TILES))),
        Row("For whom", (_models(), _alert_table())),
        Row(
            "Since when",
            (
                TimeSeries(
                    title="Streams by outcome",
                    help="Finished streams per second. Every outcome except completed is a stream that failed or was cut "
                    "short.",
                    unit="reqps",
                    stacked=True,
                    queries=(Query(rate("streams_total", by="outcome"), "{{outcome}}"),),
                ),
                TimeSeries(
                    title="Time to first token",
                    help="Time from the first byte of the request to the first generated output, reasoning included, and its "
                    "p95 a week ago.",
                    unit="s",
                    alerts=("TimeToFirstTokenHigh",),
                    queries=_quantiles("time_to_first_token_seconds"),
                ),
                TimeSeries(
                    title="Time per output token",
                    help="(last token - first token) / (output tokens - 1) of each stream, by the usage that the provider "
                    "reported, without reasoning that was hidden or summarised; and its p95 a week ago.",
                    unit="s",
                    queries=_quantiles("inter_token_latency_seconds"),
                ),
                TimeSeries(
                    title="Broke after 200, by upstream",
                    help="Share of the streams that began and broke.",
                    unit="percentunit",
                    alerts=("StreamsBreakMidway",),
                    queries=(Query(broke("upstream", "$__rate_interval"), "{{upstream}}"),),
                ),
                TimeSeries(
                    title="Open and silent streams",
                    help="Streams that have started and not ended. Silent: event streams without a token event for more than "
                    "--silent-seconds.",
                    unit="short",
                    alerts=("StreamsSilent",),
                    queries=(
                        Query(gauge("open_streams", by="job"), "open {{job}}"),
                        Query(seldom(gauge("silent_streams", by="upstream")), "silent {{upstream}}"),
                    ),
                ),
                TimeSeries(
                    title="Tokens by kind",
                    help="Tokens that providers reported, per second. The kinds are disjoint: their sum is input and output.",
                    unit="short",
                    stacked=True,
                    no_value="no usage reported",
                    queries=(Query(rate("usage_tokens_total", by="kind"), "{{kind}}"),),
                ),
            ),
        ),
    ),
)
