"""Explains the cells of a provider: which cause is tried when, in tokens and then in money."""

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import replace
from decimal import Decimal

from streamgauge.audit.amounts import ZERO, Tokens, plus
from streamgauge.audit.bounds import explain_bounded
from streamgauge.audit.causes import (
    Combination,
    Tools,
    combinations_of,
    explain_exact,
    explain_predicted,
    hypotheses_of,
)
from streamgauge.audit.cells import Cell, Folding, ids_of
from streamgauge.audit.habits import Habits, ModelHabits
from streamgauge.audit.money import Rates, explain_money, explain_prices, folded, rates_of
from streamgauge.audit.moves import Moves, group_order
from streamgauge.audit.ours import GroupKey, OurStream
from streamgauge.audit.period import Period, day_after
from streamgauge.audit.request_rows import RequestRows
from streamgauge.audit.subsets import Search
from streamgauge.audit.theirs import BATCH


class ModelSearch:
    """The search for the causes of one provider and model.

    It has two steps: what is predicted exactly; then what only bounds limit, since that needs what the provider's other
    models show. The streams of the cells have to be loaded in each step, and may be dropped after it.

    `rows`: by provider, its rows that are each for one request. `end_us`: the end of a day of the invoice.
    """

    def __init__(
        self,
        cells: dict[GroupKey, Cell],
        rows: Mapping[str, RequestRows],
        folding: Folding,
        end_us: Callable[[str], int],
        search: Search,
    ) -> None:
        self.cells = cells
        self._rows = rows
        self._folding = folding
        self._end_us = end_us
        self._known: dict[tuple[GroupKey, int, int], list[Combination]] = {}
        self._tools = Tools(self._combinations, search, {}, {})
        self._ordered = sorted(
            (cell for cell in cells.values() if cell.billed_day), key=lambda cell: group_order(cell.group)
        )

    def explain_exactly(self) -> ModelHabits:
        """Try the causes that predict a difference to the token. Returns what the cells then show."""
        ordered, tools = self._ordered, self._tools
        in_all_tiers: dict[GroupKey, Tokens] = {}
        for cell in ordered:
            whole = cell.group._replace(tier=None)
            in_all_tiers[whole] = plus(in_all_tiers.get(whole, ZERO), cell.tokens)
        for cell in ordered:
            _explain_named(cell)
            # If all tiers together agree, what is billed as batch is the usage of our streams, in another tier.
            if cell.theirs.batch.tokens == ZERO or in_all_tiers[cell.group._replace(tier=None)] != ZERO:
                _explain_batch(cell, self._folding)
        moves = Moves(self.cells, self._end_us, tools)
        moves.explain_edges()
        self._each(explain_predicted)
        moves.explain()
        self._each(explain_predicted)
        tools.moves.update(moves.possible())
        self._each(explain_exact)
        for group, causes in moves.possible_shifts().items():
            tools.moves.setdefault(group, set()).update(causes)
        self._known.clear()
        return ModelHabits(ordered)

    def explain_rest(self, habits: Habits, tolerance: Decimal) -> None:
        """Try the causes that only bounds limit, and explain the money. `tolerance`: dollars."""
        self._each(lambda cell, tools: explain_bounded(cell, tools, habits))
        self._known.clear()
        for cell in self._ordered:
            _name_repeated(cell)
        _explain_money(self._ordered, tolerance)

    def _each(self, step: Callable[[Cell, Tools], None]) -> None:
        for cell in self._ordered:
            if cell.rest != ZERO:
                step(cell, self._tools)

    def _combinations(self, cell: Cell) -> list[Combination]:
        key = (cell.group, len(cell.explanations), len(cell.came))
        if key not in self._known:
            own = self._rows.get(cell.group.provider)
            hypotheses = hypotheses_of(cell, own, self._folding)
            self._known[key] = list(combinations_of(hypotheses, 2 if own is None else 3))
        return self._known[key]


def _explain_named(cell: Cell) -> None:
    """Explain charges that are no tokens: the invoice names them itself."""
    for (charge, label), usd in sorted(cell.theirs.charges.items(), key=lambda item: (item[0][0], item[0][1] or "")):
        cell.explain(charge, ZERO, usd)
        cell.explanations[-1] = replace(cell.explanations[-1], labels=() if label is None else (label,))


def _explain_batch(cell: Cell, folding: Folding) -> None:
    """Explain usage of the Batch API, which is no stream."""
    batch = cell.theirs.batch
    if batch.tokens != ZERO or batch.usd:
        tokens = folding.tokens(cell.group.provider, batch.tokens) if cell.shape.has_tokens else ZERO
        cell.explain(BATCH, tokens, batch.usd if batch.money_rows else None, requests=batch.requests)


def _name_repeated(cell: Cell) -> None:
    """Name all streams of a cell for repeated rows that are all that is billed for it."""
    rows = cell.theirs.repeated.rows
    for index, explanation in enumerate(cell.explanations):
        if explanation.cause == "duplicate_lines" and not explanation.streams and rows == cell.theirs.token_rows:
            cell.explanations[index] = explanation.with_streams(ids_of(cell.billed))


def day_ends(period: Period, offset_us: int | None) -> Callable[[str], int]:
    """The end of a day of the invoice, in microseconds since 1970."""

    def end_us(day: str) -> int:
        if offset_us is None:
            return Period(day, day_after(day, 1), period.timezone).until_us
        return Period(day, day_after(day, 1), "UTC").until_us - offset_us

    return end_us


def _explain_money(cells: Sequence[Cell], tolerance: Decimal) -> None:
    groups: dict[GroupKey, list[Cell]] = {}
    for cell in cells:
        groups.setdefault(cell.group._replace(day="", key=None), []).append(cell)
    rates: dict[GroupKey, Rates | None] = {}

    def rates_at(group: GroupKey) -> Rates | None:
        price_group = group._replace(day="", key=None)
        if price_group not in rates:
            cells = groups[price_group]
            rates[price_group] = folded(rates_of(_streams(cells)), cells[0].shape.splits)
        return rates[price_group]

    for cell in cells:
        if cell.differs or cell.explanations:
            explain_money(cell, rates_at(cell.group))
    for price_group in sorted(groups, key=group_order):
        explain_prices(groups[price_group], rates_at, tolerance)


def _streams(cells: Iterable[Cell]) -> Iterable[OurStream]:
    for cell in cells:
        yield from (stream for stream in cell.streams if stream.has_usage and stream.priced != ZERO)
