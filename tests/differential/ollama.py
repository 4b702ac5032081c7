"""The Ollama client: the lines of `Client.chat` and `Client.generate`, joined according to its types."""

from typing import Any

import httpx
import ollama

from tests.differential.reading import Call, ErrorTypes, Output, Reading, TokenUsage


class Lines:
    """The lines as the client returns them. There is one choice; the client adds up no total."""

    name = "ollama chat"
    dialect = "ollama"
    unsupported = frozenset({"refusal", "total", "cached", "reasoning_tokens"})
    broken: ErrorTypes = (httpx.TransportError,)
    reported: ErrorTypes = (ollama.ResponseError,)
    unreadable: ErrorTypes = ()

    def read(self, url: str, reading: Reading) -> None:
        client = ollama.Client(host=url, trust_env=False)
        try:
            for part in client.chat(model="m", messages=[{"role": "user", "content": "q"}], stream=True):
                _add(part, reading, reading.choice(0))
        finally:
            client.close()


def _add(part: Any, reading: Reading, output: Output) -> None:
    message = part.message
    output.text += message.content or ""
    output.reasoning += message.thinking or ""
    for call in message.tool_calls or ():
        output.calls.append(Call(call.function.name, dict(call.function.arguments)))
    if part.done:
        output.finish = part.done_reason
        if part.prompt_eval_count is not None or part.eval_count is not None:
            reading.usage = TokenUsage(input=part.prompt_eval_count, output=part.eval_count)
