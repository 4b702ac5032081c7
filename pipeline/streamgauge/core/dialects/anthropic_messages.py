"""Anthropic Messages: named events whose JSON `type` repeats the name; message_stop ends the stream, there is no [DONE].

Usage is cumulative and may come more than once: the last value of each field counts. The output count in message_start is a
placeholder. The input count excludes tokens that were written to the cache or read from it.
"""

from collections.abc import Mapping

from streamgauge.core.allowlist import Kind, Spec
from streamgauge.core.dialects.contract import KEEP_ERRORS, Data, DialectDefaults, Sink, is_no_call, type_of
from streamgauge.core.dialects.deltas import Delta, Deltas, Output
from streamgauge.core.formats.cut_json import first_members
from streamgauge.core.reported_cost import KEEP_COST
from streamgauge.core.safe_values import whole_number
from streamgauge.core.usage import UsageRules
from streamgauge.core.usage_parts import KEEP_SERVER_TOOLS

_KEEP_CACHE_CREATION: Mapping[str, Spec] = {
    "ephemeral_5m_input_tokens": Kind.COUNT,
    "ephemeral_1h_input_tokens": Kind.COUNT,
}
_KEEP_COUNTS: dict[str, Spec] = {
    "input_tokens": Kind.COUNT,
    "output_tokens": Kind.COUNT,
    "cache_creation_input_tokens": Kind.COUNT,
    "cache_read_input_tokens": Kind.COUNT,
    "cache_creation": _KEEP_CACHE_CREATION,
}
_KEEP_USAGE: dict[str, Spec] = {
    **_KEEP_COUNTS,
    "prompt_tokens": Kind.COUNT,
    "completion_tokens": Kind.COUNT,
    "output_tokens_details": {"thinking_tokens": Kind.COUNT, "reasoning_tokens": Kind.COUNT},
    **KEEP_SERVER_TOOLS,
    "iterations": [{"type": Kind.CODE, "model": Kind.ID, **_KEEP_COUNTS}],
    "service_tier": Kind.CODE,
    "inference_geo": Kind.CODE,
    "speed": Kind.CODE,
    **KEEP_COST,  # of gateways that offer this API
}
_KEEP_BLOCK: Spec = {
    "type": Kind.CODE,
    "id": Kind.ID,
    "name": Kind.ID,
    "tool_use_id": Kind.ID,
    "text": Kind.TEXT,
    "thinking": Kind.TEXT,
    "input": Kind.ARGUMENTS,
}
_KEEP_MESSAGE: dict[str, Spec] = {
    "id": Kind.ID,
    "type": Kind.CODE,
    "role": Kind.CODE,
    "model": Kind.ID,
    "content": [_KEEP_BLOCK],
    "stop_reason": Kind.REASON,
    "usage": _KEEP_USAGE,
    "service_tier": Kind.CODE,
}
KEEP: dict[str, Spec] = {
    **KEEP_ERRORS,
    "index": Kind.COUNT,
    "message": _KEEP_MESSAGE,
    "content_block": _KEEP_BLOCK,
    "delta": {
        "type": Kind.CODE,
        "text": Kind.TEXT,
        "thinking": Kind.TEXT,
        "partial_json": Kind.TEXT,
        "stop_reason": Kind.REASON,
    },
    "usage": _KEEP_USAGE,
}

KEEP_BODY: dict[str, Spec] = {**KEEP_ERRORS, **_KEEP_MESSAGE}

# A `ping` identifies no dialect: other providers send it, too.
_EVENTS = {
    "message_start",
    "content_block_start",
    "content_block_delta",
    "content_block_stop",
    "message_delta",
    "message_stop",
}
# Blocks that call a tool, and whether the client has to execute the call.
_TOOL_BLOCKS = {"tool_use": True, "server_tool_use": False, "mcp_tool_use": False}

_DELTAS = Deltas(
    kinds=tuple(
        Delta(
            output,
            f"delta.{name}",
            when={"delta.type": (kind,)},
            unread=frozenset(f"delta.{other}" for other in others),
        )
        for output, name, kind, others in (
            (Output.TEXT, "text", "text_delta", ("thinking", "partial_json")),
            (Output.REASONING, "thinking", "thinking_delta", ("text", "partial_json")),
            (Output.ARGUMENTS, "partial_json", "input_json_delta", ("text", "thinking")),
        )
    ),
    when={"type": ("content_block_delta",)},
    unread=frozenset(("message", "content_block", "usage", "delta.stop_reason")),  # of other events
    key="index",
)


