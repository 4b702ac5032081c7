"""Reconciles the ledger with invoices: adds both up by cell, and finds the causes of each difference.

The ledger is read once for the sums; again for the streams of cells that differ, and of those nearby. What a pass keeps is
bounded: sums by cell, the streams of MAX_STREAMS, and temporary tables, which are in files when they are large.
"""

from collections import Counter
from collections.abc import Container, Iterable, Mapping, Set
from dataclasses import dataclass, field
from decimal import Decimal

from streamgauge.audit.amounts import ZERO, ZERO_USD, Tokens, minus, plus, usd_negated, usd_plus
from streamgauge.audit.cells import Cell, Folding, OurCell
from streamgauge.audit.explain import day_ends, explain
from streamgauge.audit.findings import Finding, Findings
from streamgauge.audit.moves import group_order
from streamgauge.audit.ours import GroupKey, Ours
from streamgauge.audit.period import QUARTER_US, DayOf, Period, day_after
from streamgauge.audit.request_rows import Billed, RequestRows
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
# Streams that are held for the search (some 150 MB). The cells with the fewest come first; the others are compared, and
# explained by causes that need no single stream.
MAX_STREAMS = 300_000


@dataclass
class Reconciled:
    """Both sides by cell, in order. `unmapped`: streams of upstreams that no invoice is for, by upstream's provider."""

    cells: list[Cell]
    shapes: Mapping[str, Shape]
    unmapped: Counter[str]
    findings: Findings


@dataclass
class _Sums:
    """The sums of the first pass over the ledger."""

    cells: dict[GroupKey, OurCell] = field(default_factory=dict)
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
    usage = [(group, cell.reported > 0) for group, cell in sums.cells.items()]
    folding = Folding(theirs.shapes, usage, theirs.cells)
    cells = _cells_of(sums, theirs, folding, period)
    shifts = {
        provider: _shift(provider, cells, ours, theirs, sums, folding, period) for provider in sorted(theirs.shapes)
    }
    groups = load_streams(cells, ours, folding, shifts, period)
    rows = load_requests(cells, theirs, folding, groups)
    findings.read_again(ours)
    search = Search()
    for provider in sorted(theirs.shapes):
        own = {group: cell for group, cell in cells.items() if group.provider == provider}
        explain(own, rows, folding, day_ends(period, shifts[provider]), tolerance_usd, search)
    listed = sorted(
        (cell for cell in cells.values() if not cell.group.day or period.has(cell.group.day)),
        key=lambda cell: group_order(cell.group),
    )
    _add_findings(findings, listed, ours)
    return Reconciled(listed, theirs.shapes, sums.unmapped, findings)


def _add_findings(findings: Findings, cells: Iterable[Cell], ours: Ours) -> None:
    """Add what the comparison itself shows: billed money that has no cost of ours beside it, and records left out."""
    unpriced: dict[tuple[str, str | None], int] = {}
    for cell in cells:
        if cell.lacks_cost:
            model_key = (cell.group.provider, cell.group.model)
            unpriced[model_key] = unpriced.get(model_key, 0) + cell.ours.unpriced
    for (provider, model), count in unpriced.items():
        findings.add(Finding("money_not_compared", provider, model, count, (), _NOT_COMPARED))
    if ours.unreadable:
        unreadable = tuple(sorted(ours.unreadable))
        findings.add(Finding("record_unreadable", None, None, len(unreadable), unreadable[:MAX_NAMED], _UNREADABLE))


def _sums_of(ours: Ours, shapes: Mapping[str, Shape], findings: Findings, period: Period) -> _Sums:
    sums, resumed = _Sums(), Resumed()
    for start_us, record in ours.first_records():
        group, tokens = ours.group_of(start_us, record), record.tokens
        usd = record.usd_of(tokens)
        findings.see(start_us, group, record, tokens, usd)
        if group.provider not in shapes:
            sums.unmapped[group.provider] += period.has(group.day)
            continue
        cell = sums.cells.get(group)
        if cell is None:
            cell = sums.cells[group] = OurCell()
        cell.add(tokens, usd, record.is_reported, record.usage.reasoning_tokens or 0)
        if is_resumed(record):
            resumed.see(record)
        if tokens != ZERO:
            _add_quarter(sums, group.provider, start_us, tokens)
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
        group = ours.group_of(start_us, record)
        correction = corrections.get(record.stream_id)
        if correction is None or group not in sums.cells:
            continue
        cell, own = sums.cells[group], record.tokens
        usd = record.usd_of(own)
        if record.is_reported:
            cell.add(minus(ZERO, own), usd_negated(usd), True, -(record.usage.reasoning_tokens or 0), streams=-1)
        else:
            cell.streams -= 1
        cell.add(correction.tokens, correction.usd, correction.has_usage, 0)
        _add_quarter(sums, group.provider, start_us, minus(correction.tokens, own))
    ours.corrections = corrections


