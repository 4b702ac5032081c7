"""Anthropic's text completions, before Messages (`/v1/complete`): `event: completion`; a stop_reason ends it, no [DONE].

This dialect is the format of version 2023-06-01, whose events carry only new text. The version before it sent unnamed
events with all text so far, and a [DONE]; those events are not recognised. The API reports no usage.

Sources: https://docs.anthropic.com/claude/reference/complete_post, https://docs.anthropic.com/en/api/streaming (text
completions), https://docs.anthropic.com/claude/reference/versions.
"""

from streamgauge.core.allowlist import Kind, Spec
from streamgauge.core.dialects.contract import KEEP_ERRORS, Data, DialectDefaults, Sink
from streamgauge.core.formats.cut_json import first_members, last_members
from streamgauge.core.outcome import reason_label
from streamgauge.core.usage import UsageRules

KEEP: dict[str, Spec] = {
    **KEEP_ERRORS,
    "id": Kind.ID,
    "log_id": Kind.ID,
    "model": Kind.ID,
    "completion": Kind.TEXT,
    "stop_reason": Kind.REASON,
}

_EVENT = "completion"


class AnthropicCompletions(DialectDefaults):
    """Anthropic's legacy text completions."""

    name = "anthropic-completions"
    endpoint = "/complete"
    keep = KEEP
    keep_body = KEEP
    usage = UsageRules(spec={}, input=(), output=())

    def recognises(self, event: str, data: Data) -> bool:
        """By the name or the `type` of the event, and by its members `completion` and `stop_reason`."""
        return _is_completion(event, data) and self.recognises_body(data)

    def recognises_body(self, data: Data) -> bool:
        """By a string `completion` beside a `stop_reason`, which may be null."""
        return isinstance(data.get("completion"), str) and "stop_reason" in data

    def read(self, event: str, data: Data, sink: Sink) -> None:
        """Reports the text of a completion. A stop reason ends the stream; all other events are ignored."""
        if not _is_completion(event, data):
            return
        _read_piece(data, sink)
        if isinstance(reason := data.get("stop_reason"), str) and reason_label(reason) is not None:
            sink.terminal()

    def outline_of(self, event: str, head: bytes, tail: bytes) -> Data | None:
        """A completion by its stop reason, which comes after the text."""
        members = {**first_members(head), **last_members(tail, b"{", "stop_reason"), "completion": ""}
        return members if self.recognises(event, members) else None

    def read_body(self, data: Data, sink: Sink) -> None:
        """Reports the one completion; a body always ends the stream."""
        _read_piece(data, sink)
        sink.terminal()


def _is_completion(event: str, data: Data) -> bool:
    """Whether an event is a completion, by its name or its `type`: `type` was added later, and a proxy may drop the name.

    Other events are pings, errors, and events that Anthropic may add.
    """
    return event == _EVENT or data.get("type") == _EVENT


def _read_piece(data: Data, sink: Sink) -> None:
    """Reports the text and the stop reason. `log_id` is the older name of `id`."""
    sink.identify(data.get("id"), data.get("model"))
    sink.identify(data.get("log_id"))
    sink.choice(0)
    sink.text(0, data.get("completion"))
    sink.finish(0, data.get("stop_reason"))
