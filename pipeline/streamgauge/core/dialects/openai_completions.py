"""OpenAI's legacy completions (`object: text_completion`): text instead of a delta, all else as in chat."""

from streamgauge.core.dialects.contract import Data
from streamgauge.core.dialects.openai_chat import OpenAIChat, choices_of


class OpenAICompletions(OpenAIChat):
    name = "openai-completions"
    endpoint = "/completions"
    paths = ("/completions",)

    def recognises(self, event: str, data: Data) -> bool:
        if data.get("object") == "text_completion":
            return True
        if data.get("choices") == [] and not data.get("object"):
            return True  # usage alone: what the stream has shown itself to be, it stays
        return any("text" in choice and "delta" not in choice for _, choice in choices_of(data))
