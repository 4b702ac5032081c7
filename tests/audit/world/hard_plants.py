"""Plants in a company's traffic: errors of a bill with and without a cause, in a cell or for a whole model."""

from collections.abc import Callable, Iterable
from dataclasses import replace
from datetime import timedelta
from decimal import Decimal

from tests.audit.world.bill import Bill, BillRow
from tests.audit.world.errors import Expected, Plan, Where, is_across_midnight
from tests.audit.world.traffic import TENANTS, Call, costs_of, in_cell, later


def _change(plan: Plan, call: Call, **changes: object) -> None:
    plan.used.add(call.id)
    plan.world.change(call, **changes)


def _some(plan: Plan, where: Where, most: int) -> list[Call]:
    return [plan.pick(where) for _ in range(plan.rng.randint(1, most))]


def late(plan: Plan, where: Where) -> None:
    """Streams that were open at midnight are billed on the next day."""
    for call in in_cell(plan.world, *where):
        if call.usage == "final" and is_across_midnight(call) and call.id not in plan.used:
            _change(plan, call, billed_on=later(where.day, 1), cause="late_across_midnight")


def missing(plan: Plan, where: Where) -> None:
    for call in _some(plan, where, 2):
        _change(plan, call, billed=False, cause="missing_from_invoice")


def missing_day(plan: Plan, where: Where) -> None:
    """Nothing of a key and model is billed on a day."""
    for call in in_cell(plan.world, *where):
        if call.billed and call.seen:
            is_ours = call.usage != "absent"
            _change(plan, call, billed=False, cause="missing_from_invoice" if is_ours else None)


def coverage(plan: Plan, where: Where) -> None:
    for call in _some(plan, where, 4):
        uncached, cached, written, output = call.parts
        parts = uncached + cached + written, 0, 0, output
        _change(plan, call, parts=parts, reasoning=0, seen=False, cause="coverage")


def tier(plan: Plan, where: Where) -> None:
    for call in _some(plan, where, 2):
        _change(plan, call, billed_tier="priority", cause="tier")


def other_key(plan: Plan, where: Where) -> None:
    """All that a key used of a model on a day is billed for another key."""
    (other,) = (tenant for tenant in TENANTS if tenant != where.tenant)
    for call in in_cell(plan.world, *where):
        if call.billed and call.seen:
            if call.usage == "absent":
                _change(plan, call, billed=False, cause=None)
            else:
                parts = (*call.parts[:3], 0) if call.usage == "partial" else None
                _change(plan, call, billed_tenant=other, billed_parts=parts, cause="other_key")


def retries(plan: Plan, where: Where) -> None:
    """Attempts that broke before their first token are billed as those that succeeded."""
    for call in _some(plan, where, 2):
        uncached, cached, written, output = call.parts
        parts = uncached + cached + written, 0, 0, output
        _change(plan, call, parts=parts, reasoning=0)
        first = replace(call, parts=parts, reasoning=0, usage="absent", has_token=False)
        first = replace(first, id=f"{call.id[:-12]}{plan.rng.getrandbits(48):012x}")
        first = replace(first, start=call.start - timedelta(seconds=20), seconds=3.0, outcome="upstream_reset")
        plan.world.calls.append(replace(first, cause="retries_billed_twice"))


def aborted(plan: Plan, where: Where) -> None:
    """The streams of a model that ended before their usage are billed with what they generated, from a day on."""
    for call in [one for one in plan.world.calls if one.model == where.model and one.day >= where.day]:
        if call.seen and call.outcome in ("client_abort", "truncated") and call.id not in plan.used:
            _change(plan, call, billed=True, billed_parts=None, cause="aborted_without_usage")


def time_zone(plan: Plan, where: Where) -> None:
    """The invoice counts the days of UTC-8."""
    plan.day_of = lambda call: (call.start - timedelta(hours=8)).strftime("%Y-%m-%d")


def _rows(bill: Bill, where: Where, *, whole_model: bool) -> list[BillRow]:
    if whole_model:
        found = [one for one in bill.rows if one.model == where.model and one.day >= where.day]
    else:
        found = [one for one in bill.rows if (one.day, one.model, one.tenant, one.tier) == tuple(where)]
    return [one for one in found if one.tier != "batch"]


def _counted(cause: str, change: Callable[[BillRow], tuple[int, ...]]) -> Callable[[Plan, Where], None]:
    """All rows of a model are counted in another way, from a day on."""

    def plant(plan: Plan, where: Where) -> None:
        def after(bill: Bill) -> None:
            for row in _rows(bill, where, whole_model=True):
                parts = change(row)
                costs = costs_of(row.model, row.tier, parts)
                added = tuple(new - old for new, old in zip(parts, row.parts, strict=True))
                usd = sum(costs, Decimal(0)) - sum(row.costs, Decimal(0))
                bill.change(row, parts=parts, costs=costs)
                _expect(plan, row, cause, added, usd)

        plan.after.append((0, after))

    return plant


