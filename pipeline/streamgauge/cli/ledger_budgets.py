"""`streamgauge ledger budgets`: what each budget has spent in a month, with a forecast for its end."""

import time
from datetime import UTC, datetime, timedelta
from pathlib import Path

from streamgauge.cli.commands import Arguments
from streamgauge.cli.ledger_filter import filter_of, month_of
from streamgauge.cli.ledgers import ledger_to_read
from streamgauge.cli.tables import MAX_WIDTH, print_rows
from streamgauge.cli.tenants_file import read_tenants
from streamgauge.errors import DONE, FOUND
from streamgauge.ledger.budgets import BudgetState, budget_states, load_budgets
from streamgauge.ledger.cost import usd
from streamgauge.ledger.zones import zone_of
from streamgauge.settings.declarations import Settings

_COLUMNS = (
    "key", "value", "month", "budget_usd", "spent_usd", "forecast_usd", "reached_percent", "streams", "without_price",
    "without_usage",
)  # fmt: skip


def run(settings: Settings, args: Arguments) -> int:
    """Prints every budget of the file. Returns FOUND if one is spent."""
    budgets = load_budgets(Path(args.file))
    timezone = args.timezone or budgets.timezone
    zone = zone_of(timezone)
    now_us = time.time_ns() // 1_000
    now = datetime(1970, 1, 1, tzinfo=UTC) + timedelta(microseconds=now_us)
    name = args.month or f"{now.astimezone(zone):%Y-%m}"
    month = month_of(name, zone)
    chosen = filter_of(None, None, None, timezone=timezone, tenants=read_tenants(settings.tenants))
    with ledger_to_read(settings) as ledger:
        states = budget_states(ledger, budgets.budgets, month, now_us, chosen)
    print_rows(_COLUMNS, [_row(state, name) for state in states], args.output, MAX_WIDTH)
    return FOUND if any(state.reached >= 100 for state in states) else DONE


def _row(state: BudgetState, month: str) -> list[object]:
    budget = state.budget
    return [
        budget.key,
        budget.value,
        month,
        usd(budget.limit),
        state.spent_usd,
        state.forecast_usd,
        state.reached,
        state.streams,
        state.without_price,
        state.without_usage,
    ]