class AnthropicMessages(DialectDefaults):
    """Anthropic's Messages API."""

    name = "anthropic-messages"
    endpoint = "/messages"
    paths = ("/messages",)
    keep = KEEP
    keep_body = KEEP_BODY
    deltas = _DELTAS
    may_summarise = True  # platform.claude.com/docs, extended thinking: summarized thinking
    usage = UsageRules(
        spec=_KEEP_USAGE,
        # The second names are from OpenAI's chat: some gateways keep them.
        input=("input_tokens", "prompt_tokens"),
        input_parts=("cache_creation_input_tokens", "cache_read_input_tokens"),
        output=("output_tokens", "completion_tokens"),
        cached=("cache_read_input_tokens",),
        cache_write=("cache_creation_input_tokens",),
        cache_write_1h=("cache_creation.ephemeral_1h_input_tokens",),
        cache_write_split=tuple(f"cache_creation.{name}" for name in _KEEP_CACHE_CREATION),
        reasoning=("output_tokens_details.thinking_tokens", "output_tokens_details.reasoning_tokens"),
    )

    def recognises(self, event: str, data: Data) -> bool:
        """By its type. A `ping` or an `error` identifies no dialect: other providers send these, too."""
        kind = type_of(event, data)
        return isinstance(kind, str) and kind in _EVENTS

    def recognises_body(self, data: Data) -> bool:
        """By `type: message` with a `stop_reason`, which may be null."""
        return data.get("type") == "message" and "stop_reason" in data

    def read(self, event: str, data: Data, sink: Sink) -> None:
        """Reports what the type of the event names. Events of unknown types are ignored, as the API requires."""
        index = whole_number(data.get("index")) or 0
        match type_of(event, data):
            case "message_start":
                _read_start(data.get("message"), sink)
            case "content_block_start":
                _read_block(index, data.get("content_block"), sink)
            case "content_block_delta":
                _read_delta(index, data.get("delta"), sink)
            case "message_delta":
                _read_message_delta(data, sink)
            case "message_stop":
                sink.terminal()

    def outline_of(self, event: str, head: bytes, tail: bytes) -> Data | None:
        """A message_stop, or another event of a known type."""
        first = first_members(head)
        if type_of(event, first) == "message_stop":
            return {"type": "message_stop"}
        return {} if self.recognises(event, first) else None

    def read_body(self, data: Data, sink: Sink) -> None:
        """Reports the blocks of the message as one choice, and ends the stream."""
        sink.identify(data.get("id"), data.get("model"), _tier(data.get("usage")))
        _read_content(data.get("content"), sink)
        sink.finish(0, data.get("stop_reason"))
        sink.usage(data.get("usage"))
        sink.terminal()


def _read_start(message: object, sink: Sink) -> None:
    if isinstance(message, dict):
        sink.identify(message.get("id"), message.get("model"), _tier(message.get("usage")))
        sink.choice(0)
        sink.usage(message.get("usage"), placeholder=True)
        _read_content(message.get("content"), sink)
        sink.finish(0, message.get("stop_reason"))


def _read_content(content: object, sink: Sink) -> None:
    """Reads the blocks of a whole response, or those in a message_start: calls that another tool made."""
    for index, block in enumerate(content if isinstance(content, list) else ()):
        _read_block(index, block, sink)


def _tier(usage: object) -> object:
    return usage.get("service_tier") if isinstance(usage, dict) else None


def _read_block(index: int, block: object, sink: Sink) -> None:
    if not isinstance(block, dict):
        return
    kind = block.get("type")
    if isinstance(kind, str) and kind in _TOOL_BLOCKS:
        arguments = block.get("input")
        call_id = block.get("id")
        if is_no_call(block.get("name"), call_id, arguments):
            return
        sink.tool(0, index, block.get("name"), call_id=call_id, client=_TOOL_BLOCKS[kind], empty=arguments == {})
        if arguments:  # {} means that fragments follow, or that there are no arguments
            sink.arguments(0, index, arguments)
    elif kind == "text":
        sink.text(0, block.get("text"))
    elif kind == "thinking":
        sink.reasons()
        sink.reasoning(0, block.get("thinking"))
    elif kind == "redacted_thinking":
        sink.reasons(withheld=True)


def _read_delta(index: int, delta: object, sink: Sink) -> None:
    if not isinstance(delta, dict):
        return
    match delta.get("type"):
        case "text_delta":
            sink.text(0, delta.get("text"))
        case "thinking_delta":
            sink.reasoning(0, delta.get("thinking"))
        case "input_json_delta":
            fragment = delta.get("partial_json")
            sink.arguments(0, index, fragment if isinstance(fragment, str) else None)


def _read_message_delta(data: Data, sink: Sink) -> None:
    delta = data.get("delta")
    if isinstance(delta, dict):
        sink.finish(0, delta.get("stop_reason"))
    usage = data.get("usage")
    sink.identify(tier=_tier(usage))
    sink.usage(usage)
