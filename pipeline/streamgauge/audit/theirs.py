"""The invoices' side of an audit: their rows, loaded once into the temporary database, and added up there by cell.

What is given twice counts once: a file with the same bytes, and equal rows of two exports whose days overlap. Days that no
export of a provider covers are not compared.
"""

from collections import Counter
from collections.abc import Iterator, Sequence, Set
from collections.abc import Mapping as Map
from dataclasses import dataclass, field, replace
from decimal import Decimal
from hashlib import blake2b
from typing import NamedTuple

from streamgauge.audit.amounts import EXACT, ZERO, ZERO_USD, Tokens, plus
from streamgauge.audit.invoices import Format, InvoiceError, InvoiceFile, InvoiceLine, Span
from streamgauge.audit.keys import Names, tenants_named
from streamgauge.audit.mapping import Mapping
from streamgauge.audit.ours import GroupKey
from streamgauge.audit.period import DAY_US, DayOf, Period, day_after
from streamgauge.audit.rates_file import NO_RATES, USD, Rates
from streamgauge.audit.repeated import Repeated
from streamgauge.audit.result import InvoiceUsed
from streamgauge.audit.shown_amounts import counted
from streamgauge.audit.tables import Tables, id_bytes, joined, whole_sum

# The tier of requests that are answered later, all together: they are no streams, so no tap sees them.
BATCH = "batch"
# The endpoints of models that answer with no text, by what their names have (platform.openai.com/docs/models); all others are
# those of completions.
_ENDPOINTS = (("embedding", "embeddings"), ("moderation", "moderations"))
_COMPLETIONS = "completions"
# A bucket of a day that a change of the clock makes longer (25 hours).
_LONGEST_DAY_US = DAY_US + DAY_US // 24
_DIGEST_BYTES = 16

_SUMS = """
SELECT file, grp, kind, charge, label, min(splits), count(*), count(request_id), count(uncached),
    count(CASE WHEN uncached IS NOT NULL AND requests IS NULL THEN 1 END), count(usd), exact_sum(usd), exact_sum(half_digit),
    {tokens}, {requests}
FROM lines GROUP BY file, grp, kind, charge, label
""".format(
    tokens=", ".join(map(whole_sum, ("uncached", "cached", "written", "output"))),
    requests=whole_sum("CASE WHEN uncached IS NOT NULL THEN requests END"),
)
# Equal rows of two files: of each, the n-th row of a file is the n-th row of the other one. The first file's counts.
_SHARED = """
CREATE TEMP TABLE shared AS
SELECT row, file, grp, first_value(file) OVER (PARTITION BY digest, place ORDER BY file) AS kept FROM (
    SELECT rowid AS row, digest, file, grp, row_number() OVER (PARTITION BY digest, file ORDER BY rowid) AS place
    FROM lines WHERE digest IN (SELECT digest FROM lines GROUP BY digest HAVING count(DISTINCT file) > 1)
)
"""
# What two files have different rows for: a bucket in which a row of one file is not in all the others.
_CONFLICTS = """
WITH several AS (SELECT bucket, count(DISTINCT file) AS files FROM lines GROUP BY bucket HAVING count(DISTINCT file) > 1),
differing AS (
    SELECT bucket FROM lines JOIN several USING (bucket) GROUP BY bucket, digest HAVING count(DISTINCT file) < max(files)
)
SELECT min(file), max(file), grp FROM lines WHERE bucket IN (SELECT bucket FROM differing) GROUP BY bucket
"""
_REPEATED = """
SELECT grp, digest, count(*) - 1, uncached, cached, written, output, usd, requests, request_id FROM lines
GROUP BY digest HAVING count(*) > 1
"""


