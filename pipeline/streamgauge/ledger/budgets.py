"""Budgets of tenants, models, attributes and others for a month: what is spent, and what the month will have cost at its end.

A budget's file is TOML:

    timezone = "Europe/Berlin"  # of the months; UTC without it
    [[budget]]
    tenant = "search"           # or another of BUDGET_KEYS, or an attribute, as in feature = "chat"
    month_usd = 500

The forecast goes on as the month went so far: what is spent, divided by the part of the month that has passed. Streams
without a price or without usage are in no cost; their numbers stand beside it.
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from decimal import Decimal, InvalidOperation
from pathlib import Path

from streamgauge.core.safe_values import is_attribute_name
from streamgauge.core.toml_text import NotTomlError, parse_toml
from streamgauge.errors import UsageFault
from streamgauge.ledger.contract import ALL_RECORDS, KEYS, Filter, Reader
from streamgauge.ledger.cost import COST_DIGITS, usd
from streamgauge.ledger.row import COLUMNS
from streamgauge.ledger.zones import is_zone

# The keys of a ledger that a budget may be for, besides attributes. The others have a value for each stream, or no text.
BUDGET_KEYS = (
    "tenant", "model", "request_model", "response_model", "upstream", "dialect", "endpoint", "tap", "credential_id",
    "service_tier",
)  # fmt: skip
# The parts of a budget (percent) at which a warning is due.
THRESHOLDS = (50, 80, 100)
# The part of a month (us) after which there is a forecast: a day.
_EARLIEST_FORECAST_US = 86_400_000_000
_MAX_USD = Decimal(1_000_000)
# Limits of a file, so that each budget has series of its own (the budgets of labels in metrics/declarations.py).
MAX_BUDGETS = 40
MAX_VALUE_CHARS = 80


@dataclass(frozen=True)
class Budget:
    """A monthly limit (10**-12 USD) of the cost of records with this value of a key: of BUDGET_KEYS, or an attribute."""

    key: str
    value: str
    limit: int


@dataclass(frozen=True)
class BudgetState:
    """A budget at one moment of a month. `spent`, `forecast`: in 10**-12 USD; `forecast` is None on the first day.

    `reached`: the highest of THRESHOLDS that is spent; 0 for none. `without_price`, `without_usage`: streams in no cost.
    """

    budget: Budget
    spent: int
    forecast: int | None
    streams: int
    without_price: int
    without_usage: int

    @property
    def reached(self) -> int:
        """The highest threshold (percent) that is spent; 0 for none."""
        return max((part for part in THRESHOLDS if self.spent * 100 >= self.budget.limit * part), default=0)

    @property
    def spent_usd(self) -> str:
        """The amount spent, as a decimal string."""
        return usd(self.spent)

    @property
    def forecast_usd(self) -> str | None:
        """The forecast, as a decimal string."""
        return None if self.forecast is None else usd(self.forecast)


@dataclass(frozen=True)
class Budgets:
    """A file of budgets. `timezone`: the IANA name of the zone whose months they are of."""

    budgets: tuple[Budget, ...]
    timezone: str = "UTC"


def load_budgets(path: Path, content: bytes | None = None) -> Budgets:
    """Reads a file of budgets, or its earlier `content`. Raises UsageFault, with a sentence that names the budget."""
    try:
        known = parse_toml(path.read_bytes() if content is None else content, Decimal)
    except OSError as error:
        raise UsageFault(f"the budgets {path} cannot be read: {error.strerror}") from None
    except NotTomlError as error:
        raise UsageFault(f"the budgets {path} are not valid TOML: {error}") from None
    entries, timezone = known.get("budget"), known.get("timezone", "UTC")
    if not known.keys() - {"timezone"}:
        raise UsageFault(f"the budgets {path} hold no budget: write a table [[budget]] for each")
    if not set(known) <= {"budget", "timezone"} or not isinstance(entries, list):
        raise UsageFault(f"the budgets {path} hold [[budget]] and timezone, and nothing else")
    if not isinstance(timezone, str) or not is_zone(timezone):
        raise UsageFault(f"the budgets {path}: timezone is not the name of a time zone, such as Europe/Berlin")
    if len(entries) > MAX_BUDGETS:
        raise UsageFault(f"the budgets {path} hold {len(entries)} budgets: at most {MAX_BUDGETS} are allowed")
    budgets = [_budget(f"the budgets {path}: budget {number}", entry) for number, entry in enumerate(entries, 1)]
    if len({(budget.key, budget.value) for budget in budgets}) != len(budgets):
        raise UsageFault(f"the budgets {path}: two budgets have the same key and value")
    return Budgets(tuple(budgets), timezone)


def _budget(where: str, entry: object) -> Budget:
    if not isinstance(entry, dict) or len(entry) != 2 or "month_usd" not in entry:
        raise UsageFault(f'{where} must have month_usd and one key, as in tenant = "search"')
    ((key, value),) = ((key, value) for key, value in entry.items() if key != "month_usd")
    if not (key in BUDGET_KEYS or (is_attribute_name(key) and key not in KEYS and key not in COLUMNS)):
        raise UsageFault(
            f"{where}: {key[:64]} is no key of a budget: use {', '.join(BUDGET_KEYS)}, or the name of an attribute"
        )
    if not isinstance(value, str) or not value:
        raise UsageFault(f"{where}: the value of {key} is no text")
    if len(value) > MAX_VALUE_CHARS:
        raise UsageFault(f"{where}: the value of {key} has more than {MAX_VALUE_CHARS} characters")
    limit = entry["month_usd"]
    try:
        amount = Decimal(limit) if isinstance(limit, int | str | Decimal) and not isinstance(limit, bool) else None
    except InvalidOperation:
        amount = None
    if amount is None or not amount.is_finite() or not 0 < amount <= _MAX_USD:
        raise UsageFault(f"{where}: month_usd must be a number of USD above 0, at most {_MAX_USD}")
    return Budget(key, value, int(amount.scaleb(COST_DIGITS)))


def budget_states(
    reader: Reader, budgets: Sequence[Budget], month: tuple[int, int], now_us: int, chosen: Filter = ALL_RECORDS
) -> list[BudgetState]:
    """The state of each budget. `month`: the first moments of it and of the next month (us since 1970,
    UTC).

    `chosen`: the tenants by credential_id, and the time zone. Raises LedgerUnavailableError.
    """
    begin, end = month
    in_month = replace(chosen, since_us=begin, until_us=end)
    totals = {key: _by_value(reader, key, in_month) for key in dict.fromkeys(budget.key for budget in budgets)}
    passed = min(max(now_us - begin, 0), end - begin)
    states = []
    for budget in budgets:
        spent, streams, without_price, without_usage = totals[budget.key].get(budget.value, (0, 0, 0, 0))
        forecast = spent * (end - begin) // passed if passed >= _EARLIEST_FORECAST_US else None
        states.append(BudgetState(budget, spent, forecast, streams, without_price, without_usage))
    return states


def _by_value(reader: Reader, key: str, chosen: Filter) -> dict[object, tuple[int, int, int, int]]:
    if key not in BUDGET_KEYS and not reader.has_attribute(key):
        return {}
    return {
        total.keys[0]: (total.cost or 0, total.streams, total.without_price, total.without_usage)
        for total in reader.totals([key], chosen)
    }
