"""A ledger as the worker's record store: neither of the two knows the other."""

from collections.abc import Sequence

from streamgauge.ledger import Ledger, LedgerRow, UnreadableRecordError, open_ledger
from streamgauge.worker.settings import Stored


class LedgerRecordStore:
    """Inserts records' JSON into the ledger at `url`, which is opened with the first of them.

    `insert` raises what the ledger raises when it is not to be had, or its URL is none.
    """

    def __init__(self, url: str) -> None:
        self._url = url
        self._ledger: Ledger | None = None

    def insert(self, records: Sequence[bytes]) -> Stored:
        """Store records; those that are none are told by their place."""
        if self._ledger is None:
            self._ledger = open_ledger(self._url)
        rows, unreadable = [], []
        for place, record in enumerate(records):
            try:
                rows.append(LedgerRow.of_json(record))
            except UnreadableRecordError:
                unreadable.append(place)
        inserted = self._ledger.insert(rows)
        return Stored(inserted.new, inserted.same, inserted.different, unreadable)

    def close(self) -> None:
        if self._ledger is not None:
            self._ledger.close()
            self._ledger = None
