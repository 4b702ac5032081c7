"""Canonical bytes: a decoded event that is written, read again and split stays the same."""

from hypothesis import example, given
from hypothesis import strategies as st

from streamgauge.core.formats.sse import (
    HALF_EVENT,
    MAX_EVENT_BYTES,
    MAX_RETRY_DIGITS,
    Event,
    SseDecoder,
    canonical_events,
    canonical_events_of,
    read_events,
    split_blocks,
    write_event,
    write_tail,
)
from tests.core import cuts
from tests.core.formats.sse_streams import STREAMS, decode


@given(STREAMS, st.integers(8, 60) | st.just(MAX_EVENT_BYTES))
def test_a_decoded_event_survives_its_canonical_bytes(stream: bytes, cap: int) -> None:
    events, pending = decode([stream], cap)
    canonical = b"".join(write_event(event) for event in events)
    assert decode([canonical], cap) == (events, None)
    assert b"\r" not in canonical
    canonical.decode()
    if pending is not None:
        assert decode([canonical + write_tail(pending)], cap) == (events, pending)


def texts(*excluded: str) -> st.SearchStrategy[str]:
    return st.text(st.characters(exclude_categories=["Cs"], exclude_characters=["\r", *excluded]), max_size=8)


MADE = st.builds(
    Event,
    name=texts("\n"),
    data=st.none() | texts().map(str.encode),
    id=st.none() | texts("\n", "\0"),
    retry=st.none() | st.integers(0, 10**MAX_RETRY_DIGITS - 1),
    comments=st.integers(0, 3),
    error=st.none() | texts("\n").map(str.encode),
)


@given(st.lists(MADE, max_size=5), cuts.places(100))
@example([Event(), Event(oversized=True), Event(name="n", id="", oversized=True, comments=1)], [])
@example([Event(data=b""), Event(data=b"\n"), Event(data=b" \n "), Event(data=b":"), Event(error=b"")], [])
@example([Event(bare=b"{\n}", data=b"x", error=b"y", comments=2), Event(bare=b"[")], [])
def test_generated_events_survive_too(events: list[Event], places: list[int]) -> None:
    canonical = b"".join(write_event(event) for event in events)
    assert decode(cuts.at(canonical, places)) == (events, None)


@given(STREAMS)
@example(b"data: a\n\ndata: \xff\n\n")
@example(b"data: a\rb\n\n")
@example(b"event: a\n\nevent: b\ndata: c\ndata: d\n\n")
@example(b"event: a\nid: 1\ndata: b\n\nevent: c\nid: \ndata: \n\n")
@example(b"event: a\nid: 1\0\ndata: b\n\nevent: c\nid: 2\ndata: d\n\n")
@example(b"event: a\ndata: b\n\nevent: c\nid: 2\nid: 3\ndata: d\n\n")
@example(b"event: a\ndata: b\nid: 1\n\nevent: c\nid: 2\ndata: d\n\n")
def test_whole_blocks_are_read_as_a_new_decoder_reads_them(stream: bytes) -> None:
    assert read_events(stream) == SseDecoder().feed(stream)


@given(st.lists(st.builds(write_event, MADE), max_size=5).map(b"".join))
@example(b"event: a\nid: 1\ndata: b\n\nevent: c\nid: 2\ndata: d\n\n")
def test_written_events_are_split_at_their_blank_lines(content: bytes) -> None:
    blocks = split_blocks(content)
    assert [event for block in blocks for event in read_events(block + b"\n\n")] == read_events(content)
    assert len(blocks) == len(read_events(content))


@given(STREAMS | st.lists(st.builds(write_event, MADE), max_size=5).map(b"".join))
@example(b"event: a\n\nevent: b\ndata: c\ndata: d\n\n")
@example(b"event: a\nid: 1\n\nevent: b\ndata: c\n\n")
@example(b"event: a\ndata: b\n\nevent: c\ndata: \xff\n\n")
@example(b"event: \ndata: b\n\n")
@example(b"event: \ndata: a\n\nevent: b\ndata: c\n\n")
@example(b"data: a\n\n\ndata: b\n\n")
def test_canonical_bytes_are_written_unchanged(content: bytes) -> None:
    events = canonical_events(content)
    if events:
        assert len(read_events(content)) == events
        assert b"".join(write_event(event) for event in SseDecoder().feed(content)) == content


@given(
    st.lists(STREAMS | st.builds(write_event, MADE) | st.sampled_from([b"data: a\n\n", b"data: b\n\n\n"]), max_size=5)
)
@example([b"data: a\n", b"\ndata: b\n\n"])
@example([b"data: a\n\n\n\n", b"data: b"])
@example([b"data: a\n\n", b"event: b\ndata: c\n\n"])
def test_many_contents_are_canonical_if_each_is(contents: list[bytes]) -> None:
    events = canonical_events_of(contents)
    if events:
        each = [canonical_events(content) for content in contents]
        assert all(each)
        assert sum(each) == events


def test_the_usual_events_are_recognised_as_canonical() -> None:
    assert canonical_events_of([b"data: a\n\n", b"data: b\n\n"]) == 2
    assert canonical_events_of([b"event: a\ndata: b\n\n", b"event: c\ndata: d\n\n"]) == 2
    assert canonical_events(b"data: a\n\ndata: b\n\n") == 2
    assert canonical_events("event: a\ndata: ü\n\nevent: c\ndata: d\n\n".encode()) == 2


def test_bytes_whose_events_end_elsewhere_are_not_split() -> None:
    assert split_blocks(b"data: a\r\rdata: b\n\n") == []
    assert split_blocks(b"data: a\n\ndata: b") == []
    assert split_blocks(b"") == []


def test_the_usual_event_is_written_as_providers_write_it() -> None:
    assert write_event(Event(data=b'{"a":1}')) == b'data: {"a":1}\n\n'
    assert write_event(Event(name="e", data=b"1")) == b"event: e\ndata: 1\n\n"


def test_a_marker_line_changes_no_event_with_data() -> None:
    stream = b"streamgauge-oversized\ndata: a\n\nstreamgauge-oversized: x\n\n"
    assert SseDecoder().feed(stream) == [Event(data=b"a"), Event()]


def test_half_an_event_does_not_parse() -> None:
    decoder = SseDecoder()
    assert decoder.feed(HALF_EVENT) == []
    assert decoder.finish() == Event(data=b"{")
    assert write_tail(Event(data=b"{")) == HALF_EVENT
