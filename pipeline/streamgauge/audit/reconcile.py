"""Reconciles the ledger with invoices: adds both up by SQL, compares them by cell, and finds the causes of each difference.

The search needs the streams of the cells that differ, and of those nearby. They are copied into the temporary database, and
loaded for one provider and model at a time: so the memory is that of one model's streams, of which MAX_STREAMS are held.
"""

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Set
from contextlib import contextmanager
from dataclasses import dataclass, field
from decimal import Decimal
from typing import Any

import msgspec

from streamgauge.audit.amounts import ZERO, ZERO_USD, Tokens, minus, plus, usd_negated, usd_plus
from streamgauge.audit.cells import Cell, Folding, OurCell, tier_of
from streamgauge.audit.explain import ModelSearch, day_ends
from streamgauge.audit.findings import Finding, Findings
from streamgauge.audit.habits import Habits, ModelHabits, ProviderHabits
from streamgauge.audit.moves import group_order
from streamgauge.audit.our_sums import OurSums, sums_of
from streamgauge.audit.ours import GroupKey, Ours, OurStream
from streamgauge.audit.period import QUARTER_US, DayOf, Period, day_after
from streamgauge.audit.request_rows import RequestRows
from streamgauge.audit.result import InvoiceUsed
from streamgauge.audit.subsets import Search
from streamgauge.audit.tables import Tables, id_bytes, temporary_file_errors
from streamgauge.audit.theirs import Shape, TheirCell, Theirs
from streamgauge.audit.zones import zone_shift
from streamgauge.ledger import Filter

# Streams that are named for a shift of the time zone, which may concern every stream of a period.
MAX_NAMED = 1_000

_NOT_COMPARED = (
    "these streams have no cost, so that the money that is billed for their lines is not compared: give the missing prices by"
    " `streamgauge ledger price --prices FILE`, and audit again"
)
_UNREADABLE = "these records lack members, or have some of another type: their columns count, and no cause names them"
# Streams of a provider's model that are held for the search (some 80 MB). The cells with the fewest come first; the others
# are compared, and explained by causes that need no single stream.
MAX_STREAMS = 100_000


@dataclass
class Reconciled:
    """Both sides by cell, in order. `unmapped`: streams of upstreams that no invoice is for, by upstream's provider.

    `notes`: one sentence each on what was left out, given twice, or not covered by a file. `invoices`: the files that count.
    `ledger_sha256`: a digest of the period's records (`OurSums.sha256`). `streams`: how many of ours, `rows`: how many rows
    of the invoices are in the period.
    """

    cells: list[Cell]
    shapes: Mapping[str, Shape]
    unmapped: Counter[str]
    findings: Findings
    notes: list[str] = field(default_factory=list)
    invoices: list[InvoiceUsed] = field(default_factory=list)
    ledger_sha256: str = ""
    streams: int = 0
    rows: int = 0


