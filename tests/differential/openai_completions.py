"""The OpenAI client on legacy completions: its chunks, text put together by choice. It has no accumulator for them."""

import openai

from tests.differential.answer import UNREADABLE, Answer
from tests.differential.openai_chat import client, ended, used
from tests.vectors.load import Vector


class Chunks:
    name = "openai completions.create"
    dialects = ("openai-completions",)
    blind = frozenset({"reasoning", "refusal", "calls"})

    def read(self, url: str, vector: Vector) -> Answer:
        answer = Answer()
        try:
            with client(url) as asking, asking.completions.create(model="m", prompt="q", stream=True) as stream:
                for chunk in stream:
                    answer.usage = used(chunk.usage) or answer.usage
                    for position, choice in enumerate(chunk.choices or ()):
                        index = getattr(choice, "index", None)
                        said = answer.choice(position if index is None else index)
                        said.text += choice.text or ""
                        said.finish = choice.finish_reason or said.finish
        except (openai.APIError, *UNREADABLE) as error:
            answer.end(ended(error), error)
        return answer
