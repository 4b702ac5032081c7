"""OpenAI chat completions, and the many servers that speak it (`object: chat.completion.chunk`).

What differs between them is in the data: reasoning under three names, text also under `text` or `message`, tool calls by
index, id or position, usage on the finish chunk, on a chunk of its own, inside a choice, or under `x_groq`.
"""

from collections.abc import Iterator

from streamgauge.core.dialects.contract import KEEP_ERRORS, Data, Sink
from streamgauge.core.keep import Kind, Spec
from streamgauge.core.labels import finite_number, whole_number
from streamgauge.core.usage import UsageRules

_KEEP_TOOL: Spec = {
    "index": Kind.COUNT,
    "id": Kind.ID,
    "type": Kind.CODE,
    "function": {"name": Kind.ID, "arguments": (Kind.TEXT, Kind.ARGUMENTS)},
}
# Text as a string, or as a list of parts (Mistral); a part's thinking is a list of parts itself.
_KEEP_PART: Spec = {
    "type": Kind.CODE,
    "text": Kind.TEXT,
    "thinking": (Kind.TEXT, [{"type": Kind.CODE, "text": Kind.TEXT}]),
}
_KEEP_CONTENT: Spec = (Kind.TEXT, [_KEEP_PART])
_KEEP_MESSAGE: Spec = {
    "role": Kind.CODE,
    "content": _KEEP_CONTENT,
    "refusal": Kind.TEXT,
    "reasoning": Kind.TEXT,
    "reasoning_content": Kind.TEXT,
    "reasoning_details": [{"type": Kind.CODE, "index": Kind.COUNT, "text": Kind.TEXT, "summary": Kind.TEXT}],
    "tool_calls": [_KEEP_TOOL],
    "function_call": {"name": Kind.ID, "arguments": (Kind.TEXT, Kind.ARGUMENTS)},
    "audio": {"id": Kind.ID, "data": Kind.TEXT, "transcript": Kind.TEXT, "expires_at": Kind.NUMBER},
}
_DETAILS = dict.fromkeys(("cached_tokens", "cache_write_tokens", "audio_tokens", "text_tokens"), Kind.COUNT)
_MORE_DETAILS = dict.fromkeys(("image_tokens", "video_tokens"), Kind.COUNT)
KEEP_USAGE: dict[str, Spec] = {
    "prompt_tokens": Kind.COUNT,
    "completion_tokens": Kind.COUNT,
    "total_tokens": Kind.COUNT,
    "prompt_tokens_details": _DETAILS | _MORE_DETAILS,
    "completion_tokens_details": {
        "reasoning_tokens": Kind.COUNT,
        "audio_tokens": Kind.COUNT,
        "text_tokens": Kind.COUNT,
        "accepted_prediction_tokens": Kind.COUNT,
        "rejected_prediction_tokens": Kind.COUNT,
    }
    | _MORE_DETAILS,
    "reasoning_tokens": Kind.COUNT,
    "cached_tokens": Kind.COUNT,
    "cache_creation_input_tokens": Kind.COUNT,
    "cache_read_input_tokens": Kind.COUNT,
    "prompt_cache_hit_tokens": Kind.COUNT,
    "prompt_cache_miss_tokens": Kind.COUNT,
    "num_sources_used": Kind.COUNT,
    "cost_in_usd_ticks": Kind.COUNT,
    "queue_time": Kind.NUMBER,
    "prompt_time": Kind.NUMBER,
    "completion_time": Kind.NUMBER,
    "total_time": Kind.NUMBER,
    "time_to_first_token_ms": Kind.NUMBER,
    "time_per_output_token_ms": Kind.NUMBER,
    "tokens_per_second": Kind.NUMBER,
    "cost": Kind.NUMBER,
    "market_cost": Kind.NUMBER,
    "is_byok": Kind.FLAG,
    "cost_details": {
        "upstream_inference_cost": Kind.NUMBER,
        "upstream_inference_prompt_cost": Kind.NUMBER,
        "upstream_inference_completions_cost": Kind.NUMBER,
        "upstream_inference_input_cost": Kind.NUMBER,
        "upstream_inference_output_cost": Kind.NUMBER,
    },
    "service_tier": Kind.CODE,
}
_KEEP_CHOICE: Spec = {
    "index": Kind.COUNT,
    "delta": _KEEP_MESSAGE,
    "message": _KEEP_MESSAGE,
    "text": Kind.TEXT,
    "finish_reason": Kind.CODE,
    "native_finish_reason": Kind.CODE,
    "usage": KEEP_USAGE,
}
_LATENCIES = ("service_ttft_ms", "engine_ttft_ms", "user_visible_ttft_ms", "total_duration_ms", "pre_inference_ms")
KEEP: dict[str, Spec] = {
    **KEEP_ERRORS,
    "id": Kind.ID,
    "object": Kind.CODE,
    "created": Kind.NUMBER,
    "model": Kind.ID,
    "service_tier": Kind.CODE,
    "system_fingerprint": Kind.ID,
    "choices": [_KEEP_CHOICE],
    "usage": KEEP_USAGE,
    "x_groq": {"id": Kind.ID, "usage": KEEP_USAGE},
    "sansa": {"routed": Kind.FLAG, "routed_model": Kind.ID, "routing_latency_ms": Kind.NUMBER},
    "time_info": {"queue_time": Kind.NUMBER, "total_time": Kind.NUMBER},
    "sla_metrics": {"ttft_ms": Kind.NUMBER},
    "latency_checkpoint": dict.fromkeys(_LATENCIES, Kind.NUMBER),
}

