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
        # One vector is of the other endpoint.
        asked: Any = (
            client.generate(model="m", prompt="q", stream=True)
            if url.endswith("/generate")
            else client.chat(model="m", messages=[{"role": "user", "content": "q"}], stream=True)
        )
        try:
            for part in asked:
                _add(part, reading, reading.choice(0))
        finally:
            client.close()


def _add(part: Any, reading: Reading, output: Output) -> None:
    message = getattr(part, "message", part)
    output.text += getattr(message, "content", None) or getattr(part, "response", None) or ""
    output.reasoning += message.thinking or ""
    for call in getattr(message, "tool_calls", None) or ():
        output.calls.append(Call(call.function.name, dict(call.function.arguments)))
    if part.done:
        output.finish = part.done_reason
        if part.prompt_eval_count is not None or part.eval_count is not None:
            reading.usage = TokenUsage(input=part.prompt_eval_count, output=part.eval_count)
