"""Cohere's first chat API: one JSON object a line, with `event_type` and `is_finished`; stream-end ends it.

Command models on Amazon Bedrock send the same objects; those of the older generate API have no `event_type`. A closing event
repeats the whole text and the whole calls.

Sources: https://docs.cohere.com/v1/reference/chat-stream, the types of the official client (cohere,
types/streamed_chat_response.py), https://docs.aws.amazon.com/bedrock/latest/userguide/model-parameters-cohere-command.html.
"""

from streamgauge.core.allowlist import Kind, Spec
from streamgauge.core.dialects.cohere_v2 import KEEP_USAGE, USAGE
from streamgauge.core.dialects.contract import KEEP_ERRORS, Data, DialectDefaults, Sink, WholeCall, is_no_call
from streamgauge.core.safe_values import whole_number

_KEEP_CALL: Spec = {"name": Kind.ID, "parameters": Kind.ARGUMENTS}
KEEP_BODY: dict[str, Spec] = {
    **KEEP_ERRORS,
    "response_id": Kind.ID,
    "generation_id": Kind.ID,
    "text": Kind.TEXT,
    "tool_calls": [_KEEP_CALL],
    "finish_reason": Kind.REASON,
    "meta": KEEP_USAGE,
}
KEEP: dict[str, Spec] = {
    **KEEP_BODY,
    "event_type": Kind.CODE,
    "is_finished": Kind.FLAG,
    "tool_call_delta": {"index": Kind.COUNT, "name": Kind.ID, "parameters": Kind.TEXT},
    "response": KEEP_BODY,
}


class CohereV1(DialectDefaults):
    """Cohere's chat API, version 1."""

    name = "cohere-v1"
    endpoint = "/v1/chat"
    paths = ("/v1/chat",)
    keep = KEEP
    keep_body = KEEP_BODY
    usage = USAGE

    def recognises(self, event: str, data: Data) -> bool:
        """By a boolean `is_finished`."""
        return isinstance(data.get("is_finished"), bool)

    def recognises_body(self, data: Data) -> bool:
        """By a text beside the id of a generation."""
        return (
            isinstance(data.get("text"), str)
            and isinstance(data.get("generation_id"), str)
            and "is_finished" not in data
        )

    def read(self, event: str, data: Data, sink: Sink) -> None:
        """Reports what the type of the event names. Searches and citations are no output."""
        if not self.recognises(event, data):
            return
        sink.identify(data.get("generation_id"))
        sink.choice(0)
        kind = data.get("event_type")
        if kind == "tool-calls-generation":
            sink.whole_calls(0, _calls(data))
        elif kind == "tool-calls-chunk":  # its text is the plan for the calls, which the whole text repeats
            sink.text(0, data.get("text"))
            _read_fragment(data.get("tool_call_delta"), sink)
        elif kind in (None, "text-generation"):
            sink.text(0, data.get("text"))
        if data["is_finished"] is True:
            _read_end(data, sink)

    def read_body(self, data: Data, sink: Sink) -> None:
        """Reports the text and the calls, and ends the stream."""
        sink.text(0, data.get("text"))
        sink.whole_calls(0, _calls(data))
        _read_answer(data, sink)
        sink.terminal()


def _calls(data: Data) -> list[WholeCall]:
    calls = data.get("tool_calls")
    listed = [call for call in calls if isinstance(call, dict)] if isinstance(calls, list) else []
    return [WholeCall(call.get("name"), call.get("parameters")) for call in listed]


def _read_fragment(delta: object, sink: Sink) -> None:
    if not isinstance(delta, dict):
        return
    key = whole_number(delta.get("index"))
    if not is_no_call(delta.get("name"), None, None):
        sink.tool(0, key, delta.get("name"))
    sink.arguments(0, key, delta.get("parameters"))


def _read_end(data: Data, sink: Sink) -> None:
    """Reads the end. The whole answer in `response` repeats the text; of the older API it has none of these members."""
    answer = data.get("response")
    if isinstance(answer, dict):
        sink.closes()
        sink.text(0, answer.get("text"))
        _read_answer({"finish_reason": None, **answer}, sink)
    sink.finish(0, data.get("finish_reason"))
    sink.terminal()


def _read_answer(answer: Data, sink: Sink) -> None:
    sink.identify(answer.get("generation_id"))
    sink.finish(0, answer.get("finish_reason"))
    sink.usage(answer.get("meta"))
