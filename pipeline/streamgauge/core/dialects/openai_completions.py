"""OpenAI's legacy completions (`object: text_completion`): text instead of a delta, otherwise as chat."""

from streamgauge.core.dialects.contract import Data
from streamgauge.core.dialects.deltas import Deltas
from streamgauge.core.dialects.openai_chat import OpenAIChat, choices_of


class OpenAICompletions(OpenAIChat):
    """OpenAI's legacy text completions, and the servers that imitate them."""

    name = "openai-completions"
    endpoint = "/completions"
    paths = ("/completions",)
    deltas = Deltas()

    def recognises(self, event: str, data: Data) -> bool:
        """By `object`, or by a choice with `text` and without a delta."""
        if data.get("object") == "text_completion":
            return True
        if data.get("choices") == [] and not data.get("object"):
            return True  # usage alone: the stream keeps the dialect that it has shown
        return any("text" in choice and "delta" not in choice for choice in choices_of(data))
