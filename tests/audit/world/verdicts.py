"""Holds a result against the truth of a world, cell by cell: which causes are right, invented, undecided or missed.

It shares no code with the audit. What evidence can decide is said here a second time, by decision 53.
"""

from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass, field
from decimal import Decimal
from typing import Any, NamedTuple

from tests.audit.world.errors import Plan
from tests.audit.world.exports import Export
from tests.audit.world.hard_plants import ODD
from tests.audit.world.traffic import Call, costs_of, later

Parts = tuple[int, int, int, int]
# A line of the result: day, model, key, tier.
Line = tuple[str, str, str | None, str | None]
BOUNDED = frozenset({"aborted_without_usage", "usage_not_reported", "coverage"})
MONEY = frozenset({"price_changed", "wrong_unit"})
WAYS = frozenset({"cache_counted_differently", "reasoning_counted_differently"})
ZONE = "time_zone_shift"
# A difference of a model's money up to this is none (dollars, the default of --tolerance-usd).
TOLERANCE = Decimal("0.01")
# Attempts of a cell, of which some are billed beside another cause: of more, too many choices fit.
SOME = 4
# A cause that happened beside tokens without a cause, in one cell: no rule can tell these apart.
WITH_ODD = "with odd tokens"


class Amount(NamedTuple):
    parts: Parts
    usd: Decimal


NOTHING = Amount((0, 0, 0, 0), Decimal(0))


def _plus(one: Amount, other: Amount) -> Amount:
    return Amount(tuple(a + b for a, b in zip(one.parts, other.parts, strict=True)), one.usd + other.usd)  # type: ignore[arg-type]


@dataclass
class CellTruth:
    """What is true of a line. causes: what each adds to what we saw. streams: how many streams with usage. quiet: those that
    ended without final usage and may be billed, by what the ledger has of them. undone: attempts that ended before a token.
    """

    causes: dict[str, Amount] = field(default_factory=dict)
    streams: int = 0
    quiet: Counter[str] = field(default_factory=Counter)
    undone: int = 0

    @property
    def token_causes(self) -> set[str]:
        return {cause for cause, amount in self.causes.items() if any(amount.parts)}


def recorded(call: Call) -> Parts:
    """What the ledger has of a call."""
    if not call.seen or call.usage == "absent":
        return (0, 0, 0, 0)
    return call.parts if call.usage == "final" else (*call.parts[:3], 0)


def truth_of(export: Export, plan: Plan) -> dict[Line, CellTruth]:
    """The truth of each line, in the dimensions and kinds of an export. The bill must have been made before."""
    cells: dict[Line, CellTruth] = {}

    def cell(day: str, model: str, tenant: str, tier: str) -> CellTruth:
        line = day, model, tenant if export.has_keys else None, tier if export.has_tiers else None
        return cells.setdefault(line, CellTruth())

    def add(truth: CellTruth, cause: str, parts: Iterable[int], usd: Decimal) -> None:
        amount = Amount(_folded(export, tuple(parts)), usd)
        truth.causes[cause] = _plus(truth.causes.get(cause, NOTHING), amount)

    for call in plan.world.calls:
        ours, billed = recorded(call), (call.billed_parts or call.parts) if call.billed else (0, 0, 0, 0)
        own = cell(call.day, call.model, call.tenant, call.tier)
        theirs = (
            call.billed_on or plan.day_of(call),
            call.model,
            call.billed_tenant or call.tenant,
            call.billed_tier or call.tier,
        )
        if call.seen:
            _see(own, call)
        if ours == billed and cell(*theirs) is own:
            continue
        cause = call.cause or ZONE
        assert cause != ZONE or plan.day_of(call) != call.day, call
        add(own, cause, (-count for count in ours), -sum(costs_of(call.model, call.tier, ours), Decimal(0)))
        add(cell(*theirs), cause, billed, sum(costs_of(call.model, theirs[3], billed), Decimal(0)))
    for one in plan.expected:
        add(cell(*one.where), one.cause, one.parts, one.usd)
    for truth in cells.values():
        truth.causes = {cause: amount for cause, amount in truth.causes.items() if any(amount.parts) or amount.usd}
    return {line: truth for line, truth in cells.items() if plan.world.first <= line[0] < plan.world.end}


def _folded(export: Export, parts: tuple[int, ...]) -> Parts:
    uncached, cached, written, output = parts
    kept = cached if "cached" in export.splits else 0, written if "written" in export.splits else 0
    return uncached + cached + written - sum(kept), *kept, output


def _see(truth: CellTruth, call: Call) -> None:
    if call.usage == "final":
        truth.streams += 1
    elif call.outcome in ("client_abort", "truncated"):
        truth.quiet["partial" if call.usage == "partial" else "aborted"] += 1
    elif call.outcome == "completed":
        truth.quiet["unreported"] += 1
    elif not call.has_token:
        truth.undone += 1


@dataclass
class Tally:
    """Counts of causes by what became of them. faults: one sentence for each that is wrong."""

    counts: Counter[tuple[str, str]] = field(default_factory=Counter)
    faults: list[str] = field(default_factory=list)

    def add(self, plant: str, what: str, fault: str = "") -> None:
        self.counts[plant, what] += 1
        if fault:
            self.faults.append(f"{what}: {fault}")


