"""The Mistral client on chat completions: its chunks, if its types accept the stream."""

from typing import Any

import httpx2
from mistralai.client import Mistral
from mistralai.client.errors import MistralError, ResponseValidationError
from mistralai.client.models import CompletionResponseStreamChoice, UsageInfo

from tests.differential.reading import Call, ErrorTypes, Output, Reading, TokenUsage

REQUEST: dict[str, Any] = {"model": "m", "messages": [{"role": "user", "content": "q"}]}
# What the client returns as the id of a call without one.
_NO_ID = "null"

# By default it also makes an asynchronous client, which loads all certificate authorities. This one opens no connection.
_UNUSED = httpx2.AsyncClient(trust_env=False, verify=False)


class Chunks:
    """The chunks as the client returns them. Usage has no details, reasoning is in Mistral's own parts only."""

    name = "mistralai chat.stream"
    dialect = "openai-chat"
    unsupported = frozenset({"refusal", "reasoning", "cached", "reasoning_tokens"})
    broken: ErrorTypes = (httpx2.TransportError,)
    reported: ErrorTypes = (MistralError,)
    unreadable: ErrorTypes = (ResponseValidationError,)

    def read(self, url: str, reading: Reading) -> None:
        calls: dict[tuple[int, int], Call] = {}
        with httpx2.Client(trust_env=False, verify=False) as http_client:
            client = Mistral(api_key="test", server_url=url, client=http_client, async_client=_UNUSED)
            with client.chat.stream(**REQUEST) as stream:
                for event in stream:
                    reading.usage = _usage_of(event.data.usage) or reading.usage
                    for choice in event.data.choices:
                        _add(reading.choice(choice.index), choice, calls)


def _add(output: Output, choice: CompletionResponseStreamChoice, calls: dict[tuple[int, int], Call]) -> None:
    output.finish = choice.finish_reason or output.finish
    content = choice.delta.content
    for part in content if isinstance(content, list) else ():
        if part.type == "text":
            output.text += part.text
        elif part.type == "thinking":
            output.reasoning += "".join(getattr(thought, "text", "") for thought in part.thinking)
    output.text += content if isinstance(content, str) else ""
    for call in choice.delta.tool_calls or ():
        key = choice.index, call.index or 0
        if call.id not in (None, _NO_ID) or key not in calls:
            calls[key] = Call(call.function.name)
            output.calls.append(calls[key])
        added = call.function.arguments
        calls[key].arguments = f"{calls[key].arguments}{added}" if isinstance(added, str) else added


def _usage_of(usage: UsageInfo | None) -> TokenUsage | None:
    return None if usage is None else TokenUsage(usage.prompt_tokens, usage.completion_tokens, usage.total_tokens)
