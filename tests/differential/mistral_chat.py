"""The Mistral client on chat completions: its chunks, for those of the streams that its types accept."""

from typing import Any

import httpx2
from mistralai.client import Mistral
from mistralai.client.errors import MistralError, ResponseValidationError
from mistralai.client.models import CompletionResponseStreamChoice, UsageInfo

from tests.differential.answer import UNREADABLE, Answer, Call, Ended, Said, Used
from tests.vectors.load import Vector

ASKED: dict[str, Any] = {"model": "m", "messages": [{"role": "user", "content": "q"}]}
# What stands for the id of a call that has none.
_NO_ID = "null"

# It makes an asynchronous client too, unasked, and with every certificate authority. This one opens no connection.
_UNUSED = httpx2.AsyncClient(trust_env=False, verify=False)


def _ended(error: Exception) -> Ended:
    if isinstance(error, httpx2.TransportError):
        return "broken"
    return (
        "error" if isinstance(error, MistralError) and not isinstance(error, ResponseValidationError) else "unreadable"
    )


class Chunks:
    """The chunks as the client hands them out. Usage has no details; of reasoning it knows Mistral's own parts alone."""

    name = "mistralai chat.stream"
    dialects = ("openai-chat",)
    blind = frozenset({"refusal", "reasoning", "cached", "reasoning_tokens"})

    def read(self, url: str, vector: Vector) -> Answer:
        answer, calls = Answer(), dict[tuple[int, int], Call]()
        with httpx2.Client(trust_env=False, verify=False) as world:
            try:
                asking = Mistral(api_key="test", server_url=url, client=world, async_client=_UNUSED)
                with asking.chat.stream(**ASKED) as stream:
                    for event in stream:
                        answer.usage = _used(event.data.usage) or answer.usage
                        for choice in event.data.choices:
                            _add(answer.choice(choice.index), choice, calls)
            except (MistralError, httpx2.TransportError, *UNREADABLE) as error:
                answer.end(_ended(error), error)
        return answer


def _add(said: Said, choice: CompletionResponseStreamChoice, calls: dict[tuple[int, int], Call]) -> None:
    said.finish = choice.finish_reason or said.finish
    content = choice.delta.content
    for part in content if isinstance(content, list) else ():
        if part.type == "text":
            said.text += part.text
        elif part.type == "thinking":
            said.reasoning += "".join(getattr(one, "text", "") for one in part.thinking)
    said.text += content if isinstance(content, str) else ""
    for call in choice.delta.tool_calls or ():
        key = choice.index, call.index or 0
        if call.id not in (None, _NO_ID) or key not in calls:
            calls[key] = Call(call.function.name)
            said.calls.append(calls[key])
        given = call.function.arguments
        calls[key].arguments = f"{calls[key].arguments}{given}" if isinstance(given, str) else given


def _used(usage: UsageInfo | None) -> Used | None:
    return None if usage is None else Used(usage.prompt_tokens, usage.completion_tokens, usage.total_tokens)
