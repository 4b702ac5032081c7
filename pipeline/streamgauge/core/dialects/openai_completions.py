"""OpenAI's legacy completions (`object: text_completion`): text instead of a delta, all else as in chat."""

from streamgauge.core.dialects.contract import Data, Sink
from streamgauge.core.dialects.openai_chat import KEEP, USAGE, choices_of, read_chunk


class OpenAICompletions:
    name = "openai-completions"
    endpoint = "/completions"
    paths: tuple[str, ...] = ("/completions",)
    keep = KEEP
    keep_body = KEEP
    usage = USAGE
    finish_is_terminal = True

    def recognises(self, event: str, data: Data) -> bool:
        if data.get("object") == "text_completion":
            return True
        return any("text" in choice and "delta" not in choice for _, choice in choices_of(data))

    def recognises_body(self, data: Data) -> bool:
        return self.recognises("", data)

    def read(self, event: str, data: Data, sink: Sink) -> None:
        read_chunk(data, sink)

    def read_body(self, data: Data, sink: Sink) -> None:
        read_chunk(data, sink)
        sink.terminal()
