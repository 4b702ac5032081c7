"""The overview: is it slow, does it break, for whom, since when, and what does it cost. It fits one screen."""

from collections.abc import Callable
from typing import NamedTuple

from grafana_foundation_sdk.models.dashboard import Threshold

from dashboards.source.dashboard import PAGE, Dashboard, Row, link_variables
from dashboards.source.panel import (
    AGO,
    ALERTS,
    GREEN,
    NONE_AT_ALL,
    OBJECTIVE,
    P95_AGO,
    RED,
    UNJUDGED,
    YELLOW,
    Column,
    Query,
    Table,
    Thresholds,
    Tile,
    TimeSeries,
)
from dashboards.source.queries import (
    RANGE,
    USD,
    WEEK,
    an_hour,
    broke,
    increase,
    most,
    objective,
    quantile,
    rate,
    seldom,
    share,
    slow,
)
from streamgauge.metrics.rule_files import alerts, rule_groups
from streamgauge.metrics.rules_slo import BROKEN, FAST_ENOUGH, MAY_BE_SLOW, MAY_BREAK

_SUBJECT = ("upstream", "model", "instance")
_FIRST = "time_to_first_token_seconds"
_NO_RULES = "no rules in Prometheus"
# Of a share of what an objective allows: yellow once half is used up, red if it is exceeded.
_ALLOWED: Thresholds = (Threshold(None, GREEN), Threshold(0.5, YELLOW), Threshold(1.0, RED))
_OF_ALLOWED = "times allowed"

# A query for a time that ends so long ago.
_Ago = Callable[[str], str]


def _tile(title: str, help: str, unit: str, query: _Ago, thresholds: Thresholds = UNJUDGED, **more: object) -> Tile:
    """A number of now, and of the same time a week ago."""
    return Tile(
        title=title,
        help=f"{help} Over the time range, and over the same time a week ago.",
        unit=unit,
        queries=(Query(query(""), "now"), Query(query(WEEK), AGO)),
        thresholds=thresholds,
        width=4,
        height=4,
        **more,  # type: ignore[arg-type]  # the further members of a tile
    )


def _judged(title: str, help: str, query: _Ago, allowed: str, alert: str) -> Tile:
    """A bad share, and how much that is of the share that the objective in the rules allows."""
    return Tile(
        title=title,
        help=f"{help} Red: more than the objective of the alert rules allows. Over the time range, and over the same time a "
        "week ago.",
        unit="percentunit",
        queries=(
            Query(f"{query('')} / on () {allowed}", _OF_ALLOWED),
            Query(query(""), "of the streams"),
            Query(query(WEEK), AGO),
        ),
        thresholds=_ALLOWED,
        plain=("of the streams",),
        units={_OF_ALLOWED: "short"},
        alerts=(alert,),
        no_value=_NO_RULES,
        decimals=1,
        width=5,
        height=4,
    )


def _completed(ago: str) -> str:
    """Of the streams that their clients did not leave."""
    return share(
        increase("streams_total", 'outcome="completed"', ago=ago),
        increase("streams_total", 'outcome!="client_abort"', ago=ago),
    )


_TILES = (
    _tile(
        "Streams a minute",
        "Finished streams of any outcome.",
        "short",
        lambda ago: f"60 * {rate('streams_total', window=RANGE, ago=ago)}",
        decimals=1,
    ),
    _tile(
        "Completed streams",
        "Share of the streams that came to their end, without those that their clients left.",
        "percentunit",
        _completed,
        (Threshold(None, RED), Threshold(0.95, YELLOW), Threshold(0.99, GREEN)),
        decimals=1,
        alerts=("ProviderAnswersErrors",),
    ),
    _judged(
        "Slow first tokens",
        "Share of the streams whose first token, reasoning included, came later than the objective.",
        lambda ago: slow(ago=ago),
        objective(MAY_BE_SLOW),
        "TimeToFirstTokenHigh",
    ),
    _judged(
        "Broken streams",
        "Share of the streams that the provider accepted and that then ended by an error, a reset, a timeout, or without "
        "their end. Their HTTP status was 200.",
        lambda ago: broke(ago=ago),
        objective(MAY_BREAK),
        "StreamsBreakMidway",
    ),
    _tile(
        "Cost an hour",
        "What the reported tokens cost, in USD for an hour at this rate. Usage and cost has the share without a price.",
        USD,
        lambda ago: an_hour("cost_usd_total", "", window=RANGE, ago=ago),
        decimals=2,
        alerts=("CostAnomaly",),
        no_value="no price known",
    ),
)

_LOST = Tile(
    title="Lost data",
    help="Pieces of captured streams that were discarded in the time range. Their records are incomplete, so the other "
    "numbers lack them. Pipeline has the reasons.",
    unit="short",
    queries=(Query(seldom(increase("tap_reads_dropped_total")), "pieces"),),
    thresholds=NONE_AT_ALL,
    alerts=("TapDropsReads",),
    width=2,
    height=4,
)