@dataclass
class Part:
    """The sums of some rows of a cell. `requests`: of the rows that name them; `usd`: of the rows with money."""

    tokens: Tokens = ZERO
    usd: Decimal = ZERO_USD
    requests: int = 0
    money_rows: int = 0

    def add(self, rows: "_Rows") -> None:
        """Add the sums of rows."""
        self.tokens = plus(self.tokens, rows.tokens)
        self.requests += rows.requests
        self.usd = EXACT.add(self.usd, rows.usd)
        self.money_rows += rows.money_rows

    def merge(self, other: "Part") -> None:
        """Add all rows of another part."""
        self.tokens = plus(self.tokens, other.tokens)
        self.usd = EXACT.add(self.usd, other.usd)
        self.requests += other.requests
        self.money_rows += other.money_rows


@dataclass
class TheirCell:
    """What is billed in a cell. `slack`: half the last printed digit of each rounded row, added up. `requests`: None if a
    row with tokens names none. `usd_by_kind`: money that is for one kind of token.
    `charges`: money that is for no tokens, by charge and label. `batch`: the part of the rows of the Batch API.
    """

    tokens: Tokens = ZERO
    usd: Decimal = ZERO_USD
    slack: Decimal = ZERO_USD
    requests: int | None = 0
    token_rows: int = 0
    money_rows: int = 0
    usd_by_kind: dict[str, Decimal] = field(default_factory=dict)
    repeated: Repeated = field(default_factory=Repeated)
    charges: dict[tuple[str, str | None], Decimal] = field(default_factory=dict)
    batch: Part = field(default_factory=Part)

    def add(self, rows: "_Rows") -> None:
        """Add the sums of rows of one kind, charge and label."""
        self.tokens = plus(self.tokens, rows.tokens)
        self.token_rows += rows.token_rows
        if self.requests is not None:
            self.requests = None if rows.without_requests else self.requests + rows.requests
        self.usd = EXACT.add(self.usd, rows.usd)
        self.slack = EXACT.add(self.slack, rows.slack)
        self.money_rows += rows.money_rows
        if rows.charge is not None and rows.money_rows:
            charge = rows.charge, rows.label
            self.charges[charge] = EXACT.add(self.charges.get(charge, ZERO_USD), rows.usd)
        if rows.kind is not None and rows.money_rows:
            self.usd_by_kind[rows.kind] = EXACT.add(self.usd_by_kind.get(rows.kind, ZERO_USD), rows.usd)

    def merge(self, other: "TheirCell") -> None:
        """Add all rows of another cell."""
        self.tokens = plus(self.tokens, other.tokens)
        self.usd = EXACT.add(self.usd, other.usd)
        self.slack = EXACT.add(self.slack, other.slack)
        if self.requests is not None:
            self.requests = None if other.requests is None else self.requests + other.requests
        self.token_rows += other.token_rows
        self.money_rows += other.money_rows
        for kind, usd in other.usd_by_kind.items():
            self.usd_by_kind[kind] = EXACT.add(self.usd_by_kind.get(kind, ZERO_USD), usd)
        self.repeated.merge(other.repeated)
        for charge, usd in other.charges.items():
            self.charges[charge] = EXACT.add(self.charges.get(charge, ZERO_USD), usd)
        self.batch.merge(other.batch)


@dataclass
class Shape:
    """What the invoices of a provider have: tokens, money, and the dimensions and kinds that every one of them has."""

    has_tokens: bool = False
    has_money: bool = False
    has_keys: bool = True
    has_tiers: bool = True
    has_days: bool = True
    has_request_ids: bool = False
    lacks_rate: bool = False  # its money is in a currency for which a day has no rate of exchange: it is unknown
    splits: frozenset[str] = frozenset({"input_cached", "input_cache_write"})


class _Rows(NamedTuple):
    """The sums of rows of one file that have the same group, kind of token, charge and label."""

    file: int
    group: int
    kind: str | None
    charge: str | None
    label: str | None
    splits: bool
    rows: int
    request_ids: int
    token_rows: int
    without_requests: int
    money_rows: int
    usd: Decimal
    slack: Decimal
    tokens: Tokens
    requests: int


