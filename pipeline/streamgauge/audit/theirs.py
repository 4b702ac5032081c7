"""The invoices' side of an audit: their rows, added up by cell while they are read."""

from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from decimal import Decimal

from streamgauge.audit.amounts import EXACT, ZERO, ZERO_USD, Tokens, plus
from streamgauge.audit.invoices import Format, InvoiceError, InvoiceFile, InvoiceLine, Span
from streamgauge.audit.mapping import Mapping
from streamgauge.audit.ours import GroupKey
from streamgauge.audit.period import DAY_US, DayOf, Period
from streamgauge.audit.rates_file import NO_RATES, USD, Rates
from streamgauge.audit.repeated import DigestCounts, Repeated, SeenDigests

# The tier of requests that are answered later, all together: they are no streams, so no tap sees them.
BATCH = "batch"
# A bucket of a day that a change of the clock makes longer (25 hours).
_LONGEST_DAY_US = DAY_US + DAY_US // 24


@dataclass
class Part:
    """The sums of some rows of a cell. `requests`: of the rows that name them; `usd`: of the rows with money."""

    tokens: Tokens = ZERO
    usd: Decimal = ZERO_USD
    requests: int = 0
    money_rows: int = 0

    def add(self, line: InvoiceLine) -> None:
        """Add a row."""
        if line.tokens is not None:
            self.tokens = plus(self.tokens, line.tokens)
            self.requests += line.requests or 0
        if line.usd is not None:
            self.usd = EXACT.add(self.usd, line.usd)
            self.money_rows += 1

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

    def add(self, line: InvoiceLine) -> None:
        """Add a row."""
        if line.tier == BATCH:
            self.batch.add(line)
        if line.tokens is not None:
            self.tokens = plus(self.tokens, line.tokens)
            self.token_rows += 1
            if self.requests is not None:
                self.requests = None if line.requests is None else self.requests + line.requests
        if line.usd is not None:
            self.usd = EXACT.add(self.usd, line.usd)
            self.slack = EXACT.add(self.slack, line.half_digit)
            self.money_rows += 1
            if line.charge is not None:
                charge = line.charge, line.label
                self.charges[charge] = EXACT.add(self.charges.get(charge, ZERO_USD), line.usd)
            if line.kind is not None:
                self.usd_by_kind[line.kind] = EXACT.add(self.usd_by_kind.get(line.kind, ZERO_USD), line.usd)

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
    splits: frozenset[str] = frozenset({"input_cached", "input_cache_write"})


@dataclass
class _Seen:
    """What one file has of a provider."""

    keys: bool = False
    tiers: bool = False
    unsplit: bool = False
    request_ids: bool = False
    kinds: set[str] = field(default_factory=set)


class Theirs:
    """The invoices of an audit. `cells`, `shapes` and `days` (with rows, by provider) are there after `read`.

    `rates`: of exchange, for money in other currencies than dollars. `without_rate`: how many rows of the period, by
    currency, have money for whose day there is no rate. Such money is unknown, and so is all money of its provider.
    """

    def __init__(self, files: Sequence[InvoiceFile], period: Period, mapping: Mapping, rates: Rates = NO_RATES) -> None:
        self.files = files
        self.cells: dict[GroupKey, TheirCell] = {}
        self.shapes: dict[str, Shape] = {}
        self.days: dict[str, set[str]] = {}
        self.without_rate: Counter[str] = Counter()
        self._rates = rates
        self._unknown_money: set[str] = set()  # providers
        self._period = period
        self._mapping = mapping
        self._day_of = DayOf(period.timezone)

    def read(self) -> None:
        """Read every file. Raises InvoiceError."""
        seen_rows, again = SeenDigests(), DigestCounts()
        for file in self.files:
            seen: dict[str, _Seen] = {}
            for line in file.lines():
                file_seen = seen.setdefault(line.provider, _Seen())
                file_seen.keys = file_seen.keys or bool(line.keys)
                file_seen.tiers = file_seen.tiers or line.tier is not None
                file_seen.unsplit = file_seen.unsplit or not line.splits
                file_seen.request_ids = file_seen.request_ids or line.request_id is not None
                if line.kind is not None and line.tokens is not None:
                    file_seen.kinds.add(line.kind)
                self._add(file, line)
                if seen_rows.had(line.digest):
                    again.add(line.digest)
            assert file.format is not None
            for provider, file_seen in seen.items():
                self._shape(provider, file_seen, file.format)
        for provider in self._unknown_money:
            self.shapes[provider].has_money = False
        if again:
            self._find_repeated(again)

    @property
    def unconverted(self) -> list[str]:
        """A sentence for each currency whose money is not compared."""
        return [
            f"{rows} row{'' if rows == 1 else 's'} with money in {currency}, for whose day there is no rate: the money of "
            "their provider is not compared; --rates FILE gives rates"
            for currency, rows in sorted(self.without_rate.items())
        ]

    def lines(self, wanted: Callable[[GroupKey], bool]) -> Iterable[tuple[GroupKey, InvoiceLine]]:
        """The rows of the wanted cells, from another reading."""
        for file in self.files:
            for line in file.lines():
                group = self._group_of(line)
                if self._period.reads(group.day) and wanted(group):
                    yield group, self._in_dollars(line, group.day)

    def _add(self, file: InvoiceFile, line: InvoiceLine) -> None:
        group = self._group_of(line)
        if isinstance(line.when, Span) and line.when.end_us - line.when.start_us > _LONGEST_DAY_US:
            if not self._is_inside(file, line.when):
                return
            if line.charge is None:  # a tax or a credit of a month is beside the usage of its days
                self.shapes.setdefault(line.provider, Shape()).has_days = False
        if self._period.reads(group.day):
            in_dollars = self._in_dollars(line, group.day)
            if line.usd is not None and in_dollars.usd is None and self._period.has(group.day):
                self.without_rate[line.currency] += 1
                self._unknown_money.add(line.provider)
            self.days.setdefault(line.provider, set()).add(group.day)
            self.cells.setdefault(group, TheirCell()).add(in_dollars)

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

    def _shape(self, provider: str, seen: _Seen, export: Format) -> None:
        shape = self.shapes.setdefault(provider, Shape())
        shape.has_tokens = shape.has_tokens or export.has_tokens
        shape.has_money = shape.has_money or export.has_money
        shape.has_keys = shape.has_keys and seen.keys and bool(self._mapping.tenants)
        shape.has_tiers = shape.has_tiers and export.tiers and seen.tiers
        shape.has_request_ids = shape.has_request_ids or seen.request_ids
        if export.has_tokens:
            shape.splits &= (export.splits & seen.kinds) if seen.unsplit else export.splits

    def _find_repeated(self, again: DigestCounts) -> None:
        """Add up the rows that the filter found twice, by their whole digests: the filter may be wrong."""
        for group, line in self.lines(lambda _: True):
            before = again.before(line.digest)
            if before:
                self.cells[group].repeated.add(line, is_second=before == 1)
