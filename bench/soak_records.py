"""The soak's records, each held against what the load knows of its stream."""

from collections import Counter
from collections.abc import Iterable, Sequence

from bench.soak_load import Stream, text
from streamgauge.core.record import Record

# Findings that are told one by one; more of a kind say nothing new.
MOST_TOLD = 20


def findings_of(records: Iterable[Record], streams: Sequence[Stream]) -> list[str]:
    """Where streams and records are not one to one, a record is not what its stream was, or a client was not served well."""
    records = list(records)
    found = [one.fault for one in streams if one.fault] + _not_one_to_one(records, streams)
    ours = {one.name: one for one in streams}
    for record in records:
        one = ours.get(record.response_id or "")
        if one is None:
            found.append(f"a record of no stream: {record.stream_id}, {record.outcome}, {record.response_id}")
        else:
            found += [f"{one.name}: {difference}" for difference in _differences(record, one)]
    return found[:MOST_TOLD] + ([f"and {len(found) - MOST_TOLD} more"] if len(found) > MOST_TOLD else [])


def _not_one_to_one(records: Sequence[Record], streams: Sequence[Stream]) -> list[str]:
    count = Counter(record.response_id for record in records)
    ids = Counter(record.stream_id for record in records)
    found = [f"{one.name} has {count[one.name]} records" for one in streams if count[one.name] != 1]
    return found + [f"stream id {name} came {times} times" for name, times in ids.items() if times > 1]


def _differences(record: Record, one: Stream) -> list[str]:
    usage, error = record.usage, record.error
    said = {
        "outcome": (record.outcome, one.outcome),
        "integrity": (record.integrity.reasons if not record.integrity.complete else "whole", "whole"),
        "finish reason": (record.finish_reason, "stop" if one.outcome == "completed" else None),
        "usage": ((usage.input_tokens, usage.output_tokens, usage.source), one.usage),
        "error": ((error.phase, error.type, error.code) if error else None, one.error),
        "status": (record.status_code, 200),
    }
    found = [f"{name} {is_!r} and not {should!r}" for name, (is_, should) in said.items() if is_ != should]
    return found + _miscounted(record, one)


def _miscounted(record: Record, one: Stream) -> list[str]:
    """A stream that was cut may have had more on its way than its client saw; never more than the provider sent."""
    tokens, most = record.counts.token_events, one.sent if one.cut else one.got
    if not one.got <= tokens <= most:
        return [f"{tokens} token events; its client saw {one.got}, {one.sent} were sent"]
    chars = sum(len(text(one, place)) for place in range(tokens))
    if record.counts.text_chars != chars:
        return [f"{record.counts.text_chars} characters in {tokens} token events that have {chars}"]
    return []
