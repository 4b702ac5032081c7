"""Errors within streams, status codes and responses that are not event streams: what is sent, and the expected record."""

import gzip
import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from streamgauge_demo.provider import Script, answer, head
from tests import events
from tests.events import DONE, data, named

# Part of every message: the text of an error must not be in any record.
SECRET = "CANARY7f3a"
# "Not judged": two readings are possible.
ANY = "*"


@dataclass
class InBand:
    """Events after the beginning of a stream; `kind` and `code` as the record's error has them."""

    name: str
    dialect: str
    events: Sequence[bytes]
    kind: str | None
    code: str | None


def _error(**more: Any) -> dict[str, Any]:
    return {"error": {"message": SECRET, **more}}


def _chunk(**more: Any) -> dict[str, Any]:
    return {"id": "c-t", "object": "chat.completion.chunk", "model": "gpt-x", **more}


_CHAT, _MESSAGES, _RESPONSES = events.chat("t")[:3], events.anthropic("t")[:8], events.responses("t")[:5]
_OPEN = [{"index": 0, "delta": {"content": ""}, "finish_reason": None}]
_OVERLOADED = {"type": "error", "error": {"type": "overloaded_error", "message": SECRET}}
_FAILED = {"type": "response.failed", "sequence_number": 10, "response": {"id": "c-t", "status": "failed"}}
_PRETTY = json.dumps({"error": {"code": 503, "message": SECRET, "status": "UNAVAILABLE"}}, indent=2).encode()


def _failed(code: str) -> bytes:
    response = {"id": "c-t", "status": "failed", "error": {"code": code, "message": SECRET}}
    return named({**_FAILED, "response": response})


def _finish(reason: str) -> bytes:
    return events.chat_chunk("t", finish=reason)


IN_BAND = [
    InBand("openai, then done", "openai-chat", [*_CHAT, data(_error(type="server_error", code=None)), DONE],
           "server_error", None),
    InBand("openai, then eof", "openai-chat", [*_CHAT, data(_error(type="server_error", code="x1"))],
           "server_error", "x1"),
    InBand("first event", "openai-chat", [data(_error(type="server_error"))], "server_error", None),
    InBand("after the finish", "openai-chat", [*events.chat("t")[:-2], data(_error(type="e1")), DONE], "e1", None),
    InBand("after the end", "openai-chat", [*events.chat("t"), data(_error(type="e2"))], "e2", None),
    InBand("openrouter", "openai-chat", [*_CHAT, data(_chunk(**_error(code=502), choices=_OPEN)), DONE], None, "502"),
    InBand("sansa", "openai-chat", [*_CHAT, data({**_error(code="up"), "choices": [{"finish_reason": "error"}]})],
           ANY, "up"),
    InBand("groq", "openai-chat", [*_CHAT, data(_error(type="bad", code="tool_use_failed"), "error")],
           "bad", "tool_use_failed"),
    InBand("no wrapper", "openai-chat", [*_CHAT, data({"message": SECRET, "type": "overflow"}, "error")],
           "overflow", None),
    InBand("nimbus", "openai-chat", [*_CHAT, data(_OVERLOADED, "error")], "overloaded_error", None),
    InBand("error field", "openai-chat", [*_CHAT, b"error: " + json.dumps(_error(type="boom")).encode() + b"\n\n"],
           ANY, ANY),
    InBand("bare and pretty", "openai-chat", [*_CHAT, _PRETTY + b"\n\n"], ANY, ANY),
    InBand("finish error", "openai-chat", [*_CHAT, _finish("error"), DONE], "error", None),
    InBand("finish abort", "openai-chat", [*_CHAT, _finish("abort"), DONE], "abort", None),
    InBand("completions", "openai-completions", [events.completions("t")[0], data(_error(type="s"))], "s", None),
    InBand("anthropic", "anthropic-messages", [*_MESSAGES, named(_OVERLOADED)], "overloaded_error", None),
    InBand("anthropic first", "anthropic-messages", [named(_OVERLOADED)], "overloaded_error", None),
    InBand("anthropic after", "anthropic-messages", [*events.anthropic("t"), named(_OVERLOADED)],
           "overloaded_error", None),
    InBand("responses flat", "openai-responses", [*_RESPONSES, named({"type": "error", "code": "c2", "message": SECRET})],
           ANY, "c2"),
    InBand("responses nested", "openai-responses",
           [*_RESPONSES, named({"type": "error", **_error(type="t3", code="c3")}), _failed("c3")],
           "t3", "c3"),
    InBand("responses failed", "openai-responses", [*_RESPONSES, _failed("server_error")], ANY, "server_error"),
]  # fmt: skip


