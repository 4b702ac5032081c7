"""Usage and cost: tokens by kind, money, budgets and audits, the prompt cache, and what is left of rate limits."""

from grafana_foundation_sdk.models.dashboard import Threshold

from dashboards.source.dashboard import Dashboard, Row
from dashboards.source.panel import (
    GREEN,
    RED,
    UNJUDGED,
    YELLOW,
    Column,
    Query,
    Table,
    Tile,
    TimeSeries,
)
from dashboards.source.queries import (
    EACH,
    INPUT,
    OUTPUT,
    TOP,
    USD,
    an_hour,
    gauge,
    increase,
    most,
    rate,
    ratio,
    share,
)
from streamgauge.metrics.rules_money import COVERED, OVERDUE_DAYS
from streamgauge.metrics.table import SIDES

_NONE = "no usage reported"
_NO_PRICE, _NO_BUDGET, _NO_AUDIT = "no price known", "no budget is set", "no audit was kept"
_BY_BUDGET = "budget_key, budget_value"
_BY_MODEL = "upstream, model"
_INPUTS, _OUTPUTS = f'kind=~"{INPUT}"', f'kind=~"{OUTPUT}"'
_CACHED = 'kind="input_cached"'


def _most(name: str, by: str) -> str:
    return most(lambda window: rate(name, by=by, window=window), by)


def _most_money(by: str) -> str:
    return most(lambda window: an_hour("cost_usd_total", by, window=window), by)


def _cache_share(window: str) -> str:
    """By model. A model that reports no cached tokens has no series: that is not 0."""
    cached, inputs = (rate("usage_tokens_total", kinds, by="model", window=window) for kinds in (_CACHED, _INPUTS))
    return ratio(cached, inputs)


def _whole_cache_share() -> str:
    """A ratio of sums, so that long prompts weigh more. Of models that report no cached tokens no input counts."""
    cached, inputs = (increase("usage_tokens_total", kinds, by=_BY_MODEL) for kinds in (_CACHED, _INPUTS))
    return ratio(f"sum({cached})", f"sum({inputs} and {cached})")


def _headroom(by: str) -> str:
    return f"{gauge('rate_limit_remaining', by=by, of='min')} / ({gauge('rate_limit_limit', by=by, of='max')} > 0)"


_TOTALS = Row(
    "Tokens",
    (
        Tile(
            title="Tokens in the time range",
            help="Input and output tokens that providers reported.",
            unit="short",
            height=8,
            no_value=_NONE,
            thresholds=UNJUDGED,
            queries=(
                Query(increase("usage_tokens_total", _INPUTS), "input"),
                Query(increase("usage_tokens_total", _OUTPUTS), "output"),
            ),
        ),
        TimeSeries(
            title="Tokens by kind",
            help="Tokens per second that providers reported. The kinds are disjoint: their sum is input and output.",
            unit="short",
            width=10,
            stacked=True,
            no_value=_NONE,
            queries=(Query(rate("usage_tokens_total", by="kind"), "{{kind}}"),),
        ),
        TimeSeries(
            title="Tokens by tenant",
            help="Tokens per second that providers reported, of all kinds, of the five tenants with the most in the time "
            "range. Without --metric-attribute tenant all streams are one tenant without a name.",
            unit="short",
            no_value=_NONE,
            queries=(Query(_most("usage_tokens_total", "tenant"), "tenant {{tenant}}"),),
        ),
        Table(
            title="Tokens by model",
            help="Tokens in the time range that providers reported, by disjoint kinds. A kind that was reported as 0 is 0.",
            unit="short",
            no_value="not reported",
            queries=(
                Query(increase("usage_tokens_total", by=_BY_MODEL), "{{model}} all"),
                *(
                    Query(increase("usage_tokens_total", f'kind="{kind}"', by=_BY_MODEL), f"{{{{model}}}} {kind}")
                    for kind in (*INPUT.split("|"), *OUTPUT.split("|"))
                ),
            ),
            labels={"upstream": Column("upstream", width=110), "model": Column("model", width=230)},
            values=(
                Column("all", "short", decimals=1),
                *(
                    Column(kind.replace("_", " "), "short", decimals=1)
                    for kind in (*INPUT.split("|"), *OUTPUT.split("|"))
                ),
            ),
        ),
    ),
)

