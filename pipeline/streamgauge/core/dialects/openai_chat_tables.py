"""The differences between servers that implement OpenAI chat, as tables: what may be kept, and where each value is found.

Each quirk is a row with the server that has it and where that is documented. Paths are keys joined by dots. If a value may be
in several places, the first one present counts; the others are copies of it.
"""

from streamgauge.core.allowlist import Kind, Spec
from streamgauge.core.dialects.contract import KEEP_ERROR_OR_TEXT, KEEP_ERRORS
from streamgauge.core.dialects.openai_usage import KEEP_USAGE

_KEEP_TOOL: Spec = {
    "index": Kind.COUNT,
    "id": Kind.ID,
    "type": Kind.CODE,
    "function": {"name": Kind.ID, "arguments": Kind.ARGUMENTS},
    "custom": {"name": Kind.ID, "input": Kind.ARGUMENTS},
}
# Text as a string, or as a list of parts (Mistral); a part's thinking is itself a list of parts.
_KEEP_PART: Spec = {
    "type": Kind.CODE,
    "text": Kind.TEXT,
    "thinking": (Kind.TEXT, [{"type": Kind.CODE, "text": Kind.TEXT}]),
}
_KEEP_CONTENT: Spec = (Kind.TEXT, [_KEEP_PART])
_KEEP_REASONING: dict[str, Spec] = {
    "reasoning": Kind.TEXT,
    "reasoning_content": Kind.TEXT,
    "reasoning_text": Kind.TEXT,
    "reasoning_details": [{"type": Kind.CODE, "index": Kind.COUNT, "text": Kind.TEXT, "summary": Kind.TEXT}],
}
_KEEP_MESSAGE: Spec = {
    "role": Kind.CODE,
    "content": _KEEP_CONTENT,
    "refusal": Kind.TEXT,
    **_KEEP_REASONING,
    "tool_calls": ([_KEEP_TOOL], _KEEP_TOOL),
    "type": Kind.CODE,
    "tool_use_id": Kind.ID,
    "name": Kind.ID,
    "input": Kind.ARGUMENTS,
    "images": [{"type": Kind.CODE, "image_url": {"url": Kind.TEXT}}],
    "function_call": {"name": Kind.ID, "arguments": Kind.ARGUMENTS},
    "audio": {"id": Kind.ID, "data": Kind.TEXT, "transcript": Kind.TEXT, "expires_at": Kind.NUMBER},
}
_KEEP_CHOICE: Spec = {
    "index": Kind.COUNT,
    "delta": _KEEP_MESSAGE,
    "message": _KEEP_MESSAGE,
    "text": Kind.TEXT,
    **_KEEP_REASONING,
    "finish_reason": Kind.REASON,
    "native_finish_reason": Kind.REASON,
    "usage": KEEP_USAGE,
    "error": KEEP_ERROR_OR_TEXT,
}
_LATENCIES = ("service_ttft_ms", "engine_ttft_ms", "user_visible_ttft_ms", "total_duration_ms", "pre_inference_ms")
_KEEP_CHUNK: dict[str, Spec] = {
    "id": Kind.ID,
    "object": Kind.CODE,
    "created": Kind.NUMBER,
    "model": Kind.ID,
    "model_id": Kind.ID,
    "service_tier": Kind.CODE,
    "system_fingerprint": Kind.ID,
    "choices": [_KEEP_CHOICE],
    "usage": KEEP_USAGE,
    "x_groq": {"id": Kind.ID, "usage": KEEP_USAGE, "error": KEEP_ERROR_OR_TEXT},
    "sansa": {"routed": Kind.FLAG, "routed_model": Kind.ID, "routing_latency_ms": Kind.NUMBER},
    "time_info": {"queue_time": Kind.NUMBER, "total_time": Kind.NUMBER},
    "perf_metrics": dict.fromkeys(
        ("prefill-queue-duration", "server-time-to-first-token", "server-processing-time"), Kind.CODE
    ),
    "timings": {"prompt_ms": Kind.NUMBER, "predicted_ms": Kind.NUMBER},
    "sla_metrics": {"ttft_ms": Kind.NUMBER},
    "latency_checkpoint": dict.fromkeys(_LATENCIES, Kind.NUMBER),
}
# Members that hold the chunk, or the whole response: SAP's orchestration service (help.sap.com, SAP AI Core: streaming), in
# its second and its first version. Its other members describe the modules that ran before and after the model.
WRAPPERS: tuple[str, ...] = ("final_result", "orchestration_result")
KEEP: dict[str, Spec] = {
    **KEEP_ERRORS,
    "response": Kind.TEXT,  # of Cloudflare Workers AI's usage event behind chunks: an empty text (workers_ai.py)
    **_KEEP_CHUNK,
    **{name: {"error": KEEP_ERRORS["error"], **_KEEP_CHUNK} for name in WRAPPERS},
}

