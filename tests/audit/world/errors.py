"""Plants errors into a world and its bill, and says what an audit has to find: cause, cell, tokens, dollars, streams."""

import random
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field, replace
from datetime import timedelta
from decimal import Decimal
from typing import NamedTuple
from uuid import UUID

from tests.audit.world.bill import Bill, BillRow, make_bill
from tests.audit.world.traffic import Call, World, costs_of, ids, in_cell, later


class Where(NamedTuple):
    """A cell."""

    day: str
    model: str
    tenant: str
    tier: str


class Expected(NamedTuple):
    """What an audit has to say of a cell."""

    where: Where
    cause: str
    parts: tuple[int, ...]
    usd: Decimal
    streams: frozenset[str]


@dataclass
class Plan:
    """The errors of a world. used: calls that an error concerns already. after: changes of the bill, by the order in
    which they are made."""

    world: World
    rng: random.Random
    expected: list[Expected] = field(default_factory=list)
    used: set[str] = field(default_factory=set)
    after: list[tuple[int, Callable[[Bill], None]]] = field(default_factory=list)
    day_of: Callable[[Call], str] = field(default=lambda call: call.day)

    earliest_hour: int = 0

    def expect(self, where: Where, cause: str, calls: Iterable[Call], sign: int = 1, streams: bool = True) -> None:
        """Expect what some calls used and cost, with a sign."""
        some = list(calls)
        parts = tuple(sign * sum(one.parts[place] for one in some) for place in range(4))
        usd = sign * sum((one.usd for one in some), Decimal(0))
        self.expected.append(Expected(where, cause, parts, usd, ids(some) if streams else frozenset()))

    def pick(self, where: Where, *, across_midnight: bool = False) -> Call:
        """A call of a cell that no error concerns yet."""
        found = [one for one in in_cell(self.world, *where) if one.id not in self.used and one.usage == "final"]
        found = [one for one in found if is_across_midnight(one) == across_midnight]
        found = [one for one in found if one.start.hour >= self.earliest_hour]
        call = self.rng.choice(found)
        self.used.add(call.id)
        return call

    def pick_plain(self, where: Where) -> Call:
        """A call without cache and reasoning: what no record has, no audit can tell apart."""
        call = self.pick(where)
        uncached, _, _, output = call.parts
        return self.world.change(call, parts=(uncached, 0, 0, output), reasoning=0)

    def bill(self, each_call: bool) -> Bill:
        """The bill, with its errors."""
        made = make_bill(self.world, self.day_of, each_call)
        for _, change in sorted(self.after, key=lambda one: one[0]):
            change(made)
        return made


def is_across_midnight(call: Call) -> bool:
    return (call.start + timedelta(seconds=call.seconds)).strftime("%Y-%m-%d") != call.day


Plant = Callable[[Plan, Where], None]


def late_across_midnight(plan: Plan, where: Where) -> None:
    call = plan.pick(where, across_midnight=True)
    after = later(where.day, 1)
    plan.world.change(call, billed_on=after)
    plan.expect(where, "late_across_midnight", [call], -1)
    plan.expect(where._replace(day=after), "late_across_midnight", [call])


def missing_from_invoice(plan: Plan, where: Where) -> None:
    calls = [plan.pick(where), plan.pick(where)]
    for call in calls:
        plan.world.change(call, billed=False)
    plan.expect(where, "missing_from_invoice", calls, -1)


def aborted_without_usage(plan: Plan, where: Where) -> None:
    call = plan.world.change(plan.pick_plain(where), usage="absent", outcome="client_abort")
    plan.expect(where, "aborted_without_usage", [call])


def retries_billed_twice(plan: Plan, where: Where) -> None:
    call = plan.world.change(plan.pick_plain(where), attempt=2)
    first = replace(
        call,
        id=str(UUID(int=UUID(call.id).int ^ 1 << 40)),
        start=call.start - timedelta(seconds=20),
        seconds=3.0,
        usage="absent",
        outcome="upstream_reset",
        has_token=False,
    )
    plan.world.calls.append(first)
    plan.used.add(first.id)
    plan.expect(where, "retries_billed_twice", [first])


def coverage(plan: Plan, where: Where) -> None:
    call = plan.world.change(plan.pick_plain(where), seen=False)
    plan.expect(where, "coverage", [call], streams=False)


def tier(plan: Plan, where: Where) -> None:
    call = plan.pick(where)
    other = "priority" if where.tier == "standard" else "standard"
    plan.world.change(call, billed_tier=other)
    plan.expect(where, "tier", [call], -1)
    usd = sum(costs_of(call.model, other, call.parts), Decimal(0))
    plan.expected.append(Expected(where._replace(tier=other), "tier", call.parts, usd, ids([call])))


def _streams(rows: Iterable[BillRow], of: Callable[[Call], bool] = lambda call: True) -> frozenset[str]:
    """The streams of rows that reported usage, and for which `of` holds."""
    calls = [call for row in rows for call in row.calls]
    return ids([one for one in calls if one.seen and one.usage == "final" and of(one)])