_COST = Row(
    "Cost",
    (
        Tile(
            title="Cost in the time range",
            help="What providers reported, else what the tokens cost by list prices or yours. Streams without usage or price "
            "are in no cost.",
            unit=USD,
            height=8,
            no_value=_NO_PRICE,
            thresholds=UNJUDGED,
            alerts=("CostAnomaly",),
            queries=tuple(Query(increase("cost_usd_total", f'side="{side}"'), side) for side in SIDES),
        ),
        TimeSeries(
            title="Cost per hour by model",
            help="What the reported tokens cost, in USD for an hour at this rate, of the five models with the most in the "
            "time range.",
            unit=USD,
            width=10,
            no_value=_NO_PRICE,
            queries=(Query(_most_money("model"), "{{model}}"),),
        ),
        TimeSeries(
            title="Cost per hour by tenant",
            help="What the reported tokens cost, in USD for an hour at this rate, of the five tenants with the most in the "
            "time range. Without --metric-attribute tenant all streams are one tenant without a name.",
            unit=USD,
            no_value=_NO_PRICE,
            queries=(Query(_most_money("tenant"), "tenant {{tenant}}"),),
        ),
        Table(
            title="Cost by model",
            help="What the reported tokens cost in the time range. cache saved: what reading from the prompt cache saved; "
            "cache added: what writing to it cost above other input. without price: streams that no cost includes.",
            unit=USD,
            no_value=_NO_PRICE,
            queries=(
                Query(increase("cost_usd_total", by=_BY_MODEL), "{{model}} cost"),
                Query(increase("cost_usd_total", 'side="input"', by=_BY_MODEL), "{{model}} input"),
                Query(increase("cost_usd_total", 'side="output"', by=_BY_MODEL), "{{model}} output"),
                Query(increase("cache_saved_usd_total", by=_BY_MODEL), "{{model}} saved"),
                Query(increase("cache_added_usd_total", by=_BY_MODEL), "{{model}} added"),
                Query(increase("unpriced_streams_total", by=_BY_MODEL), "{{model}} without price"),
            ),
            labels={"upstream": Column("upstream"), "model": Column("model")},
            values=(
                *(Column(name, USD) for name in ("cost", "input", "output", "cache saved", "cache added")),
                Column("without price", "short", decimals=0),
            ),
        ),
        TimeSeries(
            title="Cost per hour by upstream",
            help="What the reported tokens cost, in USD for an hour at this rate, of the five upstreams with the most in the "
            "time range. The alert on unusual costs uses it.",
            unit=USD,
            no_value=_NO_PRICE,
            alerts=("CostAnomaly",),
            queries=(
                Query(
                    most(lambda window: an_hour("upstream_cost_usd_total", "upstream", window=window), "upstream"),
                    "{{upstream}}",
                ),
            ),
        ),
        TimeSeries(
            title="What the prompt cache saves",
            help="In USD for an hour at this rate: what reading from it saves, and what writing to it costs above other "
            "input.",
            unit=USD,
            no_value="no cache read or written",
            queries=(
                Query(an_hour("cache_saved_usd_total", ""), "saved"),
                Query(an_hour("cache_added_usd_total", ""), "added"),
            ),
        ),
        TimeSeries(
            title="Streams without a price",
            help="Streams per second with usage, in no cost, with the reason: an unknown model, tier, region or kind of "
            "tokens; no_seller is an upstream without a list price, such as an own server.",
            unit="reqps",
            no_value="no stream without a price",
            alerts=("PricesMissing",),
            queries=(Query(rate("unpriced_streams_total", by="cost_unknown"), "{{cost_unknown}}"),),
        ),
    ),
)

