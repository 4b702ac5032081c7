"""Counts usage once for a stream and those that resume it, by the rules of the ledger's totals (decision 7)."""

from streamgauge.audit.amounts import ZERO, ZERO_USD, Tokens
from streamgauge.audit.ours import Correction, StoredRecord
from streamgauge.core.assembly.resumption import Key, Known, Streams


class Resumed:
    """Collects resumed streams in the first pass over the ledger (`see`), and what they may continue in another one."""

    def __init__(self) -> None:
        self.records: list[tuple[int, StoredRecord]] = []
        self._keys: set[Key] = set()
        self._digests: set[str | None] = set()
        self._responses: set[str | None] = set()
        self._events: set[str | None] = set()

    @property
    def any(self) -> bool:
        """Whether there is a resumed stream."""
        return bool(self._keys)

    def see(self, record: StoredRecord) -> None:
        """Take a resumed stream."""
        self._keys |= set(Streams.keys_of(record))
        self._digests.add(record.request_digest)
        self._responses.add(record.response_id)
        self._events.add(record.resumed_from)

    def look_at(self, start_us: int, record: StoredRecord) -> None:
        """Take a record if it is resumed, or may be continued."""
        if (
            record.resumed_from is not None
            or (record.request_digest is not None and record.request_digest in self._digests)
            or (record.response_id is not None and record.response_id in self._responses)
            or (record.last_event_id is not None and record.last_event_id in self._events)
        ):
            self.records.append((start_us, record))

    def corrections(self) -> dict[str, Correction]:
        """What counts for each record that is continued, or continues another one."""
        broken: dict[Key, Known[list[StoredRecord]]] = {}
        completed: dict[Key, Known[list[StoredRecord]]] = {}
        known: Streams[list[StoredRecord]] = Streams(broken=broken, completed=completed)
        continued: dict[str, list[StoredRecord]] = {}
        self.records.sort(key=lambda one: (one[0], one[1].resumed_from is not None, one[1].stream_id))
        for _, record in self.records:
            stream = known.continued_by(record)
            if stream is None:
                stream = [record]
            else:
                stream.append(record)
                continued[stream[0].stream_id] = stream
            known.add(record, stream)
        return {name: one for stream in continued.values() for name, one in _counted(stream)}


def _counted(stream: list[StoredRecord]) -> list[tuple[str, Correction]]:
    """The last usage of a continued stream, a final one before a partial one, counts for its first record."""
    first, *others = stream
    reported = [one for one in stream if one.is_reported]
    final = [one for one in reported if one.usage.source == "final"]
    last = next(reversed(final or reported), None)
    whole = Correction(last.tokens, last.usd_of(last.tokens), True) if last else Correction(ZERO, ZERO_USD, False)
    nothing = Correction(Tokens(), ZERO_USD, False)
    return [(first.stream_id, whole), *((one.stream_id, nothing) for one in others)]
