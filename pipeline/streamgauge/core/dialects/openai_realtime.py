"""OpenAI Realtime: the events of a response, which come over WebSocket between those of the session.

They are those of Responses, but for their audio, their terminal (response.done, with the usage), and the names of details in
usage. https://github.com/openai/openai-python, types/realtime: realtime_server_event.py, realtime_response.py,
realtime_response_status.py, realtime_response_usage.py.

A response that was cancelled has ended as its session wanted it: the user began to speak (turn_detected), or the client asked
for it (client_cancelled). So it is completed, with this reason.
"""

from streamgauge.core.allowlist import Kind, Spec
from streamgauge.core.dialects.contract import KEEP_ERROR, Data, DialectDefaults, Sink, Source, is_realtime
from streamgauge.core.dialects.deltas import Deltas
from streamgauge.core.dialects.openai_responses import KEEP, KEEP_RESPONSE, OpenAIResponses, read_terminal
from streamgauge.core.safe_values import safe_code, whole_number
from streamgauge.core.usage import UsageRules

_KEEP_MODALITIES: dict[str, Spec] = dict.fromkeys(("text_tokens", "audio_tokens", "image_tokens"), Kind.COUNT)
_KEEP_USAGE: dict[str, Spec] = {
    **dict.fromkeys(("input_tokens", "output_tokens", "total_tokens"), Kind.COUNT),
    "input_token_details": {
        **_KEEP_MODALITIES,
        "cached_tokens": Kind.COUNT,
        "cached_tokens_details": _KEEP_MODALITIES,
    },
    "output_token_details": dict.fromkeys(("text_tokens", "audio_tokens"), Kind.COUNT),
}
_KEEP_STATUS: Spec = {"type": Kind.CODE, "reason": Kind.REASON, "error": KEEP_ERROR}
_KEEP: dict[str, Spec] = {
    **KEEP,
    "response_id": Kind.ID,
    "response": {**KEEP_RESPONSE, "usage": _KEEP_USAGE, "status_details": _KEEP_STATUS},
}
_TEXTS = {"response.output_text", "response.text"}  # the second: the API's beta
_MEDIA = {"response.output_audio", "response.audio", "response.output_audio_transcript", "response.audio_transcript"}
_TERMINAL = "response.done"


class OpenAIRealtime(OpenAIResponses):
    """OpenAI's Realtime API."""

    name = "openai-realtime"
    endpoint = "/realtime"
    paths = ("/realtime",)
    keep = _KEEP
    keep_body = KEEP_RESPONSE
    code_events = frozenset[str]()
    deltas = Deltas()
    usage = UsageRules(
        spec=_KEEP_USAGE,
        input=("input_tokens",),
        output=("output_tokens",),
        total=("total_tokens",),
        cached=("input_token_details.cached_tokens",),
        audio_input=("input_token_details.audio_tokens",),
        audio_output=("output_token_details.audio_tokens",),
    )

    def recognises(self, event: str, data: Data) -> bool:
        """By an event of the Realtime API that is one of a response."""
        kind = data.get("type")
        return isinstance(kind, str) and kind.startswith("response.") and is_realtime(data)

    def recognises_body(self, data: Data) -> bool:
        """Never: all responses are streams."""
        return False

    def read(self, event: str, data: Data, sink: Sink) -> None:
        """Reports text and audio of deltas, the terminal, and all else as Responses does."""
        kind = data.get("type")
        name, _, last = kind.rpartition(".") if isinstance(kind, str) else ("", "", "")
        if name in _TEXTS | _MEDIA and last in ("delta", "done"):
            self._read_output(name, last, data, sink)
        elif kind == _TERMINAL:
            response = data.get("response")
            if isinstance(response, dict):
                sink.identify(response.get("id"), None, None)
                _read_done(response, sink)
        else:
            super().read(event, data, sink)

    def outline_of(self, event: str, head: bytes, tail: bytes) -> Data | None:
        """None: of a longer event than the limit nothing is read."""
        return DialectDefaults.outline_of(self, event, head, tail)

    def _read_output(self, name: str, last: str, data: Data, sink: Sink) -> None:
        """Reads a text, audio or a transcript as it comes. The closing event of a text may carry what no delta carried."""
        index = whole_number(data.get("output_index"))
        if last == "delta":
            sink.part(index, Source.DELTA)
            if name in _TEXTS:
                sink.text(0, data.get("delta"))
            else:
                sink.media(0, data.get("delta"))
        elif name in _TEXTS:
            sink.part(index, Source.TEXT_DONE)
            sink.text(0, data.get("text"))


def _read_done(response: Data, sink: Sink) -> None:
    """Reads the end of a response: its status, the reason or error in its details, and its usage."""
    given = response.get("status_details")
    details = given if isinstance(given, dict) else {}
    status = safe_code(response.get("status")) or "completed"
    reason = details.get("reason")
    if status == "cancelled":
        sink.finish(0, reason or "turn_detected") if isinstance(reason, str) else sink.finish(0, None)
        sink.usage(response.get("usage"))
        sink.terminal()
        return
    read_terminal(status, {**response, "error": details.get("error"), "incomplete_details": {"reason": reason}}, sink)