def _cells_of(sums: _Sums, theirs: Theirs, folding: Folding, period: Period) -> dict[GroupKey, Cell]:
    cells: dict[GroupKey, Cell] = {}

    def cell_at(group: GroupKey) -> Cell:
        folded = folding.reduced(group)
        if folded not in cells:
            shape = theirs.shapes[group.provider]
            billed = not folded.day or period.has(folded.day) or folded.day in theirs.days.get(group.provider, ())
            cells[folded] = Cell(folded, shape, OurCell(), TheirCell(), billed)
        return cells[folded]

    def is_compared(group: GroupKey) -> bool:
        return theirs.shapes[group.provider].has_days or period.has(group.day)

    for group in sorted(filter(is_compared, sums.cells), key=group_order):
        our_cell = sums.cells[group]
        our_cell.tokens = folding.tokens(group.provider, our_cell.tokens)
        cell_at(group).ours.merge(our_cell)
    for group in sorted(filter(is_compared, theirs.cells), key=group_order):
        billed = theirs.cells[group]
        billed.tokens = folding.tokens(group.provider, billed.tokens)
        cell_at(group).theirs.merge(billed)
    return cells


def _shift(
    provider: str,
    cells: dict[GroupKey, Cell],
    ours: Ours,
    theirs: Theirs,
    sums: _Sums,
    folding: Folding,
    period: Period,
) -> int | None:
    """Explain a shift of the time zone, from a pass of its own over the provider's streams.

    Returns the offset of that zone from UTC, in microseconds.
    """
    shape = theirs.shapes[provider]
    own = {group: cell for group, cell in cells.items() if group.provider == provider}
    if not shape.has_tokens or not shape.has_days or not any(cell.tokens != ZERO for cell in own.values()):
        return None
    billed: dict[str, Tokens] = {}
    for group, cell in own.items():
        billed[group.day] = plus(billed.get(group.day, ZERO), cell.theirs.tokens)
    days = {day for day in theirs.days.get(provider, set()) if period.has(day)}
    quarters = {
        quarter: folding.tokens(provider, tokens) for quarter, tokens in sums.by_quarter.get(provider, {}).items()
    }
    offset_us = zone_shift(quarters, billed, period.timezone, days)
    if offset_us is None:
        return None
    day_of, plain_day_of = DayOf("UTC", offset_us), DayOf(period.timezone)
    moved: dict[GroupKey, _Moved] = {}
    is_late = True
    for stream in ours.streams(lambda group: group.provider == provider):
        source = folding.reduced(stream.group)
        target = source._replace(day=day_of(stream.start_us))
        if source != target and stream.has_usage:
            is_late = is_late and plain_day_of(stream.end_us or stream.start_us) > source.day
            tokens = folding.tokens(provider, stream.tokens)
            moved.setdefault(source, _Moved()).add(stream.id, minus(ZERO, tokens), usd_negated(stream.usd), -1)
            moved.setdefault(target, _Moved()).add(stream.id, tokens, stream.usd, 1)
    if is_late:  # only streams that were open at midnight: they are billed by their end
        return None
    for group in sorted(moved, key=group_order):
        if group not in cells and period.has(group.day):
            cells[group] = Cell(group, shape, OurCell(), TheirCell(), True)
        if group in cells and cells[group].billed_day:
            moved[group].explain(cells[group])
    return offset_us


@dataclass
class _Moved:
    """The sums of the streams that a shift of the time zone moves into a cell and out of it."""

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
        """Explain a cell by the shift, unless what came equals what went."""
        if self.tokens == ZERO and not self.usd:
            return
        cell.explain("time_zone_shift", self.tokens, self.usd, requests=self.requests)
        cell.explanations[-1] = cell.explanations[-1].with_streams(self.streams)


