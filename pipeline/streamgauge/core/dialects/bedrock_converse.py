"""Amazon Bedrock's Converse API, and Amazon Nova's own events, which have the same members.

ConverseStream names its events (messageStart, contentBlockDelta, ...). Nova's InvokeModelWithResponseStream sends each event
as the only member of an object, under its name. A stop reason ends the stream; usage and times follow it, in `metadata`. Its
inputTokens leave out what was read from the cache or written to it.

Sources: https://docs.aws.amazon.com/bedrock/latest/APIReference/API_runtime_ConverseStream.html, API_runtime_Converse.html,
botocore's service model bedrock-runtime/2023-09-30 (ConverseStreamOutput, TokenUsage, StopReason), and
https://docs.aws.amazon.com/nova/latest/userguide/using-invoke-api.html.
"""

from streamgauge.core.allowlist import Kind, Spec
from streamgauge.core.dialects.contract import KEEP_ERRORS, Data, DialectDefaults, Sink, is_no_call
from streamgauge.core.safe_values import finite_number, whole_number
from streamgauge.core.usage import UsageRules

_KEEP_USAGE: dict[str, Spec] = {
    "inputTokens": Kind.COUNT,
    "outputTokens": Kind.COUNT,
    "totalTokens": Kind.COUNT,
    "cacheReadInputTokens": Kind.COUNT,
    "cacheWriteInputTokens": Kind.COUNT,
    "cacheReadInputTokenCount": Kind.COUNT,  # Nova's own events; Converse repeats the counts under these names
    "cacheWriteInputTokenCount": Kind.COUNT,
    "cacheDetails": [{"ttl": Kind.CODE, "inputTokens": Kind.COUNT}],
}
_KEEP_TOOL: Spec = {"name": Kind.ID, "toolUseId": Kind.ID, "type": Kind.CODE, "input": Kind.ARGUMENTS}
_KEEP_REASONING: dict[str, Spec] = {"text": Kind.TEXT, "signature": Kind.FLAG, "redactedContent": Kind.FLAG}
_KEEP_IMAGE: Spec = {"source": {"bytes": Kind.TEXT}}
_KEEP_BLOCK: Spec = {
    "text": Kind.TEXT,
    "toolUse": _KEEP_TOOL,
    "reasoningContent": {**_KEEP_REASONING, "reasoningText": {"text": Kind.TEXT}},
    "image": _KEEP_IMAGE,
}
# What the events have together. Each has some of it.
_KEEP_MEMBERS: dict[str, Spec] = {
    "role": Kind.CODE,
    "contentBlockIndex": Kind.COUNT,
    "start": {"toolUse": _KEEP_TOOL},
    "delta": _KEEP_BLOCK,
    "stopReason": Kind.REASON,
    "usage": _KEEP_USAGE,
    "metrics": {"latencyMs": Kind.NUMBER},
    "serviceTier": {"type": Kind.CODE},
    "trace": {"promptRouter": {"invokedModelId": Kind.ID}},
}
# Each event, and the members of which it has at least one. Other services name an event `metadata`, too.
_EVENTS: dict[str, tuple[str, ...]] = {
    "messageStart": ("role",),
    "contentBlockStart": ("contentBlockIndex", "start"),
    "contentBlockDelta": ("contentBlockIndex", "delta"),
    "contentBlockStop": ("contentBlockIndex",),
    "messageStop": ("stopReason",),
    "metadata": ("metrics",),
}
KEEP: dict[str, Spec] = {**KEEP_ERRORS, **_KEEP_MEMBERS, **dict.fromkeys(_EVENTS, _KEEP_MEMBERS)}
KEEP_BODY: dict[str, Spec] = {
    **KEEP_ERRORS,
    **_KEEP_MEMBERS,
    "output": {"message": {"role": Kind.CODE, "content": [_KEEP_BLOCK]}},
}


