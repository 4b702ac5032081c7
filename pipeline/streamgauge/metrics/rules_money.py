"""Alerts on money: costs, prices, budgets and the audit of the bill."""

from streamgauge.metrics.rules import Alert, Durations, RuleGroup, share_of

_SPENT = "max by (budget_key, budget_value) (streamgauge_budget_spent_usd)"
_LIMIT = "max by (budget_key, budget_value) (streamgauge_budget_limit_usd)"
_OF_BUDGET = "the budget of {{ $labels.budget_key }} {{ $labels.budget_value }}"

# An audit a month, and some days until the bill is there.
OVERDUE_DAYS = 35
# The least share of the billed tokens that taps have to see.
COVERED = 0.95


def group(durations: Durations) -> RuleGroup:
    """The alerts on money. All are tickets: a bill can wait until the next day."""
    return RuleGroup("streamgauge-money", (*_costs(durations), *_budgets(), *_audits(durations)), "usage")


def _costs(durations: Durations) -> list[Alert]:
    hour, day, six = durations(60), durations(24 * 60), durations(6 * 60)
    now = f"sum by (upstream) (increase(streamgauge_upstream_cost_usd_total[{hour}]))"
    before = f"sum by (upstream) (increase(streamgauge_upstream_cost_usd_total[{day}] offset {hour})) / 24"
    priced = f'sum by (upstream) (increase(streamgauge_usage_sources_total{{source!="absent"}}[{six}]))'
    # An own server has no price that could be missing.
    sold = 'cost_unknown!="no_seller"'
    unpriced = f"sum by (upstream) (increase(streamgauge_unpriced_streams_total{{{sold}}}[{six}]))"
    return [
        Alert(
            "CostAnomaly",
            f"{now} > 3 * ({before})\nand\n{now} >= 5",
            15,
            "ticket",
            '{{ $labels.upstream }} cost {{ $value | printf "%.2f" }} USD in the last hour, over three times the usual',
            "The usual is the mean hour of the day before. A loop of an agent, a new client, a prompt cache that is no "
            'longer read, or a dearer model: the dashboard "Usage and cost" shows which.',
        ),
        Alert(
            "PricesMissing",
            f"{share_of(unpriced, priced)} > 0.05\nand\n{unpriced} >= 20",
            5,
            "ticket",
            "{{ $value | humanizePercentage }} of the streams of {{ $labels.upstream }} with usage have no known price",
            "No cost includes them. streamgauge_unpriced_streams_total has their models and the reasons; --prices takes "
            "their prices, or names the seller whose prices hold.",
        ),
    ]


def _budgets() -> list[Alert]:
    spent = f"{_SPENT}\n  / {_LIMIT}"
    unknown = "Streams without usage or without a price are in no cost: streamgauge_budget_unknown_streams counts them."
    return [
        Alert(
            name,
            f"{spent} >= {above:g}{'' if below is None else f' < {below:g}'}",
            5,
            "ticket",
            f"{{{{ $value | humanizePercentage }}}} of {_OF_BUDGET} is spent",
            unknown,
        )
        for name, above, below in (
            ("BudgetHalfSpent", 0.5, 0.8),
            ("BudgetAlmostSpent", 0.8, 1.0),
            ("BudgetSpent", 1.0, None),
        )
    ] + [
        Alert(
            "BudgetWillNotLast",
            f"max by (budget_key, budget_value) (streamgauge_budget_forecast_usd)\n  / {_LIMIT} > 1\nunless\n{spent} >= 1",
            60,
            "ticket",
            f"At this pace {{{{ $value | humanizePercentage }}}} of {_OF_BUDGET} will be spent at the end of the month",
            f"The forecast goes on as the month went so far. {unknown}",
        ),
    ]


def _audits(durations: Durations) -> list[Alert]:
    return [
        Alert(
            "BillDisagrees",
            "streamgauge_audit_agrees == 0",
            5,
            "ticket",
            "The last audit does not agree with the bill",
            "`streamgauge audit list` shows the kept audits, `streamgauge audit show` the causes and the streams of each "
            "difference.",
            "audit list",
        ),
        Alert(
            "BilledStreamsUnseen",
            f"streamgauge_audit_coverage_ratio < {COVERED:g}",
            5,
            "ticket",
            "Only {{ $value | humanizePercentage }} of the tokens that {{ $labels.provider }} billed have a record",
            "Some traffic goes to the provider without a tap, taps did not capture it, or a key is used elsewhere.",
        ),
        Alert(
            "AuditOverdue",
            f"streamgauge_audit_age_seconds > {OVERDUE_DAYS * 86_400}",
            60,
            "ticket",
            "The last audit of the bill is {{ $value | humanizeDuration }} old",
            "`streamgauge audit --save` keeps one. It may have been scheduled, and fail.",
        ),
        Alert(
            "LedgerCannotBeRead",
            f"sum by (instance) (increase(streamgauge_ledger_read_failures_total[{durations(15)}])) > 0",
            15,
            "ticket",
            "{{ $labels.instance }} cannot read budgets and audits from its ledger",
            "Gauges of budgets and audits are absent meanwhile, so their alerts cannot fire. The log has the reason.",
        ),
    ]