def _expect(plan: Plan, row: BillRow, cause: str, parts: tuple[int, ...], usd: Decimal) -> None:
    plan.expected.append(Expected(Where(row.day, row.model, row.tenant, row.tier), cause, parts, usd, frozenset()))


def _cached_as_uncached(row: BillRow) -> tuple[int, ...]:
    uncached, cached, written, output = row.parts
    return uncached + cached, cached, written, output


def _reasoning_twice(row: BillRow) -> tuple[int, ...]:
    return (*row.parts[:3], row.parts[3] + sum(call.reasoning for call in row.calls))


cache = _counted("cache_counted_differently", _cached_as_uncached)
reasoning = _counted("reasoning_counted_differently", _reasoning_twice)


def duplicate(plan: Plan, where: Where) -> None:
    def after(bill: Bill) -> None:
        rows = _rows(bill, where, whole_model=False)
        possible = [one for one in rows if any(one.parts) and (len(rows) == 1 or is_plain_row(plan, one))]
        for row in possible[:1]:
            bill.rows.append(row)
            _expect(plan, row, "duplicate_lines", row.parts, sum(row.costs, Decimal(0)))

    plan.after.append((3, after))


def is_plain_row(plan: Plan, row: BillRow) -> bool:
    """Whether no plant concerns the row of a call."""
    return all(call.id not in plan.used and call.cause is None for call in row.calls)


def _odd(parts: Callable[[Plan], tuple[int, int, int, int]]) -> Callable[[Plan, Where], None]:
    """Tokens without a cause."""

    def plant(plan: Plan, where: Where) -> None:
        added = parts(plan)

        def after(bill: Bill) -> None:
            rows = [row for row in _rows(bill, where, whole_model=False) if row.parts[0] > 100 and row.parts[3] > 100]
            for row in sorted(rows, key=lambda one: one.parts)[-1:]:
                changed = tuple(old + new for old, new in zip(row.parts, added, strict=True))
                costs = costs_of(row.model, row.tier, changed)
                usd = sum(costs, Decimal(0)) - sum(costs_of(row.model, row.tier, row.parts), Decimal(0))
                bill.change(row, parts=changed, costs=costs)
                _expect(plan, row, ODD, added, usd)

        plan.after.append((1, after))

    return plant


ODD = "odd"


def _one_token(plan: Plan) -> tuple[int, int, int, int]:
    sign = plan.rng.choice((1, -1))
    return plan.rng.choice(((sign, 0, 0, 0), (0, 0, 0, sign)))


def _some_tokens(plan: Plan) -> tuple[int, int, int, int]:
    count = plan.rng.randint(2, 90)
    return plan.rng.choice(((count, 0, 0, -count), (-count, 0, 0, 3), (0, 0, 0, -count), (0, 0, 0, count)))


def price(plan: Plan, where: Where, hour: int = 0, models: Iterable[str] = ()) -> None:
    """All prices of a model rise by a fifth, from an hour of a day on."""
    names = {where.model, *models}

    def after(bill: Bill) -> None:
        rows = [one for one in bill.rows if one.model in names and one.day >= where.day]
        for row in [one for one in rows if one.tier != "batch"]:  # the money of the Batch API is at any price its own
            calls = row.calls if row.day > where.day else [one for one in row.calls if one.start.hour >= hour]
            if row.day > where.day or not hour:
                more = tuple(cost / 5 for cost in row.costs)
            else:
                made = [costs_of(row.model, row.tier, call.billed_parts or call.parts) for call in calls]
                more = tuple(sum((one[place] for one in made), Decimal(0)) / 5 for place in range(4))
            costs = tuple(old + new for old, new in zip(row.costs, more, strict=True))
            bill.change(row, costs=costs)
            _expect(plan, row, "price_changed", (0,) * 4, sum(more, Decimal(0)))

    plan.after.append((4, after))


def price_at_noon(plan: Plan, where: Where) -> None:
    price(plan, where, hour=12)


def discount(plan: Plan, where: Where) -> None:
    """All prices of a provider change at once, and no line of the invoice says so."""
    price(plan, where, models={call.model for call in plan.world.calls})


def wrong_unit(plan: Plan, where: Where) -> None:
    def after(bill: Bill) -> None:
        for row in _rows(bill, where, whole_model=True):
            bill.change(row, costs=tuple(100 * cost for cost in row.costs))
            _expect(plan, row, "wrong_unit", (0,) * 4, 99 * sum(row.costs, Decimal(0)))

    plan.after.append((2, after))


HARD_PLANTS: dict[str, Callable[[Plan, Where], None]] = {
    "late": late,
    "missing": missing,
    "missing day": missing_day,
    "coverage": coverage,
    "tier": tier,
    "other key": other_key,
    "retries": retries,
    "time zone": time_zone,
    "aborted": aborted,
    "cache": cache,
    "reasoning": reasoning,
    "duplicate": duplicate,
    "one token": _odd(_one_token),
    "odd tokens": _odd(_some_tokens),
    "price": price,
    "price at noon": price_at_noon,
    "discount": discount,
    "wrong unit": wrong_unit,
}
