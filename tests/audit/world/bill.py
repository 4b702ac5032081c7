"""What the provider bills for the calls of a world: rows by day, model, key and tier, before an export writes them."""

from collections.abc import Callable
from dataclasses import dataclass, field, replace
from decimal import Decimal

from tests.audit.world.traffic import Call, World, costs_of

NOTHING = (Decimal(0),) * 4


@dataclass(frozen=True)
class BillRow:
    """A row: tokens and dollars by part. calls: those that it sums up."""

    day: str
    model: str
    tenant: str
    tier: str
    parts: tuple[int, ...] = (0, 0, 0, 0)
    costs: tuple[Decimal, ...] = NOTHING
    requests: int = 0
    calls: tuple[Call, ...] = ()


@dataclass
class Bill:
    """The rows of a bill. Errors change them before an export is written."""

    rows: list[BillRow] = field(default_factory=list)

    def cell(self, day: str, model: str, tenant: str, tier: str) -> BillRow:
        """The row of a cell."""
        (found,) = (
            one for one in self.rows if (one.day, one.model, one.tenant, one.tier) == (day, model, tenant, tier)
        )
        return found

    def change(self, row: BillRow, **changes: object) -> BillRow:
        """Replace a row by a changed one."""
        changed = replace(row, **changes)  # type: ignore[arg-type]
        self.rows[self.rows.index(row)] = changed
        return changed


def billed_parts(call: Call) -> tuple[int, int, int, int]:
    """What is billed for a call."""
    return call.billed_parts or call.parts


def make_bill(world: World, day_of: Callable[[Call], str] = lambda call: call.day, each_call: bool = False) -> Bill:
    """The bill for a world; `each_call`: a row for each call, as OpenRouter's export has."""
    rows: dict[tuple[str, ...], BillRow] = {}
    for call in world.calls:
        if not call.billed:
            continue
        tier, parts = call.billed_tier or call.tier, billed_parts(call)
        key = (call.billed_on or day_of(call), call.model, call.billed_tenant or call.tenant, tier)
        row = rows.get((*key, call.id) if each_call else key) or BillRow(*key)
        costs = costs_of(call.model, tier, parts)
        rows[(*key, call.id) if each_call else key] = replace(
            row,
            parts=tuple(one + other for one, other in zip(row.parts, parts, strict=True)),
            costs=tuple(one + other for one, other in zip(row.costs, costs, strict=True)),
            requests=row.requests + 1,
            calls=(*row.calls, call),
        )
    return Bill([rows[key] for key in sorted(rows)])