_GRAPHS = (
    TimeSeries(
        title="Time to first token, reasoning included",
        help="Time from the request to the first generated output: of half of the streams it is below "
        "p50, of 95 % below p95, of 99 % below p99. The objective is that of the alert rules. A point is one stream: its "
        "tooltip leads to it.",
        unit="s",
        width=12,
        height=7,
        alerts=("TimeToFirstTokenHigh",),
        queries=(
            Query(quantile(0.5, _FIRST), "p50"),
            Query(quantile(0.95, _FIRST), "p95"),
            Query(quantile(0.99, _FIRST), "p99", exemplars=True),
            Query(quantile(0.95, _FIRST, ago=WEEK), P95_AGO),
            Query(objective(FAST_ENOUGH), OBJECTIVE),
        ),
    ),
    TimeSeries(
        title="How streams end",
        help="Finished streams per second. Green: completed. Yellow: the client left, which is no error. Purple: the "
        "provider answered with an error status. Red: the stream broke.",
        unit="reqps",
        width=12,
        height=7,
        stacked=True,
        queries=(Query(rate("streams_total", by="outcome"), "{{outcome}}"),),
    ),
    TimeSeries(
        title="Slowest models",
        help="Time to the first token that 95 % of the streams keep, of the five models with the longest one in the time "
        "range.",
        unit="s",
        width=12,
        height=7,
        alerts=("TimeToFirstTokenHigh", "CacheShareFallen"),
        queries=(
            Query(
                most(lambda window: quantile(0.95, _FIRST, by="model", window=window), "model"),
                "{{model}}",
            ),
            Query(objective(FAST_ENOUGH), OBJECTIVE),
        ),
    ),
    TimeSeries(
        title="Broken streams, by upstream",
        help="Share of the accepted streams that broke, of the five upstreams with the highest one in the time range. The "
        "objective is that of the alert rules.",
        unit="percentunit",
        width=12,
        height=7,
        alerts=("StreamsBreakMidway", "StreamsTruncated"),
        queries=(
            Query(most(lambda window: broke("upstream", window), "upstream"), "{{upstream}}"),
            Query(objective(MAY_BREAK), OBJECTIVE),
        ),
    ),
)


class _Number(NamedTuple):
    """A column of the table of models."""

    title: str
    unit: str
    query: str
    thresholds: Thresholds = ()
    decimals: int = 2
    width: int = 90


_MODELS = (
    _Number("streams", "short", f"{increase('streams_total', by='model')} > 0", decimals=0, width=80),
    _Number("first token p50", "s", quantile(0.5, _FIRST, by="model", window=RANGE), width=125),
    _Number("p95", "s", quantile(0.95, _FIRST, by="model", window=RANGE)),
    _Number("p99", "s", quantile(0.99, _FIRST, by="model", window=RANGE)),
    _Number(
        "slow / allowed",
        "short",
        f"{slow('model')} / on () group_left () {objective(MAY_BE_SLOW)}",
        _ALLOWED,
        decimals=1,
        width=115,
    ),
    _Number(
        "broke",
        "percentunit",
        share(
            increase("streams_total", f'outcome=~"{BROKEN}"', by="model"),
            increase("streams_total", 'outcome!="http_error"', by="model"),
        ),
    ),
    _Number("cost an hour", USD, an_hour("cost_usd_total", "model", window=RANGE), width=110),
)


def _models() -> Table:
    """A row for each model. A click on a model filters by it."""
    return Table(
        title="Models",
        help="A row for each model, over the time range. A click on a model opens its dashboard, or filters this one. "
        "slow / allowed: above 1, more first tokens were slow than the objective allows. broke: share of the "
        "streams that got no connection, or broke after they had begun. No cost: no price is known.",
        queries=tuple(Query(column.query, f"{{{{model}}}} {column.title}") for column in _MODELS),
        labels={"model": Column("model", width=200, links=_model_links())},
        values=tuple(
            Column(one.title, one.unit, one.thresholds, decimals=one.decimals, width=one.width) for one in _MODELS
        ),
        width=14,
        height=8,
    )


def _model_links() -> dict[str, str]:
    """From a model to dashboards that are filtered by it."""
    chosen = f"{link_variables('model')}&var-model=${{__data.fields.model:percentencode}}"
    titles = {"upstream": "Its dashboard", "overview": "Filter by this model", "usage": "Its usage and cost"}
    return {title: f"/d/streamgauge-{name}?{chosen}" for name, title in titles.items()}


def _alert_table() -> Table:
    """The alerts of our rules, whatever the variables select: an alert on what is missing has no labels to select by."""
    ours = "|".join(sorted({alert.name for alert in alerts(rule_groups())}))
    labels = ", ".join(("alertname", "severity", *_SUBJECT))
    states, times = ALERTS
    state = f'max by ({labels}, alertstate) ({states}{{alertname=~"{ours}"}})'
    since = f'max by ({labels}) ({times}{{alertname=~"{ours}"}})'
    subject = ", ".join(f'"{label}"' for label in _SUBJECT)
    of_subject = f'label_join({state} * on ({labels}) group_left () {since} * 1000, "of", " ", {subject})'
    runbook = {"Its runbook": f"${{{PAGE}}}/runbooks/${{__value.text}}"}
    return Table(
        title="Alerts",
        help="Alerts of the whole installation that are pending or fire: of which upstream, model or instance, and since "
        "when. A click on a name opens its runbook.",
        queries=(
            Query(f"max by (alertname, severity, alertstate, of) ({of_subject})", "{{alertname}} {{alertstate}}"),
        ),
        labels={
            "alertname": Column("alert", links=runbook, width=170),
            "severity": Column("severity", width=72),
            "alertstate": Column("state", width=66),
            "of": Column("of", width=200),
        },
        values=(Column("since", "dateTimeFromNow", width=112),),
        width=10,
        height=8,
        no_value="no alert is pending or fires",
    )


OVERVIEW = Dashboard(
    name="overview",
    title="Overview",
    help="Is it slow, does it break, for whom, since when, and what does it cost?",
    hours=1,
    rows=(Row("", (*_TILES, _LOST, *_GRAPHS, _models(), _alert_table())),),
)
