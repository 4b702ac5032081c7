"""A record that differs from its stream in any field is found."""

from typing import Any

import pytest
from bench.soak_load import TOKEN, Stream, chunks, text
from bench.soak_records import MOST_LISTED, findings_of
from msgspec.structs import replace

from streamgauge.core.record import Error, Record

# One of each outcome, as `soak_load` numbers them.
WHOLE, ERROR, LEFT, BROKEN, TRUNCATED = 0, 1, 3, 5, 8


def stream_of(number: int) -> Stream:
    """A stream whose client received everything that was sent."""
    events = Stream(number).events
    return Stream(number, events, events)


def record_of(a_record: Record, stream: Stream, tokens: int | None = None) -> Record:
    """The correct record of a stream."""
    tokens = stream.received if tokens is None else tokens
    input_tokens, output_tokens, source = stream.usage
    chars = sum(len(text(stream, place)) for place in range(tokens))
    return replace(
        a_record,
        stream_id=f"id-{stream.number}",
        response_id=stream.name,
        outcome=stream.outcome,
        error=Error(*stream.error) if stream.error else None,
        finish_reason="stop" if stream.outcome == "completed" else None,
        usage=replace(a_record.usage, input_tokens=input_tokens, output_tokens=output_tokens, source=source),
        counts=replace(a_record.counts, token_events=tokens, text_chars=chars),
    )


@pytest.mark.parametrize("number", [WHOLE, ERROR, LEFT, BROKEN, TRUNCATED])
def test_a_correct_record_is_no_finding(a_record: Record, number: int) -> None:
    stream = stream_of(number)
    assert findings_of([record_of(a_record, stream)], [stream]) == []


@pytest.mark.parametrize("number", [WHOLE, ERROR, LEFT, BROKEN, TRUNCATED])
@pytest.mark.parametrize(
    "change",
    [
        {"outcome": "abandoned"},
        {"error": Error("in_stream", "other")},
        {"finish_reason": "length"},
        {"status_code": 500},
        {"response_id": "soak-999"},
    ],
)
def test_a_difference_is_found(a_record: Record, number: int, change: dict[str, Any]) -> None:
    stream = stream_of(number)
    assert findings_of([replace(record_of(a_record, stream), **change)], [stream])


def test_numbers_that_differ_are_found(a_record: Record) -> None:
    stream = stream_of(WHOLE)
    right = record_of(a_record, stream)
    usage, counts, integrity = right.usage, right.counts, right.integrity
    for wrong in (
        replace(right, usage=replace(usage, output_tokens=stream.events + 1)),
        replace(right, usage=replace(usage, source="partial")),
        replace(right, counts=replace(counts, token_events=stream.received - 1)),
        replace(right, counts=replace(counts, text_chars=counts.text_chars + 1)),
        replace(right, integrity=replace(integrity, complete=False, reasons=["missing_segments"])),
    ):
        assert len(findings_of([wrong], [stream])) == 1


def test_a_stream_that_was_cut_may_have_had_more_bytes_in_flight(a_record: Record) -> None:
    stream = Stream(LEFT, sent=9, received=6)
    for tokens in (6, 7, 9):
        assert findings_of([record_of(a_record, stream, tokens)], [stream]) == []
    for tokens in (5, 10):
        assert len(findings_of([record_of(a_record, stream, tokens)], [stream])) == 1


def test_each_stream_has_exactly_one_record(a_record: Record) -> None:
    stream, other = stream_of(0), stream_of(2)
    right = record_of(a_record, stream)
    assert findings_of([right], [stream, other]) == ["soak-2 has 0 records"]
    assert len(findings_of([right, replace(right, stream_id="id-7")], [stream])) == 1
    assert len(findings_of([right, right], [stream])) == 2
    assert len(findings_of([], [stream_of(number) for number in range(100)])) == MOST_LISTED + 1
    stream.fault = "soak-0: its client received other bytes"
    assert findings_of([right], [stream]) == [stream.fault]


def test_eight_of_twenty_streams_are_not_whole() -> None:
    kinds = [Stream(number).outcome for number in range(20)]
    assert {name: kinds.count(name) for name in kinds} == {
        "completed": 12,
        "stream_error": 2,
        "client_abort": 2,
        "upstream_reset": 2,
        "truncated": 2,
    }
    for number in range(20):
        stream = Stream(number)
        assert b"".join(chunks(stream)).count(TOKEN) == stream.events > 0
