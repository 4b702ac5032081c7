"""Rows of the usage dashboard: what streams cost, budgets, and what the last audit said of the bill."""

from dashboards.source.panel import GREEN, RED, YELLOW, Column, Query, Row, Table, Threshold, Tile, TimeSeries
from dashboards.source.queries import EACH, gauge, increase, rate, ratio, seldom
from streamgauge.metrics.rules_money import COVERED, OVERDUE_DAYS
from streamgauge.metrics.table import SIDES

USD = "currencyUSD"
NO_PRICE = "no price known"
_NO_BUDGET, _NO_AUDIT = "no budget is set", "no audit was kept"
_BY_BUDGET = "budget_key, budget_value"
_BY_MODEL = "upstream, model"
_UNTOLD = (Threshold(None, "blue"),)


def an_hour(name: str, by: str, *where: str, window: str = EACH, ago: str = "") -> str:
    """Money an hour."""
    return f"3600 * {rate(name, *where, by=by, window=window, ago=ago)}"


COST = Row(
    "Cost",
    (
        Tile(
            title="Cost in the time range",
            help="What providers reported, else what the tokens cost by list prices or yours. Streams without usage or price "
            "are in no cost.",
            unit=USD,
            height=8,
            no_value=NO_PRICE,
            thresholds=_UNTOLD,
            alerts=("CostAnomaly",),
            queries=tuple(Query(increase("cost_usd_total", f'side="{side}"'), side) for side in SIDES),
        ),
        TimeSeries(
            title="Cost per hour by model",
            help="What the reported tokens cost, in USD for an hour at this rate.",
            unit=USD,
            width=10,
            stacked=True,
            no_value=NO_PRICE,
            queries=(Query(an_hour("cost_usd_total", "model"), "{{model}}"),),
        ),
        TimeSeries(
            title="Cost per hour by tenant",
            help="What the reported tokens cost, in USD for an hour at this rate. Without --metric-attribute tenant all "
            "streams are one tenant without a name.",
            unit=USD,
            stacked=True,
            no_value=NO_PRICE,
            queries=(Query(an_hour("cost_usd_total", "tenant"), "tenant {{tenant}}"),),
        ),
        Table(
            title="Cost by model",
            help="What the reported tokens cost in the time range. cache saved: what reading from the prompt cache saved; "
            "cache added: what writing to it cost above other input. without price: streams that no cost includes.",
            unit=USD,
            no_value=NO_PRICE,
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
            help="What the reported tokens cost, in USD for an hour at this rate. The alert on unusual costs uses it.",
            unit=USD,
            alerts=("CostAnomaly",),
            queries=(Query(an_hour("upstream_cost_usd_total", "upstream"), "{{upstream}}"),),
        ),
        TimeSeries(
            title="What the prompt cache saves",
            help="In USD for an hour at this rate: what reading from it saves, and what writing to it costs above other "
            "input.",
            unit=USD,
            no_value="no cache read or written",
            queries=(
                Query(an_hour("cache_saved_usd_total", "upstream"), "saved {{upstream}}"),
                Query(an_hour("cache_added_usd_total", "upstream"), "added {{upstream}}"),
            ),
        ),
        TimeSeries(
            title="Streams without a price",
            help="Streams per second with usage, in no cost, with the reason: an unknown model, tier, region or kind of "
            "tokens; no_seller is an upstream without a list price, such as an own server.",
            unit="reqps",
            alerts=("PricesMissing",),
            queries=(
                Query(
                    seldom(rate("unpriced_streams_total", by=f"{_BY_MODEL}, cost_unknown")),
                    "no price {{cost_unknown}} {{upstream}} {{model}}",
                ),
            ),
        ),
    ),
)

BILL = Row(
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
            labels={"budget_key": Column("key"), "budget_value": Column("value")},
            values=(
                Column("share", "percentunit", (Threshold(None, GREEN), Threshold(0.8, YELLOW), Threshold(1.0, RED))),
                *(Column(name, USD) for name in ("spent", "budget", "forecast at the end")),
                Column("unknown", "short", decimals=0),
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
            title="Unexplained money",
            help="Of the last kept audit: theirs less ours, which no cause explains.",
            unit=USD,
            no_value=_NO_AUDIT,
            thresholds=_UNTOLD,
            queries=(Query(gauge("audit_unexplained_usd", by="instance", of="max"), "{{instance}}"),),
        ),
        Tile(
            title="Unexplained tokens",
            help="Of the last kept audit: theirs less ours, which no cause explains.",
            unit="short",
            no_value=_NO_AUDIT,
            thresholds=_UNTOLD,
            queries=(Query(gauge("audit_unexplained_tokens", by="instance", of="max"), "{{instance}}"),),
        ),
        Tile(
            title="The bill agrees",
            help="1 if the last kept audit agrees with the bill, else 0.",
            unit="bool_yes_no",
            no_value=_NO_AUDIT,
            alerts=("BillDisagrees",),
            thresholds=(Threshold(None, RED), Threshold(1.0, GREEN)),
            queries=(Query(gauge("audit_agrees", by="instance", of="min"), "{{instance}}"),),
        ),
        Tile(
            title="Age of the last audit",
            help="Time since an audit was kept (`streamgauge audit --save`).",
            unit="s",
            no_value=_NO_AUDIT,
            alerts=("AuditOverdue",),
            thresholds=(Threshold(None, GREEN), Threshold(OVERDUE_DAYS * 86_400.0, RED)),
            queries=(Query(gauge("audit_age_seconds", by="instance", of="max"), "{{instance}}"),),
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
