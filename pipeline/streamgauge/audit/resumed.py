"""Counts usage once for a stream and those that resume it, by the rules of the ledger's totals (decision 7)."""

from collections.abc import Iterator, Mapping
from decimal import Decimal

from streamgauge.audit.amounts import ZERO, ZERO_USD, Tokens, usd_total
from streamgauge.audit.ours import Correction, StoredRecord, tokens_of_usage
from streamgauge.core.resumption import Key, Streams, is_resumed
from streamgauge.ledger.resumption import UsagePart, continued_streams, counted, sides_of


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
        self._responses.add(record.known_response_id)
        self._events.add(record.resumed_from)

    def look_at(self, start_us: int, record: StoredRecord) -> None:
        """Take a record if it is resumed, or may be continued."""
        if (
            is_resumed(record)
            or (record.request_digest is not None and record.request_digest in self._digests)
            or (record.response_id is not None and record.response_id in self._responses)
            or (record.last_event_id is not None and record.last_event_id in self._events)
        ):
            self.records.append((start_us, record))

    def corrections(self) -> dict[str, Correction]:
        """The correction of each record that is continued, or continues another record."""
        self.records.sort(key=lambda entry: (entry[0], is_resumed(entry[1]), entry[1].stream_id))
        records = {record.stream_id: record for _, record in self.records}
        parts = [_part(record) for record in records.values()]
        streams = continued_streams(parts, [part for part in parts if is_resumed(part)])
        return {name: correction for stream in streams for name, correction in _corrections(stream, records)}


def _part(record: StoredRecord) -> UsagePart:
    """A record as the ledger counts it. Numbers that the provider did not report, as of an estimate, do not count."""
    usage, is_reported = record.usage, record.is_reported
    return UsagePart(
        record.stream_id,
        record.upstream,
        record.credential_id,
        record.request_digest,
        record.response_id,
        record.last_event_id,
        record.resumed_from,
        record.endpoint,
        record.outcome,
        usage.source,
        usage.input_tokens if is_reported else None,
        usage.output_tokens if is_reported else None,
        usage.total_tokens if is_reported else None,
        usage.input_cached_tokens if is_reported else None,
        usage.reasoning_tokens if is_reported else None,
        usage.input_cache_write_tokens if is_reported else None,
    )


def _corrections(stream: list[UsagePart], records: Mapping[str, StoredRecord]) -> Iterator[tuple[str, Correction]]:
    """The corrections of a continued stream: all of its usage counts for its first record."""
    first, *others = counted(stream)
    has_usage = any(records[part.stream_id].is_reported for part in stream)
    tokens = tokens_of_usage(first)
    yield first.stream_id, Correction(tokens, _usd(stream, records, tokens) if has_usage else ZERO_USD, has_usage)
    for part in others:
        yield part.stream_id, Correction(ZERO, ZERO_USD, False)


def _usd(stream: list[UsagePart], records: Mapping[str, StoredRecord], tokens: Tokens) -> Decimal | None:
    """The cost of the records whose input and output count.

    A stored cost does not tell input from output: of a record that reports both, and of which one counts, it is unknown.
    """
    sides = {part.stream_id: part for part in sides_of(stream) if part is not None}
    if not sides:
        return ZERO_USD if tokens == ZERO else None
    if len(sides) > 1 and any(None not in (part.input_tokens, part.output_tokens) for part in sides.values()):
        return None
    return usd_total(records[name].usd_of(records[name].tokens) for name in sides)
