"""Reads several ledgers as one, such as the ledgers of workers on several hosts.

A stream must be in one of them: totals of a stream that two ledgers hold count it twice. Usage of a resumed stream counts
with its origin only if both are in one ledger.
"""

import heapq
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace
from itertools import islice
from uuid import UUID

import msgspec

from streamgauge.ledger.contract import ALL_RECORDS, KEYS, Filter, Part, Reader, Total, add_totals
from streamgauge.ledger.row import LedgerRow, microseconds_of, moment_of


class SeveralLedgers:
    """Several ledgers, for reading. The caller closes them."""

    def __init__(self, ledgers: Sequence[Reader]) -> None:
        self._ledgers = ledgers

    def query(
        self, limit: int | None = None, chosen: Filter = ALL_RECORDS, *, newest_first: bool = False
    ) -> Iterator[bytes]:
        """See Reader.query. A record that two ledgers hold comes once."""
        chosen = self._with_attributes(chosen, ())
        sorted_each = [
            (
                (_place(record, newest_first), record)
                for record in ledger.query(limit, chosen, newest_first=newest_first)
            )
            for ledger in self._ledgers
        ]
        return islice(_each_once(heapq.merge(*sorted_each)), limit)

    def totals(self, by: Sequence[str], chosen: Filter = ALL_RECORDS, *, newest_first: bool = False) -> list[Total]:
        """See Reader.totals."""
        chosen = self._with_attributes(chosen, by)
        return add_totals([ledger.totals(by, chosen) for ledger in self._ledgers], newest_first=newest_first)

    def minutes(self, chosen: Filter) -> list[tuple[int, str, int]]:
        """See Reader.minutes."""
        chosen = self._with_attributes(chosen, ())
        numbers: Counter[tuple[int, str]] = Counter()
        for ledger in self._ledgers:
            for start_s, outcome, number in ledger.minutes(chosen):
                numbers[start_s, outcome] += number
        return sorted((*key, number) for key, number in numbers.items())

    def slowest(self, limit: int, chosen: Filter = ALL_RECORDS) -> list[bytes]:
        """See Reader.slowest."""
        chosen = self._with_attributes(chosen, ())
        found = {record for ledger in self._ledgers for record in ledger.slowest(limit, chosen)}
        return sorted(found, key=lambda record: (-(LedgerRow.of_stored(record).wait_us or 0), _place(record, False)))[
            :limit
        ]

    def with_id(self, part: str, limit: int) -> list[bytes]:
        """See Reader.with_id. A record that two ledgers hold comes once."""
        found = {record for ledger in self._ledgers for record in ledger.with_id(part, limit)}
        by_id = sorted((_DECODER.decode(record).stream_id, record) for record in found)
        beginning = [(name, record) for name, record in by_id if name.startswith(part)]
        return [record for _, record in beginning or by_id][:limit]

    def has_attribute(self, name: str) -> bool:
        """See Reader.has_attribute."""
        return any(ledger.has_attribute(name) for ledger in self._ledgers)

    @property
    def parts(self) -> Sequence[Part]:
        """See Reader.parts."""
        return [part for ledger in self._ledgers for part in ledger.parts]

    def _with_attributes(self, chosen: Filter, by: Iterable[str]) -> Filter:
        """The filter for each ledger: an attribute is a key for all of them if a record in one of them has it."""
        names = {name for name in (*by, *chosen.keys) if name not in KEYS}
        return replace(chosen, attributes=frozenset(name for name in names if self.has_attribute(name)))


class _Known(msgspec.Struct):
    stream_id: str
    started_at: str | None


_DECODER = msgspec.json.Decoder(_Known)

# A position in the order of records: those without a start are last in both orders.
_Place = tuple[bool, int, int]


def _place(record: bytes, newest_first: bool) -> _Place:
    known = _DECODER.decode(record)
    moment = moment_of(known.started_at)
    sign = -1 if newest_first else 1
    return moment is None, 0 if moment is None else sign * microseconds_of(moment), sign * int(UUID(known.stream_id))


def _each_once(merged: Iterable[tuple[_Place, bytes]]) -> Iterator[bytes]:
    last: _Place | None = None
    for key, record in merged:
        if key != last:
            yield record
        last = key
