"""The OpenAI client on legacy completions: its chunks, with text joined by choice. It has no accumulator for them."""

from tests.differential.openai_chat import OpenAIOracle, index_of, make_client, usage_of
from tests.differential.reading import Reading


class Chunks(OpenAIOracle):
    name = "openai completions.create"
    dialect = "openai-completions"
    unsupported = frozenset({"reasoning", "refusal", "calls"})

    def read(self, url: str, reading: Reading) -> None:
        with make_client(url) as client, client.completions.create(model="m", prompt="q", stream=True) as stream:
            for chunk in stream:
                reading.usage = usage_of(chunk.usage) or reading.usage
                for position, choice in enumerate(chunk.choices or ()):
                    output = reading.choice(index_of(choice, position))
                    output.text += choice.text or ""
                    output.finish = choice.finish_reason or output.finish
