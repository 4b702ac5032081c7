"""Elements of a JSON array into events: against Python's own reader, in any pieces, with elements over the cap."""

import json
import tracemalloc
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from streamgauge.core.formats.json_array import JsonArrayReader
from streamgauge.core.formats.sse import Event
from tests.core.cuts import at, every_way, places
from tests.core.formats.framed import datas, read, splits_change_nothing

SCALARS = st.none() | st.booleans() | st.integers() | st.text(max_size=8) | st.sampled_from(['"', "\\", "[{", "}],"])
VALUES: st.SearchStrategy[Any] = st.recursive(
    SCALARS,
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(max_size=4), inner, max_size=4),
    max_leaves=12,
)
FRAGMENTS = st.sampled_from(
    [b"[", b"]", b"{", b"}", b",", b'"', b"\\", b'\\"', b" ", b"\r\n", b"1", b'{"a":1}', b'"]"', b"\xff", b"null"]
)
BROKEN = st.lists(st.one_of(FRAGMENTS, st.binary(max_size=4)), max_size=30).map(b"".join)


@given(st.lists(VALUES, max_size=6), st.sampled_from((None, 1)), st.booleans(), places())
def test_events_are_the_elements(elements: list[Any], indent: int | None, is_ascii: bool, cut: list[int]) -> None:
    content = json.dumps(elements, indent=indent, ensure_ascii=is_ascii).encode()
    events, last, fault = read(JsonArrayReader(), at(content, cut))
    assert [json.loads(value or b"") for value in datas(events)] == elements
    assert (last, fault) == (None, False)
    assert not any(b"\n" in (value or b"") for value in datas(events))


@given(BROKEN, st.sampled_from((1, 4, 1_000)), st.sampled_from((b"", b"[")))
def test_splits_change_nothing_and_nothing_raises(content: bytes, cap: int, opening: bytes) -> None:
    splits_change_nothing(lambda: JsonArrayReader(cap), opening + content)


def test_an_object_is_complete_with_its_bracket() -> None:
    reader = JsonArrayReader()
    assert reader.feed(b'[{"a":[{}],"b":"}"') == []
    assert datas(reader.feed(b"}")) == [b'{"a":[{}],"b":"}"}']
    assert datas(reader.feed(b"\r\n,\r\n7")) == []
    assert datas(reader.feed(b",[")) == [b"7"]
    assert datas(reader.feed(b"]]")) == [b"[]"]
    assert reader.feed(b" {} ") == []
    assert reader.finish() is None


@pytest.mark.parametrize(
    ("content", "data"), [(b'[{"a":1', b'{"a":1'), (b'[{},"b', b'"b'), (b"[{}", None), (b"[", None), (b"", None)]
)
def test_an_element_that_has_not_ended_is_pending(content: bytes, data: bytes | None) -> None:
    for pieces in every_way(content):
        _, last, fault = read(JsonArrayReader(), pieces)
        assert (None if last is None else last.data, fault) == (data, False)


@pytest.mark.parametrize("content", [b"{}", b"x[{}]", b" 1", b'"['])
def test_what_is_no_array_has_a_fault(content: bytes) -> None:
    assert read(JsonArrayReader(), [content, b"[{}]"]) == ([], None, True)


def test_an_element_over_the_cap_is_oversized_and_others_follow() -> None:
    long = json.dumps({"text": "x" * 50}).encode()
    for pieces in every_way(b"[" + long + b",{}]"):
        events, _, _ = read(JsonArrayReader(40), pieces)
        assert [event.oversized for event in events] == [True, False]


def test_a_discarded_element_is_oversized() -> None:
    reader = JsonArrayReader()
    reader.feed(b'[{"a":"')
    reader.discard()
    assert reader.feed(b'"},{}') == [Event(oversized=True), Event("", b"{}")]


@pytest.mark.parametrize("piece", [b'"' + b"x" * 9_999, b"[" * 10_000, b"\\" * 10_000])
def test_an_endless_element_takes_bounded_memory(piece: bytes) -> None:
    cap = 64 * 1024
    reader = JsonArrayReader(cap)
    reader.feed(b'[{"a":"' if piece[:1] == b"\\" else b'[{"a":')
    tracemalloc.start()
    try:
        for _ in range(200):
            reader.feed(piece)
        assert tracemalloc.get_traced_memory()[1] < 4 * cap
    finally:
        tracemalloc.stop()
