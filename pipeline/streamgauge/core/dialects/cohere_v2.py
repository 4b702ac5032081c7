"""Cohere v2 chat: named events whose JSON `type` repeats the name; message-end ends it, the [DONE] after it means nothing.

A message comes in pieces: content (text or thinking), the plan for its tool calls, the calls, citations. Usage comes once,
as tokens (what the model read and wrote) and as billed units (without the provider's own prompt); both are kept.

Sources: https://docs.cohere.com/reference/chat-stream, https://docs.cohere.com/reference/chat, the types of the official
client (cohere, v2/types/v2chat_stream_response.py).
"""

from collections.abc import Callable, Mapping

from streamgauge.core.allowlist import Kind, Spec
from streamgauge.core.dialects.contract import KEEP_ERRORS, Data, DialectDefaults, ErrorFacts, Sink, is_no_call, type_of
from streamgauge.core.formats.cut_json import first_members, last_members
from streamgauge.core.safe_values import whole_number
from streamgauge.core.usage import UsageRules

KEEP_USAGE: dict[str, Spec] = {
    "billed_units": {
        "input_tokens": Kind.COUNT,
        "output_tokens": Kind.COUNT,
        "image_tokens": Kind.COUNT,
        "images": Kind.COUNT,
        "search_units": Kind.COUNT,
        "classifications": Kind.COUNT,
    },
    "tokens": {"input_tokens": Kind.COUNT, "output_tokens": Kind.COUNT, "image_tokens": Kind.COUNT},
    "cached_tokens": Kind.COUNT,
}
# Of both versions of the API.
USAGE = UsageRules(
    spec=KEEP_USAGE,
    input=("tokens.input_tokens", "billed_units.input_tokens"),
    output=("tokens.output_tokens", "billed_units.output_tokens"),
    cached=("cached_tokens",),
)
_KEEP_CONTENT: Spec = {"type": Kind.CODE, "text": Kind.TEXT, "thinking": Kind.TEXT}
_KEEP_CALL: Spec = {
    "id": Kind.ID,
    "type": Kind.CODE,
    "function": {"name": Kind.ID, "arguments": Kind.ARGUMENTS},
}
# Content and calls are single pieces in a stream's event, lists in a whole response.
_KEEP_MESSAGE: Spec = {
    "role": Kind.CODE,
    "content": (_KEEP_CONTENT, [_KEEP_CONTENT]),
    "tool_plan": Kind.TEXT,
    "tool_calls": (_KEEP_CALL, [_KEEP_CALL]),
}
# `error` is a sentence: only its presence is kept.
_KEEP_DELTA: Spec = {
    "message": _KEEP_MESSAGE,
    "finish_reason": Kind.REASON,
    "usage": KEEP_USAGE,
    "error": Kind.FLAG,
}
KEEP: dict[str, Spec] = {**KEEP_ERRORS, "id": Kind.ID, "index": Kind.COUNT, "delta": _KEEP_DELTA}
KEEP_BODY: dict[str, Spec] = {
    **KEEP_ERRORS,
    "id": Kind.ID,
    "message": _KEEP_MESSAGE,
    "finish_reason": Kind.REASON,
    "usage": KEEP_USAGE,
}

# Events that identify the dialect and carry no generated output. A `debug` event (the prompt as the model saw it) is
# not listed: it has none of the members that `recognises` requires.
_SILENT = {"content-end", "tool-call-end", "citation-start", "citation-end"}