USAGE = UsageRules(
    spec=KEEP_USAGE,
    input=("prompt_tokens",),
    output=("completion_tokens",),
    total=("total_tokens",),
    cached=(
        "prompt_tokens_details.cached_tokens",
        "cached_tokens",
        "prompt_cache_hit_tokens",
        "cache_read_input_tokens",
    ),
    cache_write=("prompt_tokens_details.cache_write_tokens", "cache_creation_input_tokens"),
    reasoning=("completion_tokens_details.reasoning_tokens", "reasoning_tokens"),
    audio_input=("prompt_tokens_details.audio_tokens",),
    audio_output=("completion_tokens_details.audio_tokens",),
)

# The key of the one call that the deprecated `function_call` member makes; no tool call's index is negative.
FUNCTION_CALL_KEY = -1


class OpenAIChat:
    name = "openai-chat"
    endpoint = "/chat/completions"
    paths: tuple[str, ...] = ("/chat/completions",)
    keep = KEEP
    keep_body = KEEP
    usage = USAGE
    finish_is_terminal = True
    text_events: frozenset[str] = frozenset()

    def recognises(self, event: str, data: Data) -> bool:
        kind = data.get("object")
        if isinstance(kind, str) and kind.startswith("chat.completion"):
            return True
        return any("delta" in choice or "message" in choice for _, choice in choices_of(data))

    def recognises_body(self, data: Data) -> bool:
        return self.recognises("", data)

    def read(self, event: str, data: Data, sink: Sink) -> None:
        read_chunk(data, sink)

    def read_body(self, data: Data, sink: Sink) -> None:
        read_chunk(data, sink)
        sink.terminal()


def choices_of(data: Data) -> Iterator[tuple[int, Data]]:
    """The choices of a chunk with their index; a choice without one takes its position in the list."""
    given = data.get("choices")
    if not isinstance(given, list):
        return
    for position, choice in enumerate(given):
        if isinstance(choice, dict):
            index = whole_number(choice.get("index"))
            yield position if index is None else index, choice


def read_chunk(data: Data, sink: Sink) -> None:
    """A chunk of chat or of legacy completions."""
    sink.identify(data.get("id"), data.get("model"), data.get("service_tier"))
    usages = [data.get("usage")]
    for index, choice in choices_of(data):
        sink.choice(index)
        _read_message(index, choice, sink)
        sink.finish(index, choice.get("finish_reason"))
        usages.append(choice.get("usage"))
    groq = data.get("x_groq")
    if isinstance(groq, dict):
        usages.append(groq.get("usage"))
    given = next((usage for usage in usages if usage is not None), None)
    if given is not None:
        sink.usage(given)
    _read_provider(data, given, sink)


