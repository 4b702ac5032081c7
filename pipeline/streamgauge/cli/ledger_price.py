"""`streamgauge ledger price|costs`: computes the costs of stored records again, and shows the costs that a record had.

A record gets its cost when it is stored. A price that is found later, or a list that was wrong, changes nothing by itself:
`ledger price` does, and the ledger keeps the earlier cost with the time and the reason.
"""

import sys
import time
from collections.abc import Iterator
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from itertools import islice

from streamgauge.cli.ledger import chosen_by
from streamgauge.cli.ledgers import ledger_to_change
from streamgauge.cli.parser import Arguments
from streamgauge.cli.stream_costs import prices_of
from streamgauge.cli.tables import MAX_WIDTH, print_rows
from streamgauge.errors import DONE, Unavailable, UsageFault
from streamgauge.ledger import (
    Cost,
    CostOfRecord,
    Filter,
    Ledger,
    LedgerRow,
    LedgerUnavailableError,
    NewCost,
    UnreadableRecordError,
)
from streamgauge.ledger.cost import usd
from streamgauge.prices import Prices
from streamgauge.settings.declarations import Settings

# Records of one transaction: a writer beside it waits some milliseconds.
_BATCH = 500
_MAX_REASON = 500
_NO_COST = b',"cost":null}'
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)


def run(settings: Settings, args: Arguments) -> int:
    """Prices records again, or prints costs. Raises UsageFault, Unavailable."""
    return {"price": _price, "costs": _costs}[args.action](settings, args)


# --- price -----------------------------------------------------------------------------------------------------------

_PRICE_COLUMNS = (
    "upstream", "model", "records", "new_cost", "changed_cost", "without_price", "usd_before", "usd_after", "usd_change",
)  # fmt: skip


@dataclass
class _Sums:
    """What prices change for the records of an upstream and a model.

    records: those that were looked at. new: they get a cost and had none; changed: they get another one; without_price: their
    tokens have no known price now, so that they stay as they are. before, after: the costs of the records that change
    (10**-12 USD).
    """

    records: int = 0
    new: int = 0
    changed: int = 0
    without_price: int = 0
    before: int = 0
    after: int = 0

    @property
    def as_row(self) -> list[object]:
        """The values of _PRICE_COLUMNS after the first two."""
        change = self.after - self.before
        sign = "-" if change < 0 else ""
        return [
            self.records, self.new, self.changed, self.without_price, usd(self.before), usd(self.after),
            f"{sign}{usd(abs(change))}",
        ]  # fmt: skip


class _Repricing:
    """Compares stored costs with those of `prices`, and adds up what changes. `only_unpriced`: of records without a cost."""

    def __init__(self, prices: Prices, *, only_unpriced: bool) -> None:
        self._prices = prices
        self._only_unpriced = only_unpriced
        self.sums: dict[tuple[str | None, str | None], _Sums] = {}
        self.unreadable = 0

    def new_costs(self, ledger: Ledger, chosen: Filter) -> Iterator[NewCost]:
        """The records that get another cost."""
        for record in ledger.query(None, chosen):
            if self._only_unpriced and not record.endswith(_NO_COST):
                continue
            try:
                row = LedgerRow.of_stored(record)
            except UnreadableRecordError:  # an earlier version stored it
                self.unreadable += 1
                continue
            if (cost := self._another(row)) is not None:
                yield NewCost(record, row, cost)

    def _another(self, row: LedgerRow) -> Cost | None:
        """Its cost by the prices; None if it keeps the one that it has. What a provider reported is never replaced."""
        sums = self.sums.setdefault((row.upstream, row.model), _Sums())
        sums.records += 1
        if row.cost is not None and row.cost.is_reported:
            return None
        cost = self._prices.cost_of(row)
        if not isinstance(cost, Cost):
            sums.without_price += row.input_tokens is not None or row.output_tokens is not None
            return None
        if row.cost is None:
            sums.new += 1
        elif (row.cost.total, row.cost.lacks) == (cost.total, cost.lacks):
            return None
        else:
            sums.changed += 1
            sums.before += row.cost.total
        sums.after += cost.total
        return cost

    @property
    def rows(self) -> list[list[object]]:
        """The sums, in the order of upstream and model."""
        ordered = sorted(self.sums.items(), key=lambda item: [name or "" for name in item[0]])
        return [[*names, *sums.as_row] for names, sums in ordered]


