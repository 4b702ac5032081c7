"""Reconciles the ledger with invoices: adds both up by cell, and finds the causes of each difference.

The ledger is read once for the sums; again for the streams of cells that differ, and of those nearby. What a pass keeps is
bounded: sums by cell, the streams of `loading.py`, and temporary tables, which are in files when they are large.
"""

from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence, Set
from dataclasses import dataclass, field
from decimal import Decimal

from streamgauge.audit.amounts import ZERO, ZERO_USD, Tokens, minus, plus, usd_plus
from streamgauge.audit.cells import Cell, Folding, OurCell, ids_of
from streamgauge.audit.evidence import explain_exact, explain_lack, explain_predicted, explain_unseen
from streamgauge.audit.findings import Finding, Findings
from streamgauge.audit.hypotheses import Combination, Tools, combinations_of, hypotheses_of, minus_usd
from streamgauge.audit.loading import load_requests, load_streams
from streamgauge.audit.money import explain_money, explain_prices
from streamgauge.audit.moves import Moves, place_order
from streamgauge.audit.ours import Ours, OurStream, Place
from streamgauge.audit.period import QUARTER_US, DayOf, Period, day_after
from streamgauge.audit.rates import Rates, folded, rates_of
from streamgauge.audit.request_rows import RequestRows
from streamgauge.audit.resumed import Resumed
from streamgauge.audit.subsets import Search
from streamgauge.audit.temporary import temporary_file_errors
from streamgauge.audit.theirs import Shape, TheirCell, Theirs
from streamgauge.audit.zones import zone_shift
from streamgauge.core.resumption import is_resumed

# Streams that are named for a shift of the time zone, which may concern every stream of a period.
MAX_NAMED = 1_000

_NOT_COMPARED = "these streams have no cost, so that the money that is billed for their lines is not compared"
_UNREADABLE = "these records lack members, or have some of another type: the audit leaves them out"


@dataclass
class Reconciled:
    """Both sides by cell, in order. `unmapped`: streams of upstreams that no invoice is for, by upstream's provider."""

    cells: list[Cell]
    shapes: Mapping[str, Shape]
    unmapped: Counter[str]
    findings: Findings


@dataclass
class _Sums:
    """What the first pass over the ledger makes."""

    cells: dict[Place, OurCell] = field(default_factory=dict)
    by_quarter: dict[str, dict[int, Tokens]] = field(default_factory=dict)
    unmapped: Counter[str] = field(default_factory=Counter)


@temporary_file_errors()
def reconcile(
    ours: Ours, theirs: Theirs, period: Period, tolerance_usd: Decimal, miscounted: Set[str] = frozenset()
) -> Reconciled:
    """Compare both sides. `miscounted`: as in Findings. Raises InvoiceError, LedgerUnavailableError or Unavailable."""
    theirs.read()
    findings = Findings(period, miscounted)
    sums = _sums_of(ours, theirs.shapes, findings, period)
    usage = [(place, cell.reported > 0) for place, cell in sums.cells.items()]
    folding = Folding(theirs.shapes, usage, theirs.cells)
    cells = _cells_of(sums, theirs, folding, period)
    shifts = {
        provider: _shift(provider, cells, ours, theirs, sums, folding, period) for provider in sorted(theirs.shapes)
    }
    places = load_streams(cells, ours, folding, shifts, period)
    rows = load_requests(cells, theirs, folding, places)
    findings.read_again(ours)
    search = Search()
    for provider in sorted(theirs.shapes):
        own = {place: cell for place, cell in cells.items() if place.provider == provider}
        _explain(own, rows, folding, _day_ends(period, shifts[provider]), tolerance_usd, search)
    listed = sorted(
        (cell for cell in cells.values() if not cell.place.day or period.has(cell.place.day)),
        key=lambda cell: place_order(cell.place),
    )
    _add_findings(findings, listed, ours)
    return Reconciled(listed, theirs.shapes, sums.unmapped, findings)


def _add_findings(findings: Findings, cells: Iterable[Cell], ours: Ours) -> None:
    """Add what the comparison itself shows: billed money that has no cost of ours beside it, and records left out."""
    unpriced: dict[tuple[str, str | None], int] = {}
    for cell in cells:
        if cell.lacks_cost:
            group = (cell.place.provider, cell.place.model)
            unpriced[group] = unpriced.get(group, 0) + cell.ours.unpriced
    for (provider, model), count in unpriced.items():
        findings.add(Finding("money_not_compared", provider, model, count, (), _NOT_COMPARED))
    if ours.unreadable:
        some = tuple(sorted(ours.unreadable))
        findings.add(Finding("record_unreadable", None, None, len(some), some[:MAX_NAMED], _UNREADABLE))