# --- where values are found ------------------------------------------------------------------------------------------

# The model that generates the response.
MODELS: tuple[str, ...] = (
    "model",
    "model_id",  # watsonx text/chat_stream: cloud.ibm.com/apidocs/watsonx-ai
)

# Reasoning, in a delta.
REASONING: tuple[str, ...] = (
    "reasoning",  # OpenRouter, Groq, Ollama (openai/openai.go), vLLM from 0.11 (docs.vllm.ai, reasoning outputs)
    "reasoning_content",  # DeepSeek (api-docs.deepseek.com), xAI, Z.ai, SGLang, llama.cpp, vLLM before
    "reasoning_text",  # GitHub Copilot (https://github.com/BerriAI/litellm/issues/35021)
)
# Reasoning as a list of parts: OpenRouter (openrouter.ai/docs, reasoning tokens). Encrypted parts have neither member.
REASONING_PARTS = "reasoning_details"
REASONING_PART: tuple[str, ...] = ("text", "summary")
REASONING_SUMMARY = "reasoning.summary"  # the type of a part

# Usage, in a chunk.
USAGES: tuple[str, ...] = (
    "usage",
    "x_groq.usage",  # Groq without include_usage (groq-python, ChatCompletionChunk.x_groq)
)
# An error beside the choices.
ERRORS: tuple[str, ...] = (
    "x_groq.error",  # Groq (groq-python, ChatCompletionChunk.x_groq)
)
# Events that repeat the output of the deltas as a `message`. Only output that no delta carried counts there.
CLOSING: tuple[str, ...] = (
    "chat.completion.done",  # Perplexity (docs.perplexity.ai, concise streaming)
    "chat.completion",  # the whole response at the end of its stream; some servers call their chunks so, too
)
# Usage, in a choice: Moonshot (platform.moonshot.ai/docs, streaming).
CHOICE_USAGE = "usage"
# An error, in a choice: OpenRouter (openrouter.ai/docs, api reference: ErrorResponse in a choice).
CHOICE_ERROR = "error"

# The model to which a gateway routed the request.
ROUTED_MODELS: tuple[str, ...] = ("sansa.routed_model",)  # Sansa's streaming document

# Timing that the provider reports: its path, its name in `Sink.provider_timing`, and the seconds in its unit. The time
# to the first token counts from when the server has the request. Usage in another place (USAGES) is read as `usage`.
# Values of several paths are added up.
PROVIDER_TIMING: tuple[tuple[str, str, float], ...] = (
    ("sansa.routing_latency_ms", "routing_s", 1e-3),  # Sansa's streaming document
    ("sla_metrics.ttft_ms", "first_token_s", 1e-3),  # Hugging Face's router, before Novita
    ("usage.queue_time", "queue_s", 1.0),  # Groq (groq-python, CompletionUsage)
    ("usage.total_time", "total_s", 1.0),
    ("usage.time_to_first_token_ms", "first_token_s", 1e-3),  # GPUStack
    # Fireworks, with perf_metrics_in_response (docs.fireworks.ai, performance metrics; the docstrings of its client
    # name the rest)
    ("perf_metrics.prefill-queue-duration", "queue_s", 1.0),
    ("perf_metrics.server-time-to-first-token", "first_token_s", 1.0),
    ("perf_metrics.server-processing-time", "total_s", 1.0),
    ("time_info.queue_time", "queue_s", 1.0),  # Cerebras (cerebras-cloud-sdk, TimeInfo)
    ("time_info.total_time", "total_s", 1.0),
    ("latency_checkpoint.service_ttft_ms", "first_token_s", 1e-3),  # Azure OpenAI, on the chunk with the usage
    ("latency_checkpoint.total_duration_ms", "total_s", 1e-3),
    # llama.cpp (tools/server, timings): the first token is there when the prompt is processed
    ("timings.prompt_ms", "first_token_s", 1e-3),
    ("timings.prompt_ms timings.predicted_ms", "total_s", 1e-3),
)