@dataclass
class _Export:
    """What was read of one file. days: those of its rows and empty buckets, and of the days between if they have no row
    because nothing was billed. By provider: rows: rows of the period; names: those of the keys of rows that are usage;
    endpoints: those whose usage its rows are, None for a row that does not say it. first_day, last_day: also outside of the
    period.
    """

    file: InvoiceFile
    days: dict[str, set[str]] = field(default_factory=dict)
    rows: Counter[str] = field(default_factory=Counter)
    names: dict[str, set[Names]] = field(default_factory=dict)
    endpoints: dict[str, set[str | None]] = field(default_factory=dict)
    first_day: str | None = None
    last_day: str | None = None

    def see(self, provider: str, day: str) -> None:
        """Note that the file has this day."""
        self.days.setdefault(provider, set()).add(day)
        self.first_day = day if self.first_day is None else min(self.first_day, day)
        self.last_day = day if self.last_day is None else max(self.last_day, day)

    @property
    def format(self) -> Format:
        """The format of the file, which was read."""
        assert self.file.format is not None
        return self.file.format

    @property
    def used(self) -> InvoiceUsed:
        """The file, as the result names it."""
        return InvoiceUsed(
            self.file.path.name, self.file.sha256, self.format.name, self.file.rows, self.first_day, self.last_day
        )