def _sums_of(ours: Ours, shapes: Mapping[str, Shape], findings: Findings, period: Period) -> _Sums:
    sums, resumed = _Sums(), Resumed()
    for start_us, record in ours.first_records():
        place, tokens = ours.place_of(start_us, record), record.tokens
        usd = record.usd_of(tokens)
        findings.see(start_us, place, record, tokens, usd)
        if place.provider not in shapes:
            sums.unmapped[place.provider] += period.has(place.day)
            continue
        cell = sums.cells.get(place)
        if cell is None:
            cell = sums.cells[place] = OurCell()
        cell.add(tokens, usd, record.is_reported, record.usage.reasoning_tokens or 0)
        if is_resumed(record):
            resumed.see(record)
        if tokens != ZERO:
            _add_quarter(sums, place.provider, start_us, tokens)
    if resumed.any:
        for start_us, record in ours.records():
            resumed.look_at(start_us, record)
        _correct(sums, ours, resumed)
    return sums


def _add_quarter(sums: _Sums, provider: str, start_us: int, tokens: Tokens) -> None:
    quarters = sums.by_quarter.setdefault(provider, {})
    quarter = start_us // QUARTER_US
    quarters[quarter] = plus(quarters.get(quarter, ZERO), tokens)


def _correct(sums: _Sums, ours: Ours, resumed: Resumed) -> None:
    """Count usage once for a stream and those that resume it: as the ledger does in its totals."""
    corrections = resumed.corrections()
    for start_us, record in resumed.records:
        place = ours.place_of(start_us, record)
        correction = corrections.get(record.stream_id)
        if correction is None or place not in sums.cells:
            continue
        cell, own = sums.cells[place], record.tokens
        usd = record.usd_of(own)
        if record.is_reported:
            cell.add(minus(ZERO, own), minus_usd(usd), True, -(record.usage.reasoning_tokens or 0), streams=-1)
        else:
            cell.streams -= 1
        cell.add(correction.tokens, correction.usd, correction.has_usage, 0)
        _add_quarter(sums, place.provider, start_us, minus(correction.tokens, own))
    ours.corrections = corrections


def _cells_of(sums: _Sums, theirs: Theirs, folding: Folding, period: Period) -> dict[Place, Cell]:
    cells: dict[Place, Cell] = {}

    def cell_at(place: Place) -> Cell:
        folded = folding.place(place)
        if folded not in cells:
            shape = theirs.shapes[place.provider]
            billed = not folded.day or period.has(folded.day) or folded.day in theirs.days.get(place.provider, ())
            cells[folded] = Cell(folded, shape, OurCell(), TheirCell(), billed)
        return cells[folded]

    def is_compared(place: Place) -> bool:
        return theirs.shapes[place.provider].has_days or period.has(place.day)

    for place in sorted(filter(is_compared, sums.cells), key=place_order):
        one = sums.cells[place]
        one.tokens = folding.tokens(place.provider, one.tokens)
        cell_at(place).ours.merge(one)
    for place in sorted(filter(is_compared, theirs.cells), key=place_order):
        billed = theirs.cells[place]
        billed.tokens = folding.tokens(place.provider, billed.tokens)
        cell_at(place).theirs.merge(billed)
    return cells


def _shift(
    provider: str,
    cells: dict[Place, Cell],
    ours: Ours,
    theirs: Theirs,
    sums: _Sums,
    folding: Folding,
    period: Period,
) -> int | None:
    """Explain what days of another time zone explain, from a pass of its own over the provider's streams.

    Returns the offset of that zone from UTC, in microseconds.
    """
    shape = theirs.shapes[provider]
    own = {place: cell for place, cell in cells.items() if place.provider == provider}
    if not shape.has_tokens or not shape.has_days or not any(cell.tokens != ZERO for cell in own.values()):
        return None
    billed: dict[str, Tokens] = {}
    for place, cell in own.items():
        billed[place.day] = plus(billed.get(place.day, ZERO), cell.theirs.tokens)
    days = {day for day in theirs.days.get(provider, set()) if period.has(day)}
    quarters = {
        quarter: folding.tokens(provider, tokens) for quarter, tokens in sums.by_quarter.get(provider, {}).items()
    }
    offset_us = zone_shift(quarters, billed, period.timezone, days)
    if offset_us is None:
        return None
    day_of, plain_day_of = DayOf("UTC", offset_us), DayOf(period.timezone)
    moved: dict[Place, _Moved] = {}
    is_late = True
    for stream in ours.streams(lambda place: place.provider == provider):
        source = folding.place(stream.place)
        target = source._replace(day=day_of(stream.start_us))
        if source != target and stream.has_usage:
            is_late = is_late and plain_day_of(stream.end_us or stream.start_us) > source.day
            tokens = folding.tokens(provider, stream.tokens)
            moved.setdefault(source, _Moved()).add(stream.id, minus(ZERO, tokens), minus_usd(stream.usd), -1)
            moved.setdefault(target, _Moved()).add(stream.id, tokens, stream.usd, 1)
    if is_late:  # only streams that were open at midnight: they are billed by their end
        return None
    for place in sorted(moved, key=place_order):
        if place not in cells and period.has(place.day):
            cells[place] = Cell(place, shape, OurCell(), TheirCell(), True)
        if place in cells and cells[place].billed_day:
            moved[place].explain(cells[place])
    return offset_us


