"""What providers answer, event by event, and what the record of a chat contains for it."""

import json
from typing import Any

from tests.taps.contract.scenario import CANARY

TEXT = f"{CANARY} grün \U0001f332"


def event(data: object, name: str | None = None, end: str = "\n") -> bytes:
    text = data if isinstance(data, str) else json.dumps(data, ensure_ascii=False)
    return (f"event: {name}{end}" if name else "").encode() + f"data: {text}{end}{end}".encode()


def chunk(text: str | None = None, finish: str | None = None, index: int = 0, **more: Any) -> bytes:
    """One event of a chat."""
    choice = {"index": index, "delta": {} if text is None else {"content": text}, "finish_reason": finish}
    return event({"id": "chat-1", "object": "chat.completion.chunk", "model": "m-1-01", "choices": [choice], **more})


USAGE = {"prompt_tokens": 9, "completion_tokens": 4, "total_tokens": 13, "prompt_tokens_details": {"cached_tokens": 2}}
COUNTED = event({"id": "chat-1", "object": "chat.completion.chunk", "model": "m-1-01", "choices": [], "usage": USAGE})
DONE = event("[DONE]")
BEGIN = (chunk(""), chunk(TEXT))
CHAT = (*BEGIN, b": ping\n\n", chunk(" and"), chunk(finish="stop"), DONE)
CHARS = len(TEXT) + len(" and")
ERROR = event({"error": {"message": CANARY, "type": "server_error", "code": "overloaded"}})
OVERLOADED = {"phase": "in_stream", "type": "server_error", "code": "overloaded"}
COMPLETED: dict[str, Any] = {
    "outcome": "completed", "error": None, "dialect": "openai-chat", "endpoint": "/chat/completions", "streaming": True,
    "finish_reason": "stop", "response_model": "m-1-01", "response_id": "chat-1", "status_code": 200,
    "counts": {"events": 5, "token_events": 2, "comments": 1, "text_chars": CHARS, "unterminated_events": 0},
    "integrity": {"complete": True, "reasons": []},
}  # fmt: skip


def named(*data: dict[str, Any]) -> tuple[bytes, ...]:
    return tuple(event(one, one["type"]) for one in data)


TOOL_CALL = named(
    {
        "type": "message_start",
        "message": {
            "id": "msg_1", "type": "message", "role": "assistant", "model": "c-1-01", "content": [], "stop_reason": None,
            "usage": {"input_tokens": 20, "output_tokens": 1, "cache_read_input_tokens": 5},
        },
    },
    {"type": "content_block_start", "index": 0, "content_block": {"type": "text", "text": ""}},
    {"type": "content_block_delta", "index": 0, "delta": {"type": "text_delta", "text": CANARY}},
    {"type": "content_block_stop", "index": 0},
    {
        "type": "content_block_start", "index": 1,
        "content_block": {"type": "tool_use", "id": "toolu_1", "name": "look_up", "input": {}},
    },
    {
        "type": "content_block_delta", "index": 1,
        "delta": {"type": "input_json_delta", "partial_json": '{"what":"CANARY"}'},
    },
    {"type": "content_block_stop", "index": 1},
    {"type": "message_delta", "delta": {"stop_reason": "tool_use"}, "usage": {"output_tokens": 12}},
    {"type": "message_stop"},
)  # fmt: skip


def response_event(kind: str, number: int, **more: Any) -> dict[str, Any]:
    return {"type": f"response.{kind}", "sequence_number": number, **more}


def stored(status: str, **more: Any) -> dict[str, Any]:
    return {"id": "resp_1", "object": "response", "status": status, "model": "m-1-01", "output": [], **more}


OF_TEXT = {"item_id": "msg_1", "output_index": 0, "content_index": 0}
RESPONSE = named(
    response_event("created", 0, response=stored("in_progress")),
    response_event("output_text.delta", 1, delta=CANARY, **OF_TEXT),
    response_event("output_text.delta", 2, delta=" and more", **OF_TEXT),
    response_event("output_text.done", 3, text=f"{CANARY} and more", **OF_TEXT),
    response_event(
        "completed",
        4,
        response=stored("completed", usage={"input_tokens": 9, "output_tokens": 3, "total_tokens": 12}),
    ),
)


def candidate(text: str | None, **more: Any) -> bytes:
    content = {"role": "model", "parts": [] if text is None else [{"text": text}]}
    chunk = {"candidates": [{"content": content, "index": 0, **more.pop("candidate", {})}], "modelVersion": "g-1-01"}
    return event({**chunk, **more}, end="\r\n")


GEMINI = (
    candidate(CANARY),
    candidate(
        " and more",
        candidate={"finishReason": "STOP"},
        usageMetadata={"promptTokenCount": 9, "candidatesTokenCount": 3, "totalTokenCount": 12},
    ),
)
