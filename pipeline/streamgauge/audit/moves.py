"""Streams that are billed in another cell than ours: on the next day, in another tier, or for another key.

A move has evidence on both sides: the cell that lacks the streams, and the one that has them. The search begins at cells
that bill too much, since their surplus is the sum of the streams that came.
"""

from collections.abc import Callable, Iterator, Mapping
from typing import NamedTuple

from streamgauge.audit.amounts import ZERO, Tokens, minus, negated, usd_negated
from streamgauge.audit.causes import Tools, without_usage
from streamgauge.audit.cells import Cell, tokens_of, usd_of
from streamgauge.audit.ours import GroupKey, OurStream
from streamgauge.audit.period import day_after
from streamgauge.audit.subsets import signed_subsets

LATE, TIER, OTHER_KEY, ZONE = "late_across_midnight", "tier", "other_key", "time_zone_shift"
# A stream that ended so long before midnight may be booked after it: providers' clocks and queues (microseconds).
MARGIN_US = 3_600 * 1_000_000
# How often all cells are searched: a move may leave what another one explains, and that one another.
MAX_ROUNDS = 20


class _Donor(NamedTuple):
    """A cell whose streams may be billed in another one, and these streams."""

    cause: str
    cell: Cell
    streams: list[OurStream]


class Moves:
    """The moves among the cells of one provider. `ends_us`: the end of a day, in microseconds since 1970."""

    def __init__(self, cells: Mapping[GroupKey, Cell], ends_us: Callable[[str], int], tools: Tools) -> None:
        self._cells = cells
        self._ends_us = ends_us
        self._tools = tools
        self._tiers: dict[GroupKey, list[Cell]] = {}
        self._keys: dict[GroupKey, list[Cell]] = {}
        for group in sorted(cells, key=group_order):
            self._tiers.setdefault(group._replace(tier=None), []).append(cells[group])
            self._keys.setdefault(group._replace(key=None), []).append(cells[group])
        days = {cell.group.day for cell in cells.values() if cell.billed_day}
        self._first_day, self._last_day = min(days, default=""), max(days, default="")

    def explain_edges(self) -> None:
        """Explain streams that are billed on a day for which there is no invoice: they are not missing."""
        for cell in self._in_order():
            day = cell.group.day
            if day and cell.billed_day and cell.rest != ZERO and not self._has_invoice(day_after(day, 1)):
                self._lack(cell)

    def explain(self) -> None:
        """Explain what has moved: surplus first, then surplus and lack of one day, then lack alone; again after a success."""
        known = -1
        for _ in range(MAX_ROUNDS):
            count = sum(len(cell.explanations) for cell in self._cells.values())
            if count == known:
                return
            known = count
            for step in (self._surplus, self._both, self._lack):
                for cell in self._in_order():
                    if cell.billed_day and cell.rest != ZERO:
                        step(cell)

    def possible(self) -> dict[GroupKey, set[str]]:
        """The moves that what is left of a cell may be a part of, by cell: where one cell lacks what another has among other
        tokens, nothing says whether it is the same.
        """
        having = {
            group: cell.rest for group, cell in self._cells.items() if max(cell.rest) > 0 and _may_have_more(cell)
        }
        found: dict[GroupKey, set[str]] = {}
        for cell in self._in_order():
            lack = negated(cell.rest)
            if cell.billed_day and min(lack) >= 0 and lack != ZERO:
                for cause, other in self._takers(cell, lack, having):
                    found.setdefault(cell.group, set()).add(cause)
                    found.setdefault(other, set()).add(cause)
        return found

    def possible_shifts(self) -> dict[GroupKey, set[str]]:
        """The cells that lack tokens that no streams explain, and those of the day beside them that have more: so look the
        days of another time zone, or several late streams, where other differences hide them.
        """
        found: dict[GroupKey, set[str]] = {}
        for cell in self._in_order():
            more = cell.requests_rest
            # Streams without usage may be counted.
            lacks_requests = more is None or more < len(without_usage(cell))
            if cell.billed_day and min(cell.rest) < 0 and lacks_requests:
                for days in (-1, 1):
                    other = self._cell_at(cell, days)
                    if other is not None and other.billed_day and max(other.rest) > 0 and _may_have_more(other):
                        is_late = days == 1 and self._crossing(cell, 0)
                        for group in (cell.group, other.group):
                            found.setdefault(group, set()).update({ZONE, LATE} if is_late else {ZONE})
        return found

    def _takers(self, cell: Cell, lack: Tokens, having: Mapping[GroupKey, Tokens]) -> Iterator[tuple[str, GroupKey]]:
        """The cells that may have what a cell lacks, among other tokens. `having`: what is left of those that have more."""
        after = self._cell_at(cell, 1)
        may_be_late = after is not None and after.billed_day and after.rest != ZERO
        if after is not None and may_be_late and self._chosen(self._crossing(cell, 0), lack, 1):
            yield LATE, after.group
        for cause, others in self._others(cell):
            for other in others:
                rest = having.get(other.group)
                if rest is not None and all(map(int.__le__, lack, rest)):
                    yield cause, other.group

    def _in_order(self) -> list[Cell]:
        return [self._cells[group] for group in sorted(self._cells, key=group_order)]

    def _surplus(self, cell: Cell) -> None:
        donors = [donor for donor in self._donors(cell) if self._gives(donor.cell) and _lacks(donor)]
        for tried, combination in self._tools.few(cell) if donors else ():
            target = minus(cell.rest, combination.tokens)
            for donor in donors:
                chosen = self._chosen(donor.streams, target, tried)
                if chosen:
                    combination.apply(cell)
                    _move(donor.cause, donor.cell, cell, chosen)
                    return

    def _both(self, cell: Cell) -> None:
        """Explain a cell by streams that came from the day before, and others that went to the next day."""
        before, after = self._cell_at(cell, -1), self._cell_at(cell, 1)
        if before is None:
            return
        came, went = self._crossing(before, 0), self._crossing(cell, 0)
        for tried, combination in self._tools.few(cell):
            target = minus(cell.rest, combination.tokens)
            indexes = signed_subsets(
                [stream.tokens for stream in came], [stream.tokens for stream in went], target, tried
            )
            if indexes is None or not all(indexes):
                continue
            ins, outs = [came[index] for index in indexes[0]], [went[index] for index in indexes[1]]
            if self._gives(before) and self._takes(cell, tokens_of(outs)):
                combination.apply(cell)
                _move(LATE, before, cell, ins)
                _move(LATE, cell, after, outs)
                return

    def _lack(self, cell: Cell) -> None:
        """Explain a lack by streams that went to a day which is billed for more, or for which there is no invoice."""
        after = self._cell_at(cell, 1)
        for tried, combination in self._tools.few(cell):
            chosen = self._chosen(self._crossing(cell, 0), minus(combination.tokens, cell.rest), tried)
            if chosen and self._takes(cell, tokens_of(chosen)):
                combination.apply(cell)
                _move(LATE, cell, after, chosen)
                return

    def _donors(self, cell: Cell) -> Iterator[_Donor]:
        before = self._cell_at(cell, -1)
        if before is not None:
            yield _Donor(LATE, before, self._crossing(before, 0))
            yield _Donor(LATE, before, self._crossing(before, MARGIN_US))
        for cause, others in self._others(cell):
            yield from (_Donor(cause, other, other.billed) for other in others)

    def _others(self, cell: Cell) -> Iterator[tuple[str, list[Cell]]]:
        """The cells of other tiers, and of other keys."""
        for cause, cells in (
            (TIER, self._tiers[cell.group._replace(tier=None)]),
            (OTHER_KEY, self._keys[cell.group._replace(key=None)]),
        ):
            yield cause, [other for other in cells if other is not cell]

    def _cell_at(self, cell: Cell, days: int) -> Cell | None:
        if not cell.group.day:
            return None
        return self._cells.get(cell.group._replace(day=day_after(cell.group.day, days)))

    def _crossing(self, cell: Cell, margin_us: int) -> list[OurStream]:
        """The streams of a cell that ended after its day, or less than `margin_us` before its end."""
        if not cell.group.day:
            return []
        end_us = self._ends_us(cell.group.day) - margin_us
        came = {stream.id for stream in cell.came}
        return [
            stream for stream in cell.billed if (stream.end_us or stream.start_us) >= end_us and stream.id not in came
        ]

    def _chosen(self, streams: list[OurStream], target: Tokens, tried: int) -> list[OurStream]:
        indexes = self._tools.search.subset([stream.tokens for stream in streams], target, tried)
        return [streams[index] for index in indexes or ()]

    @staticmethod
    def _gives(cell: Cell) -> bool:
        """Whether a cell may give streams: it lacks something, or there is no invoice for it."""
        return not cell.billed_day or cell.rest != ZERO

    def _takes(self, cell: Cell, tokens: Tokens) -> bool:
        """Whether the day after a cell has these tokens too many, but for streams that went on to the day after it.

        A day without an invoice may take any.
        """
        after = self._cell_at(cell, 1)
        if after is None:
            return not self._has_invoice(day_after(cell.group.day, 1))
        rest = minus(after.rest, tokens)
        return not after.billed_day or min(rest) >= 0 or bool(self._chosen(self._crossing(after, 0), negated(rest), 1))

    def _has_invoice(self, day: str) -> bool:
        return self._first_day <= day <= self._last_day


