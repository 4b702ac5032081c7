"""What the events of a stream contain, dialect by dialect: an independent reading, by the providers' documents."""

import json
from dataclasses import dataclass, field
from typing import Any

from tests.blackbox.expect import Body, Event

Json = dict[str, Any]


@dataclass
class EventContent:
    """The content of one event, in any dialect."""

    text: int = 0
    reasoning: int = 0
    refusal: int = 0
    tool: bool = False
    audio: bool = False

    @property
    def token(self) -> bool:
        return bool(self.text or self.reasoning or self.refusal or self.tool or self.audio)


@dataclass
class Reading:
    """One stream as an independent reader understands it."""

    contents: list[tuple[Event, EventContent]] = field(default_factory=list)
    finish: dict[int, str] = field(default_factory=dict)
    started: set[int] = field(default_factory=set)
    finish_at: float | None = None
    terminal: bool = False
    error: Json | None = None
    response_id: str | None = None
    model: str | None = None
    usage: Json = field(default_factory=dict)
    usage_final: bool = False
    tools: list[list[Any]] = field(default_factory=list)
    unparsed: int = 0

    @property
    def tokens(self) -> list[tuple[Event, EventContent]]:
        return [(event, content) for event, content in self.contents if content.token]

    def first(self, kind: str) -> float | None:
        for event, content in self.contents:
            if getattr(content, kind):
                return event.at
        return None


def size(value: object) -> int:
    return len(value) if isinstance(value, str) else 0


def read_chat(events: list[Event]) -> Reading:
    """OpenAI chat and legacy completions."""
    reading = Reading()
    for event in events:
        if event.data.startswith("[DONE]"):
            reading.terminal = True
            continue
        chunk = _json(event, reading)
        if chunk is None:
            continue
        reading.response_id = reading.response_id or chunk.get("id") or None
        reading.model = reading.model or chunk.get("model") or None
        content = EventContent()
        for place, choice in enumerate(chunk.get("choices") or []):
            _chat_choice(reading, content, choice, choice.get("index", place), event.at)
        if chunk.get("error"):
            reading.error = reading.error or {"of": chunk["error"]}
        if usage := chunk.get("usage"):
            reading.usage.update({key: value for key, value in usage.items() if value is not None})
            reading.usage_final = reading.usage_final or bool(reading.finish)
        reading.contents.append((event, content))
    if reading.started and set(reading.finish) == reading.started:
        reading.terminal = True
    return reading


def _chat_choice(reading: Reading, content: EventContent, choice: Json, index: int, at: float) -> None:
    reading.started.add(index)
    delta = choice.get("delta") or {}
    content.text += size(delta.get("content")) + size(choice.get("text"))
    content.reasoning += size(delta.get("reasoning") or delta.get("reasoning_content"))
    content.refusal += size(delta.get("refusal"))
    for call in delta.get("tool_calls") or []:
        function = call.get("function") or {}
        content.tool = content.tool or bool(function.get("name") or function.get("arguments"))
        if function.get("name"):
            reading.tools.append([function["name"], 0])
        reading.tools[-1][1] += size(function.get("arguments"))
    if reason := choice.get("finish_reason"):
        reading.finish[index] = reason
        reading.finish_at = at if reading.finish_at is None else reading.finish_at
        if reason == "error":
            reading.error = reading.error or {"of": {"type": "error"}}


