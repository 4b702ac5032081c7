"""Rows that are equal to another row of the same invoice in every field."""

from dataclasses import dataclass, field
from decimal import Decimal

from streamgauge.audit.amounts import EXACT, ZERO, ZERO_USD, Tokens, plus, usd_plus
from streamgauge.audit.invoices import InvoiceLine

# Different rows of a cell that are held, to be tried one by one. Of more, only all together are tried.
MAX_EACH = 8
# Ids of requests of a cell that are held, to name their streams. Of more, none is named.
MAX_IDS = 10_000


@dataclass
class Repeated:
    """The repeated rows of a cell. What is beyond the first row of each is *extra*.

    rows: how many rows with tokens they are, the first ones included. tokens, usd, requests: what the extra rows with tokens
    bill; usd is None if they have no money. money: what the extra rows without tokens bill. each: the different rows, by
    digest, with the number of extra ones. ids: of the extra rows' requests.
    """

    rows: int = 0
    tokens: Tokens = ZERO
    usd: Decimal | None = ZERO_USD
    requests: int = 0
    money: Decimal = ZERO_USD
    each: dict[bytes, tuple[InvoiceLine, int]] = field(default_factory=dict)
    ids: set[str] = field(default_factory=set)
    _is_many: bool = False
    _has_many_ids: bool = False

    def add(self, line: InvoiceLine, extra: int) -> None:
        """Add a row that is there `extra` times more than once. Each row is added once."""
        usd = None if line.usd is None else EXACT.multiply(line.usd, Decimal(extra))
        if line.tokens is not None:
            self.rows += 1 + extra
            self.tokens = plus(self.tokens, Tokens(*(extra * count for count in line.tokens)))
            self.usd = usd_plus(self.usd, usd)
            self.requests += extra * (line.requests or 0)
        elif usd is not None:
            self.money = EXACT.add(self.money, usd)
        self.each[line.digest] = (line, extra)
        if line.request_id is not None:
            self.ids.add(line.request_id)
        self._bound()

    def merge(self, other: "Repeated") -> None:
        """Add the repeated rows of another cell."""
        self.rows += other.rows
        self.tokens = plus(self.tokens, other.tokens)
        self.usd = usd_plus(self.usd, other.usd)
        self.requests += other.requests
        self.money = EXACT.add(self.money, other.money)
        self.each |= other.each
        self.ids |= other.ids
        self._is_many = self._is_many or other._is_many
        self._has_many_ids = self._has_many_ids or other._has_many_ids
        self._bound()

    def different(self) -> list[tuple[InvoiceLine, int]]:
        """The different rows with the number of extra ones, in an order that does not depend on the files'."""
        return [self.each[digest] for digest in sorted(self.each)]

    def _bound(self) -> None:
        self._is_many = self._is_many or len(self.each) > MAX_EACH
        self._has_many_ids = self._has_many_ids or len(self.ids) > MAX_IDS
        if self._is_many:
            self.each.clear()
        if self._has_many_ids:
            self.ids.clear()
