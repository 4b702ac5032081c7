"""DashScope's own API (Alibaba Cloud Model Studio): events `result` with an `output` and a usage; a finish reason ends it.

The reason is the word `null` until the end. The output has `choices` with messages, or a `text` (`result_format`). Each
message has all text so far; with `incremental_output`, which the request or the model sets, it has new text alone. The
events do not say which: `Sink.text_or_so_far` decides by the lengths. A tool call whose name is repeated has all its
arguments so far.

Sources: https://www.alibabacloud.com/help/en/model-studio/stream and .../qwen-api-via-dashscope; events are quoted in
alibaba/higress (plugins/wasm-go/extensions/ai-proxy/provider/qwen.go) and erda-project/erda (dashscope-director).
"""

from streamgauge.core.allowlist import Kind, Spec
from streamgauge.core.dialects.contract import KEEP_ERRORS, Data, DialectDefaults, Sink, is_no_call
from streamgauge.core.outcome import is_no_reason
from streamgauge.core.safe_values import whole_number
from streamgauge.core.usage import UsageRules

_KEEP_COUNTS: dict[str, Spec] = {
    "input_tokens": Kind.COUNT,
    "output_tokens": Kind.COUNT,
    "total_tokens": Kind.COUNT,
    "input_tokens_details": {"audio_tokens": Kind.COUNT},
    "prompt_tokens_details": {"cached_tokens": Kind.COUNT, "cache_creation_input_tokens": Kind.COUNT},
    "output_tokens_details": {"reasoning_tokens": Kind.COUNT, "audio_tokens": Kind.COUNT},
}
_KEEP_CALL: Spec = {
    "index": Kind.COUNT,
    "id": Kind.ID,
    "function": {"name": Kind.ID, "arguments": Kind.ARGUMENTS},
}
_KEEP_PARTS: Spec = [{"text": Kind.TEXT, "image": Kind.TEXT, "audio": Kind.TEXT}]
_KEEP_CHOICE: Spec = {
    "index": Kind.COUNT,
    "finish_reason": Kind.REASON,
    "message": {
        "role": Kind.CODE,
        "content": (_KEEP_PARTS, Kind.TEXT),
        "reasoning_content": Kind.TEXT,
        "tool_calls": [_KEEP_CALL],
    },
}
KEEP: dict[str, Spec] = {
    **KEEP_ERRORS,
    "request_id": Kind.ID,
    "output": {"text": Kind.TEXT, "finish_reason": Kind.REASON, "choices": [_KEEP_CHOICE]},
    "usage": {**_KEEP_COUNTS, "models": [{**_KEEP_COUNTS, "model_id": Kind.ID}]},
}


class DashScope(DialectDefaults):
    """DashScope's text-generation, multimodal-generation and applications."""

    name = "dashscope"
    endpoint = "/services/aigc/text-generation/generation"
    paths = ("/services/aigc/text-generation/generation", "/services/aigc/multimodal-generation/generation")
    keep = KEEP
    keep_body = KEEP
    finish_is_terminal = True
    usage = UsageRules(
        spec=_KEEP_COUNTS,
        input=("input_tokens",),
        output=("output_tokens",),
        total=("total_tokens",),
        cached=("prompt_tokens_details.cached_tokens",),
        cache_write=("prompt_tokens_details.cache_creation_input_tokens",),
        reasoning=("output_tokens_details.reasoning_tokens",),
        audio_input=("input_tokens_details.audio_tokens",),
        audio_output=("output_tokens_details.audio_tokens",),
    )

    def recognises(self, event: str, data: Data) -> bool:
        """By a request id beside an output that has choices with messages, or a text with a finish reason."""
        output = data.get("output")
        if not isinstance(output, dict) or not isinstance(data.get("request_id"), str):
            return False
        return bool(_choices(output)) or ("finish_reason" in output and isinstance(output.get("text"), str))

    def recognises_body(self, data: Data) -> bool:
        """Recognises the last event of a stream, too: a whole response has the same members."""
        return self.recognises("", data)

    def read(self, event: str, data: Data, sink: Sink) -> None:
        """Reports what is new of the output, the finish reasons and the usage."""
        output = data.get("output")
        if not isinstance(output, dict) or not self.recognises(event, data):
            return
        usage = _usage(data.get("usage"))
        sink.identify(response_id=data.get("request_id"), model=usage.get("model_id"))
        if isinstance(output.get("text"), str):
            sink.choice(0)
            ends = not is_no_reason(output.get("finish_reason"))
            sink.text_or_so_far(0, output["text"], may_repeat=ends)
            sink.finish(0, output.get("finish_reason"))
        choices = _choices(output)
        for place, choice in enumerate(choices):
            _read_choice(place, choice, sink, alone=len(choices) == 1)
        sink.usage({name: usage[name] for name in _KEEP_COUNTS if name in usage} or None)

    def read_body(self, data: Data, sink: Sink) -> None:
        """Reads it as the only event of a stream, and ends it."""
        self.read("", data, sink)
        sink.terminal()


def _choices(output: Data) -> list[Data]:
    listed = output.get("choices")
    return [
        choice
        for choice in (listed if isinstance(listed, list) else ())
        if isinstance(choice, dict) and isinstance(choice.get("message"), dict)
    ]


def _usage(reported: object) -> Data:
    """The usage of an event; that of an application is in a list, with an element for each model."""
    if not isinstance(reported, dict):
        return {}
    models = reported.get("models")
    one = models[0] if isinstance(models, list) and len(models) == 1 else None
    return one if isinstance(one, dict) else reported


def _read_choice(place: int, choice: Data, sink: Sink, *, alone: bool) -> None:
    index, message = whole_number(choice.get("index")), choice["message"]
    number = place if index is None else index
    sink.choice(number)
    if isinstance(message, dict):
        _read_message(number, message, sink, may_repeat=not alone or not is_no_reason(choice.get("finish_reason")))
    sink.finish(number, choice.get("finish_reason"))


def _read_message(number: int, message: Data, sink: Sink, *, may_repeat: bool) -> None:
    content, calls = message.get("content"), message.get("tool_calls")
    parts = [part for part in (content if isinstance(content, list) else ()) if isinstance(part, dict)]
    texts = [part["text"] for part in parts if isinstance(part.get("text"), str)]
    text = "".join(texts) if isinstance(content, list) else content
    thought = message.get("reasoning_content")
    if thought:
        sink.text_or_so_far(number, thought, reasoning=True, may_repeat=may_repeat or bool(text or calls))
    if text or not (thought or calls or isinstance(content, list)):
        sink.text_or_so_far(number, text, may_repeat=may_repeat or bool(calls))
    for part in parts:
        sink.media(number, part.get("image"))
        sink.media(number, part.get("audio"))
    for place, call in enumerate(calls if isinstance(calls, list) else ()):
        if isinstance(call, dict):
            _read_call(number, place, call, sink)


def _read_call(number: int, place: int, call: Data, sink: Sink) -> None:
    function = call.get("function")
    function = function if isinstance(function, dict) else {}
    name, arguments = function.get("name") or None, function.get("arguments")
    if is_no_call(name, call.get("id"), arguments):
        return
    index = whole_number(call.get("index"))
    key = place if index is None else index
    sink.tool(number, key, name, call_id=call.get("id"))
    sink.arguments(number, key, arguments, so_far=name is not None)
