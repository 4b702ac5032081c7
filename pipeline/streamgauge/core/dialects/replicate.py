"""Replicate's stream of a prediction: `event: output` with plain text, `event: done` ends it, `event: error` aborts it.

Each prediction has its own address, so no path hints at the dialect. An empty `done` does not identify the dialect, because
other servers send it as well; it is read after an `output` has identified the stream. `logs` are not output. The API reports
no usage.

Sources: https://replicate.com/docs/topics/predictions/streaming (events, and the two reasons of a `done`),
https://replicate.com/docs/reference/http#predictions.get (a prediction; metrics).
"""

from streamgauge.core.allowlist import Kind, Spec
from streamgauge.core.dialects.contract import KEEP_ERRORS, Data, DialectDefaults, Sink
from streamgauge.core.safe_values import safe_code
from streamgauge.core.usage import UsageRules

KEEP: dict[str, Spec] = {**KEEP_ERRORS, "reason": Kind.REASON}
KEEP_BODY: dict[str, Spec] = {
    **KEEP_ERRORS,
    "id": Kind.ID,
    "model": Kind.ID,
    "status": Kind.CODE,
    "output": (Kind.TEXT, [Kind.TEXT]),
    "metrics": {"total_time": Kind.NUMBER},
}

# Reasons in the `done` of a stream that did not finish. A finished stream gives no reason.
_REASONS = {"canceled", "error"}
# States of a prediction that is still running.
_RUNNING = {"starting", "processing"}


class Replicate(DialectDefaults):
    """Replicate's prediction streams."""

    name = "replicate"
    endpoint = "/predictions/{id}"
    keep = KEEP
    keep_body = KEEP_BODY
    text_events = frozenset({"output"})
    usage = UsageRules(spec={}, input=(), output=())

    def recognises(self, event: str, data: Data) -> bool:
        """By a `done` event whose data has a known `reason` and no other member."""
        return event == "done" and data.keys() == {"reason"} and _is_one_of(data["reason"], _REASONS)

    def recognises_body(self, data: Data) -> bool:
        """Never: a prediction of an image model looks the same."""
        return False

    def read(self, event: str, data: Data, sink: Sink) -> None:
        """Reports the end of the prediction. Text comes in `output` events (`text_events`), which do not pass here."""
        if event == "done":
            sink.finish(0, data.get("reason"))
            sink.terminal()

    def read_body(self, data: Data, sink: Sink) -> None:
        """Reports the output of a prediction, a text or a list of pieces, and ends the stream."""
        sink.identify(data.get("id"), data.get("model"))
        output = data.get("output")
        for piece in output if isinstance(output, list) else (output,):
            sink.text(0, piece)
        status = safe_code(data.get("status"))
        if status not in _RUNNING:
            sink.finish(0, status)
        metrics = data.get("metrics")
        if isinstance(metrics, dict):
            sink.provider_timing(total_s=metrics.get("total_time"))
        sink.terminal()


def _is_one_of(value: object, words: set[str]) -> bool:
    return isinstance(value, str) and value in words