def _move(cause: str, source: Cell, target: Cell | None, streams: list[OurStream]) -> None:
    tokens, usd = tokens_of(streams), usd_of(streams)
    source.gone.update(stream.id for stream in streams)
    if source.billed_day:
        source.explain(cause, negated(tokens), usd_negated(usd), streams, -len(streams))
    if target is not None and target.billed_day:
        # In another tier they have another price: what is billed for them there is their money.
        target.explain(cause, tokens, None if cause == TIER else usd, streams, len(streams))
        target.came += streams


def _lacks(donor: _Donor) -> bool:
    """Whether a donor lacks tokens, or may without its repeated rows. One of the day before may have got more of its own day
    before than it gave.
    """
    cell = donor.cell
    return donor.cause == LATE or not cell.billed_day or min(cell.rest) < 0 or cell.theirs.repeated.rows > 0


def _may_have_more(cell: Cell) -> bool:
    """Whether requests of another cell may be billed in a cell: not if its own streams without usage are all that is more."""
    more = cell.requests_rest
    return more is None or (more > 0 and more != len(without_usage(cell)))


def group_order(group: GroupKey) -> tuple[str, ...]:
    """Sorts groups: by day, provider, model, key and tier; an unknown one last."""
    return tuple("\U0010ffff" if part is None else part for part in group)
