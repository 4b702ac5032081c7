"""llama.cpp's own completion (`/completion`): one event per piece of `content`; `stop` true ends it, no [DONE].

Several prompts of one request share the stream; `index` distinguishes them. The stream has ended when every prompt that
began has stopped. The counts are of one prompt, the last one. tokens_evaluated is the whole prompt, including the
tokens from the cache; tokens_cached is the length of the context and no part of the prompt.

Sources: tools/server/README.md (POST /completion) and server-task.cpp (to_json_non_oaicompat) of ggml-org/llama.cpp;
the stopped_* flags come from builds before December 2024 (pull request 10643).
"""

from streamgauge.core.allowlist import Kind, Spec
from streamgauge.core.dialects.contract import KEEP_ERRORS, Data, DialectDefaults, Sink
from streamgauge.core.formats.cut_json import first_members, last_members
from streamgauge.core.outcome import reason_label
from streamgauge.core.safe_values import finite_number, whole_number
from streamgauge.core.usage import UsageRules

_KEEP_USAGE: dict[str, Spec] = {
    "tokens_evaluated": Kind.COUNT,
    "tokens_predicted": Kind.COUNT,
    "tokens_cached": Kind.COUNT,
    "timings": {
        "cache_n": Kind.COUNT,
        "prompt_n": Kind.COUNT,
        "predicted_n": Kind.COUNT,
        "prompt_ms": Kind.NUMBER,
        "predicted_ms": Kind.NUMBER,
    },
}
# Older builds: a flag for each reason -> the word that replaced it.
_STOPPED = {"stopped_eos": "eos", "stopped_word": "word", "stopped_limit": "limit"}
KEEP: dict[str, Spec] = {
    **KEEP_ERRORS,
    **_KEEP_USAGE,
    **dict.fromkeys(_STOPPED, Kind.FLAG),
    "index": Kind.COUNT,
    "content": Kind.TEXT,
    "stop": Kind.FLAG,
    "stop_type": Kind.REASON,
    "model": Kind.ID,
}


class LlamaCppNative(DialectDefaults):
    """The native completions of llama.cpp's server."""

    name = "llama-cpp-native"
    endpoint = "/completion"
    paths = ("/completion",)
    keep = KEEP
    keep_body = KEEP
    finish_is_terminal = True
    usage = UsageRules(
        spec=_KEEP_USAGE,
        input=("tokens_evaluated",),
        output=("tokens_predicted",),
        cached=("timings.cache_n",),
    )

    def recognises(self, event: str, data: Data) -> bool:
        """By a string `content` beside a boolean `stop`."""
        return isinstance(data.get("content"), str) and isinstance(data.get("stop"), bool)

    def recognises_body(self, data: Data) -> bool:
        """Recognises it as an event: a whole response has the same members."""
        return self.recognises("", data)

    def read(self, event: str, data: Data, sink: Sink) -> None:
        """Reports the piece of a prompt. Events that lack `content` or `stop` are ignored."""
        if self.recognises(event, data):
            _read_piece(data, sink)

    def outline_of(self, event: str, head: bytes, tail: bytes) -> Data | None:
        """A terminal by its `stop`, which comes before the prompt that it repeats; the reason comes after the prompt."""
        members = {**first_members(head), **last_members(tail, b"{", "stop_type")}
        if not self.recognises(event, members):
            return None
        return members if members["stop"] is True else {}

    def read_body(self, data: Data, sink: Sink) -> None:
        """Reports the whole content; a body always ends the stream."""
        _read_piece(data, sink)
        sink.terminal()


def _read_piece(data: Data, sink: Sink) -> None:
    index = whole_number(data.get("index")) or 0
    sink.identify(model=data.get("model"))
    sink.choice(index)
    sink.text(index, data.get("content"))
    if data.get("stop") is True:
        _read_stop(index, data, sink)
    if data.get("tokens_evaluated") is not None or data.get("tokens_predicted") is not None:
        sink.usage(data)
    _read_timings(data.get("timings"), sink)


def _read_stop(index: int, data: Data, sink: Sink) -> None:
    """Reads the end of a prompt. A stop without any reason ends the stream."""
    reason = data.get("stop_type")
    if not isinstance(reason, str) or reason_label(reason) is None:
        reason = next((word for flag, word in _STOPPED.items() if data.get(flag) is True), None)
    if reason is None:
        sink.terminal()
    sink.finish(index, reason)


def _read_timings(timings: object, sink: Sink) -> None:
    """Reads the server's own timing: the processing of the prompt ends with the first token."""
    if not isinstance(timings, dict):
        return
    prompt, predicted = finite_number(timings.get("prompt_ms")), finite_number(timings.get("predicted_ms"))
    if prompt is None:
        return
    sink.provider_timing(
        first_token_s=prompt / 1000,
        total_s=None if predicted is None else (prompt + predicted) / 1000,
    )
