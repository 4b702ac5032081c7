"""text-generation-inference's own stream (`/generate_stream`): one event per token; generated_text on the last ends it.

A special token (end of sequence and similar) is a mark of the tokenizer, not text: generated_text and the official client
leave it out. It is not a token event. `details` comes on the last event, and is null unless the request asked for it.

Sources: https://huggingface.co/docs/text-generation-inference/conceptual/streaming, router/src/lib.rs (StreamResponse,
StreamDetails, ErrorResponse) and router/src/server.rs of huggingface/text-generation-inference.
"""

from streamgauge.core.allowlist import Kind, Spec
from streamgauge.core.dialects.contract import KEEP_ERRORS, Data, DialectDefaults, ErrorFacts, Sink
from streamgauge.core.formats.cut_json import begins_text, first_members, last_members
from streamgauge.core.safe_values import safe_code
from streamgauge.core.usage import UsageRules

_KEEP_USAGE: dict[str, Spec] = {
    "generated_tokens": Kind.COUNT,
    "input_length": Kind.COUNT,
    "prompt_tokens": Kind.COUNT,  # LoRAX, a fork (predibase/lorax, router/src/lib.rs)
}
KEEP_BODY: dict[str, Spec] = {
    **KEEP_ERRORS,
    "error_type": Kind.CODE,
    "generated_text": Kind.TEXT,
    "details": {"finish_reason": Kind.REASON, **_KEEP_USAGE},
}
KEEP: dict[str, Spec] = {**KEEP_BODY, "token": {"text": Kind.TEXT, "special": Kind.FLAG}}


class TGINative(DialectDefaults):
    """The native streams of Hugging Face's text-generation-inference."""

    name = "tgi-native"
    endpoint = "/generate_stream"
    paths = ("/generate_stream",)
    keep = KEEP
    keep_body = KEEP_BODY
    usage = UsageRules(spec=_KEEP_USAGE, input=("input_length", "prompt_tokens"), output=("generated_tokens",))

    def recognises(self, event: str, data: Data) -> bool:
        """By a `token` with a text, beside `special` in it or `generated_text` in the event."""
        token = data.get("token")
        return isinstance(token, dict) and "text" in token and ("special" in token or "generated_text" in data)

    def recognises_body(self, data: Data) -> bool:
        """By a string `generated_text` without a `token`."""
        return isinstance(data.get("generated_text"), str) and "token" not in data

    def read(self, event: str, data: Data, sink: Sink) -> None:
        """Reports the token, unless it is special. `generated_text` ends the stream. It repeats all text, or is all of it."""
        token = data.get("token")
        if isinstance(token, dict) and token.get("special") is not True:
            sink.text(0, token.get("text"))
        if isinstance(data.get("generated_text"), str):
            sink.closes()
            sink.text(0, data["generated_text"])
            _read_end(data, sink)
        if isinstance(data.get("error"), str) and data["error"]:
            sink.error(ErrorFacts(type=safe_code(data.get("error_type"))))

    def outline_of(self, event: str, head: bytes, tail: bytes) -> Data | None:
        """A terminal by its generated_text, with the token before it and the details after it."""
        members = {**first_members(head), **last_members(tail, b"{", "details")}
        if begins_text(head, "generated_text"):
            members["generated_text"] = ""
        return members if self.recognises(event, members) and isinstance(members.get("generated_text"), str) else None

    def read_body(self, data: Data, sink: Sink) -> None:
        """Reports `generated_text`, and ends the stream."""
        sink.text(0, data.get("generated_text"))
        _read_end(data, sink)


def _read_end(data: Data, sink: Sink) -> None:
    sink.choice(0)
    details = data.get("details")
    if isinstance(details, dict):
        sink.finish(0, details.get("finish_reason"))
        if not _KEEP_USAGE.keys().isdisjoint(details):
            sink.usage(details)
    sink.terminal()
