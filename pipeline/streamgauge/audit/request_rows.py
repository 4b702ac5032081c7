"""Rows of an invoice that are each for one request, by its id: those of our streams, and those that no tap saw.

An invoice may have millions of them, so they are in a temporary table.
"""

from collections.abc import Iterable, Iterator
from decimal import Decimal
from typing import NamedTuple

from streamgauge.audit.amounts import ZERO, ZERO_USD, Tokens, plus, usd_plus
from streamgauge.audit.ours import GroupKey
from streamgauge.audit.temporary import temporary_table

_TABLE = """
CREATE TABLE requests (id BLOB PRIMARY KEY, digest BLOB, cell INTEGER, uncached INTEGER, cached INTEGER, written INTEGER,
    output INTEGER, input INTEGER, usd TEXT, is_ours INTEGER) WITHOUT ROWID
"""
# Of two rows with one id, the one with the smaller digest counts: the same in every order of the files.
_PUT = """
INSERT INTO requests VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, 0) ON CONFLICT (id) DO UPDATE SET digest = excluded.digest,
    cell = excluded.cell, uncached = excluded.uncached, cached = excluded.cached, written = excluded.written,
    output = excluded.output, input = excluded.input, usd = excluded.usd WHERE excluded.digest < requests.digest
"""
_SELECT = "SELECT uncached, cached, written, output, usd FROM requests "
_OF_ID = _SELECT + "WHERE id = ?"
_OF_ID_IN_CELL = _SELECT + "WHERE id = ? AND cell = ?"
_UNSEEN = _SELECT + "WHERE is_ours = 0 AND cell = ?"
_UNSEEN_WITH_INPUT = _SELECT + "WHERE is_ours = 0 AND cell = ? AND input = ? ORDER BY id LIMIT ?"
_BATCH = 1_000


class Billed(NamedTuple):
    """What rows bill, in the kinds of tokens that are compared. usd: None if one of them has no money."""

    tokens: Tokens = ZERO
    usd: Decimal | None = ZERO_USD
    rows: int = 0


class RequestRows:
    """The rows of one provider, in the cells that are read. `add` each of them, then `begin`; the rest is for afterwards."""

    def __init__(self) -> None:
        self._table = temporary_table(_TABLE)
        self._groups: dict[GroupKey, int] = {}
        self._waiting: list[tuple[object, ...]] = []
        self._unseen: dict[int, Billed] = {}

    def add(self, request_id: str, digest: bytes, group: GroupKey, billed: Billed) -> None:
        """Add a row."""
        number = self._groups.setdefault(group, len(self._groups))
        tokens, usd = billed.tokens, None if billed.usd is None else str(billed.usd)
        self._waiting.append((_key(request_id), digest, number, *tokens, tokens.input, usd))
        if len(self._waiting) >= _BATCH:
            self._write()

    def begin(self, ours: Iterable[str]) -> None:
        """End the adding of rows. `ours`: the response ids of our streams that were read."""
        self._write()
        self._table.executemany(
            "UPDATE requests SET is_ours = 1 WHERE id = ?", ((_key(response_id),) for response_id in ours)
        )
        self._table.execute("CREATE INDEX unseen ON requests (cell, input, id) WHERE is_ours = 0")
        for number in self._groups.values():
            self._unseen[number] = total_billed(self._found(_UNSEEN, number))

    def is_billed(self, request_id: str) -> bool:
        """Whether a request has a row, in any cell."""
        return bool(list(self._found(_OF_ID, _key(request_id))))

    def billed_in(self, group: GroupKey, request_id: str) -> Billed | None:
        """What the row of a request bills, if it is in this cell."""
        return next(self._found(_OF_ID_IN_CELL, _key(request_id), self._number(group)), None)

    def unseen(self, group: GroupKey, input_tokens: int, most: int) -> list[Billed]:
        """Rows of a cell with this much input whose request is in no stream of ours: at most so many, the first by id."""
        return list(self._found(_UNSEEN_WITH_INPUT, self._number(group), input_tokens, most))

    def unseen_total(self, group: GroupKey) -> Billed:
        """All rows of a cell whose request is in no stream of ours, added up."""
        return self._unseen.get(self._number(group), Billed())

    def _number(self, group: GroupKey) -> int:
        return self._groups.get(group, -1)

    def _found(self, query: str, *values: int | bytes) -> Iterator[Billed]:
        for *counts, usd in self._table.execute(query, values):
            yield Billed(Tokens(*counts), None if usd is None else Decimal(usd), 1)

    def _write(self) -> None:
        self._table.executemany(_PUT, self._waiting)
        self._waiting.clear()


def total_billed(parts: Iterable[Billed]) -> Billed:
    """The sum of what rows bill."""
    tokens, usd, rows = Billed()
    for part in parts:
        tokens, usd, rows = plus(tokens, part.tokens), usd_plus(usd, part.usd), rows + part.rows
    return Billed(tokens, usd, rows)


def _key(request_id: str) -> bytes:
    return request_id.encode("utf-8", "surrogatepass")
