"""Usage of OpenAI's formats (chat, legacy completions, Responses), and of the servers that implement them.

Chat and Responses have other names for the same counts, and gateways that translate between them, or from Anthropic's
format, mix the names. So one table reads all of them. A count may be in several places; those that are empty hold 0.
"""

from streamgauge.core.allowlist import Kind, Spec
from streamgauge.core.reported_cost import KEEP_COST
from streamgauge.core.usage import UsageRules
from streamgauge.core.usage_parts import KEEP_SERVER_TOOLS

# The member for details of input and of output: in chat, and in Responses.
_INPUT_DETAILS = ("prompt_tokens_details", "input_tokens_details")
_OUTPUT_DETAILS = ("completion_tokens_details", "output_tokens_details")

# Tokens that were read from a cache.
_CACHED_DETAILS = ("cached_tokens", "cache_read_input_tokens")  # the second: Perplexity
_CACHED = (
    "cached_tokens",
    "prompt_cache_hit_tokens",
    "cache_read_input_tokens",
)  # Together, DeepSeek, Anthropic's name
# Tokens that were written to it.
_WRITTEN_DETAILS = (
    "cache_write_tokens",  # OpenAI, OpenRouter
    "cache_creation_input_tokens",  # Alibaba (help.aliyun.com, Model Studio: context cache), Perplexity
    "cached_creation_tokens",  # new-api (dto/openai_response.go, InputTokenDetails)
    "cache_creation_tokens",  # LiteLLM (types/utils.py, PromptTokensDetailsWrapper)
    "prompt_cache_write_tokens",
)
_WRITTEN = ("cache_creation_input_tokens", "cached_creation_tokens", "prompt_cache_write_tokens", "cache_write_tokens")
_HOURLY = ("ephemeral_5m_input_tokens", "ephemeral_1h_input_tokens")

_KEEP_INPUT_DETAILS: Spec = {
    **dict.fromkeys((*_CACHED_DETAILS, *_WRITTEN_DETAILS), Kind.COUNT),
    **dict.fromkeys(("audio_tokens", "text_tokens", "image_tokens", "video_tokens"), Kind.COUNT),
    "cache_creation": dict.fromkeys(_HOURLY, Kind.COUNT),
}
_KEEP_OUTPUT_DETAILS: Spec = dict.fromkeys(
    (
        *("reasoning_tokens", "audio_tokens", "text_tokens"),
        *("accepted_prediction_tokens", "rejected_prediction_tokens", "image_tokens", "video_tokens"),
    ),
    Kind.COUNT,
)
KEEP_USAGE: dict[str, Spec] = {
    "prompt_tokens": Kind.COUNT,
    "completion_tokens": Kind.COUNT,
    "total_tokens": Kind.COUNT,
    "input_tokens": Kind.COUNT,
    "output_tokens": Kind.COUNT,
    **dict.fromkeys(_INPUT_DETAILS, _KEEP_INPUT_DETAILS),
    **dict.fromkeys(_OUTPUT_DETAILS, _KEEP_OUTPUT_DETAILS),
    "reasoning_tokens": Kind.COUNT,
    **dict.fromkeys((*_CACHED, *_WRITTEN), Kind.COUNT),
    "cache_creation": dict.fromkeys(_HOURLY, Kind.COUNT),
    "prompt_cache_miss_tokens": Kind.COUNT,
    "prompt_audio_seconds": Kind.COUNT,  # Mistral
    "queue_time": Kind.NUMBER,
    "prompt_time": Kind.NUMBER,
    "completion_time": Kind.NUMBER,
    "total_time": Kind.NUMBER,
    "time_to_first_token_ms": Kind.NUMBER,
    "time_per_output_token_ms": Kind.NUMBER,
    "tokens_per_second": Kind.NUMBER,
    **KEEP_SERVER_TOOLS,
    **KEEP_COST,
    "service_tier": Kind.CODE,
}


def _within(members: tuple[str, ...], *names: str) -> tuple[str, ...]:
    return tuple(f"{member}.{name}" for member in members for name in names)


USAGE = UsageRules(
    spec=KEEP_USAGE,
    input=("prompt_tokens", "input_tokens"),
    output=("completion_tokens", "output_tokens"),
    total=("total_tokens",),
    cached=(*_within(_INPUT_DETAILS, *_CACHED_DETAILS), *_CACHED),
    cache_write=(*_within(_INPUT_DETAILS, *_WRITTEN_DETAILS), *_WRITTEN),
    cache_write_1h=(*_within(_INPUT_DETAILS, f"cache_creation.{_HOURLY[1]}"), f"cache_creation.{_HOURLY[1]}"),
    cache_write_split=_within((*_within(_INPUT_DETAILS, "cache_creation"), "cache_creation"), *_HOURLY),
    reasoning=(*_within(_OUTPUT_DETAILS, "reasoning_tokens"), "reasoning_tokens"),
    audio_input=_within(_INPUT_DETAILS, "audio_tokens"),
    audio_output=_within(_OUTPUT_DETAILS, "audio_tokens"),
)
