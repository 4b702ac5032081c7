"""Ollama's own API (`/api/chat`, `/api/generate`): one JSON object a line; the line with `done` true ends the stream.

A tool call comes whole, its arguments as an object. Counts and durations (nanoseconds) come with the last line. The prompt's
count is missing where the prompt came from the cache: it is unknown then, not 0. A line `{"error": "..."}` is an error.

Sources: https://github.com/ollama/ollama/blob/main/docs/api.md (chat, generate, streaming errors), and the types of the
official client (ollama, _types.py: ChatResponse, GenerateResponse).
"""

from streamgauge.core.allowlist import Kind, Spec
from streamgauge.core.dialects.contract import KEEP_ERRORS, Data, DialectDefaults, Sink, is_no_call
from streamgauge.core.formats.cut_json import first_members, last_members
from streamgauge.core.safe_values import finite_number
from streamgauge.core.usage import UsageRules

_KEEP_USAGE: dict[str, Spec] = {"prompt_eval_count": Kind.COUNT, "eval_count": Kind.COUNT}
_DURATIONS = ("total_duration", "load_duration", "prompt_eval_duration", "eval_duration")
_KEEP_CALL: Spec = {"id": Kind.ID, "function": {"name": Kind.ID, "arguments": Kind.ARGUMENTS}}
KEEP: dict[str, Spec] = {
    **KEEP_ERRORS,
    **_KEEP_USAGE,
    **dict.fromkeys(_DURATIONS, Kind.NUMBER),
    "model": Kind.ID,
    "done": Kind.FLAG,
    "done_reason": Kind.REASON,
    "message": {
        "role": Kind.CODE,
        "content": Kind.TEXT,
        "thinking": Kind.TEXT,
        "images": [Kind.TEXT],
        "tool_calls": [_KEEP_CALL],
    },
    "response": Kind.TEXT,
    "thinking": Kind.TEXT,
    "image": Kind.TEXT,
}


class Ollama(DialectDefaults):
    """Ollama's chat and generate."""

    name = "ollama"
    endpoint = "/api/chat"
    paths = ("/api/chat", "/api/generate")
    keep = KEEP
    keep_body = KEEP
    usage = UsageRules(spec=_KEEP_USAGE, input=("prompt_eval_count",), output=("eval_count",))

    def recognises(self, event: str, data: Data) -> bool:
        """By a boolean `done` beside the name of a model."""
        return isinstance(data.get("done"), bool) and isinstance(data.get("model"), str)

    def recognises_body(self, data: Data) -> bool:
        """Recognises the last line of a stream, too: a whole response has the same members."""
        return self.recognises("", data) and data["done"] is True

    def read(self, event: str, data: Data, sink: Sink) -> None:
        """Reports the piece of a message or of a text. `done` ends the stream. Other lines are ignored."""
        if not self.recognises(event, data):
            return
        sink.identify(model=data.get("model"))
        sink.choice(0)
        message = data.get("message")
        if isinstance(message, dict):
            _read_message(message, sink)
        sink.reasoning(0, data.get("thinking"))
        sink.text(0, data.get("response"))
        sink.media(0, data.get("image"))
        if data["done"] is True:
            _read_end(data, sink)

    def outline_of(self, event: str, head: bytes, tail: bytes) -> Data | None:
        """A last line by its `done`, which comes after the message and before the counts, or before the context."""
        members = {**first_members(head), **last_members(tail, b"{", "done")}
        if not self.recognises(event, members):
            return None
        return {**members, "message": None, "response": None} if members["done"] is True else {}

    def read_body(self, data: Data, sink: Sink) -> None:
        """Reads it as the only line of a stream."""
        self.read("", data, sink)


def _read_message(message: Data, sink: Sink) -> None:
    sink.reasoning(0, message.get("thinking"))
    sink.text(0, message.get("content"))
    images, calls = message.get("images"), message.get("tool_calls")
    for image in images if isinstance(images, list) else ():
        sink.media(0, image)
    for call in calls if isinstance(calls, list) else ():
        function = call.get("function") if isinstance(call, dict) else None
        if not isinstance(function, dict) or is_no_call(
            function.get("name"), call.get("id"), function.get("arguments")
        ):
            continue
        sink.tool(0, None, function.get("name"), call_id=call.get("id"))
        sink.arguments(0, None, function.get("arguments"))


def _read_end(data: Data, sink: Sink) -> None:
    """Reads the last line. Its `stop` means tool calls if there were any (Ollama's openai.go maps it so, too)."""
    reason = data.get("done_reason")
    sink.finish(0, reason, "tool_calls" if reason == "stop" and sink.calls_client_tools(0) else None)
    sink.usage({name: data[name] for name in _KEEP_USAGE if name in data})
    prompt = _sum_of_seconds(data, "load_duration", "prompt_eval_duration")
    sink.provider_timing(first_token_s=prompt, total_s=_sum_of_seconds(data, "total_duration"))
    sink.terminal()


def _sum_of_seconds(data: Data, *names: str) -> float | None:
    """The sum of durations in seconds; None if one is missing."""
    durations = [finite_number(data.get(name)) for name in names]
    known = [duration for duration in durations if duration is not None]
    return sum(known) / 1e9 if len(known) == len(durations) else None