def _price(settings: Settings, args: Arguments) -> int:
    reason = _reason(args)
    repricing = _Repricing(prices_of(settings), only_unpriced=args.only_unpriced)
    replaced_us = time.time_ns() // 1_000
    stored = 0
    with ledger_to_change(settings, "costs are computed again in one ledger") as ledger:
        costs = repricing.new_costs(ledger, chosen_by(settings, args, lambda: ledger))
        while batch := list(islice(costs, _BATCH)):
            if args.dry_run:
                continue
            try:
                stored += ledger.reprice(batch, replaced_us, reason)
            except LedgerUnavailableError as error:
                raise Unavailable(
                    f"{error}; {stored} records have their new cost. Run the command again: it continues with the others"
                ) from None
    print_rows(_PRICE_COLUMNS, repricing.rows, args.output, MAX_WIDTH)
    sys.stderr.write(_sentences(repricing, stored, is_dry=args.dry_run))
    return DONE


def _reason(args: Arguments) -> str | None:
    reason = (args.reason or "").strip()
    if len(reason) > _MAX_REASON or not reason.isprintable():
        raise UsageFault(f"--reason must be one line of at most {_MAX_REASON} characters")
    if not reason and not args.only_unpriced and not args.dry_run:
        raise UsageFault(
            "--reason is missing: say why costs change, as in --reason 'the list was wrong'; or give --only-unpriced, "
            "which changes no cost that is known"
        )
    return reason or None


def _sentences(repricing: _Repricing, stored: int, *, is_dry: bool) -> str:
    all_sums = repricing.sums.values()
    records, new = sum([sums.records for sums in all_sums]), sum([sums.new for sums in all_sums])
    changed, without = sum([sums.changed for sums in all_sums]), sum([sums.without_price for sums in all_sums])
    verb = "would get" if is_dry else "got"
    sentences = [
        f"Of {records} records, {new} {verb} a cost that had none, and {changed} {verb} another one; {without} have no "
        "known price, and stay as they are.",
    ]
    if is_dry:
        sentences.append("Nothing was changed (--dry-run).")
    elif left := new + changed - stored:
        sentences.append(f"{left} of these were removed or changed by another command meanwhile, and stay as they are.")
    if repricing.unreadable:
        sentences.append(f"{repricing.unreadable} records cannot be read, and stay as they are.")
    return "\n".join(sentences) + "\n"


# --- costs -----------------------------------------------------------------------------------------------------------

_REPRICING_COLUMNS = ("replaced_at", "records", "reason")
_COST_COLUMNS = (
    "cost_usd", "price_source", "price_date", "list_usd", "lacks", "cost_unknown", "replaced_at", "reason",
)  # fmt: skip


def _costs(settings: Settings, args: Arguments) -> int:
    with ledger_to_change(settings, "costs are kept in one ledger") as ledger:
        if args.stream is None:
            rows = [[_time(one.replaced_us), one.records, one.reason] for one in ledger.repricings()]
            print_rows(_REPRICING_COLUMNS, rows, args.output, None)
            return DONE
        costs = ledger.costs_of(args.stream)
    if not costs:
        raise UsageFault(f"the ledger has no record of the stream {args.stream}: `ledger query` shows their ids")
    print_rows(_COST_COLUMNS, [_cost_row(cost) for cost in costs], args.output, None)
    return DONE


def _cost_row(of_record: CostOfRecord) -> list[object]:
    cost, until = of_record.cost, of_record.replaced_us
    known = (
        (None, None, None, None, None)
        if cost is None
        else (usd(cost.total), cost.source, cost.date, cost.list_usd, " ".join(cost.lacks) or None)
    )
    return [*known, of_record.unknown, None if until is None else _time(until), of_record.reason]


def _time(moment_us: int) -> str:
    return (_EPOCH + timedelta(microseconds=moment_us)).strftime("%Y-%m-%dT%H:%M:%SZ")