def load_streams(
    cells: Mapping[GroupKey, Cell], ours: Ours, folding: Folding, shifts: Mapping[str, int | None], period: Period
) -> list[GroupKey]:
    """Read the streams of the cells that differ, and of those nearby, into the cells; return their groups.

    `shifts`: the offset from UTC of the days of a provider, where they are shifted: its streams count by these days.
    """
    wanted = _wanted(cells)
    days_of = {provider: DayOf("UTC", offset) for provider, offset in shifts.items() if offset is not None}
    days: set[str] = set()  # none: all days
    if all(group.day for group in wanted):
        days = {day for group in wanted for day in _days_around(group, days_of)}
    if not wanted:
        return []
    providers = {group.provider for group in wanted}
    for stream in ours.streams(lambda group: group.provider in providers, days):
        group = folding.reduced(stream.group)
        if group.provider in days_of:
            group = group._replace(day=days_of[group.provider](stream.start_us))
        is_compared = group.day or period.has(stream.group.day)
        if is_compared and group in wanted:
            tokens = folding.tokens(group.provider, stream.tokens)
            cells[group].streams.append(stream._replace(group=group, tokens=tokens))
    for group in wanted:
        cells[group].is_read = True
    return list(wanted)


def load_requests(
    cells: Mapping[GroupKey, Cell], theirs: Theirs, folding: Folding, groups: Iterable[GroupKey]
) -> Mapping[str, RequestRows]:
    """The rows for single requests in the cells of `groups`, by provider, from another reading of the invoices."""
    wanted = {group for group in groups if cells[group].shape.has_request_ids}
    providers = {group.provider for group in wanted}
    rows_of: dict[str, RequestRows] = {}
    if not wanted:
        return rows_of
    for group, line in theirs.lines(lambda group: group.provider in providers and folding.reduced(group) in wanted):
        if line.request_id is not None and line.tokens is not None:
            rows = rows_of.get(line.provider)
            if rows is None:
                rows = rows_of[line.provider] = RequestRows()
            billed = Billed(folding.tokens(line.provider, line.tokens), line.usd)
            rows.add(line.request_id, line.digest, folding.reduced(group), billed)
    for provider, rows in rows_of.items():
        streams = (stream for group in wanted if group.provider == provider for stream in cells[group].streams)
        rows.begin({stream.response_id for stream in streams if stream.response_id})
    return rows_of


def _wanted(cells: Mapping[GroupKey, Cell]) -> dict[GroupKey, None]:
    """The groups of the cells that are read, those with the fewest streams first."""
    tiers: dict[GroupKey, list[GroupKey]] = {}
    for group in sorted(cells, key=group_order):
        tiers.setdefault(group._replace(tier=None), []).append(group)
    wanted: dict[GroupKey, None] = {}
    room = MAX_STREAMS
    for cell in sorted(
        filter(_has_rest, cells.values()), key=lambda cell: (cell.ours.streams, group_order(cell.group))
    ):
        for group in _nearby(cell.group, tiers):
            if group in cells and group not in wanted and cells[group].ours.streams <= room:
                room -= cells[group].ours.streams
                wanted[group] = None
    return wanted


def _has_rest(cell: Cell) -> bool:
    """Whether a difference is left without a cause."""
    money = cell.usd_rest
    return cell.rest != ZERO or (money is not None and abs(money) > cell.theirs.slack)


def _nearby(group: GroupKey, tiers: Mapping[GroupKey, list[GroupKey]]) -> Iterable[GroupKey]:
    """The group of a cell, and the groups that its streams may be billed in, or come from."""
    yield group
    if group.day:
        yield group._replace(day=day_after(group.day, -1))
        yield group._replace(day=day_after(group.day, 1))
    yield from tiers[group._replace(tier=None)]


def _days_around(group: GroupKey, shifted: Container[str]) -> list[str]:
    """The days on which the streams of a cell may have begun: in another time zone also the days beside it."""
    return [day_after(group.day, days) for days in ((-1, 0, 1) if group.provider in shifted else (0,))]
