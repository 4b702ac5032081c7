"""JSON lines into events: against `bytes.split`, in any pieces, with lines over the cap."""

import tracemalloc

import pytest
from hypothesis import given
from hypothesis import strategies as st

from streamgauge.core.formats.json_lines import JsonLinesReader
from streamgauge.core.formats.sse import CUT_HEAD, CUT_TAIL, Event
from tests.core.cuts import at, every_way, places
from tests.core.formats.framed import datas, read, splits_change_nothing

FRAGMENTS = st.sampled_from(
    [b"\n", b"\n", b"\r\n", b"\r", b" ", b'{"a":1}', b"{}", b'"\\n"', b"\xff", b"\xc3", b"\xa9", b"\0", b"[1]"]
)
CONTENTS = st.lists(st.one_of(FRAGMENTS, st.binary(max_size=12)), max_size=30).map(b"".join)


@given(CONTENTS, places())
def test_events_are_the_lines_that_are_not_blank(content: bytes, cut: list[int]) -> None:
    events, last, fault = read(JsonLinesReader(), at(content, cut))
    lines = [line.strip(b" \t\r").replace(b"\r", b" ") for line in content.split(b"\n")]
    expected = [line.decode("utf-8", "replace").encode() for line in lines]
    assert datas(events) == [line for line in expected[:-1] if line]
    assert (None if last is None else last.data) == (expected[-1] or None)
    assert not fault


@given(CONTENTS, st.sampled_from((1, 3, 20)))
def test_splits_change_nothing(content: bytes, cap: int) -> None:
    splits_change_nothing(lambda: JsonLinesReader(cap), content)


def test_a_line_over_the_cap_keeps_its_ends_and_others_follow() -> None:
    long = b'{"first":1,' + b"x" * (CUT_HEAD + CUT_TAIL) + b',"last":2}'
    for pieces in every_way(b"\n" + long[:40] + b"\n" + long[:39] + b"\n{}\n"):
        events, _, _ = read(JsonLinesReader(39), pieces)
        assert [event.oversized for event in events] == [True, False, False]
    (event, after), _, _ = read(JsonLinesReader(CUT_HEAD), at(long + b"\n{}\n", range(0, len(long), 7)))
    assert event == Event(oversized=True, cut=(long[:CUT_HEAD], long[-CUT_TAIL:]))
    assert after.data == b"{}"


def test_a_discarded_line_is_oversized_and_the_next_one_is_read() -> None:
    reader = JsonLinesReader()
    reader.feed(b'{"a":')
    reader.discard()
    assert reader.pending_bytes == 0
    assert reader.feed(b"1}\n{}\n") == [Event(oversized=True), Event("", b"{}")]


@pytest.mark.parametrize("before", [b"", b"{}\n", b'{"a":'])
def test_after_missing_bytes_the_next_line_is_read(before: bytes) -> None:
    reader = JsonLinesReader()
    reader.feed(before)
    reader.skip_line()
    assert reader.feed(b'"b":1}') == []
    assert reader.feed(b'\n{"c":1}\n') == [Event("", b'{"c":1}')]
    assert reader.finish() is None


def test_an_endless_line_takes_bounded_memory() -> None:
    reader, cap = JsonLinesReader(64 * 1024), 64 * 1024
    tracemalloc.start()
    try:
        for _ in range(400):
            reader.feed(b"x" * 10_000)
            assert reader.pending_bytes <= cap + 10_000
        assert tracemalloc.get_traced_memory()[1] < 4 * cap
    finally:
        tracemalloc.stop()