@dataclass
class _Moved:
    """What a shift of the time zone moves into a cell and out of it."""

    tokens: Tokens = ZERO
    usd: Decimal | None = ZERO_USD
    streams: list[str] = field(default_factory=list)
    requests: int = 0

    def add(self, stream: str, tokens: Tokens, usd: Decimal | None, requests: int) -> None:
        """Add a stream that came, or with the other sign one that went."""
        self.tokens = plus(self.tokens, tokens)
        self.usd = usd_plus(self.usd, usd)
        self.requests += requests
        if len(self.streams) < MAX_NAMED:
            self.streams.append(stream)

    def explain(self, cell: Cell) -> None:
        """Explain a cell by it, unless what came equals what went."""
        if self.tokens == ZERO and not self.usd:
            return
        cell.explain("time_zone_shift", self.tokens, self.usd, requests=self.requests)
        cell.explanations[-1] = cell.explanations[-1].with_streams(self.streams)


def _explain(
    cells: dict[Place, Cell],
    rows: Mapping[str, RequestRows],
    folding: Folding,
    end_us: Callable[[str], int],
    tolerance: Decimal,
    search: Search,
) -> None:
    """Try the causes on the cells of one provider, those with the strongest evidence first."""
    known: dict[tuple[Place, int, int], list[Combination]] = {}

    def combinations(cell: Cell) -> list[Combination]:
        key = (cell.place, len(cell.explanations), len(cell.came))
        if key not in known:
            own = rows.get(cell.place.provider)
            found = hypotheses_of(cell, own, folding)
            known[key] = list(combinations_of(found, 2 if own is None else 3))
        return known[key]

    ordered = sorted((cell for cell in cells.values() if cell.billed_day), key=lambda cell: place_order(cell.place))
    tools = Tools(combinations, search)

    def each(step: Callable[[Cell, Tools], None]) -> None:
        for cell in ordered:
            if cell.rest != ZERO:
                step(cell, tools)

    moves = Moves(cells, end_us, tools)
    moves.explain_edges()
    each(explain_predicted)
    moves.explain()
    for step in (explain_predicted, explain_exact, explain_unseen, explain_lack):
        each(step)
    for cell in ordered:
        _name_repeated(cell)
    _explain_money(ordered, tolerance)


def _name_repeated(cell: Cell) -> None:
    """Rows that are repeated and all that is billed for a cell are for all of its streams."""
    rows = cell.theirs.repeated.rows
    for place, one in enumerate(cell.explanations):
        if one.cause == "duplicate_lines" and not one.streams and rows == cell.theirs.token_rows:
            cell.explanations[place] = one.with_streams(ids_of(cell.billed))


def _day_ends(period: Period, offset_us: int | None) -> Callable[[str], int]:
    """The end of a day of the invoice, in microseconds since 1970."""

    def end_us(day: str) -> int:
        if offset_us is None:
            return Period(day, day_after(day, 1), period.timezone).until_us
        return Period(day, day_after(day, 1), "UTC").until_us - offset_us

    return end_us


def _explain_money(cells: Sequence[Cell], tolerance: Decimal) -> None:
    groups: dict[Place, list[Cell]] = {}
    for cell in cells:
        groups.setdefault(cell.place._replace(day="", key=None), []).append(cell)
    rates: dict[Place, Rates | None] = {}

    def rates_at(place: Place) -> Rates | None:
        group = place._replace(day="", key=None)
        if group not in rates:
            cells = groups[group]
            rates[group] = folded(rates_of(_streams(cells)), cells[0].shape.splits)
        return rates[group]

    for cell in cells:
        if cell.differs or cell.explanations:
            explain_money(cell, rates_at(cell.place))
    for group in sorted(groups, key=place_order):
        explain_prices(groups[group], rates_at, tolerance)


def _streams(cells: Iterable[Cell]) -> Iterable[OurStream]:
    for cell in cells:
        yield from (one for one in cell.streams if one.has_usage and one.priced != ZERO)