def _rows(bill: Bill, where: Where) -> list[BillRow]:
    return [one for one in bill.rows if (one.day, one.model, one.tenant, one.tier) == tuple(where)]


def duplicate_lines(plan: Plan, where: Where) -> None:
    def change(bill: Bill) -> None:
        rows = _rows(bill, where)
        row = next(one for one in rows if len(rows) == 1 or not {call.id for call in one.calls} & plan.used)
        bill.rows.append(row)
        own = _streams([row])
        plan.expected.append(Expected(where, "duplicate_lines", row.parts, sum(row.costs, Decimal(0)), own))

    plan.after.append((3, change))


def wrong_unit(plan: Plan, where: Where) -> None:
    def change(bill: Bill) -> None:
        usd = Decimal(0)
        for row in _rows(bill, where):
            usd += 99 * sum(row.costs, Decimal(0))
            bill.change(row, costs=tuple(100 * cost for cost in row.costs))
        plan.expected.append(Expected(where, "wrong_unit", (0,) * 4, usd, _streams(_rows(bill, where))))

    plan.after.append((2, change))


def price_changed(plan: Plan, where: Where) -> None:
    """The output of a model costs a quarter more from a day on, in every cell."""

    def change(bill: Bill) -> None:
        added: dict[Where, Decimal] = {}
        for row in [one for one in bill.rows if one.model == where.model and one.day >= where.day]:
            more = row.costs[3] / 4
            bill.change(row, costs=(*row.costs[:3], row.costs[3] + more))
            cell = Where(row.day, row.model, row.tenant, row.tier)
            added[cell] = added.get(cell, Decimal(0)) + more
        for cell, usd in added.items():
            plan.expected.append(Expected(cell, "price_changed", (0,) * 4, usd, _streams(_rows(bill, cell))))

    plan.after.append((1, change))


def cache_counted_differently(plan: Plan, where: Where) -> None:
    """Cached input is billed as uncached."""

    def change(bill: Bill) -> None:
        cached, usd = 0, Decimal(0)
        for row in _rows(bill, where):
            uncached, count, written, output = row.parts
            parts = (uncached + count, 0, written, output)
            costs = costs_of(row.model, row.tier, parts)
            cached, usd = cached + count, usd + sum(costs, Decimal(0)) - sum(row.costs, Decimal(0))
            bill.change(row, parts=parts, costs=costs)
        streams = _streams(_rows(bill, where), lambda call: bool(call.parts[1] or call.parts[2]))
        plan.expected.append(Expected(where, "cache_counted_differently", (cached, -cached, 0, 0), usd, streams))

    plan.after.append((0, change))


def reasoning_counted_differently(plan: Plan, where: Where) -> None:
    """Reasoning is added to output, which has it already."""

    def change(bill: Bill) -> None:
        count, usd = 0, Decimal(0)
        for row in _rows(bill, where):
            more = sum(call.reasoning for call in row.calls)
            parts = (*row.parts[:3], row.parts[3] + more)
            costs = costs_of(row.model, row.tier, parts)
            count, usd = count + more, usd + sum(costs, Decimal(0)) - sum(row.costs, Decimal(0))
            bill.change(row, parts=parts, costs=costs)
        streams = _streams(_rows(bill, where), lambda call: call.reasoning > 0)
        plan.expected.append(Expected(where, "reasoning_counted_differently", (0, 0, 0, count), usd, streams))

    plan.after.append((0, change))


def time_zone_shift(plan: Plan, where: Where) -> None:
    """The invoice counts the days of UTC-8. Other errors then concern calls that are in the same day of both zones."""
    plan.day_of = lambda call: (call.start - timedelta(hours=8)).strftime("%Y-%m-%d")
    plan.earliest_hour = 8

    def expect(_: Bill) -> None:
        calls = [one for one in plan.world.calls if one.seen and one.usage == "final"]
        moved: dict[Where, tuple[list[Call], list[Call]]] = {}
        for call in calls:
            if plan.day_of(call) != call.day:
                for day, place in ((plan.day_of(call), 0), (call.day, 1)):
                    cell = Where(day, call.model, call.tenant, call.tier)
                    moved.setdefault(cell, ([], []))[place].append(call)
        for cell, (came, went) in moved.items():
            parts = tuple(sum(one.parts[n] for one in came) - sum(one.parts[n] for one in went) for n in range(4))
            usd = sum((one.usd for one in came), Decimal(0)) - sum((one.usd for one in went), Decimal(0))
            plan.expected.append(Expected(cell, "time_zone_shift", parts, usd, ids(came + went)))

    plan.after.append((9, expect))


PLANTS: dict[str, Plant] = {
    plant.__name__: plant
    for plant in (
        late_across_midnight, time_zone_shift, missing_from_invoice, duplicate_lines, wrong_unit, price_changed,
        cache_counted_differently, reasoning_counted_differently, aborted_without_usage, retries_billed_twice, tier, coverage,
    )
}  # fmt: skip