def read_anthropic(events: list[Event]) -> Reading:
    reading = Reading()
    for event in events:
        chunk = _json(event, reading)
        if chunk is None:
            continue
        content, kind = EventContent(), chunk.get("type")
        delta, block = chunk.get("delta") or {}, chunk.get("content_block") or {}
        if kind == "message_start":
            message = chunk["message"]
            reading.response_id, reading.model = message.get("id"), message.get("model")
            reading.usage.update({k: v for k, v in message.get("usage", {}).items() if k != "output_tokens"})
            reading.started.add(0)
        elif kind == "content_block_start" and block.get("type") == "tool_use":
            content.tool = True
            reading.tools.append([block["name"], 0])
        elif kind == "content_block_delta":
            content.text, content.reasoning = size(delta.get("text")), size(delta.get("thinking"))
            arguments = size(delta.get("partial_json"))
            content.tool = bool(arguments)
            if arguments:
                reading.tools[-1][1] += arguments
        elif kind == "message_delta":
            if delta.get("stop_reason"):
                reading.finish[0] = delta["stop_reason"]
                reading.finish_at = event.at if reading.finish_at is None else reading.finish_at
            reading.usage.update({k: v for k, v in (chunk.get("usage") or {}).items() if v is not None})
            reading.usage_final = "output_tokens" in (chunk.get("usage") or {})
        elif kind == "message_stop":
            reading.terminal = True
        elif kind == "error" or event.name == "error":
            reading.error = reading.error or {"of": chunk.get("error") or chunk}
        reading.contents.append((event, content))
    return reading


def read_responses(events: list[Event]) -> Reading:
    reading = Reading()
    for event in events:
        if event.data == "[DONE]":
            continue
        chunk = _json(event, reading)
        if chunk is None:
            continue
        kind, content = str(chunk.get("type")), EventContent()
        response = chunk.get("response") or {}
        reading.response_id = reading.response_id or response.get("id")
        reading.model = reading.model or response.get("model")
        amount = size(chunk.get("delta"))
        if kind == "response.output_text.delta":
            content.text = amount
        elif kind in {"response.reasoning_text.delta", "response.reasoning_summary_text.delta"}:
            content.reasoning = amount
        elif kind == "response.refusal.delta":
            content.refusal = amount
        elif kind == "response.function_call_arguments.delta":
            content.tool = bool(amount)
            reading.tools[-1][1] += amount
        elif kind == "response.output_item.added" and chunk["item"].get("type") == "function_call":
            content.tool = True
            reading.tools.append([chunk["item"]["name"], 0])
        elif kind in {"response.completed", "response.incomplete", "response.failed"}:
            reading.terminal, reading.finish_at = True, event.at
            reading.usage, reading.usage_final = dict(response.get("usage") or {}), bool(response.get("usage"))
            if kind == "response.failed":
                reading.error = reading.error or {"of": response.get("error") or {}}
        elif kind == "error":
            reading.error = reading.error or {"of": chunk.get("error") or chunk}
        reading.contents.append((event, content))
    return reading


READERS = {
    "openai-chat": read_chat,
    "openai-completions": read_chat,
    "anthropic-messages": read_anthropic,
    "openai-responses": read_responses,
}


def _json(event: Event, reading: Reading) -> Json | None:
    try:
        value = json.loads(event.data)
    except ValueError:
        reading.unparsed += 1
        return None
    return value if isinstance(value, dict) else None


def usage_of(dialect: str, usage: Json) -> Json:
    """Usage under the record's names: input with the cache, output with the reasoning; None where not seen."""
    if dialect == "anthropic-messages":
        parts = [usage.get(k) for k in ("input_tokens", "cache_creation_input_tokens", "cache_read_input_tokens")]
        whole = sum(part or 0 for part in parts) if usage.get("input_tokens") is not None else None
        output = usage.get("output_tokens")
        total = whole + output if whole is not None and output is not None else None
        return {"input_tokens": whole, "output_tokens": output, "total_tokens": total, "input_cached_tokens": parts[2]}
    names = {"input_tokens": "prompt_tokens", "output_tokens": "completion_tokens", "total_tokens": "total_tokens"}
    return {name: usage.get(name, usage.get(other)) for name, other in names.items()}


def outcome_of(body: Body, reading: Reading, ended: str) -> str:
    """By the design's order. `ended`: proper, early (EOF inside the framing), rst, left (the client)."""
    if body.status >= 300:
        return "http_error"
    if reading.error is not None or body.error_fields:
        return "stream_error"
    if reading.terminal:
        return "completed"
    if ended == "left":
        return "client_abort"
    if not body.head or ended in {"early", "rst"}:
        return "upstream_reset"
    return "truncated"