@temporary_file_errors()
def reconcile(
    ours: Ours, theirs: Theirs, period: Period, tolerance_usd: Decimal, miscounted: Set[str] = frozenset()
) -> Reconciled:
    """Compare both sides. `miscounted`: as in Findings. Raises InvoiceError, LedgerUnavailableError or Unavailable."""
    theirs.read()
    findings = Findings(period, miscounted)
    sums = sums_of(ours, theirs.shapes, findings, theirs.tables)
    folding, cells = _joined(sums, theirs, period)
    shifts = {
        provider: _shift(provider, cells, ours, theirs, sums, folding, period) for provider in sorted(theirs.shapes)
    }
    streams = StoredStreams(theirs.tables, cells, theirs, folding)
    streams.copy(ours, sums, shifts, period)
    rows = {
        provider: streams.request_rows(provider)
        for provider in sorted(theirs.shapes)
        if theirs.shapes[provider].has_request_ids
        and any(cell.is_read for group, cell in cells.items() if group.provider == provider)
    }
    search = Search()
    models: dict[str, list[tuple[ModelSearch, ModelHabits]]] = {}
    for (provider, _), groups in sorted(_by_model(cells).items()):
        own = {group: cells[group] for group in groups}
        one = ModelSearch(own, rows, folding, day_ends(period, shifts[provider]), search)
        with streams.loaded(own):
            models.setdefault(provider, []).append((one, one.explain_exactly()))
    for searches in models.values():
        of_provider = ProviderHabits(habits for _, habits in searches)
        for one, of_model in searches:
            with streams.loaded(one.cells):
                one.explain_rest(Habits(of_model, of_provider), tolerance_usd)
    listed = sorted(
        (cell for cell in cells.values() if _is_listed(cell, theirs, period)), key=lambda cell: group_order(cell.group)
    )
    _add_findings(findings, listed, ours)
    theirs.notes += _without_endpoint(listed, theirs)
    return Reconciled(
        listed,
        theirs.shapes,
        sums.unmapped,
        findings,
        theirs.notes,
        theirs.used,
        sums.sha256,
        sums.streams,
        theirs.rows,
    )


def _is_listed(cell: Cell, theirs: Theirs, period: Period) -> bool:
    """Whether a cell is of the period, and of a day that an export covers."""
    group = cell.group
    return not group.day or (period.has(group.day) and theirs.is_covered(group.provider, group.day))


def _by_model(cells: Iterable[GroupKey]) -> dict[tuple[str, str], list[GroupKey]]:
    groups: dict[tuple[str, str], list[GroupKey]] = {}
    for group in cells:
        groups.setdefault((group.provider, group.model or ""), []).append(group)
    return groups


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


def _joined(sums: OurSums, theirs: Theirs, period: Period) -> tuple[Folding, dict[GroupKey, Cell]]:
    """The cells of both sides. Keys are compared by a map, or by their names if these are our tenants' and agree."""
    tenants: dict[str, set[str | None]] = {}
    for group, cell in sums.cells.items():
        if cell.streams and period.has(group.day):
            tenants.setdefault(group.provider, set()).add(group.key)
    by_name = theirs.join_keys(tenants)
    usage = [(group, cell.reported > 0) for group, cell in sums.cells.items()]

    def made() -> tuple[Folding, dict[GroupKey, Cell]]:
        folding = Folding(theirs.shapes, usage, theirs.cells)
        return folding, _cells_of(sums, theirs, folding, period)

    folding, cells = made()
    for provider in by_name:
        if _is_confirmed(cell for group, cell in cells.items() if group.provider == provider):
            theirs.notes.append(f"Keys of {provider} are compared without a map: its invoices name our tenants.")
        else:
            theirs.shapes[provider].has_keys = False
            folding, cells = made()
    return folding, cells


def _without_endpoint(cells: Iterable[Cell], theirs: Theirs) -> list[str]:
    """A sentence for each endpoint whose usage no export has, with the models that were therefore not compared."""
    models: dict[tuple[str, str], set[str]] = {}
    for cell in cells:
        endpoint = theirs.lacks_endpoint(cell.group)
        if endpoint is not None and cell.ours.reported:
            models.setdefault((cell.group.provider, endpoint), set()).add(str(cell.group.model))
    return [
        f"No export of {provider} has the usage of {endpoint}: tokens of {', '.join(sorted(names))} are not compared."
        for (provider, endpoint), names in sorted(models.items())
    ]


def _is_confirmed(cells: Iterable[Cell]) -> bool:
    """Whether each key of ours agrees to the token with the one of its name in at least one cell: by chance none does."""
    ours: set[str | None] = set()
    agreeing: set[str | None] = set()
    for cell in cells:
        if cell.ours.tokens != ZERO:
            ours.add(cell.group.key)
            if minus(cell.tokens, cell.theirs.batch.tokens) == ZERO:
                agreeing.add(cell.group.key)
    return bool(ours) and ours == agreeing


