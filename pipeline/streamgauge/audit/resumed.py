"""Counts usage once for a stream and those that resume it, by the rules of the ledger's totals (decision 7)."""

from collections.abc import Iterable, Iterator, Mapping
from decimal import Decimal

from streamgauge.audit.amounts import ZERO, ZERO_USD, Tokens, usd_total
from streamgauge.audit.ours import Correction, StoredRecord, tokens_of_usage, with_parts
from streamgauge.core.resumption import is_resumed
from streamgauge.ledger.resumption import UsagePart, continued_streams, counted, sides_of


def corrections_of(records: Iterable[tuple[int, StoredRecord]]) -> dict[str, Correction]:
    """The correction of each record that is continued, or continues another record.

    `records`: at least every resumed stream and the records that it may continue, each with its start.
    """
    ordered = sorted(records, key=lambda entry: (entry[0], is_resumed(entry[1]), entry[1].stream_id))
    by_id = {record.stream_id: record for _, record in ordered}
    parts = [_part(record) for record in by_id.values()]
    streams = continued_streams(parts, [part for part in parts if is_resumed(part)])
    return {name: correction for stream in streams for name, correction in _corrections(stream, by_id)}


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
    with_input, with_output = sides_of(stream)
    named_by = with_output or with_input
    tokens = tokens_of_usage(first)
    if named_by is not None:
        record = records[named_by.stream_id]
        tokens = with_parts(tokens, record.usage.parts, record.model)
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
