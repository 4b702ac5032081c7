"""The rows of the table about money: costs of streams, budgets, and the last kept audit. `table.py` joins them."""

from streamgauge.metrics.declarations import Metric, MetricSource, counter, gauge

_STREAM, _WORKER = MetricSource.STREAM, MetricSource.WORKER

# `undivided`: a cost that the provider reported, which it does not divide into sides.
SIDES = ("input", "output", "undivided")

COST = counter(
    _STREAM, "cost_usd",
    "What streams cost: what the provider reported, else their tokens by list prices or the operator's (--prices), by side. "
    "Requests that resume or poll one response count once in each process that observes any of them, and once in the ledger.",
    "upstream", "model", "side", unit="USD",
)  # fmt: skip
UPSTREAM_COST = counter(
    _STREAM, "upstream_cost_usd",
    "The cost of streams by side, for alerts: all series of an upstream start at 0 before its first stream.",
    "upstream", "side", unit="USD", starts={"side": SIDES},
)  # fmt: skip
CACHE_SAVED = counter(
    _STREAM, "cache_saved_usd",
    "What reading input from a prompt cache saved, compared with the price of other input.",
    "upstream", "model", unit="USD",
)  # fmt: skip
CACHE_ADDED = counter(
    _STREAM, "cache_added_usd",
    "What writing input to a prompt cache cost above the price of other input.",
    "upstream", "model", unit="USD",
)  # fmt: skip
UNPRICED = counter(
    _STREAM, "unpriced_streams",
    "Streams with usage whose cost is not known, by reason: no_seller is an upstream without a known seller, such as an own "
    "server. No cost includes them.",
    "upstream", "model", "cost_unknown",
)  # fmt: skip

_OF_BUDGETS = ("budget_key", "budget_value")
BUDGET_LIMIT = gauge(_WORKER, "budget_limit_usd", "What a budget (--budgets) allows in a month.", "USD", *_OF_BUDGETS)
BUDGET_SPENT = gauge(
    _WORKER, "budget_spent_usd", "What the ledger's records of this month cost, for each budget.", "USD", *_OF_BUDGETS,
)  # fmt: skip
BUDGET_FORECAST = gauge(
    _WORKER, "budget_forecast_usd",
    "What the month will have cost at its end if it goes on as before, for each budget. Absent on a month's first day.",
    "USD", *_OF_BUDGETS,
)  # fmt: skip
BUDGET_UNKNOWN = gauge(
    _WORKER, "budget_unknown_streams",
    "Streams of this month without usage or without a price, for each budget: what is spent does not include them.",
    "1", *_OF_BUDGETS,
)  # fmt: skip

AUDIT_AGE = gauge(_WORKER, "audit_age_seconds", "Time since the last audit was kept in the ledger.", "seconds")
AUDIT_AGREES = gauge(_WORKER, "audit_agrees", "1 if the last kept audit agrees with the bill, else 0.", "1")
AUDIT_TOKENS = gauge(
    _WORKER, "audit_unexplained_tokens",
    "Tokens of the last kept audit that no cause explains: theirs less ours. Absent if its invoices have no tokens.", "1",
)  # fmt: skip
AUDIT_USD = gauge(
    _WORKER, "audit_unexplained_usd",
    "Money of the last kept audit that no cause explains: theirs less ours. Absent if a price or the bill's money is "
    "missing, also in a part of the lines.",
    "USD",
)  # fmt: skip
AUDIT_COVERAGE = gauge(
    _WORKER, "audit_coverage_ratio",
    "The share of the billed tokens that taps saw, by provider, in the last kept audit. Absent if it is unknown.",
    "1", "provider",
)  # fmt: skip
LEDGER_READ_FAILURES = counter(
    _WORKER, "ledger_read_failures", "Failed reads of budgets and audits from the ledger. Their gauges are absent then."
)

MONEY_METRICS: tuple[Metric, ...] = (
    COST, UPSTREAM_COST, CACHE_SAVED, CACHE_ADDED, UNPRICED, BUDGET_LIMIT, BUDGET_SPENT, BUDGET_FORECAST, BUDGET_UNKNOWN,
    AUDIT_AGE, AUDIT_AGREES, AUDIT_TOKENS, AUDIT_USD, AUDIT_COVERAGE, LEDGER_READ_FAILURES,
)  # fmt: skip
