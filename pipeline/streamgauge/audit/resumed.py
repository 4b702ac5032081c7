"""Counts usage once for a stream and those that resume it, by the rules of the ledger's totals (decision 7)."""

import msgspec

from streamgauge.audit.amounts import ZERO, ZERO_USD
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
    """The usage of a continued stream counts for its first record: of each number the last known one, final ones first.

    Its cost is known if all numbers are those of one record.
    """
    first, *others = stream
    nothing = Correction(ZERO, ZERO_USD, False)
    counted = [(one.stream_id, nothing) for one in others]
    reported = [one for one in stream if one.is_reported]
    if not reported:
        return [(first.stream_id, nothing), *counted]
    names = ("input_tokens", "output_tokens", "input_cached_tokens", "input_cache_write_tokens")
    sources = {name: source for name in names if (source := _last(reported, name)) is not None}
    used = list({id(one): one for one in sources.values()}.values()) or reported[-1:]
    merged = used[0]
    for one in used[1:]:
        values = {name: getattr(source.usage, name) for name, source in sources.items() if source is one}
        merged = msgspec.structs.replace(merged, usage=msgspec.structs.replace(merged.usage, **values))
    tokens = merged.tokens
    usd = merged.usd_of(tokens) if len(used) == 1 else None
    return [(first.stream_id, Correction(tokens, usd, True)), *counted]


def _last(reported: list[StoredRecord], name: str) -> StoredRecord | None:
    known = [one for one in reported if getattr(one.usage, name) is not None]
    final = [one for one in known if one.usage.source == "final"]
    return next(reversed(final or known), None)
