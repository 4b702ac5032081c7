"""Compares the soak's records with what the load knows of their streams."""

from collections import Counter
from collections.abc import Iterable, Sequence

from bench.soak_load import Stream, text
from streamgauge.core.record import Record

# Findings that are listed; of the others the number is given.
MOST_LISTED = 20


def findings_of(records: Iterable[Record], streams: Sequence[Stream]) -> list[str]:
    """Streams without exactly one record, records that differ from their stream, and faults that clients saw."""
    records = list(records)
    findings = [stream.fault for stream in streams if stream.fault] + _not_one_to_one(records, streams)
    by_name = {stream.name: stream for stream in streams}
    for record in records:
        stream = by_name.get(record.response_id or "")
        if stream is None:
            findings.append(f"a record of no stream: {record.stream_id}, {record.outcome}, {record.response_id}")
        else:
            findings += [f"{stream.name}: {difference}" for difference in _differences(record, stream)]
    more = len(findings) - MOST_LISTED
    return findings[:MOST_LISTED] + ([f"and {more} more"] if more > 0 else [])


def _not_one_to_one(records: Sequence[Record], streams: Sequence[Stream]) -> list[str]:
    count = Counter(record.response_id for record in records)
    ids = Counter(record.stream_id for record in records)
    findings = [f"{stream.name} has {count[stream.name]} records" for stream in streams if count[stream.name] != 1]
    return findings + [f"stream id {name} came {times} times" for name, times in ids.items() if times > 1]


def _differences(record: Record, stream: Stream) -> list[str]:
    usage, error = record.usage, record.error
    values = {
        "outcome": (record.outcome, stream.outcome),
        "integrity": (record.integrity.reasons if not record.integrity.complete else "whole", "whole"),
        "finish reason": (record.finish_reason, "stop" if stream.outcome == "completed" else None),
        "usage": ((usage.input_tokens, usage.output_tokens, usage.source), stream.usage),
        "error": ((error.phase, error.type, error.code) if error else None, stream.error),
        "status": (record.status_code, 200),
    }
    differences = [
        f"{name} is {actual!r}, not {expected!r}" for name, (actual, expected) in values.items() if actual != expected
    ]
    return differences + _miscounted(record, stream)


def _miscounted(record: Record, stream: Stream) -> list[str]:
    """The record of a cut stream may count more events than its client received, but no more than the provider sent."""
    tokens, most = record.counts.token_events, stream.sent if stream.cut else stream.received
    if not stream.received <= tokens <= most:
        return [f"{tokens} token events; its client received {stream.received}, {stream.sent} were sent"]
    chars = sum(len(text(stream, place)) for place in range(tokens))
    if record.counts.text_chars != chars:
        return [f"{record.counts.text_chars} characters in {tokens} token events that have {chars}"]
    return []
