"""IBM watsonx.ai text generation (`/ml/v1/text/generation_stream`): each event holds `results` with the new text.

A stop_reason other than not_finished ends a result. generated_token_count is a running total; input_token_count comes once,
and is 0 on all other events. The chat_stream endpoint uses the dialect openai-chat, not this one.

Sources: https://cloud.ibm.com/apidocs/watsonx-ai#text-generation-stream, the official clients' types
(https://ibm.github.io/watsonx-ai-node-sdk, TextGenResult) and the streams in the tests of IBM/watsonx-ai-java-sdk.
"""

from streamgauge.core.allowlist import Kind, Spec
from streamgauge.core.dialects.contract import KEEP_ERRORS, Data, DialectDefaults, Sink
from streamgauge.core.formats.cut_json import element_of, last_members
from streamgauge.core.outcome import normal_reason, reason_label
from streamgauge.core.usage import UsageRules

_KEEP_USAGE: dict[str, Spec] = {"input_token_count": Kind.COUNT, "generated_token_count": Kind.COUNT}
KEEP: dict[str, Spec] = {
    **KEEP_ERRORS,
    "model_id": Kind.ID,
    "results": [{"generated_text": Kind.TEXT, "stop_reason": Kind.REASON, **_KEEP_USAGE}],
}

# The stop_reason of a result that has not ended.
_RUNNING = "not_finished"


class Watsonx(DialectDefaults):
    """IBM watsonx.ai's text generation."""

    name = "watsonx"
    endpoint = "/text/generation_stream"
    keep = KEEP
    keep_body = KEEP
    finish_is_terminal = True
    # A prompt has at least one token: the 0 on all events but one means that the count is not on this event.
    usage = UsageRules(
        spec=_KEEP_USAGE,
        input=("input_token_count",),
        output=("generated_token_count",),
        zero_is_absent=frozenset(("input_token_count",)),
    )

    def recognises(self, event: str, data: Data) -> bool:
        """By a result with `generated_text`."""
        return any("generated_text" in result for _, result in _results(data))

    def recognises_body(self, data: Data) -> bool:
        """Recognises it as an event: a whole response has the same members."""
        return self.recognises("", data)

    def read(self, event: str, data: Data, sink: Sink) -> None:
        """Reports each result as a choice, with its running usage."""
        sink.identify(model=data.get("model_id"))
        for index, result in _results(data):
            sink.choice(index)
            sink.text(index, result.get("generated_text"))
            _read_stop(index, result.get("stop_reason"), sink)
            if result.get("input_token_count") is not None or result.get("generated_token_count") is not None:
                sink.usage(result)

    def outline_of(self, event: str, head: bytes, tail: bytes) -> Data | None:
        """A result by its stop reason, which comes after the text and the counts."""
        opening = b'{"results":[{'
        last = last_members(tail, opening, "generated_token_count") or last_members(tail, opening, "stop_reason")
        result = element_of({}, last, "results")
        return {"results": [{**result, "generated_text": ""}]} if "stop_reason" in result else None

    def read_body(self, data: Data, sink: Sink) -> None:
        """Reports each result, and ends the stream whatever the stop reasons are."""
        self.read("", data, sink)
        sink.terminal()


def _results(data: Data) -> list[tuple[int, Data]]:
    """The results of an event with their position; there is one, unless the request asked for several."""
    listed = data.get("results")
    results = enumerate(listed if isinstance(listed, list) else ())
    return [(index, result) for index, result in results if isinstance(result, dict)]


def _read_stop(index: int, reason: object, sink: Sink) -> None:
    """Reads a stop reason. Reasons are compared without regard to case (TextGenResult.stop_reason)."""
    word = reason_label(reason) if isinstance(reason, str) and reason != _RUNNING else None
    if word is not None and word.lower() != _RUNNING:
        sink.finish(index, word, normal_reason(word.lower()))
