"""What the first and the last bytes of an event over the size limit tell, however it was split."""

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from streamgauge.core.formats.cut_json import first_members, last_members
from streamgauge.core.formats.sse import CUT_HEAD, CUT_TAIL
from streamgauge.taps.replay import replay
from tests.core import cuts
from tests.core.formats.sse_streams import decode_with_cuts
from tests.vectors.drive import record_of, settings

VALUES = st.recursive(
    st.none() | st.booleans() | st.integers(-9, 9) | st.text(max_size=6),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=4), inner, max_size=3),
    max_leaves=8,
)
OBJECTS = st.dictionaries(st.text(max_size=4), VALUES, max_size=4)
IMAGE = "A" * (5 * 1024 * 1024)
USAGE = {"input_tokens": 4, "output_tokens": 2, "total_tokens": 6}


def is_beginning(part: Any, whole: Any) -> bool:
    """Whether a value is the other one without some of its last members."""
    if isinstance(part, dict) and isinstance(whole, dict):
        return all(key in whole and is_beginning(value, whole[key]) for key, value in part.items())
    if isinstance(part, list) and isinstance(whole, list):
        return len(part) <= len(whole) and all(map(is_beginning, part, whole))
    return type(part) is type(whole) and bool(part == whole)


@given(OBJECTS, st.data())
def test_the_first_bytes_tell_the_first_members(whole: dict[str, Any], data: st.DataObject) -> None:
    text = json.dumps(whole).encode()
    assert is_beginning(first_members(text[: data.draw(st.integers(0, len(text)))]), whole)
    assert first_members(text) == whole


@given(st.binary(max_size=60))
def test_any_bytes_tell_something_or_nothing(some: bytes) -> None:
    assert isinstance(first_members(some), dict)
    assert isinstance(last_members(some, b'{"response":{', "usage"), dict)


@given(OBJECTS, OBJECTS)
def test_the_last_bytes_tell_the_last_members(before: dict[str, Any], usage: dict[str, Any]) -> None:
    event = {"response": {"output": [before, ',"usage":{}'], "usage": usage, "user": None}, "sequence_number": 9}
    text = json.dumps(event).encode()
    told = last_members(text[text.index(b"[") + 1 :], b'{"response":{', "usage")
    if "usage" not in json.dumps(usage):
        assert told == {"response": {"usage": usage, "user": None}, "sequence_number": 9}
    assert last_members(text[:-1], b'{"response":{', "usage") == {}


@given(st.data())
def test_both_ends_of_an_event_over_the_cap_are_the_same_however_it_is_split(data: st.DataObject) -> None:
    long = b"".join(b"%d," % number for number in range(6_000))
    lines = data.draw(st.sampled_from([[long], [b"a", long], [long[:90], long[90:], b"b"]]))
    stream = b"event: e\n" + b"".join(b"data: %b\n" % line for line in lines) + b"\ndata: c\n\n"
    places = sorted(data.draw(st.lists(st.integers(0, len(stream)), max_size=5)))
    (event, _), _ = decode_with_cuts(cuts.at(stream, places), 100)
    joined = b"\n".join(lines)
    assert event.cut is not None
    assert joined.startswith(event.cut[0].rstrip(b"\n")[: CUT_HEAD - 1])
    assert event.cut[1] == (joined + b"\n")[-CUT_TAIL:-1]


def terminal(kind: str, **more: Any) -> bytes:
    image = {"type": "image_generation_call", "result": IMAGE}
    response = {
        "id": "resp_1",
        "status": kind.partition(".")[2],
        "model": "m",
        **more,
        "output": [image],
        "usage": USAGE,
    }
    return f"event: {kind}\ndata: {json.dumps({'type': kind, 'sequence_number': 7, 'response': response})}".encode()


DELTA = b'data: {"type":"response.output_text.delta","output_index":0,"delta":"Ri"}\n\n'


@pytest.mark.parametrize("capture", ["masked", "full"])
@pytest.mark.parametrize("end", [b"\n\n", b"\n", b""])
def test_a_terminal_over_the_limit_ends_its_stream(capture: Any, end: bytes) -> None:
    body = DELTA + terminal("response.completed") + end
    pieces = [body[at : at + 100_000] for at in range(0, len(body), 100_000)]
    for given_pieces in ([body], pieces):
        record = record_of(replay(given_pieces, settings(capture)))
        assert (record.outcome, record.finish_reason, record.response_id) == ("completed", "stop", "resp_1")
        assert (record.usage.input_tokens, record.usage.output_tokens, record.usage.source) == (4, 2, "final")
        assert (record.counts.token_events, record.counts.text_chars) == (1, 2)
        assert (record.integrity.complete, record.integrity.reasons) == (False, ["oversized_event"])


def test_the_other_terminals_over_the_limit() -> None:
    incomplete = terminal("response.incomplete", incomplete_details={"reason": "max_output_tokens"})
    record = record_of(replay([DELTA + incomplete + b"\n\n"], settings("masked")))
    assert (record.outcome, record.finish_reason) == ("completed", "length")
    failed = terminal("response.failed", error={"code": "server_error"})
    record = record_of(replay([DELTA + failed + b"\n\n"], settings("masked")))
    assert (record.outcome, record.error.code if record.error else None) == ("stream_error", "server_error")


def test_a_terminal_over_the_limit_that_was_cut_ends_nothing() -> None:
    cut = terminal("response.completed")[:-40]
    record = record_of(replay([DELTA + cut], settings("masked")))
    assert (record.outcome, record.integrity.oversized_events) == ("truncated", 1)


def test_another_event_over_the_limit_is_no_terminal() -> None:
    item = {"type": "response.output_item.done", "item": {"type": "image_generation_call", "result": IMAGE}}
    record = record_of(replay([DELTA + f"data: {json.dumps(item)}\n\n".encode()], settings("masked")))
    assert (record.outcome, record.integrity.oversized_events) == ("truncated", 1)
