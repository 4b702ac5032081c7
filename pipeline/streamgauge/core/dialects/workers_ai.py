"""Cloudflare Workers AI's own stream: pieces of text as `response`, tool calls, the usage with the last one, then [DONE].

`p` is padding that hides the lengths of the tokens. A call comes whole, with an object of arguments, or in pieces as in
OpenAI's chat. Some models send OpenAI's chunks, and then the usage in an event of this format. A whole answer of the REST API
is in `result`.

Sources: https://developers.cloudflare.com/workers-ai/models (text generation, responses), and
packages/workers-ai-provider/src/streaming.ts of https://github.com/cloudflare/ai.
"""

from streamgauge.core.allowlist import Kind, Spec
from streamgauge.core.dialects.contract import KEEP_ERRORS, Data, DialectDefaults, Sink, is_no_call
from streamgauge.core.formats.cut_json import begins_text, last_members
from streamgauge.core.safe_values import whole_number
from streamgauge.core.usage import UsageRules

_KEEP_USAGE: dict[str, Spec] = {
    "prompt_tokens": Kind.COUNT,
    "completion_tokens": Kind.COUNT,
    "total_tokens": Kind.COUNT,
    "prompt_tokens_details": {"cached_tokens": Kind.COUNT},
}
_KEEP_CALL: Spec = {
    "index": Kind.COUNT,
    "id": Kind.ID,
    "name": Kind.ID,
    "arguments": Kind.ARGUMENTS,
    "function": {"name": Kind.ID, "arguments": Kind.ARGUMENTS},
}
_KEEP_PIECE: dict[str, Spec] = {
    "response": Kind.TEXT,
    "tool_calls": [_KEEP_CALL],
    "finish_reason": Kind.REASON,
    "usage": _KEEP_USAGE,
}
KEEP: dict[str, Spec] = {**KEEP_ERRORS, **_KEEP_PIECE}
KEEP_BODY: dict[str, Spec] = {**KEEP_ERRORS, "success": Kind.FLAG, "result": _KEEP_PIECE}
# Members of other formats that have a `response`, too: Ollama's lines, and events with a type.
_OTHERS = frozenset(("done", "type", "object", "choices", "model"))


class WorkersAI(DialectDefaults):
    """Cloudflare's /ai/run and its AI Gateway's workers-ai."""

    name = "workers-ai"
    endpoint = "/ai/run/{model}"
    keep = KEEP
    keep_body = KEEP_BODY
    finish_is_terminal = True
    done_is_terminal = True
    usage = UsageRules(
        spec=_KEEP_USAGE,
        input=("prompt_tokens",),
        output=("completion_tokens",),
        total=("total_tokens",),
        cached=("prompt_tokens_details.cached_tokens",),
    )

    def recognises(self, event: str, data: Data) -> bool:
        """By a text `response` in an event without a name, and without members of other formats.

        An empty one beside a usage does not suffice: such an event also ends a stream of OpenAI's chunks.
        """
        text = data.get("response")
        is_text = isinstance(text, str) and bool(text or "usage" not in data)
        return is_text and not event and _OTHERS.isdisjoint(data)

    def recognises_body(self, data: Data) -> bool:
        """By a result with a `response`, beside a flag of success."""
        return isinstance(data.get("success"), bool) and isinstance(_result(data).get("response"), str)

    def read(self, event: str, data: Data, sink: Sink) -> None:
        """Reports the piece of text, the calls, the finish reason and the usage."""
        sink.choice(0)
        sink.text(0, data.get("response"))
        calls = data.get("tool_calls")
        for call in calls if isinstance(calls, list) else ():
            if isinstance(call, dict):
                _read_call(call, sink)
        sink.finish(0, data.get("finish_reason"))
        sink.usage(data.get("usage"))

    def outline_of(self, event: str, head: bytes, tail: bytes) -> Data | None:
        """An event that begins with a long piece of text; that does not end the stream, unless a finish reason follows."""
        if not head.startswith(b'{"response"') or not begins_text(head, "response"):
            return None
        return last_members(tail, b"{", "finish_reason") or last_members(tail, b"{", "usage")

    def read_body(self, data: Data, sink: Sink) -> None:
        """Reads the result as the only event of a stream, and ends it."""
        self.read("", _result(data), sink)
        sink.terminal()


def _result(data: Data) -> Data:
    result = data.get("result")
    return result if isinstance(result, dict) else {}


def _read_call(call: Data, sink: Sink) -> None:
    function = call.get("function")
    if not isinstance(function, dict):
        if not is_no_call(call.get("name"), call.get("id"), call.get("arguments")):
            sink.tool(0, None, call.get("name"), call_id=call.get("id"))
            sink.arguments(0, None, call.get("arguments"))
        return
    name, arguments = function.get("name"), function.get("arguments")
    if is_no_call(name, call.get("id"), arguments):
        return
    key = whole_number(call.get("index")) or 0
    sink.tool(0, key, name, call_id=call.get("id"))
    sink.arguments(0, key, arguments, call.get("id"))