_BILL = Row(
    "Budgets and the bill",
    (
        Table(
            title="Budgets",
            help="What the records of this month cost, for each budget of --budgets. unknown: streams without usage or "
            "price, which no cost includes.",
            unit=USD,
            width=16,
            no_value=_NO_BUDGET,
            alerts=("BudgetHalfSpent", "BudgetAlmostSpent", "BudgetSpent", "BudgetWillNotLast"),
            queries=(
                Query(
                    ratio(
                        gauge("budget_spent_usd", by=_BY_BUDGET, of="max"),
                        gauge("budget_limit_usd", by=_BY_BUDGET, of="max"),
                    ),
                    "{{budget_key}} {{budget_value}} share",
                ),
                Query(gauge("budget_spent_usd", by=_BY_BUDGET, of="max"), "{{budget_key}} {{budget_value}} spent"),
                Query(gauge("budget_limit_usd", by=_BY_BUDGET, of="max"), "{{budget_key}} {{budget_value}} budget"),
                Query(
                    gauge("budget_forecast_usd", by=_BY_BUDGET, of="max"), "{{budget_key}} {{budget_value}} forecast"
                ),
                Query(
                    gauge("budget_unknown_streams", by=_BY_BUDGET, of="max"), "{{budget_key}} {{budget_value}} unknown"
                ),
            ),
            labels={"budget_key": Column("key", width=100), "budget_value": Column("value")},
            values=(
                Column(
                    "share",
                    "percentunit",
                    (Threshold(None, GREEN), Threshold(0.8, YELLOW), Threshold(1.0, RED)),
                    width=90,
                ),
                *(Column(name, USD) for name in ("spent", "budget", "forecast at the end")),
                Column("unknown", "short", decimals=0, width=90),
            ),
        ),
        Tile(
            title="Billed tokens that taps saw",
            help="By provider, in the last kept audit.",
            unit="percentunit",
            width=8,
            height=8,
            no_value=_NO_AUDIT,
            decimals=1,
            alerts=("BilledStreamsUnseen",),
            thresholds=(Threshold(None, RED), Threshold(COVERED, GREEN)),
            queries=(Query(gauge("audit_coverage_ratio", by="provider", of="min"), "{{provider}}"),),
        ),
        Tile(
            title="Money that no cause explains",
            help="Of the last kept audit: what the bill has more than the records, and no cause explains.",
            unit=USD,
            no_value=_NO_AUDIT,
            thresholds=UNJUDGED,
            queries=(Query(gauge("audit_unexplained_usd", of="max"), "money"),),
        ),
        Tile(
            title="Tokens that no cause explains",
            help="Of the last kept audit: what the bill has more than the records, and no cause explains.",
            unit="short",
            no_value=_NO_AUDIT,
            thresholds=UNJUDGED,
            queries=(Query(gauge("audit_unexplained_tokens", of="max"), "tokens"),),
        ),
        Tile(
            title="The bill agrees",
            help="1 if the last kept audit agrees with the bill, else 0.",
            unit="bool_yes_no",
            no_value=_NO_AUDIT,
            alerts=("BillDisagrees",),
            thresholds=(Threshold(None, RED), Threshold(1.0, GREEN)),
            queries=(Query(gauge("audit_agrees", of="min"), "agrees"),),
        ),
        Tile(
            title="Age of the last audit",
            help="Time since an audit was kept (`streamgauge audit --save`).",
            unit="s",
            no_value=_NO_AUDIT,
            alerts=("AuditOverdue",),
            thresholds=(Threshold(None, GREEN), Threshold(OVERDUE_DAYS * 86_400.0, RED)),
            queries=(Query(gauge("audit_age_seconds", of="min"), "age"),),
        ),
        TimeSeries(
            title="Failed reads of budgets and audits",
            help="Failures to read them from the ledger. Their gauges are absent then.",
            unit="short",
            width=24,
            height=6,
            alerts=("LedgerCannotBeRead",),
            queries=(Query(increase("ledger_read_failures_total", by="instance", window=EACH), "{{instance}}"),),
        ),
    ),
)