@dataclass
class Answer:
    """A whole answer that is no stream of tokens, and fields of its record by their paths."""

    name: str
    dialect: str
    status: int
    kind: str
    body: bytes
    says: dict[str, Any]
    headers: Mapping[str, str] = field(default_factory=dict)
    framing: str = "length"

    @property
    def script(self) -> Script:
        framing = len(self.body) if self.framing == "length" else self.framing
        response = head(self.status, self.kind, framing, self.headers) + self.body
        return answer(response, end="close" if framing == "close" else "keep")


CHAT_JSON = json.dumps(
    {"id": "c-t", "object": "chat.completion", "model": "gpt-x",
     "choices": [{"index": 0, "message": {"role": "assistant", "content": SECRET}, "finish_reason": "stop"}],
     "usage": {"prompt_tokens": 3, "completion_tokens": 4, "total_tokens": 7}}
).encode()  # fmt: skip
_MESSAGE_JSON = json.dumps(
    {"id": "c-t", "type": "message", "role": "assistant", "model": "claude-x", "stop_reason": "max_tokens",
     "content": [{"type": "text", "text": SECRET}], "usage": {"input_tokens": 3, "output_tokens": 4}}
).encode()  # fmt: skip
_WHOLE = {
    "outcome": "completed", "streaming": False, "error": None, "finish_reason": "stop", "response_id": "c-t",
    "usage.input_tokens": 3, "usage.output_tokens": 4, "usage.source": "final", "counts.token_events": 0,
    "timing.first_token_s": None, "timing.gaps.count": 0,
}  # fmt: skip
_LIMITED = json.dumps(_error(type="tokens", code="rate_limit_exceeded")).encode()
_JSON, _SSE, _HTML = "application/json", "text/event-stream", "text/html"


def _refused(status: int, kind: str | None, **more: Any) -> dict[str, Any]:
    return {"outcome": "http_error", "status_code": status, "error.status": status, "error.type": kind, **more}


ANSWERS = [
    Answer("429", "openai-chat", 429, _JSON, _LIMITED,
           _refused(429, "tokens", retry_after_s=17, provider_request_id="req_9", **{"error.phase": "before_stream"}),
           {"Retry-After": "17", "x-request-id": "req_9"}),
    Answer("529", "anthropic-messages", 529, _JSON, json.dumps({**_OVERLOADED, "request_id": "req_b"}).encode(),
           _refused(529, "overloaded_error", provider_request_id="req_b")),
    Answer("500 html", "openai-chat", 500, _HTML, b"<html>data: x\n\n</html>", _refused(500, None, **{"counts.events": 0})),
    Answer("302", "openai-chat", 302, _HTML, b"moved", _refused(302, None), {"Location": "http://127.0.0.1:1/"}),
    Answer("500 as sse", "openai-chat", 500, _SSE, data(_error(type="s")), _refused(500, "s")),
    Answer("400 empty", "openai-chat", 400, _JSON, b"", _refused(400, None)),
    Answer("json", "openai-chat", 200, _JSON, CHAT_JSON, _WHOLE),
    Answer("json to the close", "openai-chat", 200, _JSON, CHAT_JSON, _WHOLE, framing="close"),
    Answer("json in gzip", "openai-chat", 200, _JSON, gzip.compress(CHAT_JSON), _WHOLE, {"Content-Encoding": "gzip"}),
    Answer("json message", "anthropic-messages", 200, _JSON, _MESSAGE_JSON,
           {**_WHOLE, "finish_reason": "length", "finish_reason_raw": "max_tokens"}),
    Answer("json error", "openai-chat", 200, _JSON, _LIMITED,
           {"outcome": "stream_error", "error.phase": "before_stream", "error.type": "tokens"}),
    Answer("json cut", "openai-chat", 200, _JSON, CHAT_JSON[:40], {"outcome": "truncated", "error": None}, framing="close"),
    Answer("nothing", "openai-chat", 200, _JSON, b"", {"outcome": "truncated", "error": None}),
    Answer("no events", "openai-chat", 200, _SSE, b"", {"outcome": "truncated", "streaming": True, "counts.events": 0}),
    Answer("html", "openai-chat", 200, _HTML, b"<html></html>", {"outcome": "truncated", "streaming": False}),
]  # fmt: skip
