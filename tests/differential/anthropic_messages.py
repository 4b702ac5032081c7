"""The Anthropic client: the message that `messages.stream` accumulates."""

import contextlib
from typing import Any

import anthropic
import httpx2
from anthropic import Anthropic
from anthropic.lib.streaming import MessageStream

from tests.differential.answer import UNREADABLE, Answer, Call, Ended, Used
from tests.vectors.load import Vector

ASKED: dict[str, Any] = {"model": "m", "max_tokens": 9, "messages": [{"role": "user", "content": "q"}]}
_CALLS = ("tool_use", "server_tool_use", "mcp_tool_use")


def _client(url: str) -> Anthropic:
    world = anthropic.DefaultHttpxClient(trust_env=False, verify=False)
    return Anthropic(api_key="test", base_url=url, max_retries=0, http_client=world)


def _ended(error: Exception) -> Ended:
    if isinstance(error, anthropic.APIConnectionError | httpx2.TransportError):
        return "broken"
    return "error" if isinstance(error, anthropic.APIError) else "unreadable"


class Accumulated:
    """The accumulated message; the fragments of arguments as they came, since the message holds their value alone."""

    name = "anthropic messages.stream"
    dialects = ("anthropic-messages",)
    blind = frozenset({"refusal", "total"})

    def read(self, url: str, vector: Vector) -> Answer:
        answer, fragments = Answer(), dict[int, str]()
        try:
            with _client(url) as asking, asking.messages.stream(**ASKED) as stream:
                try:
                    for event in stream:
                        if event.type == "content_block_delta" and event.delta.type == "input_json_delta":
                            fragments[event.index] = fragments.get(event.index, "") + event.delta.partial_json
                finally:
                    _take(answer, stream, fragments)
        except (anthropic.APIError, httpx2.TransportError, *UNREADABLE) as error:
            answer.end(_ended(error), error)
        return answer


def _take(answer: Answer, stream: MessageStream[Any], fragments: dict[int, str]) -> None:
    with contextlib.suppress(AssertionError):  # there was no message_start
        message = stream.current_message_snapshot
        said = answer.choice(0)
        said.finish = message.stop_reason
        for index, block in enumerate(message.content):
            said.text += getattr(block, "text", "") if block.type == "text" else ""
            said.reasoning += getattr(block, "thinking", "") if block.type == "thinking" else ""
            if block.type in _CALLS:
                said.calls.append(
                    Call(getattr(block, "name", None), fragments.get(index) or getattr(block, "input", {}))
                )
        answer.usage = _used(message.usage)


def _used(usage: Any) -> Used | None:
    """The client's usage. Its docstring: all input is input_tokens and what was written to and read from the cache."""
    if usage is None:
        return None
    cache = (usage.cache_creation_input_tokens or 0) + (usage.cache_read_input_tokens or 0)
    details = getattr(usage, "output_tokens_details", None)
    whole = None if usage.input_tokens is None else usage.input_tokens + cache
    thinking = details and details.thinking_tokens
    return Used(whole, usage.output_tokens, None, usage.cache_read_input_tokens, thinking)