def _cells_of(sums: OurSums, theirs: Theirs, folding: Folding, period: Period) -> dict[GroupKey, Cell]:
    cells: dict[GroupKey, Cell] = {}

    def cell_at(group: GroupKey) -> Cell:
        folded = folding.reduced(group)
        if folded not in cells:
            is_covered = period.has(folded.day) and theirs.is_covered(group.provider, folded.day)
            billed = not folded.day or is_covered or folded.day in theirs.days.get(group.provider, ())
            cells[folded] = Cell(folded, theirs.shape_of(folded), OurCell(), TheirCell(), billed)
        return cells[folded]

    def is_compared(group: GroupKey) -> bool:
        return theirs.shapes[group.provider].has_days or period.has(group.day)

    for group in sorted(filter(is_compared, sums.cells), key=group_order):
        our_cell = sums.cells[group]
        our_cell.tokens = folding.tokens(group.provider, our_cell.tokens)
        cell = cell_at(group)
        cell.ours.merge(our_cell)
        cell.our_tiers |= {tier_of(group.tier)}
    for group in sorted(filter(is_compared, theirs.cells), key=group_order):
        billed = theirs.cells[group]
        billed.tokens = folding.tokens(group.provider, billed.tokens)
        cell = cell_at(group)
        cell.theirs.merge(billed)
        cell.their_tiers |= {tier_of(group.tier)}
    return cells


def _shift(
    provider: str,
    cells: dict[GroupKey, Cell],
    ours: Ours,
    theirs: Theirs,
    sums: OurSums,
    folding: Folding,
    period: Period,
) -> int | None:
    """Explain a shift of the time zone, where cells of several days differ.

    Returns the offset of that zone from UTC, in microseconds.
    """
    shape = theirs.shapes[provider]
    own = {group: cell for group, cell in cells.items() if group.provider == provider}
    differing = {group.day for group, cell in own.items() if cell.billed_day and cell.tokens != ZERO}
    if not shape.has_tokens or not shape.has_days or len(differing) < 2:
        return None
    billed: dict[str, Tokens] = {}
    for group, cell in own.items():
        streamed = minus(cell.theirs.tokens, folding.tokens(provider, cell.theirs.batch.tokens))
        billed[group.day] = plus(billed.get(group.day, ZERO), streamed)
    days = {day for day in theirs.days.get(provider, set()) if period.has(day)}
    quarters = {quarter: folding.tokens(provider, one) for quarter, one in sums.by_quarter(ours, provider).items()}
    offset_us = zone_shift(quarters, billed, period.timezone, days)
    if offset_us is None:
        return None
    moved = _moved(provider, ours, sums, folding, offset_us)
    if moved is None:
        return None
    for group in sorted(moved, key=group_order):
        if group not in cells and period.has(group.day):
            cells[group] = Cell(group, theirs.shape_of(group), OurCell(), TheirCell(), True)
        if group in cells and cells[group].billed_day:
            moved[group].explain(cells[group])
    return offset_us


def _moved(
    provider: str, ours: Ours, sums: OurSums, folding: Folding, offset_us: int
) -> "dict[GroupKey, _Moved] | None":
    """What the days of another time zone move, by cell: the streams that have another day there.

    None if they are only streams that were open at midnight: they are billed by their end.
    """
    period = ours.period
    day_of, plain_day_of = DayOf("UTC", offset_us), DayOf(period.timezone)
    moved: dict[GroupKey, _Moved] = {}
    is_late = True
    for since_us, until_us in _spans_moved(period, plain_day_of, day_of):
        chosen = Filter(since_us, until_us, _of_upstreams(sums, provider))
        for stream in ours.streams(lambda group: group.provider == provider, chosen):
            source = folding.reduced(stream.group)
            target = source._replace(day=day_of(stream.start_us))
            if source != target and stream.has_usage:
                is_late = is_late and plain_day_of(stream.end_us or stream.start_us) > source.day
                tokens = folding.tokens(provider, stream.tokens)
                moved.setdefault(source, _Moved()).add(stream.id, minus(ZERO, tokens), usd_negated(stream.usd), -1)
                moved.setdefault(target, _Moved()).add(stream.id, tokens, stream.usd, 1)
    return None if is_late else moved


