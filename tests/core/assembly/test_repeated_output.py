"""What closing events repeat, in cases that vectors cannot show: missing reads, and states of an older program."""

import json
from typing import Any

import msgspec
import pytest

from streamgauge.core.assembly.assembler import Assembler, bucket_of
from streamgauge.core.assembly.repeated_output import MAX_ITEMS
from streamgauge.core.assembly.state_codec import decode_entry, encode_entry
from streamgauge.core.capture.segments import Bundle, Ending, Head, Loss, Opening, Read, Segment, StreamEnding
from streamgauge.core.record import Record
from tests.vectors.drive import INSTANCE

STREAM = bytes(range(16))
TEXT = {"type": "output_text", "text": "Hello"}


def wire(*events: dict[str, Any]) -> bytes:
    return b"".join(b"data: " + json.dumps(event).encode() + b"\n\n" for event in events)


def delta(text: str) -> bytes:
    return wire({"type": "response.output_text.delta", "output_index": 0, "content_index": 0, "delta": text})


CLOSING = wire(
    {"type": "response.output_text.done", "output_index": 0, "content_index": 0, "text": "Hello"},
    {"type": "response.content_part.done", "output_index": 0, "content_index": 0, "part": TEXT},
    {"type": "response.output_item.done", "output_index": 0, "item": {"type": "message", "content": [TEXT]}},
)
CALL = {"type": "function_call", "call_id": "c1", "name": "sun", "arguments": "{}"}
CALL_CLOSING = wire({"type": "response.output_item.done", "output_index": 1, "item": CALL})


def segment(number: int, content: bytes = b"", **more: Any) -> Segment:
    opening = Opening("proxy", "1", "full", path="/responses") if number == 0 else None
    head = Head(200, 1, event_stream=True) if number == 0 else None
    reads = [Read(number, len(content), len(content), content)] if content else []
    return Segment(STREAM, number, opening, None, head, reads, **more)


LAST = StreamEnding(Ending.COMPLETE, stamp_ns=99)


def record_of(*segments: Segment, assembler: Assembler | None = None, first: int = 0) -> Record:
    assembler = assembler or Assembler()
    found: list[Record] = []
    for place, one in enumerate(segments, first):
        found += assembler.apply(place, place, Bundle(INSTANCE, 0, place, place * 2_000_000_000, [one]))
    (record,) = found
    return record


def test_output_that_only_closing_events_bring_counts_once() -> None:
    record = record_of(segment(0, CLOSING + CALL_CLOSING), segment(1, end=LAST))
    assert (record.counts.text_chars, record.counts.token_events) == (5, 2)
    assert [(tool.name, tool.argument_chars) for tool in record.choices[0].tool_calls] == [("sun", 2)]


def test_where_segments_are_missing_a_closing_event_may_repeat_them() -> None:
    later = [segment(number, b": ping\n\n") for number in range(3, 21)]
    record = record_of(segment(0, delta("")), segment(2, CLOSING + CALL_CLOSING), *later, segment(21, end=LAST))
    assert record.integrity.missing_segments == 1
    assert (record.counts.text_chars, record.counts.token_events) == (0, 0)
    assert [(tool.name, tool.argument_chars) for tool in record.choices[0].tool_calls] == [("sun", 0)]


def test_where_reads_were_dropped_a_closing_event_may_repeat_them() -> None:
    record = record_of(segment(0, CLOSING, loss=Loss(dropped_reads=1)), segment(1, end=LAST))
    assert (record.counts.text_chars, record.counts.token_events) == (0, 0)


@pytest.mark.parametrize("told", [delta("Hello"), b": nothing was told\n\n"])
def test_closing_events_count_nothing_in_a_stream_that_an_older_program_began(told: bytes) -> None:
    """Its state does not show which items were reported."""
    before, after = Assembler(), Assembler()
    before.apply(0, 0, Bundle(INSTANCE, 0, 0, 0, [segment(0, told)]))
    fields = msgspec.msgpack.decode(decode_entry(before.dump(bucket_of(STREAM))))
    assert fields[1][STREAM][-1] == ({0: 1} if told.startswith(b"data") else {})
    del fields[1][STREAM][-1]
    after.load(bucket_of(STREAM), encode_entry(msgspec.msgpack.encode(fields)))
    record = record_of(segment(1, CLOSING), segment(2, end=LAST), assembler=after, first=1)
    assert record.counts.text_chars == (5 if told.startswith(b"data") else 0)


@pytest.mark.parametrize("at", range(1, 5))
def test_the_state_of_an_open_stream_shows_what_is_repeated(at: int) -> None:
    blocks = [delta("He"), delta("llo"), *[block + b"\n\n" for block in CLOSING.split(b"\n\n")[:-1]]]
    before, after = Assembler(), Assembler()
    for place in range(at):
        before.apply(place, place, Bundle(INSTANCE, 0, place, place, [segment(place, blocks[place])]))
    after.load(bucket_of(STREAM), before.dump(bucket_of(STREAM)))
    rest = [segment(place, blocks[place]) for place in range(at, len(blocks))]
    record = record_of(*rest, segment(len(blocks), end=LAST), assembler=after, first=at)
    assert (record.counts.text_chars, record.counts.token_events) == (5, 2)


def item_events(item: int, *, by_delta: bool) -> list[dict[str, Any]]:
    """An item with one text, brought by deltas or only by its closing events."""
    deltas = [{"type": "response.output_text.delta", "output_index": item, "delta": "Hello"}]
    whole = {"type": "message", "content": [TEXT]}
    return [
        *(deltas if by_delta else []),
        {"type": "response.output_text.done", "output_index": item, "text": "Hello"},
        {"type": "response.output_item.done", "output_index": item, "item": whole},
    ]


@pytest.mark.parametrize("by_delta", [True, False])
def test_any_number_of_items_is_tracked_one_after_the_other(by_delta: bool) -> None:
    events = [event for item in range(3 * MAX_ITEMS) for event in item_events(item, by_delta=by_delta)]
    record = record_of(segment(0, wire(*events)), segment(1, end=LAST))
    assert record.counts.token_events == 3 * MAX_ITEMS
    assert record.integrity.complete


@pytest.mark.parametrize("by_delta", [True, False])
def test_with_more_open_items_than_are_tracked_only_deltas_count(by_delta: bool) -> None:
    items = [item_events(item, by_delta=by_delta) for item in range(MAX_ITEMS + 1)]
    by_turns = [event for events in zip(*items, strict=True) for event in events]
    record = record_of(segment(0, wire(*by_turns)), segment(1, end=LAST))
    assert record.counts.token_events == (MAX_ITEMS + 1 if by_delta else MAX_ITEMS)
    assert record.integrity.reasons == ["state_limit"]
