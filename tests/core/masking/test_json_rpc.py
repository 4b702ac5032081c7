"""Messages of JSON-RPC (Model Context Protocol, Agent2Agent): with full capture, too, nothing of their contents is stored."""

import json
from itertools import pairwise
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from streamgauge.core.dialects import endpoint_of
from streamgauge.core.masking.masker import Masker
from streamgauge.recorder.budget import Budget
from streamgauge.recorder.events import MaskedEvents
from tests.each import check_each
from tests.vectors.drive import Live, messages, segments_of, wire
from tests.vectors.load import BOM, Vector, vectors

SECRET = "CANARY of a tool"
ASKED = {"name": SECRET, "arguments": {SECRET: SECRET}}
PART = {"kind": "text", "text": SECRET}
# https://modelcontextprotocol.io/specification/2025-06-18/basic/transports, and https://a2a-protocol.org/latest/specification.
MESSAGES: dict[str, Any] = {
    "tool result": {"jsonrpc": "2.0", "id": 1, "result": {"content": [PART], "structuredContent": {SECRET: 1}}},
    "tool error": {"jsonrpc": "2.0", "id": 1, "result": {"content": [PART], "isError": True}},
    "error": {"jsonrpc": "2.0", "id": 1, "error": {"code": -32602, "message": SECRET, "data": SECRET}},
    "server's request": {"jsonrpc": "2.0", "id": 2, "method": "sampling/createMessage", "params": {"messages": [PART]}},
    "notification": {"jsonrpc": "2.0", "method": "notifications/message", "params": ASKED},
    "batch": [{"jsonrpc": "2.0", "id": 1, "result": {"content": [PART]}}, {"id": 2, "result": SECRET}],
    "agent's status": {"jsonrpc": "2.0", "result": {"kind": "status-update", "status": {"message": {"parts": [PART]}}}},
    "agent's artifact": {"result": {"artifact": {"parts": [PART]}, "kind": "artifact-update"}, "jsonrpc": "2.0"},
}
FORMS = {
    "event": lambda text: b"event: message\ndata: " + text + b"\n\n",
    "data alone": lambda text: b"data: " + text + b"\n\n",
    "with CR": lambda text: b"id: 7\r\ndata: " + text + b"\r\n\r\n",
    "in an error field": lambda text: b"data: {}\nerror: " + text + b"\n\n",
    "without a field": lambda text: text + b"\n\n",
}
SPACES = {"compact": (",", ":"), "spaced": (", ", ": ")}
OTHERS = b'data: {"price":7}\n\n' * 12  # events of another kind, enough for a frame


def stored(body: bytes, target: str = "/mcp", step: int | None = None) -> bytes:
    """All content that the segments of a full capture hold, of a body that comes in reads of `step` bytes."""
    one = Vector(about="", record={}, token_events_at=[], dialect="", name="n", body=body, target=target)
    sent = wire(one, Live())
    reads = [(None, sent[at : at + (step or len(sent))]) for at in range(0, len(sent), step or len(sent))]
    segments = list(segments_of("full", messages(one, reads)))
    ends = [segment.end for segment in segments if segment.end is not None]
    contents = [read.content for segment in segments for read in segment.reads]
    return b"".join([*contents, *(end.tail for end in ends), *(end.body or b"" for end in ends)])


@pytest.mark.parametrize("target", ["/mcp", "/v1/chat/completions"])
@pytest.mark.parametrize("form", FORMS.values(), ids=FORMS)
def test_a_full_capture_stores_nothing_of_a_message(form: Any, target: str) -> None:
    def check(name: str) -> None:
        for separators in SPACES.values():
            text = json.dumps(MESSAGES[name], separators=separators).encode()
            for around in (b"", OTHERS):
                for step in (None, 7, 64):
                    found = stored(around + form(text) + around, target, step)
                    assert b"CANARY" not in found
                    assert found.count(b'{"price":7}') == around.count(b"price") * 2

    check_each(list(MESSAGES), check, str)


def test_a_full_capture_stores_nothing_of_a_message_at_the_end_without_its_blank_line() -> None:
    for message in MESSAGES.values():
        found = stored(OTHERS + b"data: " + json.dumps(message).encode())
        assert b"CANARY" not in found
        assert found.count(b'{"price":7}') == OTHERS.count(b"price")


def test_a_full_capture_stores_nothing_of_a_message_that_is_a_whole_answer() -> None:
    for message in MESSAGES.values():
        found = Masker(None, full=True).body(json.dumps(message).encode())
        assert found is not None and b"CANARY" not in found
    other = b'{"result":"CANARY"}'
    assert Masker(None, full=True).body(other) == other


def test_text_about_json_rpc_passes_unchanged_in_a_full_capture() -> None:
    said = json.dumps({"jsonrpc": "2.0", "result": "x"})
    chunk = {"id": "c", "object": "chat.completion.chunk", "choices": [{"index": 0, "delta": {"content": said}}]}
    body = b"data: " + json.dumps(chunk).encode() + b"\n\n"
    assert stored(body, "/v1/chat/completions") == body
    marked = b"data: " + json.dumps({**chunk, "jsonrpc": "2.0"}).encode() + b"\n\n"
    assert stored(marked, "/v1/chat/completions") == marked  # a dialect recognises it


def test_every_vector_passes_unchanged_in_a_full_capture_beside_a_message() -> None:
    """The message is masked alone: what is before it and after it in the same read stays as it is."""
    message = b'data: {"jsonrpc":"2.0","method":"CANARY"}\n\n'
    for one in vectors():
        if one.is_stream and one.body.endswith(b"\n\n") and b"\r" not in one.body and not one.body.startswith(BOM):
            path = endpoint_of(one.method, one.target)
            alone, beside = _full(path, [one.body]), _full(path, [one.body + message + one.body])
            assert beside.startswith(alone) and beside.endswith(alone)
            assert b"CANARY" not in beside


@given(data=st.binary(max_size=60), cuts=st.lists(st.integers(0, 200), max_size=6))
def test_any_split_stores_the_same(data: bytes, cuts: list[int]) -> None:
    body = data + b'\n\ndata: {"jsonrpc":"2.0","result":"CANARY"}\n\n' + data + b"\n\n"
    places = sorted({0, len(body), *(cut % len(body) for cut in cuts)})
    pieces = [body[start:end] for start, end in pairwise(places)]
    whole = _full(None, [body])
    assert whole == _full(None, pieces)
    assert b"CANARY" not in whole


def _full(path: str | None, pieces: list[bytes]) -> bytes:
    events = MaskedEvents(Masker(path, full=True), Budget(2**30))
    return b"".join([*map(events.feed, pieces), events.finish()])
