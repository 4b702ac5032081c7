"""Rows of an invoice that are each for one request, by its id: those of our streams, and those that no tap saw.

An invoice may have millions of them, so they are a table of the temporary database.
"""

from collections.abc import Callable, Iterable, Iterator, Mapping
from decimal import Decimal
from typing import NamedTuple

from streamgauge.audit.amounts import ZERO, ZERO_USD, Tokens, plus, usd_plus
from streamgauge.audit.ours import GroupKey
from streamgauge.audit.tables import Tables, id_bytes

# Of two rows with one id, the one with the smaller digest counts: the same in every order of the files. (The other columns
# are those of that row: SQLite, "Bare columns in an aggregate query".)
_MAKE = """
INSERT INTO {table}
SELECT request_id, min(digest), cell, uncached, cached, written, output, uncached + cached + written, usd, 0
FROM lines JOIN groups USING (grp)
WHERE request_id IS NOT NULL AND uncached IS NOT NULL AND provider = ? GROUP BY request_id
"""
_TABLE = """
CREATE TABLE {table} (id BLOB PRIMARY KEY, digest BLOB, cell INTEGER, uncached INTEGER, cached INTEGER, written INTEGER,
    output INTEGER, input INTEGER, usd TEXT, is_ours INTEGER) WITHOUT ROWID
"""
_IS_OURS = "UPDATE {table} SET is_ours = 1 WHERE id = ?"
_INDEX = "CREATE INDEX {table}_unseen ON {table} (cell, input, id) WHERE is_ours = 0"
_SELECT = "SELECT uncached, cached, written, output, usd FROM {table} "
_OF_ID = _SELECT + "WHERE id = ?"
_OF_ID_IN_CELL = _SELECT + "WHERE id = ? AND cell = ?"
_UNSEEN = _SELECT + "WHERE is_ours = 0 AND cell = ?"
_UNSEEN_WITH_INPUT = _SELECT + "WHERE is_ours = 0 AND cell = ? AND input = ? ORDER BY id LIMIT ?"


class Billed(NamedTuple):
    """What rows bill, in the kinds of tokens that are compared. usd: None if one of them has no money."""

    tokens: Tokens = ZERO
    usd: Decimal | None = ZERO_USD
    rows: int = 0


class RequestRows:
    """The rows of one provider that name a request.

    `cells`: the number of each cell, as the table `groups` has it. `folded`: gives the kinds of tokens that are compared.
    `ours`: the response ids of our streams that were read, each as `id_bytes` in a row.
    """

    def __init__(
        self,
        tables: Tables,
        provider: str,
        cells: Mapping[GroupKey, int],
        folded: Callable[[Tokens], Tokens],
        ours: Iterable[tuple[bytes]],
    ) -> None:
        self._database = tables.database
        self._cells = cells
        self._folded = folded
        (number,) = self._database.execute("SELECT count(*) FROM sqlite_schema").fetchone()
        self._table = f"requests_{number}"
        self._database.execute(_TABLE.format(table=self._table))
        self._database.execute(_MAKE.format(table=self._table), (provider,))
        self._database.executemany(_IS_OURS.format(table=self._table), ours)
        self._database.execute(_INDEX.format(table=self._table))
        self._unseen: dict[GroupKey, Billed] = {}

    def is_billed(self, request_id: str) -> bool:
        """Whether a request has a row, in any cell."""
        return any(True for _ in self._found(_OF_ID, id_bytes(request_id)))

    def billed_in(self, group: GroupKey, request_id: str) -> Billed | None:
        """What the row of a request bills, if it is in this cell."""
        return next(self._found(_OF_ID_IN_CELL, id_bytes(request_id), self._number(group)), None)

    def unseen(self, group: GroupKey, input_tokens: int, most: int) -> list[Billed]:
        """Rows of a cell with this much input whose request is in no stream of ours: at most so many, the first by id."""
        return list(self._found(_UNSEEN_WITH_INPUT, self._number(group), input_tokens, most))

    def unseen_total(self, group: GroupKey) -> Billed:
        """All rows of a cell whose request is in no stream of ours, added up."""
        if group not in self._unseen:
            self._unseen[group] = total_billed(self._found(_UNSEEN, self._number(group)))
        return self._unseen[group]

    def _number(self, group: GroupKey) -> int:
        return self._cells.get(group, -1)

    def _found(self, query: str, *values: int | bytes) -> Iterator[Billed]:
        for *counts, usd in self._database.execute(query.format(table=self._table), values):
            yield Billed(self._folded(Tokens(*counts)), None if usd is None else Decimal(usd), 1)


def total_billed(parts: Iterable[Billed]) -> Billed:
    """The sum of what rows bill."""
    tokens, usd, rows = Billed()
    for part in parts:
        tokens, usd, rows = plus(tokens, part.tokens), usd_plus(usd, part.usd), rows + part.rows
    return Billed(tokens, usd, rows)