class BedrockConverse(DialectDefaults):
    """Bedrock's Converse and ConverseStream, and the events of Amazon Nova."""

    name = "bedrock-converse"
    endpoint = "/model/{id}/converse-stream"
    paths = ("/model/{id}/converse-stream", "/model/{id}/converse")
    keep = KEEP
    keep_body = KEEP_BODY
    finish_is_terminal = True
    usage = UsageRules(
        spec=_KEEP_USAGE,
        input=("inputTokens",),
        input_parts=("cacheReadInputTokens", "cacheWriteInputTokens"),
        output=("outputTokens",),
        total=("totalTokens",),
        cached=("cacheReadInputTokens",),
        cache_write=("cacheWriteInputTokens",),
        cache_write_1h=("cacheDetails.ttl=1h.inputTokens",),
    )

    def recognises(self, event: str, data: Data) -> bool:
        """By the event's name beside a member of such an event, or by an only member of that name."""
        return _has_members(event, data) or _wrapped(data) is not None

    def recognises_body(self, data: Data) -> bool:
        """By the message in `output`, beside a stop reason."""
        return isinstance(data.get("output"), dict) and isinstance(data.get("stopReason"), str)

    def read(self, event: str, data: Data, sink: Sink) -> None:
        """Reports what the event's members say."""
        members = data if event in _EVENTS else _wrapped(data)
        if members is None:
            return
        index = whole_number(members.get("contentBlockIndex")) or 0
        start, delta = members.get("start"), members.get("delta")
        if "role" in members:
            sink.choice(0)
        if isinstance(start, dict):
            _read_tool(index, start.get("toolUse"), sink)
        if isinstance(delta, dict):
            _read_delta(index, delta, sink)
        _read_end(members, sink)

    def read_body(self, data: Data, sink: Sink) -> None:
        """Reports the blocks of the message, and ends the stream."""
        output = data.get("output")
        message = output.get("message") if isinstance(output, dict) else None
        blocks = message.get("content") if isinstance(message, dict) else None
        for index, block in enumerate(blocks if isinstance(blocks, list) else ()):
            if isinstance(block, dict):
                _read_tool(index, block.get("toolUse"), sink)
                _read_delta(index, block, sink)
        _read_end(data, sink)
        sink.terminal()


def _has_members(event: str, members: object) -> bool:
    return event in _EVENTS and isinstance(members, dict) and not members.keys().isdisjoint(_EVENTS[event])


def _wrapped(data: Data) -> Data | None:
    """The members of an event that comes as the member of an object."""
    for name in _EVENTS:
        members = data.get(name)
        if isinstance(members, dict) and _has_members(name, members):
            return members
    return None


def _read_tool(index: int, call: object, sink: Sink) -> None:
    """Reads the beginning of a call. Calls of type `server_tool_use` are the provider's to execute."""
    if isinstance(call, dict) and not is_no_call(call.get("name"), call.get("toolUseId"), None):
        client = call.get("type") != "server_tool_use"
        sink.tool(0, index, call.get("name"), call_id=call.get("toolUseId"), client=client)


def _read_delta(index: int, delta: Data, sink: Sink) -> None:
    sink.text(0, delta.get("text"))
    call, image = delta.get("toolUse"), delta.get("image")
    if isinstance(call, dict):
        sink.arguments(0, index, call.get("input"))
    _read_reasoning(delta.get("reasoningContent"), sink)
    source = image.get("source") if isinstance(image, dict) else None
    if isinstance(source, dict):
        sink.media(0, source.get("bytes"))


def _read_reasoning(content: object, sink: Sink) -> None:
    """Reads reasoning: a piece of text, or a whole one; a redacted one is not sent. A signature is no output."""
    if not isinstance(content, dict):
        return
    whole = content.get("reasoningText")
    sink.reasons(withheld=content.get("redactedContent") is not None)
    sink.reasoning(0, whole.get("text") if isinstance(whole, dict) else content.get("text"))


def _read_end(members: Data, sink: Sink) -> None:
    """Reads the stop reason, usage, times, and how the request was served."""
    sink.finish(0, members.get("stopReason"))
    usage, metrics, tier = members.get("usage"), members.get("metrics"), members.get("serviceTier")
    sink.usage(_with_one_name(usage) if isinstance(usage, dict) else usage)
    trace = members.get("trace")
    router = trace.get("promptRouter") if isinstance(trace, dict) else None
    sink.identify(
        tier=tier.get("type") if isinstance(tier, dict) else None,
        routed_model=router.get("invokedModelId") if isinstance(router, dict) else None,
    )
    latency = finite_number(metrics.get("latencyMs")) if isinstance(metrics, dict) else None
    sink.provider_timing(total_s=None if latency is None else latency / 1000)


def _with_one_name(usage: Data) -> Data:
    """The usage with Converse's names of the cache counts, which Nova's own events have under others."""
    names = {"cacheReadInputTokenCount": "cacheReadInputTokens", "cacheWriteInputTokenCount": "cacheWriteInputTokens"}
    renamed = {names[name]: value for name, value in usage.items() if name in names}
    return {**renamed, **{name: value for name, value in usage.items() if name not in names}}