def _spans_moved(period: Period, plain_day_of: DayOf, day_of: DayOf) -> Iterator[tuple[int, int]]:
    """The half-open spans whose moments have another day in another time zone."""
    begin: int | None = None
    for moment_us in range(period.read_since_us, period.read_until_us, QUARTER_US):
        is_moved = plain_day_of(moment_us) != day_of(moment_us)
        if is_moved and begin is None:
            begin = moment_us
        if not is_moved and begin is not None:
            yield begin, moment_us
            begin = None
    if begin is not None:
        yield begin, period.read_until_us


def _of_upstreams(sums: OurSums, provider: str) -> tuple[tuple[str, str | int | None], ...]:
    """The condition that a record is of an upstream of this provider."""
    return tuple(("upstream", upstream) for upstream in sorted(sums.upstreams.get(provider, ()), key=str))


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


_SCHEMA = """
CREATE TABLE streams (cell INTEGER NOT NULL, start INTEGER NOT NULL, id BLOB NOT NULL, response_id BLOB, stream BLOB NOT NULL)
"""


class StoredStreams:
    """Streams of ours in the temporary database, by the number of their cell."""

    def __init__(self, tables: Tables, cells: Mapping[GroupKey, Cell], theirs: Theirs, folding: Folding) -> None:
        self._tables = tables
        self._cells = cells
        self._folding = folding
        self._numbers = {group: number for number, group in enumerate(cells)}
        self._decode = msgspec.msgpack.Decoder(OurStream).decode
        self._theirs = theirs
        tables.database.execute(_SCHEMA)

    def copy(self, ours: Ours, sums: OurSums, shifts: Mapping[str, int | None], period: Period) -> None:
        """Copy the streams of the cells that differ, and of those nearby.

        `shifts`: the offset from UTC of the days of a provider, where they are shifted: its streams count by these days.
        """
        wanted = {group for groups in _by_model(self._cells).values() for group in _wanted(self._cells, groups)}
        shifted = {provider: DayOf("UTC", offset) for provider, offset in shifts.items() if offset is not None}
        self._tables.insert("streams", self._rows(ours, sums, wanted, shifted, period))
        self._tables.database.execute("CREATE INDEX streams_by_cell ON streams (cell, start, id)")
        for group in wanted:
            self._cells[group].is_read = True
        # Rows of other cells have no number: which of them are of our streams is not known.
        read = (
            (self._numbers[cell], number)
            for number, group in enumerate(self._theirs.groups)
            if group in self._theirs.cells and (cell := self._folding.reduced(group)) in wanted
        )
        self._tables.database.executemany("UPDATE groups SET cell = ? WHERE grp = ?", read)

    def _rows(
        self, ours: Ours, sums: OurSums, wanted: set[GroupKey], shifted: Mapping[str, DayOf], period: Period
    ) -> Iterator[tuple[object, ...]]:
        encode = msgspec.msgpack.Encoder().encode
        for day, models in sorted(self._models_of(sums, wanted, shifted, period).items()):
            upstreams = {upstream for provider, _ in models for upstream in sums.upstreams.get(provider, ())}
            where = [("upstream", upstream) for upstream in upstreams] + [("model", model) for _, model in models]
            chosen = Filter(*period.span_of(day), tuple(where))
            for stream in ours.streams(lambda group: group.provider in sums.upstreams, chosen):
                group = self._folding.reduced(stream.group)
                if group.provider in shifted:
                    group = group._replace(day=shifted[group.provider](stream.start_us))
                if group in wanted:
                    tokens = self._folding.tokens(group.provider, stream.tokens)
                    response_id = None if stream.response_id is None else id_bytes(stream.response_id)
                    kept = encode(stream._replace(group=group, tokens=tokens))
                    yield self._numbers[group], stream.start_us, id_bytes(stream.id), response_id, kept

    def _models_of(
        self, sums: OurSums, wanted: set[GroupKey], shifted: Mapping[str, DayOf], period: Period
    ) -> dict[str, set[tuple[str, str | None]]]:
        """The days that are read, with the providers and models of the records that may be of a wanted cell."""
        models: dict[str, set[tuple[str, str | None]]] = {}
        for group in sums.cells:
            folded = self._folding.reduced(group)
            around = (-1, 0, 1) if group.provider in shifted else (0,)
            targets = [folded._replace(day=day_after(group.day, days)) for days in around] if folded.day else [folded]
            # Without days the cell is that of the period.
            if not wanted.isdisjoint(targets) and (folded.day or period.has(group.day)):
                models.setdefault(group.day, set()).add((group.provider, group.model))
        return models

    def request_rows(self, provider: str) -> RequestRows:
        """The rows of a provider's invoices that are each for one request."""
        ours: Any = self._tables.database.execute("SELECT response_id FROM streams WHERE response_id IS NOT NULL")
        return RequestRows(
            self._tables, provider, self._numbers, lambda tokens: self._folding.tokens(provider, tokens), ours
        )

    @contextmanager
    def loaded(self, cells: Mapping[GroupKey, Cell]) -> Iterator[None]:
        """While it lasts, the cells of a model have their copied streams, in order of their start; then only their ids."""
        query = "SELECT stream FROM streams WHERE cell = ? ORDER BY start, id"
        for group, cell in cells.items():
            if cell.is_read:
                found = self._tables.database.execute(query, (self._numbers[group],))
                cell.streams = [_shared(self._decode(stream), group) for (stream,) in found]
        came = {name for cell in cells.values() for name in cell.came_ids}
        known = {stream.id: stream for cell in cells.values() for stream in cell.streams if came and stream.id in came}
        for cell in cells.values():
            cell.came = [known[name] for name in cell.came_ids]
        yield
        for cell in cells.values():
            cell.came_ids = [stream.id for stream in cell.came]
            cell.streams, cell.came = [], []


