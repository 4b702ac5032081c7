"""NVIDIA Triton's generate extension (`/generate_stream`): pieces of text as `text_output`; the response's end is its end.

There is no terminal, unless the backend sends a finish reason: the server ends the chunked response properly after the last
piece, and an error comes as an event. The backends send a finish reason and counts only if the request asks for them. vLLM's
`num_output_tokens` counts the tokens of one event, so it is no usage of the stream; `num_input_tokens` is the whole prompt's.

Sources: https://github.com/triton-inference-server/server, docs/protocol/extension_generate.md; vllm_backend,
docs/additional_outputs.md; tensorrtllm_backend, README.md.
"""

from streamgauge.core.allowlist import Kind, Spec
from streamgauge.core.dialects.contract import KEEP_ERRORS, Data, DialectDefaults, Sink
from streamgauge.core.formats.cut_json import begins_text, first_members, last_members
from streamgauge.core.usage import UsageRules

_KEEP_USAGE: dict[str, Spec] = {"num_input_tokens": Kind.COUNT}
KEEP: dict[str, Spec] = {
    **KEEP_ERRORS,
    **_KEEP_USAGE,
    "id": Kind.ID,
    "model_name": Kind.ID,
    "text_output": Kind.TEXT,
    "finish_reason": Kind.REASON,
}


class Triton(DialectDefaults):
    """Triton's generate and generate_stream."""

    name = "triton"
    endpoint = "/v2/models/{model}/generate_stream"
    paths = ("/v2/models/{model}/generate_stream", "/v2/models/{model}/generate")
    keep = KEEP
    keep_body = KEEP
    finish_is_terminal = True
    end_is_terminal = True
    usage = UsageRules(spec=_KEEP_USAGE, input=("num_input_tokens",), output=())

    def recognises(self, event: str, data: Data) -> bool:
        """By a text `text_output` beside the name of a model."""
        return isinstance(data.get("text_output"), str) and isinstance(data.get("model_name"), str)

    def recognises_body(self, data: Data) -> bool:
        """A whole response has the members of an event."""
        return self.recognises("", data)

    def read(self, event: str, data: Data, sink: Sink) -> None:
        """Reports the piece of text, the finish reason and the input tokens."""
        if not self.recognises(event, data):
            return
        sink.identify(response_id=data.get("id"), model=data.get("model_name"))
        sink.choice(0)
        sink.text(0, data.get("text_output"))
        sink.finish(0, data.get("finish_reason"))
        sink.usage({name: data[name] for name in _KEEP_USAGE if name in data} or None)

    def outline_of(self, event: str, head: bytes, tail: bytes) -> Data | None:
        """An event that has a model's name before a long text. It does not end the stream, unless a finish reason follows."""
        if "model_name" not in first_members(head) or not begins_text(head, "text_output"):
            return None
        return last_members(tail, b"{", "finish_reason")

    def read_body(self, data: Data, sink: Sink) -> None:
        """Reads it as the only event of a stream, and ends it."""
        self.read("", data, sink)
        sink.terminal()
