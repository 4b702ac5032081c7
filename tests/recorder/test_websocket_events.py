"""The members by which events are routed: a typed decoder, and any values that it does not take."""

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from streamgauge.core.formats.sse import CUT_HEAD, Event
from streamgauge.recorder.websocket_events import MAX_NAME, Routed, routed

OF_RESPONSES = st.sampled_from(("id", "previous_response_id", "status"))
VALUES: st.SearchStrategy[Any] = st.one_of(
    st.none(),
    st.booleans(),
    st.integers(-1, 3),
    st.sampled_from(("response.create", "a", "", "x" * 300)),
    st.just([]),
    st.dictionaries(OF_RESPONSES, st.sampled_from((None, "r", 3))),
)
EVENTS = st.dictionaries(
    st.sampled_from(
        ("type", "stream_id", "previous_response_id", "sequence_number", "generate", "response", "input", "model")
    ),
    VALUES,
)


def text(value: object, most: int | None = MAX_NAME) -> str | None:
    return value[:most] if isinstance(value, str) else None


@given(EVENTS)
def test_a_member_of_another_type_counts_as_missing(event: dict[str, Any]) -> None:
    got = routed(Event(data=json.dumps(event).encode()))
    part = event.get("response")
    response = part if isinstance(part, dict) else {}
    assert got.type == text(event.get("type"), None)
    assert got.lane == text(event.get("stream_id"))
    assert got.id == text(response.get("id"))
    assert (got.previous or None) == (
        text(event.get("previous_response_id")) or text(response.get("previous_response_id"))
    )
    number = event.get("sequence_number")
    if not isinstance(number, int) or number >= 0:
        assert got.is_numbered is (isinstance(number, int) and not isinstance(number, bool))
    assert got.is_warm_up is (event.get("generate") is False)


@pytest.mark.parametrize("data", [b"", b"{", b"[]", b"3", b"\xff", b'{"type":', b"[" * 100_000, b'{"a":' * 100_000])
def test_what_is_no_object_has_no_place(data: bytes) -> None:
    assert routed(Event(data=data)) == Routed()


def test_of_an_oversized_event_the_first_members_count() -> None:
    head = b'{"type":"response.create","stream_id":"a","input":"' + b"x" * CUT_HEAD
    assert routed(Event(oversized=True, cut=(head[:CUT_HEAD], b'x"}'))) == Routed("response.create", "a")
    assert routed(Event(oversized=True)) == Routed()
