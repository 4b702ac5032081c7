"""Sourcegraph's completions (Cody): events `completion`, with new text or all text so far; `done` ends the stream.

The later versions of the API send `deltaText`, the first one `completion`, which is all text so far. There is no usage.

Source: https://github.com/sourcegraph/cody-public-snapshot, lib/shared/src/sourcegraph-api/completions (types.ts, parse.ts).
"""

from streamgauge.core.allowlist import Kind, Spec
from streamgauge.core.dialects.contract import KEEP_ERRORS, Data, DialectDefaults, Sink
from streamgauge.core.usage import UsageRules

KEEP: dict[str, Spec] = {**KEEP_ERRORS, "deltaText": Kind.TEXT, "completion": Kind.TEXT, "stopReason": Kind.REASON}


class Sourcegraph(DialectDefaults):
    """Sourcegraph's completions/stream and completions/code."""

    name = "sourcegraph"
    endpoint = "/.api/completions/stream"
    paths = ("/.api/completions/stream", "/.api/completions/code")
    keep = KEEP
    keep_body = KEEP
    usage = UsageRules(spec={}, input=(), output=())

    def recognises(self, event: str, data: Data) -> bool:
        """By a `deltaText`, or an event `completion` whose text has no type of its own (Anthropic's has)."""
        if isinstance(data.get("deltaText"), str):
            return True
        return event == "completion" and isinstance(data.get("completion"), str) and "type" not in data

    def recognises_body(self, data: Data) -> bool:
        """Recognises none: a whole answer has no member of its own."""
        return False

    def read(self, event: str, data: Data, sink: Sink) -> None:
        """Reports new text, or what is new of all text so far."""
        if event == "done":
            sink.terminal()
        elif self.recognises(event, data):
            sink.choice(0)
            sink.text(0, data.get("deltaText"))
            sink.text_so_far(0, data.get("completion"))
            sink.finish(0, data.get("stopReason"))

    def read_body(self, data: Data, sink: Sink) -> None:
        """Reads it as an event."""
        self.read("", data, sink)
