"""Rows that are equal to another row in every field, and the filter that finds them in a fixed amount of memory."""

from dataclasses import dataclass, field
from decimal import Decimal

from streamgauge.audit.amounts import EXACT, ZERO, ZERO_USD, Tokens, plus, usd_plus
from streamgauge.audit.invoices import InvoiceLine
from streamgauge.audit.temporary import temporary_table

# Different rows of a cell that are held, to be tried one by one. Of more, only all together are tried.
MAX_EACH = 8
# Ids of requests of a cell that are held, to name their streams. Of more, none is named.
MAX_IDS = 10_000
# Bits of the filter, by four hashes (32 MiB): of five million rows about a hundred are looked at again without need, of a
# million response ids none.
_FILTER_BITS = 2**28


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

    def add(self, line: InvoiceLine, *, is_second: bool) -> None:
        """Add an extra row. `is_second`: it is the first extra one of its kind."""
        if line.tokens is not None:
            self.rows += 1 + is_second
            self.tokens = plus(self.tokens, line.tokens)
            self.usd = usd_plus(self.usd, line.usd)
            self.requests += line.requests or 0
        elif line.usd is not None:
            self.money = EXACT.add(self.money, line.usd)
        _, extra = self.each.get(line.digest, (line, 0))
        self.each[line.digest] = (line, extra + 1)
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


class SeenDigests:
    """A filter of digests (16 bytes) in a fixed amount of memory.

    It may take a new one for an old one, never the other way round.
    """

    def __init__(self) -> None:
        self._bits = bytearray(_FILTER_BITS // 8)

    def had(self, digest: bytes) -> bool:
        """Add a digest; return whether it was added before, probably."""
        known = True
        for start in (0, 4, 8, 12):
            byte, bit = divmod(int.from_bytes(digest[start : start + 4], "big") % _FILTER_BITS, 8)
            if not self._bits[byte] >> bit & 1:
                known = False
                self._bits[byte] |= 1 << bit
        return known


class DigestCounts:
    """Exact counts of rows by digest, of the digests that were added before. False if none was added."""

    def __init__(self) -> None:
        self._table = temporary_table("CREATE TABLE counts (digest BLOB PRIMARY KEY, rows INTEGER) WITHOUT ROWID")
        self._any = False

    def __bool__(self) -> bool:
        return self._any

    def add(self, digest: bytes) -> None:
        """Count this digest from now on."""
        self._table.execute("INSERT OR IGNORE INTO counts VALUES (?, 0)", (digest,))
        self._any = True

    def before(self, digest: bytes) -> int:
        """Count a row; return how many rows with its digest were counted before, 0 for a digest that was not added."""
        row = self._table.execute("SELECT rows FROM counts WHERE digest = ?", (digest,)).fetchone()
        if row is None:
            return 0
        self._table.execute("UPDATE counts SET rows = rows + 1 WHERE digest = ?", (digest,))
        return int(row[0])
