"""Budgets: their file, what is spent, and the forecast."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from streamgauge.errors import UsageFault
from streamgauge.ledger import Cost, Filter, Ledger, LedgerRow, open_ledger
from streamgauge.ledger.budgets import MAX_BUDGETS, Budget, Budgets, BudgetState, budget_states, load_budgets
from streamgauge.ledger.zones import month_of, zone_of
from tests.each import each
from tests.ledger.rows import make_row
from tests.metrics.records import ABSENT

USD = 10**12
MARCH = month_of("2026-03", zone_of("UTC"))
MARCH_ONLY = Filter(*MARCH)
DAY_US = 86_400_000_000


class OneDollar:
    """Each record costs one USD, but for those of the model `free`."""

    def cost_of(self, row: LedgerRow) -> Cost | None:
        return None if row.model == "free" or row.input_tokens is None else Cost(USD, 0, "test", None)


@pytest.fixture
def ledger(tmp_path: Path) -> Iterator[Ledger]:
    with open_ledger(f"sqlite:///{tmp_path}/ledger.sqlite", prices=OneDollar()) as opened:
        rows: list[dict[str, Any]] = [
            {"tenant": "search"},
            {"tenant": "search", "response_model": "free"},
            {"tenant": "search", "usage": ABSENT},
            {"tenant": "search", "started_at": "2026-02-28T23:59:59Z"},
            {"tenant": "search", "started_at": "2026-03-31T23:59:59Z"},
            {"credential_id": "key", "attributes": {"feature": "chat"}},
        ]
        opened.insert([make_row(number, **changes) for number, changes in enumerate(rows)])
        yield opened


REFUSED = ("day", "month", "attempt", "request_digest", "response_id", "trace_id", "input_tokens", "price_source")


def test_a_budget_may_be_for_a_key_of_the_ledger(ledger: Ledger, tmp_path: Path) -> None:
    path = tmp_path / "budgets.toml"
    values = {"model": "gpt-4o-2024-08-06", "upstream": "nimbus", "dialect": "openai-chat", "credential_id": "key"}
    path.write_text("".join(f'[[budget]]\n{key} = "{value}"\nmonth_usd = 9\n' for key, value in values.items()))
    states = budget_states(ledger, load_budgets(path).budgets, MARCH, MARCH[1])
    found = {state.budget.key: state.spent // USD for state in states}
    by_key = {key: {total.keys[0]: total.cost for total in ledger.totals([key], MARCH_ONLY)} for key in values}
    assert found == {key: (by_key[key][value] or 0) // USD for key, value in values.items()}
    assert min(found.values()) > 0


def test_spent_forecast_and_what_is_in_no_cost(ledger: Ledger) -> None:
    budgets = [Budget("tenant", "search", 4 * USD), Budget("feature", "chat", USD), Budget("tenant", "none", USD)]
    search, chat, none = budget_states(ledger, budgets, MARCH, MARCH[0] + 15 * DAY_US + DAY_US // 2)
    assert search == BudgetState(budgets[0], 2 * USD, 4 * USD, 4, 1, 1)
    assert (search.reached, search.spent_usd, search.forecast_usd) == (50, "2", "4")
    assert (chat.spent, chat.forecast, chat.reached) == (USD, 2 * USD, 100)
    assert (none.spent, none.reached, none.streams) == (0, 0, 0)


def test_there_is_no_forecast_on_the_first_day_and_at_the_end_it_is_what_was_spent(ledger: Ledger) -> None:
    budgets = [Budget("tenant", "search", 4 * USD)]
    assert budget_states(ledger, budgets, MARCH, MARCH[0] + DAY_US - 1)[0].forecast is None
    for later in (MARCH[1], MARCH[1] + 100 * DAY_US):
        assert budget_states(ledger, budgets, MARCH, later)[0].forecast == 2 * USD


def test_tenants_are_mapped_and_an_attribute_that_no_record_has_spends_nothing(ledger: Ledger) -> None:
    budgets = [Budget("tenant", "chat", USD), Budget("session", "x", USD)]
    chat, session = budget_states(ledger, budgets, MARCH, MARCH[1], Filter(tenants=(("key", "chat"),)))
    assert (chat.spent, session.spent) == (USD, 0)


@pytest.mark.parametrize(
    ("spent", "reached"), [(0, 0), (49, 0), (50, 50), (79, 50), (80, 80), (99, 80), (100, 100), (500, 100)]
)
def test_thresholds(spent: int, reached: int) -> None:
    assert BudgetState(Budget("tenant", "a", 100), spent, None, 0, 0, 0).reached == reached


def test_a_file_of_budgets(tmp_path: Path) -> None:
    path = tmp_path / "budgets.toml"
    path.write_text(
        '[[budget]]\ntenant = "search"\nmonth_usd = 0.1\n[[budget]]\nfeature = "chat"\nmonth_usd = "12.50"\n'
    )
    search, chat = Budget("tenant", "search", USD // 10), Budget("feature", "chat", 12 * USD + USD // 2)
    assert load_budgets(path) == Budgets((search, chat))
    path.write_text(f'timezone = "Europe/Berlin"\n{path.read_text()}')
    assert load_budgets(path) == Budgets((search, chat), "Europe/Berlin")


@each(
    [
        ("", r"hold no budget: write a table \[\[budget\]\]"),
        ('timezone = "UTC"', "hold no budget"),
        *((f'[[budget]]\n{key} = "a"\nmonth_usd = 1', f"{key} is no key of a budget") for key in REFUSED),
        ('[[budget]]\ntenant = ""\nmonth_usd = 1', "no text"),
        ("a = 1" + "0" * 5_000, "not valid TOML"),
        ("a = " + "[" * 100_000, "not valid TOML"),
        ("budget = 5", "hold"),
        ("[[budget]]\nmonth_usd = 5", "budget 1 must have month_usd and one key"),
        ('[[budget]]\ntenant = "a"', "budget 1 must have month_usd"),
        ('[[budget]]\ntenant = "a"\nfeature = "b"\nmonth_usd = 5', "one key"),
        ("[[budget]]\ntenant = 5\nmonth_usd = 5", "no text"),
        ('[[budget]]\n"A b" = "a"\nmonth_usd = 5', "is no key of a budget"),
        ('[[budget]]\ntenant = "a"\nmonth_usd = -5', "above 0"),
        ('[[budget]]\ntenant = "a"\nmonth_usd = nan', "above 0"),
        ('[[budget]]\ntenant = "a"\nmonth_usd = "many"', "above 0"),
        ('[[budget]]\ntenant = "a"\nmonth_usd = true', "above 0"),
        ('[[budget]]\ntenant = "a"\nmonth_usd = 1\n[[budget]]\ntenant = "a"\nmonth_usd = 2', "same key"),
        ("[[budget", "not valid TOML"),
        ('timezone = "Mars"\n[[budget]]\ntenant = "a"\nmonth_usd = 1', "name of a time zone"),
        ("timezone = 1\n[[budget]]\ntenant = 'a'\nmonth_usd = 1", "name of a time zone"),
        (f'[[budget]]\ntenant = "{"a" * 81}"\nmonth_usd = 1', "more than 80 characters"),
        (
            "".join(f'[[budget]]\ntenant = "{one}"\nmonth_usd = 1\n' for one in range(MAX_BUDGETS + 1)),
            f"at most {MAX_BUDGETS} are allowed",
        ),
    ]
)
def test_a_wrong_file_is_refused_with_the_budget(case: tuple[str, str], tmp_path: Path) -> None:
    text, why = case
    path = tmp_path / "budgets.toml"
    path.write_text(text)
    with pytest.raises(UsageFault, match=why):
        load_budgets(path)


def test_a_missing_file_is_named(tmp_path: Path) -> None:
    with pytest.raises(UsageFault, match=r"budgets\.toml cannot be read: No such file"):
        load_budgets(tmp_path / "budgets.toml")