class Judge:
    """Compares one result with the truth of its world."""

    def __init__(self, export: Export, plan: Plan, plants: Iterable[str], result: dict[str, Any]) -> None:
        self._export = export
        # Two changes of prices are two unknown factors of one amount.
        self._has_one_price = len({"price", "price at noon", "discount"} & set(plants)) < 2
        self._truth = truth_of(export, plan)
        self._lines = {(one["day"], one["model"], one["key"], one["tier"]): one for one in result["lines"]}
        self._has_money = any(line["theirs"]["usd"] is not None for line in result["lines"])

    def judge(self) -> Tally:
        tally = Tally()
        for line in sorted({*self._truth, *self._lines}, key=str):
            self._judge_line(line, self._truth.get(line, CellTruth()), self._lines.get(line), tally)
        return tally

    def _judge_line(self, line: Line, truth: CellTruth, said: dict[str, Any] | None, tally: Tally) -> None:
        named: dict[str, Amount] = {}
        for one in () if said is None else said["explanations"]:
            named[one["cause"]] = _plus(named.get(one["cause"], NOTHING), _amount_of(one))
        undecided = {cause for one in (() if said is None else said["alternatives"]) for cause in one["one_of"]}
        shown = f"{line} true {_shown(truth.causes)} said {_shown(named)} or {sorted(undecided)}"
        for cause, amount in named.items():
            right = self._is_right(truth, cause, amount)
            tally.add(cause, right, "" if right in ("right", WITH_ODD) else f"{cause} {shown}")
        if undecided and not undecided & truth.causes.keys():
            tally.add(" or ".join(sorted(undecided)), "not among", shown)
        for cause in truth.causes.keys() - named.keys():
            if cause == ODD:
                tally.add(cause, "right" if not undecided else "undecided")
            elif self._is_decidable(line, cause):
                tally.add(cause, "missed", f"{cause} {shown}")
            else:
                tally.add(cause, "undecided" if undecided else "unexplained")

    def _is_right(self, truth: CellTruth, cause: str, amount: Amount) -> str:
        true = truth.causes.get(cause)
        if cause in MONEY and true is not None:
            is_alone = not truth.token_causes and not truth.causes.keys() & MONEY - {cause}
            return "right" if not is_alone or abs(true.usd - amount.usd) < Decimal("0.000001") else "mixed"
        if true is not None and amount.parts == true.parts:
            return "right"
        if ODD in truth.causes and len(truth.token_causes) > 1:
            return WITH_ODD
        return "invented" if true is None else "mixed"

    def _is_decidable(self, line: Line, cause: str) -> bool:
        truth = self._truth[line]
        if cause == "batch":
            return True
        if cause == ZONE:  # it shows in the sums of days, so these may have no other difference in most kinds of tokens
            return not any(one.token_causes - {ZONE, "batch"} for one in self._truth.values())
        if cause in MONEY:
            return self._has_money and self._is_money_decidable(line, cause)
        if ODD in truth.causes:
            return False
        others = truth.token_causes - {cause, "batch"}
        if self._export.each_call:
            return len(others) < 2
        if cause in BOUNDED:
            return not others and self._is_bound_decidable(line, truth, cause)
        if others:
            is_few = truth.streams < 100 and truth.undone <= SOME
            return not others & BOUNDED and len(others) == 1 and is_few
        return not self._is_hidden_beside(line, cause)

    def _is_hidden_beside(self, line: Line, cause: str) -> bool:
        """Whether the other cell of a move differs for another reason, too: then only one side is evidence."""
        day, model, key, tier = line
        others = [other for other in self._truth if other[:2] == line[:2] and other[3] == tier and other != line]
        days = [(later(day, number), model, key, tier) for number in (-1, 1)]
        if cause == "missing_from_invoice" and not self._export.has_keys:
            # A part of the line's streams, which are too many to be found: beside a day that has more it may be a shift.
            return any(self._truth[other].token_causes for other in days if other in self._truth)
        if cause == "missing_from_invoice" and not self._export.has_requests:
            # Among the other tokens that another key is billed for, its tokens may be.
            return any(self._truth[other].token_causes & BOUNDED for other in others)
        beside = {
            "late_across_midnight": days,
            "tier": [other for other in self._truth if other[:3] == line[:3] and other != line],
            "other_key": [
                other for other in self._truth if other[:2] == line[:2] and other[3] == tier and other != line
            ],
        }.get(cause, [])
        cells = [self._truth[other] for other in beside if other in self._truth]
        return any(cause in cell.causes and cell.token_causes - {cause, "batch"} for cell in cells)

    def _is_bound_decidable(self, line: Line, truth: CellTruth, cause: str) -> bool:
        counted, quiet = self._export.has_requests, truth.quiet
        if cause == "coverage":
            return not quiet
        if cause == "aborted_without_usage":
            if set(quiet) == {"partial"}:
                return True
            return counted and set(quiet) == {"aborted"}
        return counted and set(quiet) == {"unreported"}

    def _is_money_decidable(self, line: Line, cause: str) -> bool:
        """Money is judged where tokens are decided: in every line of the model."""
        if cause == "wrong_unit" and not self._export.has_keys:
            return False
        lines = [truth for other, truth in self._truth.items() if other[1] == line[1] and other[0] >= line[0]]
        plain = [truth for truth in lines if not truth.token_causes]
        if sum((truth.causes.get(cause, NOTHING).usd for truth in plain), Decimal(0)) <= TOLERANCE:
            return False
        is_alone = not any(truth.causes.keys() & MONEY - {cause} for truth in lines)
        return self._has_one_price and is_alone and all(not truth.token_causes - {"batch"} for truth in lines)


def _amount_of(part: dict[str, Any]) -> Amount:
    tokens = part["tokens"]
    names = "input_uncached", "input_cached", "input_cache_write", "output"
    parts = (0, 0, 0, 0) if tokens is None else tuple(tokens[name] or 0 for name in names)
    return Amount(parts, Decimal(part["usd"] or 0))  # type: ignore[arg-type]


def _shown(causes: dict[str, Amount]) -> str:
    return (
        "{"
        + ", ".join(f"{cause} {','.join(map(str, one.parts))} {one.usd:f}" for cause, one in sorted(causes.items()))
        + "}"
    )
