"""The least work on an event's data, for each dialect: decode the members that hold its text."""

from collections.abc import Callable

import msgspec


class _Text(msgspec.Struct):
    text: str | None = None
    content: str | None = None


class _ChatChoice(msgspec.Struct):
    index: int = 0
    delta: _Text | None = None
    text: str | None = None
    finish_reason: str | None = None


class _Chat(msgspec.Struct):
    choices: list[_ChatChoice] = []


class _Typed(msgspec.Struct):
    type: str = ""
    delta: str | _Text | None = None


class _Content(msgspec.Struct):
    parts: list[_Text] = []


class _Candidate(msgspec.Struct):
    content: _Content | None = None
    finishReason: str | None = None  # noqa: N815 - Gemini's name


class _Gemini(msgspec.Struct):
    candidates: list[_Candidate] = []
    usageMetadata: dict[str, object] | None = None  # noqa: N815 - Gemini's name


class _Step(msgspec.Struct):
    event_type: str = ""
    delta: _Text | None = None


class _CohereMessage(msgspec.Struct):
    content: _Text | list[object] | None = None


class _CohereDelta(msgspec.Struct):
    message: _CohereMessage | None = None


class _Cohere(msgspec.Struct):
    type: str = ""
    delta: _CohereDelta | None = None


class _Result(msgspec.Struct):
    generated_text: str = ""
    generated_token_count: int = 0
    stop_reason: str = ""


class _Watsonx(msgspec.Struct):
    results: list[_Result] = []


class _Tgi(msgspec.Struct):
    token: _Text | None = None
    generated_text: str | None = None


class _LlamaCpp(msgspec.Struct):
    content: str = ""
    stop: bool = False


class _OllamaMessage(msgspec.Struct):
    content: str = ""


class _Ollama(msgspec.Struct):
    message: _OllamaMessage | None = None
    done: bool = False


class _Converse(msgspec.Struct):
    delta: _Text | None = None
    stopReason: str | None = None  # noqa: N815 - Bedrock's name


class _Llama(msgspec.Struct):
    generation: str = ""
    stop_reason: str | None = None


class _Sourcegraph(msgspec.Struct):
    deltaText: str = ""  # noqa: N815 - Sourcegraph's name


class _CohereV1(msgspec.Struct):
    event_type: str = ""
    text: str = ""


class _Message(msgspec.Struct):
    content: str = ""


class _DashScopeChoice(msgspec.Struct):
    message: _Message | None = None
    finish_reason: str = ""


class _DashScopeOutput(msgspec.Struct):
    choices: list[_DashScopeChoice] = []


class _DashScope(msgspec.Struct):
    output: _DashScopeOutput | None = None


class _WorkersAI(msgspec.Struct):
    response: str = ""


class _Triton(msgspec.Struct):
    text_output: str = ""


class _Media(msgspec.Struct):
    type: str = ""
    delta: str = ""
    audio: str = ""
    b64_json: str = ""


class _Completion(msgspec.Struct):
    completion: str = ""
    stop_reason: str | None = None


FLOORS: dict[str, Callable[[bytes], object]] = {
    "openai-chat": msgspec.json.Decoder(_Chat).decode,
    "openai-completions": msgspec.json.Decoder(_Chat).decode,
    "openai-responses": msgspec.json.Decoder(_Typed).decode,
    "openai-realtime": msgspec.json.Decoder(_Typed).decode,
    "anthropic-messages": msgspec.json.Decoder(_Typed).decode,
    "anthropic-completions": msgspec.json.Decoder(_Completion).decode,
    "gemini": msgspec.json.Decoder(_Gemini).decode,
    "gemini-interactions": msgspec.json.Decoder(_Step).decode,
    "cohere-v2": msgspec.json.Decoder(_Cohere).decode,
    "watsonx": msgspec.json.Decoder(_Watsonx).decode,
    "tgi-native": msgspec.json.Decoder(_Tgi).decode,
    "llama-cpp-native": msgspec.json.Decoder(_LlamaCpp).decode,
    "replicate": bytes.decode,
    "ollama": msgspec.json.Decoder(_Ollama).decode,
    "bedrock-converse": msgspec.json.Decoder(_Converse).decode,
    "bedrock-text": msgspec.json.Decoder(_Llama).decode,
    "sourcegraph": msgspec.json.Decoder(_Sourcegraph).decode,
    "cohere-v1": msgspec.json.Decoder(_CohereV1).decode,
    "dashscope": msgspec.json.Decoder(_DashScope).decode,
    "workers-ai": msgspec.json.Decoder(_WorkersAI).decode,
    "triton": msgspec.json.Decoder(_Triton).decode,
    "openai-transcription": msgspec.json.Decoder(_Media).decode,
    "openai-speech": msgspec.json.Decoder(_Media).decode,
    "openai-images": msgspec.json.Decoder(_Media).decode,
}
