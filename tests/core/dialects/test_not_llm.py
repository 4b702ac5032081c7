"""Event streams on the same connections that do not come from an LLM: they are recognised and get no record."""

import json
from typing import Any

import pytest

from streamgauge.core.assembly.assembler import Assembler
from streamgauge.core.capture.segments import Bundle
from streamgauge.core.dialects import DIALECTS, is_foreign
from streamgauge.core.formats.json_text import parse
from streamgauge.core.formats.sse import SseDecoder
from streamgauge.taps.replay import replay
from tests.vectors.drive import INSTANCE, Live, messages, record_of, segments_of, settings, wire
from tests.vectors.load import Vector, vectors


def stream(*events: dict[str, Any], named: bool = True) -> bytes:
    return b"".join(event_of(event, named) for event in events)


def event_of(value: dict[str, Any], named: bool) -> bytes:
    name = value.get("type") or value.get("object") or "message"
    return (f"event: {name}\n" if named else "").encode() + f"data: {json.dumps(value)}\n\n".encode()


STREAMS = {
    # Model Context Protocol, streamable HTTP: https://modelcontextprotocol.io/specification, transports
    "mcp": stream({"jsonrpc": "2.0", "id": 1, "result": {"content": [{"type": "text", "text": "7"}]}}),
    "mcp-error": stream({"jsonrpc": "2.0", "id": 1, "error": {"code": -32600, "message": "no"}}),
    "mcp-pings": b": ping - 2025-01-01\n\n" * 2 + stream({"jsonrpc": "2.0", "method": "notifications/progress"}),
    # OpenAI assistants: https://platform.openai.com/docs/api-reference/assistants-streaming/events
    "assistants": stream(
        {"id": "run_1", "object": "thread.run", "status": "queued", "usage": None},
        {"id": "msg_1", "object": "thread.message.delta", "delta": {"content": [{"index": 0, "type": "text"}]}},
        {
            "id": "run_1",
            "object": "thread.run",
            "status": "completed",
            "usage": {"prompt_tokens": 5, "total_tokens": 9},
        },
    )
    + b"event: done\ndata: [DONE]\n\n",
    # Gemini Live over HTTP: https://ai.google.dev/api/live. Its usage metadata are not those of generateContent.
    "gemini-live": stream(
        {"setupComplete": {}},
        {"serverContent": {"modelTurn": {"parts": [{"text": "hello"}]}}},
        {"serverContent": {"turnComplete": True}, "usageMetadata": {"promptTokenCount": 25, "totalTokenCount": 50}},
        {"usageMetadata": {"promptTokenCount": 25, "responseTokenCount": 25, "totalTokenCount": 50}},
        named=False,
    ),
    "gemini-live-call": stream(
        {"toolCall": {"functionCalls": [{"name": "f", "args": {}}]}, "usageMetadata": {}}, named=False
    ),
    # A session of OpenAI's Realtime API: https://github.com/openai/openai-python, types/realtime. Its responses are read.
    "realtime-session": stream(
        {"type": "session.created", "event_id": "event_1", "session": {"object": "realtime.session", "model": "m"}},
        {"type": "conversation.item.added", "event_id": "event_2", "item": {"id": "item_1", "type": "message"}},
        {"type": "rate_limits.updated", "event_id": "event_9", "rate_limits": []},
        named=False,
    ),
    "ticker": stream({"price": 7, "delta": 1}, {"price": 8}, named=False),
    "texts": b"data: hello\n\ndata: world\n\n",
}

each = pytest.mark.parametrize("body", STREAMS.values(), ids=STREAMS)


def test_an_event_without_members_shows_no_dialect() -> None:
    """So no dialect has to examine it, whatever its name is."""
    names = {event.name for one in vectors() for event in SseDecoder().feed(one.body)}
    assert {"", "done", "message_stop", "response.completed"} < names
    assert [(one.name, name) for one in DIALECTS for name in names if one.recognises(name, {})] == []


def vector(body: bytes, target: str) -> Vector:
    return Vector(about="", record={}, token_events_at=[], dialect="", name="n", body=body, target=target)


@pytest.mark.parametrize("capture", ["masked", "full"])
@each
def test_it_gets_no_record(body: bytes, capture: Any) -> None:
    one = vector(body, "/mcp")
    assembler = Assembler()
    segments = list(segments_of(capture, messages(one, [(None, wire(one, Live()))])))
    assert assembler.apply(0, 0, Bundle(INSTANCE, 0, 0, 0, segments)) == []
    assert assembler.counts["not_llm"] == 1
    # What its events show it to be; else it may come from a model whose format is not read.
    shown = any(is_foreign(parse(event.data or b"")) for event in SseDecoder().feed(body))
    [((_, reason), streams)] = assembler.ignored.items()
    assert (reason, streams) == ("not_llm" if shown else "format", 1)
    assert assembler.open_streams == 0


@pytest.mark.parametrize("capture", ["masked", "full"])
@each
def test_on_a_path_that_always_gets_a_record_the_dialect_is_other(body: bytes, capture: Any) -> None:
    # In live capture the path is a hint, which applies unless the content contradicts it.
    one = vector(body, "/v1/chat/completions")
    record = record_of(segments_of(capture, messages(one, [(None, wire(one, Live()))])))
    if body in (STREAMS["ticker"], STREAMS["texts"]):
        assert (record.dialect, record.outcome) == ("openai-chat", "truncated")
    else:
        assert (record.dialect, record.outcome, record.error, record.choices) == ("other", "completed", None, [])


@each
def test_a_replay_makes_a_record_for_each_file(body: bytes) -> None:
    record = record_of(replay([body], settings("full")))
    assert (record.dialect, record.outcome, record.error) == ("other", "completed", None)
    assert (record.usage.source, record.counts.token_events) == ("absent", 0)


def test_a_responses_stream_may_have_ids_of_events_beside_their_numbers() -> None:
    happy = next(one for one in vectors() if (one.dialect, one.name) == ("openai-responses", "happy"))
    body = happy.body.replace(b'"sequence_number":', b'"event_id":"event_1","sequence_number":')
    assert body != happy.body
    record = record_of(replay([body], settings("masked")))
    assert (record.dialect, record.outcome) == ("openai-responses", "completed")


def test_an_llm_stream_after_other_events_is_recognised() -> None:
    happy = next(one for one in vectors() if (one.dialect, one.name) == ("openai-chat", "happy"))
    record = record_of(replay([STREAMS["mcp"] + happy.body], settings("full")))
    assert (record.dialect, record.outcome) == ("openai-chat", "completed")
