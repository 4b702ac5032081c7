"""What the first and the last bytes of an event over the size limit tell, however it was split."""

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from streamgauge.core.formats.cut_json import first_members, last_members
from streamgauge.core.formats.sse import CUT_HEAD, CUT_TAIL, MAX_EVENT_BYTES
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
# Of an event that has it, more than the limit remains however its ends are cut here.
IMAGE = "A" * (MAX_EVENT_BYTES + 64 * 1024)
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
    output = [before, {"result": 1, "usage": {"input_tokens": 1}}, ',"usage":{}']
    event = {"response": {"output": output, "usage": usage, "user": None}, "sequence_number": 9}
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


def sse(*values: Any, name: str = "") -> bytes:
    line = f"event: {name}\n" if name else ""
    return b"".join(f"{line}data: {json.dumps(value)}\n\n".encode() for value in values)


def chunk(delta: Any, **choice: Any) -> dict[str, Any]:
    return {"object": "chat.completion.chunk", "choices": [{"index": 0, "delta": delta, **choice}]}


PICTURE = {"parts": [{"inlineData": {"mimeType": "image/png", "data": IMAGE}}], "role": "model"}
GEMINI_USAGE = {"promptTokenCount": 4, "candidatesTokenCount": 2, "totalTokenCount": 6}
HELD = {"token": {"id": 1, "text": "", "special": True}, "generated_text": IMAGE}
DETAILS = {"finish_reason": "eos_token", "generated_tokens": 2, "input_length": 4}
COMPLETION = {"object": "text_completion", "choices": [{"index": 0, "text": IMAGE, "finish_reason": "length"}]}
# Last events over the limit: the dialect, the event, its name, the normal reason, and the output tokens.
ENDINGS: dict[str, tuple[str, Any, str, str | None, int | None]] = {
    "gemini": (
        "gemini",
        {"candidates": [{"content": PICTURE, "finishReason": "STOP", "index": 0}], "usageMetadata": GEMINI_USAGE},
        "",
        "stop",
        2,
    ),
    "gemini, reason first": (
        "gemini",
        {"usageMetadata": GEMINI_USAGE, "candidates": [{"finishReason": "MAX_TOKENS", "content": PICTURE}]},
        "",
        "length",
        2,
    ),
    "gemini, wrapped": (
        "gemini",
        {
            "response": {
                "candidates": [{"content": PICTURE, "finishReason": 2, "safetyRatings": [{"blocked": False}]}],
                "usageMetadata": GEMINI_USAGE,
                "modelVersion": "m",
            },
            "traceId": "t",
        },
        "",
        "length",
        2,
    ),
    "tgi": ("tgi-native", {"index": 1, **HELD, "details": DETAILS}, "", "stop", 2),
    "tgi, details first": ("tgi-native", {"details": DETAILS, **HELD}, "", "stop", 2),
    "tgi, no details": ("tgi-native", {**HELD, "details": None}, "", None, None),
    "llama.cpp": (
        "llama-cpp-native",
        {"content": "", "stop": True, "tokens_predicted": 2, "prompt": IMAGE, "stop_type": "limit"},
        "",
        "length",
        2,
    ),
    "watsonx": (
        "watsonx",
        {
            "model_id": "m",
            "results": [
                {
                    "generated_text": IMAGE,
                    "generated_token_count": 2,
                    "input_token_count": 4,
                    "stop_reason": "eos_token",
                }
            ],
        },
        "",
        "stop",
        2,
    ),
    "chat": (
        "openai-chat",
        {**chunk({"images": [{"image_url": {"url": IMAGE}}]}, finish_reason="stop"), "usage": USAGE},
        "",
        "stop",
        2,
    ),
    "completions": ("openai-completions", {**COMPLETION, "usage": USAGE}, "", "length", 2),
    "cohere": (
        "cohere-v2",
        {
            "id": "1",
            "delta": {"debug": IMAGE, "finish_reason": "MAX_TOKENS", "usage": {"tokens": {"output_tokens": 2}}},
        },
        "message-end",
        "length",
        2,
    ),
    "anthropic": ("anthropic-messages", {"type": "message_stop", "p": IMAGE}, "", None, None),
    "anthropic completions": (
        "anthropic-completions",
        {"type": "completion", "completion": IMAGE, "stop_reason": "max_tokens"},
        "",
        "length",
        None,
    ),
    "interactions": (
        "gemini-interactions",
        {
            "interaction": {
                "status": "completed",
                "steps": [{"type": "image", "data": IMAGE}],
                "usage": {"total_output_tokens": 2},
            },
            "event_type": "interaction.completed",
        },
        "",
        "stop",
        2,
    ),
    "responses, type last": (
        "openai-responses",
        {
            "response": {
                "status": "completed",
                "output": [{"result": IMAGE}],
                "usage": USAGE,
                "metadata": {"usage": "x"},
            },
            "type": "response.completed",
        },
        "",
        "stop",
        2,
    ),
}