def _read_message(index: int, choice: Data, sink: Sink) -> None:
    """Of delta, text and message the first present holds what is new (Together sends two, Perplexity a running total)."""
    message = choice.get("delta")
    if not isinstance(message, dict):
        if isinstance(choice.get("text"), str):
            sink.text(index, choice["text"])
            return
        message = choice.get("message")
        if not isinstance(message, dict):
            return
    _read_content(index, message.get("content"), sink)
    _read_reasoning(index, message, sink)
    sink.refusal(index, message.get("refusal"))
    _read_audio(index, message.get("audio"), sink)
    _read_tools(index, message, sink)


def _read_content(index: int, content: object, sink: Sink) -> None:
    if not isinstance(content, list):
        sink.text(index, content)
        return
    for part in content:
        if isinstance(part, dict):
            sink.text(index, part.get("text"))
            _read_thinking(index, part.get("thinking"), sink)


def _read_thinking(index: int, thinking: object, sink: Sink) -> None:
    if not isinstance(thinking, list):
        sink.reasoning(index, thinking)
        return
    for part in thinking:
        if isinstance(part, dict):
            sink.reasoning(index, part.get("text"))


def _read_reasoning(index: int, message: Data, sink: Sink) -> None:
    """The first of its names that holds text: the others are copies."""
    for name in ("reasoning", "reasoning_content"):
        value = message.get(name)
        if isinstance(value, str) and value:
            sink.reasoning(index, value)
            return
    details = message.get("reasoning_details")
    for detail in details if isinstance(details, list) else ():
        if isinstance(detail, dict):
            sink.reasoning(index, detail.get("text") or detail.get("summary"))


def _read_audio(index: int, audio: object, sink: Sink) -> None:
    if isinstance(audio, dict):
        sink.media(index, audio.get("data") or audio.get("transcript"))


def _read_tools(index: int, message: Data, sink: Sink) -> None:
    calls = message.get("tool_calls")
    for position, call in enumerate(calls if isinstance(calls, list) else ()):
        if isinstance(call, dict):
            key = whole_number(call.get("index"))
            _read_call(index, position if key is None else key, call.get("function"), call.get("id"), sink)
    _read_call(index, FUNCTION_CALL_KEY, message.get("function_call"), None, sink)


def _read_call(index: int, key: int, function: object, call_id: object, sink: Sink) -> None:
    if isinstance(function, dict):
        sink.tool(index, key, function.get("name"), call_id=call_id)
        sink.arguments(index, key, function.get("arguments"))


def _read_provider(data: Data, usage: object, sink: Sink) -> None:
    """What the provider says of its own routing and timing."""
    sansa, info, azure = data.get("sansa"), data.get("time_info"), data.get("latency_checkpoint")
    router = data.get("sla_metrics")
    if isinstance(router, dict):
        sink.provider_timing(first_token_s=_from_ms(router.get("ttft_ms")))
    if isinstance(sansa, dict):
        sink.identify(routed_model=sansa.get("routed_model"))
        sink.provider_timing(routing_s=_from_ms(sansa.get("routing_latency_ms")))
    if isinstance(usage, dict):
        first = _from_ms(usage.get("time_to_first_token_ms"))
        sink.provider_timing(queue_s=usage.get("queue_time"), total_s=usage.get("total_time"), first_token_s=first)
    if isinstance(info, dict):
        sink.provider_timing(queue_s=info.get("queue_time"), total_s=info.get("total_time"))
    if isinstance(azure, dict):
        first = _from_ms(azure.get("service_ttft_ms"))
        sink.provider_timing(first_token_s=first, total_s=_from_ms(azure.get("total_duration_ms")))


def _from_ms(value: object) -> float | None:
    number = finite_number(value)
    return None if number is None else number / 1000