class Theirs:
    """The invoices of an audit. All but `files` and `tables` is there after `read`.

    `cells`: the sums of each group. `groups`: every group, at its number in the table. `shapes`: by provider. `days`: with
    rows, by provider. `covered`: the days that an export with tokens, and one with money, covers, by provider. `used`: the
    files that count. `notes`: sentences on what counts once, is not covered, or has no row in the period. `rows`: how many
    rows of the period there are. `uncovered_days`: how many days of the period no export with tokens, or none with money,
    covers, by provider with such days.

    `rates`: of exchange, for money in other currencies than dollars. `without_rate`: how many rows of the period, by
    currency, have money for whose day there is no rate. Such money is unknown, and so is all money of its provider.
    """

    def __init__(self, files: Sequence[InvoiceFile], period: Period, mapping: Mapping, rates: Rates = NO_RATES) -> None:
        self.files = files
        self.tables = Tables()
        self.cells: dict[GroupKey, TheirCell] = {}
        self.groups: list[GroupKey] = []
        self.shapes: dict[str, Shape] = {}
        self.days: dict[str, set[str]] = {}
        self.covered: dict[str, tuple[set[str], set[str]]] = {}
        self.used: list[InvoiceUsed] = []
        self.notes: list[str] = []
        self.uncovered_days: dict[str, int] = {}
        self.rows = 0
        self.without_rate: Counter[str] = Counter()
        self._rates = rates
        self._unknown_money: set[str] = set()  # providers
        self._names: dict[str, list[set[Names]]] = {}  # of keys, by provider, of each file
        self._models: set[str | None] = set()  # with rows of tokens
        self._endpoints: dict[str, set[str | None]] = {}  # by provider, if all its files say of which endpoint they are
        self._period = period
        self._mapping = mapping
        self._day_of = DayOf(period.timezone)
        self._numbers: dict[GroupKey, int] = {}

    def read(self) -> None:
        """Read every file. Raises InvoiceError."""
        exports: dict[int, _Export] = {}
        # By name: notes are the same for every order in which the files are given.
        for number, file in enumerate(sorted(self.files, key=lambda file: str(file.path))):
            export = _Export(file)
            self.tables.insert("lines", self._rows_of(number, export))
            self.notes += [f"{note}." for note in file.notes]
            same = next((one.file for one in exports.values() if one.file.sha256 == file.sha256), None)
            if same is None or not file.sha256:
                exports[number] = export
            else:
                self.tables.database.execute("DELETE FROM lines WHERE file = ?", (number,))
                self.notes.append(_said_twice(file, same))
        self.tables.insert("groups", ((place, group.provider, None) for place, group in enumerate(self.groups)))
        if len(exports) > 1:
            self._count_shared_rows_once(exports)
        self._add_up(exports)
        self._cover(exports)
        self.used = [export.used for export in exports.values()]
        for export in exports.values():
            for provider, names in export.names.items():
                self._names.setdefault(provider, []).append(names)
        for provider in self.shapes:
            of_files = [
                export.endpoints.get(provider, {None})
                for export in exports.values()
                if export.format.has_tokens and provider in export.days
            ]
            self._endpoints[provider] = set().union(*of_files)
        self._models = {group.model for group, cell in self.cells.items() if cell.token_rows}

    def join_keys(self, tenants: Map[str, Set[str | None]]) -> list[str]:
        """Call keys of the invoices as our tenants, where the invoices do and no map says it. Returns these providers.

        `tenants`: the keys of our streams, by provider.
        """
        joined: dict[str, Map[str, str]] = {}
        for provider, shape in self.shapes.items():
            if shape.has_tokens and not shape.has_keys:
                joined[provider] = tenants_named(tenants.get(provider, frozenset()), self._names.get(provider, []))
                shape.has_keys = bool(joined[provider])

        def renamed(group: GroupKey) -> GroupKey:
            return group._replace(key=joined.get(group.provider, {}).get(group.key or "", group.key))

        self.groups = [renamed(group) for group in self.groups]
        cells, self.cells = self.cells, {}
        for group, cell in cells.items():
            self.cells.setdefault(renamed(group), TheirCell()).merge(cell)
        return [provider for provider, keys in joined.items() if keys]

    @property
    def unconverted(self) -> list[str]:
        """A sentence for each currency whose money is not compared."""
        return [
            f"{counted(rows, 'row')} with money in {currency}, for whose day there is no rate: the money of their provider "
            "is not compared. --rates FILE gives rates."
            for currency, rows in sorted(self.without_rate.items())
        ]

    def _rows_of(self, number: int, export: _Export) -> Iterator[tuple[object, ...]]:
        """The rows of a file in the period, and on the day either side of it, as the table has them."""
        has_several = len(self.files) > 1
        for line in export.file.lines():
            group = self._group_of(line)
            export.see(line.provider, group.day)
            if line.tokens is not None:
                export.endpoints.setdefault(line.provider, set()).add(line.endpoint)
            is_long = isinstance(line.when, Span) and line.when.end_us - line.when.start_us > _LONGEST_DAY_US
            if is_long and isinstance(line.when, Span) and not self._is_inside(export.file, line.when):
                continue
            if is_long and line.charge is None:  # a tax or a credit of a month is beside the usage of its days
                self.shapes.setdefault(line.provider, Shape()).has_days = False
            if not self._period.reads(group.day):
                continue
            export.rows[line.provider] += self._period.has(group.day)
            if line.charge is None:
                export.names.setdefault(line.provider, set()).add(line.keys)
            in_dollars = self._in_dollars(line, group.day)
            if line.usd is not None and in_dollars.usd is None and self._period.has(group.day):
                self.without_rate[line.currency] += 1
                self._unknown_money.add(line.provider)
            self.days.setdefault(line.provider, set()).add(group.day)
            bucket = _bucket(export.format, line) if has_several else None
            yield number, self._number_of(group), *_values(in_dollars, bucket)
        for span in export.file.covered if export.format.lists_empty_days else ():
            for provider in list(export.days):
                for day in self._days_of(span):
                    export.see(provider, day)

    def _number_of(self, group: GroupKey) -> int:
        number = self._numbers.get(group)
        if number is None:
            number = self._numbers[group] = len(self.groups)
            self.groups.append(group)
        return number

    def _days_of(self, span: Span) -> Iterator[str]:
        """The days that a bucket covers: a shorter one that of its middle, as a row."""
        day = self._day_of((span.start_us + min(span.end_us, span.start_us + DAY_US)) // 2)
        for _ in range(max(1, round((span.end_us - span.start_us) / DAY_US))):
            yield day
            day = day_after(day, 1)

    def _count_shared_rows_once(self, exports: dict[int, _Export]) -> None:
        """Leave out rows that an earlier file has, too. Raises InvoiceError if two files contradict each other."""
        database = self.tables.database
        conflicts: dict[tuple[int, int], set[str]] = {}
        for first, second, group in database.execute(_CONFLICTS):
            conflicts.setdefault((first, second), set()).add(self.groups[group].day)
        for (first, second), days in sorted(conflicts.items()):
            raise InvoiceError(
                str(exports[second].file.path),
                f"it and {exports[first].file.path} have different rows for the same lines of {_spoken(days)}: the provider"
                " changed them between the two exports, or both are parts of one; give one export of these days",
            )
        database.execute(_SHARED)
        pairs: dict[tuple[int, int], tuple[int, set[str]]] = {}
        for kept, file, group, count in database.execute(
            "SELECT kept, file, grp, count(*) FROM shared WHERE file <> kept GROUP BY kept, file, grp"
        ):
            rows, days = pairs.get((kept, file), (0, set()))
            pairs[kept, file] = rows + count, days | {self.groups[group].day}
        database.execute("DELETE FROM lines WHERE rowid IN (SELECT row FROM shared WHERE file <> kept)")
        database.execute("DROP TABLE shared")
        for (kept, file), (rows, days) in sorted(pairs.items()):
            self.notes.append(
                f"{exports[file].file.path.name} and {exports[kept].file.path.name} overlap ({_spoken(days)}): "
                f"{counted(rows, 'row')} that both have {'counts' if rows == 1 else 'count'} once."
            )

    def _add_up(self, exports: dict[int, _Export]) -> None:
        seen: dict[tuple[int, str], list[_Rows]] = {}
        for rows in map(_rows, self.tables.database.execute(_SUMS)):
            group = self.groups[rows.group]
            seen.setdefault((rows.file, group.provider), []).append(rows)
            cell = self.cells.setdefault(group, TheirCell())
            cell.add(rows)
            if group.tier == BATCH:
                cell.batch.add(rows)
            if self._period.has(group.day):
                self.rows += rows.rows
        for number, export in exports.items():
            for provider in export.days:
                self._shape(provider, seen.get((number, provider)), export.format)
        for provider in self._unknown_money:
            self.shapes[provider].has_money, self.shapes[provider].lacks_rate = False, True
        for number, digest, extra, uncached, *counts, usd, requests, request_id in self.tables.database.execute(
            _REPEATED
        ):
            group = self.groups[number]
            line = InvoiceLine(
                group.provider,
                group.day,
                group.model,
                tokens=None if uncached is None else Tokens(uncached, *counts),
                usd=None if usd is None else Decimal(usd),
                requests=requests,
                request_id=None if request_id is None else bytes(request_id).decode("utf-8", "surrogatepass"),
                digest=digest,
            )
            self.cells[group].repeated.add(line, extra)

    def _shape(self, provider: str, seen: Sequence[_Rows] | None, export: Format) -> None:
        shape = self.shapes.setdefault(provider, Shape())
        shape.has_tokens = shape.has_tokens or export.has_tokens
        shape.has_money = shape.has_money or export.has_money
        if seen is None:  # it has no row in the period: what its rows would have is not known
            return
        groups = [self.groups[rows.group] for rows in seen]
        # Keys of which none is a tenant's by the map are other names: compared by them, all would lack and all be too much.
        tenants = set(self._mapping.tenants.values())
        has_keys, has_tiers = any(group.key in tenants for group in groups), any(group.tier for group in groups)
        shape.has_keys = shape.has_keys and has_keys
        shape.has_tiers = shape.has_tiers and export.tiers and has_tiers
        shape.has_request_ids = shape.has_request_ids or any(rows.request_ids for rows in seen)
        if export.has_tokens:
            kinds = {rows.kind for rows in seen if rows.token_rows and rows.kind is not None}
            shape.splits &= export.splits if all(rows.splits for rows in seen) else export.splits & kinds

    def _cover(self, exports: dict[int, _Export]) -> None:
        """Find the days that the exports cover, and say which of the period they do not, or that they have no row of it."""
        period_days = set(self._period.days)
        for export in exports.values():
            for provider, days in export.days.items():
                tokens, money = self.covered.setdefault(provider, (set(), set()))
                known = _whole(days) if self.shapes[provider].has_days else period_days
                if export.format.lists_empty_days and (holes := (known - days) & period_days):
                    self.notes.append(
                        f"{export.file.path.name} has no bucket of {_spoken(holes)}, between its first and its last day: "
                        f"{'this day is' if len(holes) == 1 else 'these days are'} compared as if nothing was billed."
                    )
                if export.format.has_tokens:
                    tokens |= known & period_days
                if export.format.has_money:
                    money |= known & period_days
            if not any(export.rows.values()):
                first, last = export.first_day, export.last_day
                days_of_file = first if first == last else f"{first} to {last}"
                self.notes.append(f"{export.file.path.name} has no row of the period: it is for {days_of_file}.")
            elif export.last_day == self._period.end:
                self.notes.append(
                    f"{export.file.path.name} ends on {self._period.end}, the day that --to excludes: it is not compared."
                )
        for provider, (tokens, money) in sorted(self.covered.items()):
            if missing := period_days - tokens - money:
                self.notes.append(
                    f"No export of {provider} covers {_spoken(missing)}: "
                    f"{'this day is' if len(missing) == 1 else 'these days are'} not compared."
                )
            shape = self.shapes[provider]
            compared = (tokens if shape.has_tokens else period_days) & (money if shape.has_money else period_days)
            if uncovered := len(period_days - compared):
                self.uncovered_days[provider] = uncovered
            sides = ("tokens", "are", shape.has_tokens, tokens), ("money", "is", shape.has_money, money)
            for name, verb, has, days in sides:
                if has and (missing := (tokens | money) - days):
                    self.notes.append(
                        f"No export of {provider} with {name} covers {_spoken(missing)}: {name} of "
                        f"{'this day' if len(missing) == 1 else 'these days'} {verb} not compared."
                    )

    def lacks_endpoint(self, group: GroupKey) -> str | None:
        """The endpoint of a cell's model, if every export of the provider has the usage of other endpoints alone."""
        endpoints = self._endpoints.get(group.provider, set())
        if not endpoints or None in endpoints or group.model is None or group.model in self._models:
            return None
        endpoint = next((name for mark, name in _ENDPOINTS if mark in group.model), _COMPLETIONS)
        return None if endpoint in endpoints else endpoint

    def shape_of(self, group: GroupKey) -> Shape:
        """The shape of a cell: without what no export covers on its day."""
        shape = self.shapes[group.provider]
        if self.lacks_endpoint(group) is not None:
            return replace(shape, has_tokens=False)
        if not group.day or not self._period.has(group.day):
            return shape
        tokens, money = self.covered.get(group.provider, (set(), set()))
        has_tokens, has_money = shape.has_tokens and group.day in tokens, shape.has_money and group.day in money
        if (has_tokens, has_money) == (shape.has_tokens, shape.has_money):
            return shape
        return replace(shape, has_tokens=has_tokens, has_money=has_money)

    def is_covered(self, provider: str, day: str) -> bool:
        """Whether a day of the period is in an export of the provider, with tokens or with money."""
        return any(day in days for days in self.covered.get(provider, ()))

    def _in_dollars(self, line: InvoiceLine, day: str) -> InvoiceLine:
        """The row with its money in dollars; None where there is no rate for its currency and day."""
        if line.usd is None or line.currency == USD:
            return line
        usd = self._rates.usd(line.usd, line.currency, day)
        half_digit = self._rates.usd(line.half_digit, line.currency, day)
        if usd is None or half_digit is None:
            return line._replace(usd=None, half_digit=ZERO_USD)
        return line._replace(usd=usd, half_digit=half_digit, currency=USD)

    def _is_inside(self, file: InvoiceFile, span: Span) -> bool:
        """Whether a row of several days lies in the period, not outside. Else its part in the period cannot be known."""
        inside = span.start_us >= self._period.since_us and span.end_us <= self._period.until_us
        outside = span.end_us <= self._period.since_us or span.start_us >= self._period.until_us
        if not inside and not outside:
            fault = f"row {file.rows} is for more than a day, and reaches beyond the period: export it by day"
            raise InvoiceError(str(file.path), fault)
        return inside

    def _group_of(self, line: InvoiceLine) -> GroupKey:
        # The middle: a day of another time zone is compared with the day that it overlaps most.
        when = line.when
        day = self._day_of((when.start_us + when.end_us) // 2) if isinstance(when, Span) else when
        return GroupKey(day, line.provider, line.model, self._mapping.their_key(line.keys), line.tier)


def _values(line: InvoiceLine, bucket: bytes | None) -> tuple[object, ...]:
    """A row without its file and group, as the table has it."""
    return (
        line.digest,
        bucket,
        *(line.tokens or (None, None, None, None)),
        None if line.usd is None else str(line.usd),
        str(line.half_digit) if line.half_digit else None,
        line.kind,
        line.requests,
        None if line.request_id is None else id_bytes(line.request_id),
        line.charge,
        line.label,
        line.splits,
    )


def _bucket(export: Format, line: InvoiceLine) -> bytes:
    """A digest of all that says what a row is for. Its numbers are not in it."""
    names = export.name, line.provider, line.when, line.model, line.keys, line.tier, line.kind, line.request_id
    text = repr((*names, line.charge, line.label, line.tokens is None)).encode("utf-8", "surrogatepass")
    return blake2b(text, digest_size=_DIGEST_BYTES).digest()


def _rows(row: Sequence[object]) -> _Rows:
    file, group, kind, charge, label, splits, count, ids, token_rows, without, money_rows, usd, slack, *halves = row
    uncached, cached, written, output, requests = map(joined, halves[::2], halves[1::2])  # type: ignore[arg-type]
    return _Rows(
        file, group, kind, charge, label, bool(splits), count, ids, token_rows, without, money_rows,  # type: ignore[arg-type]
        _usd(usd), _usd(slack), Tokens(uncached, cached, written, output), requests,
    )  # fmt: skip


def _usd(amount: object) -> Decimal:
    return ZERO_USD if amount is None else Decimal(str(amount))


def _whole(days: set[str]) -> set[str]:
    """The days that a file covers: from its first to its last one."""
    whole, day, last = set(), min(days), max(days)
    while day <= last:
        whole.add(day)
        day = day_after(day, 1)
    return whole


def _said_twice(file: InvoiceFile, same: InvoiceFile) -> str:
    if file.path.name == same.path.name:
        return f"{file.path.name} was given twice: it counts once."
    return f"{file.path.name} has the same bytes as {same.path.name}: they count once."


# Spans of days that a sentence lists. Of more, it has the first and the last day.
_MAX_SPANS = 4


def _spoken(days: set[str]) -> str:
    """Days in a sentence: each span of them; the first and the last one, and how many there are, of many spans."""
    spans: list[tuple[str, str]] = []
    for day in sorted(days):
        begins = spans.pop()[0] if spans and day_after(spans[-1][1], 1) == day else day
        spans.append((begins, day))
    if len(spans) > _MAX_SPANS:
        return f"{len(days)} days of {spans[0][0]} to {spans[-1][1]}"
    *others, last = [first if first == last else f"{first} to {last}" for first, last in spans]
    return f"{', '.join(others)} and {last}" if others else last