@pytest.mark.parametrize("capture", ["masked", "full"])
@pytest.mark.parametrize("end", [b"\n\n", b""])
@pytest.mark.parametrize("name", ENDINGS)
def test_the_last_event_of_each_dialect_may_be_over_the_limit(name: str, end: bytes, capture: Any) -> None:
    dialect, value, event, finish, output = ENDINGS[name]
    record = record_of(replay([sse(value, name=event).removesuffix(b"\n\n") + end], settings(capture)))
    assert (record.dialect, record.outcome, record.finish_reason) == (dialect, "completed", finish)
    assert record.usage.output_tokens == output
    assert record.integrity.reasons == ["oversized_event"]
    assert record.counts.token_events == 0  # what it brought is not known


@pytest.mark.parametrize("name", ENDINGS)
def test_an_only_event_over_the_limit_shows_its_dialect_whatever_the_path_hints_at(name: str) -> None:
    dialect, value, event, _, _ = ENDINGS[name]
    hint = "cohere-v2" if dialect == "openai-chat" else "openai-chat"
    record = record_of(replay([sse(value, name=event)], settings("masked"), dialect=hint))
    assert (record.dialect, record.outcome) == (dialect, "completed")


IMAGES = chunk({"images": [{"image_url": {"url": IMAGE}}]})
NOT_LAST = {
    "its type is no terminal": sse({"type": "response.output_item.done", "item": {"result": IMAGE}}),
    "its type comes last": sse({"item": {"result": IMAGE}, "type": "response.output_item.done"}),
    "its name is no terminal": sse({"index": 0, "content_block": {"text": IMAGE}}, name="content_block_start"),
    "its finish reason is null": sse(chunk({"content": IMAGE}, finish_reason=None)),
    "its stop is false": sse({"content": "", "stop": False, "prompt": IMAGE}),
    "it is cut": sse(IMAGES)[:-20],
    "output follows": sse(IMAGES, chunk({"content": "Hi"})),
}


@pytest.mark.parametrize("name", NOT_LAST)
def test_a_stream_is_truncated_if_its_event_over_the_limit_was_no_end(name: str) -> None:
    record = record_of(replay([NOT_LAST[name]], settings("masked")))
    assert (record.outcome, record.integrity.oversized_events) == ("truncated", 1)


@pytest.mark.parametrize("end", [b"\n\n", b"\n", b""])
@pytest.mark.parametrize("before", [b"", sse(chunk({"content": "Hi"}))])
def test_the_outcome_is_unknown_if_an_event_over_the_limit_may_have_been_the_end(before: bytes, end: bytes) -> None:
    body = before + sse(IMAGES).removesuffix(b"\n\n")
    record = record_of(replay([body + end], settings("masked")))
    assert (record.outcome, record.error, record.integrity.reasons) == ("abandoned", None, ["oversized_event"])
    record = record_of(replay([body + b"\n\ndata: [DONE]\n\n"], settings("masked")))
    assert record.outcome == "completed"


@pytest.mark.parametrize("odd", ["1" * 400, "1e999", '"\\ud800"', "[" * 3_000, '{"a":"\\u0000"}'])
def test_an_event_over_the_limit_may_hold_anything(odd: str) -> None:
    head = f'data: {{"type":"response.completed","x":{odd},"response":{{"id":{odd},"output":"'.encode()
    for tail in (b'","usage":%b}}' % odd.encode(), b'"}}'):
        record = record_of(replay([DELTA + head + IMAGE.encode() + tail + b"\n\n"], settings("masked")))
        assert record.integrity.oversized_events == 1
        assert record.counts.text_chars == 2