def _shared(stream: OurStream, group: GroupKey) -> OurStream:
    """The stream with one object for equal counts, and with that of its group: many streams are held."""
    return stream._replace(group=group, priced=stream.tokens if stream.priced == stream.tokens else stream.priced)


def _wanted(cells: Mapping[GroupKey, Cell], groups: Iterable[GroupKey]) -> Iterator[GroupKey]:
    """The groups of a provider's model whose streams are read, those with the fewest streams first."""
    own = {group: cells[group] for group in groups}
    alike: dict[GroupKey, list[GroupKey]] = {}
    for group in sorted(own, key=group_order):
        alike.setdefault(group._replace(tier=None, key=None), []).append(group)
    wanted: set[GroupKey] = set()
    room = MAX_STREAMS
    for cell in sorted(filter(_has_rest, own.values()), key=lambda cell: (cell.ours.streams, group_order(cell.group))):
        for group in _nearby(cell.group, alike):
            if group in own and group not in wanted and own[group].ours.streams <= room:
                room -= own[group].ours.streams
                wanted.add(group)
                yield group


def _has_rest(cell: Cell) -> bool:
    """Whether a difference is left without a cause."""
    money = cell.usd_rest
    return cell.rest != ZERO or (money is not None and abs(money) > cell.theirs.slack)


def _nearby(group: GroupKey, alike: Mapping[GroupKey, list[GroupKey]]) -> Iterable[GroupKey]:
    """The group of a cell, and the groups that its streams may be billed in, or come from."""
    yield group
    if group.day:
        yield group._replace(day=day_after(group.day, -1))
        yield group._replace(day=day_after(group.day, 1))
    yield from alike[group._replace(tier=None, key=None)]