_CACHE = Row(
    "Prompt cache",
    (
        Tile(
            title="Cache share in the time range",
            help="Share of the input tokens that providers read from their prompt caches, of the models that report it.",
            unit="percentunit",
            height=8,
            no_value=_NONE,
            decimals=1,
            thresholds=UNJUDGED,
            alerts=("CacheShareFallen",),
            queries=(Query(_whole_cache_share(), "read from the cache"),),
        ),
        TimeSeries(
            title="Cache share by model",
            help="Share of the input tokens that providers read from their prompt caches, of the five models with the most "
            "input in the time range. A model without a line reports no number of cached tokens.",
            unit="percentunit",
            width=10,
            no_value=_NONE,
            alerts=("CacheShareFallen",),
            queries=(
                Query(
                    most(
                        _cache_share,
                        "model",
                        lambda window: rate("usage_tokens_total", _INPUTS, by="model", window=window),
                    ),
                    "{{model}}",
                ),
            ),
        ),
        TimeSeries(
            title="Streams that do not report their cache",
            help="Share of the streams with usage that report no number of cached tokens.",
            unit="percentunit",
            no_value=_NONE,
            queries=(
                Query(
                    "1 - "
                    + share(
                        rate("usage_reported_streams_total", _CACHED),
                        rate("usage_reported_streams_total", 'kind="input_uncached"'),
                    ),
                    "not reported",
                ),
            ),
        ),
    ),
    collapsed=True,
)

_REPORTS = Row(
    "How complete the numbers are",
    (
        TimeSeries(
            title="Where token counts come from",
            help="Streams per second. final: the provider reported usage at the end; partial: the stream broke after a "
            "report; absent: no report, so that tokens and cost lack these streams.",
            unit="reqps",
            stacked=True,
            alerts=("UsageMissing",),
            queries=(Query(rate("usage_sources_total", by="source"), "{{source}}"),),
        ),
        TimeSeries(
            title="Streams that report each kind of token",
            help="Streams per second whose usage reports a kind of token, 0 included.",
            unit="reqps",
            no_value=_NONE,
            queries=(Query(rate("usage_reported_streams_total", by="kind"), "{{kind}}"),),
        ),
        TimeSeries(
            title="Reports that cannot be right",
            help="Bad values, totals that do not match, parts above their whole, and parts that overlap, per second.",
            unit="reqps",
            queries=(Query(rate("usage_anomalies_total", by="kind"), "report {{kind}}"),),
        ),
    ),
    collapsed=True,
)

_HEADROOM = Row(
    "Rate limits",
    (
        TimeSeries(
            title="Rate limits that are nearly used up",
            help="Share of the provider's rate limit that is left, of the API key with the least, and of the five upstreams "
            "with the least at the end of the time range.",
            unit="percentunit",
            maximum=1,
            no_value="no provider reports its limits",
            alerts=("RateLimitHeadroomLow",),
            queries=(Query(f"bottomk({TOP}, min by (upstream) ({_headroom('upstream, kind')}))", "{{upstream}}"),),
        ),
        Table(
            title="Rate limits by API key",
            help="The newest limits that providers reported for each API key. credential_id is the key's keyed hash, as in "
            "the records.",
            unit="short",
            width=16,
            no_value="no provider reports its limits",
            queries=(
                Query(_headroom("upstream, credential_id, kind"), "{{credential_id}} left"),
                Query(
                    gauge("rate_limit_remaining", by="upstream, credential_id, kind", of="min"),
                    "{{credential_id}} left",
                ),
                Query(
                    gauge("rate_limit_limit", by="upstream, credential_id, kind", of="max"), "{{credential_id}} limit"
                ),
                Query(
                    gauge("rate_limit_reset_seconds", by="upstream, credential_id, kind", of="max"),
                    "{{credential_id}} reset",
                ),
            ),
            labels={name: Column(name) for name in ("upstream", "credential_id", "kind")},
            values=(
                Column(
                    "share left", "percentunit", (Threshold(None, RED), Threshold(0.1, YELLOW), Threshold(0.25, GREEN))
                ),
                Column("left", "short"),
                Column("limit", "short"),
                Column("whole again in", "s"),
            ),
            ascending=True,
        ),
    ),
    collapsed=True,
)

USAGE = Dashboard(
    name="usage",
    title="Usage and cost",
    help="Tokens by disjoint kinds, what they cost, budgets, the audit of the bill, the prompt cache, and what is left of "
    "the providers' rate limits.",
    rows=(_COST, _TOTALS, _BILL, _CACHE, _HEADROOM, _REPORTS),
)