class CohereV2(DialectDefaults):
    """Cohere's chat API, version 2."""

    name = "cohere-v2"
    endpoint = "/v2/chat"
    paths = ("/v2/chat",)
    keep = KEEP
    keep_body = KEEP_BODY
    usage = USAGE

    def recognises(self, event: str, data: Data) -> bool:
        """By a type of this API, and one of the members `id`, `index` and `delta`."""
        kind = type_of(event, data)
        if not isinstance(kind, str) or (kind not in _READERS and kind not in _SILENT):
            return False
        return any(name in data for name in ("id", "index", "delta"))

    def recognises_body(self, data: Data) -> bool:
        """By a `message` object beside a `finish_reason`."""
        return isinstance(data.get("message"), dict) and isinstance(data.get("finish_reason"), str)

    def read(self, event: str, data: Data, sink: Sink) -> None:
        """Reports what the type of the event names. Events without output are ignored."""
        kind = type_of(event, data)
        reader = _READERS.get(kind) if isinstance(kind, str) else None
        if reader is not None:
            reader(data, _object(data.get("delta")), sink)

    def outline_of(self, event: str, head: bytes, tail: bytes) -> Data | None:
        """A message-end, or another event of a known type."""
        first, opening = first_members(head), b'{"delta":{'
        last = last_members(tail, opening, "finish_reason") or last_members(tail, opening, "usage")
        members = {**first, **last}
        if type_of(event, members) != "message-end":
            return {} if self.recognises(event, members) else None
        return {**members, "delta": {**_object(first.get("delta")), **_object(last.get("delta"))}}

    def read_body(self, data: Data, sink: Sink) -> None:
        """Reports content, plan and calls, which are lists in a whole response."""
        sink.identify(data.get("id"))
        message = _object(data.get("message"))
        content, calls = message.get("content"), message.get("tool_calls")
        for part in content if isinstance(content, list) else ():
            _read_part(part, sink)
        sink.reasoning(0, message.get("tool_plan"))
        for position, call in enumerate(calls if isinstance(calls, list) else ()):
            _read_call(position, call, sink)
        _read_end(data, sink)


def _object(value: object) -> Data:
    return value if isinstance(value, dict) else {}


def _message(delta: Data) -> Data:
    return _object(delta.get("message"))


def _start(data: Data, delta: Data, sink: Sink) -> None:
    sink.identify(data.get("id"))
    sink.choice(0)


def _content(data: Data, delta: Data, sink: Sink) -> None:
    _read_part(_message(delta).get("content"), sink)


def _plan(data: Data, delta: Data, sink: Sink) -> None:
    """Reads a plan as reasoning: the plan is generated, but not a part of the answer."""
    sink.reasoning(0, _message(delta).get("tool_plan"))


def _call(data: Data, delta: Data, sink: Sink) -> None:
    _read_call(whole_number(data.get("index")), _message(delta).get("tool_calls"), sink)


def _fragment(data: Data, delta: Data, sink: Sink) -> None:
    function = _object(_object(_message(delta).get("tool_calls")).get("function"))
    sink.arguments(0, whole_number(data.get("index")), function.get("arguments"))


def _end(data: Data, delta: Data, sink: Sink) -> None:
    sink.identify(data.get("id"))
    _read_end(delta, sink)


_READERS: Mapping[str, Callable[[Data, Data, Sink], None]] = {
    "message-start": _start,
    "content-start": _content,
    "content-delta": _content,
    "tool-plan-delta": _plan,
    "tool-call-start": _call,
    "tool-call-delta": _fragment,
    "message-end": _end,
}


def _read_part(part: object, sink: Sink) -> None:
    content = _object(part)
    sink.text(0, content.get("text"))
    sink.reasoning(0, content.get("thinking"))


def _read_call(key: int | None, call: object, sink: Sink) -> None:
    """Reads the beginning of a call. A call without an index is a new one."""
    entry = _object(call)
    function = _object(entry.get("function"))
    name, arguments = function.get("name"), function.get("arguments")
    if not is_no_call(name, entry.get("id"), arguments):
        sink.tool(0, key, name, call_id=entry.get("id"))
        sink.arguments(0, key, arguments)


def _read_end(end: Data, sink: Sink) -> None:
    """Reads the end. `error` is only a sentence; the finish reason gives the kind of an error (ERROR, TIMEOUT)."""
    if isinstance(end.get("error"), str) and end["error"]:
        sink.error(ErrorFacts())
    sink.finish(0, end.get("finish_reason"))
    sink.usage(end.get("usage"))
    sink.terminal()
