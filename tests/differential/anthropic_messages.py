"""The Anthropic client: the message that `messages.stream` accumulates."""

import contextlib
from typing import Any

import anthropic
import httpx2
from anthropic import Anthropic
from anthropic.lib.streaming import MessageStream

from tests.differential.reading import Call, ErrorTypes, Reading, TokenUsage

_CALLS = ("tool_use", "server_tool_use", "mcp_tool_use")


class Accumulated:
    """The accumulated message. Arguments are the fragments as sent, because the message has only their value."""

    name = "anthropic messages.stream"
    dialect = "anthropic-messages"
    unsupported = frozenset({"refusal", "total"})
    broken: ErrorTypes = (anthropic.APIConnectionError, httpx2.TransportError)
    reported: ErrorTypes = (anthropic.APIError,)
    unreadable: ErrorTypes = ()

    def read(self, url: str, reading: Reading) -> None:
        fragments: dict[int, str] = {}
        http_client = anthropic.DefaultHttpxClient(trust_env=False, verify=False)
        with (
            Anthropic(api_key="test", base_url=url, max_retries=0, http_client=http_client) as client,
            client.messages.stream(model="m", max_tokens=9, messages=[{"role": "user", "content": "q"}]) as stream,
        ):
            try:
                for event in stream:
                    if event.type == "content_block_delta" and event.delta.type == "input_json_delta":
                        fragments[event.index] = fragments.get(event.index, "") + event.delta.partial_json
            finally:
                _read_message(reading, stream, fragments)


def _read_message(reading: Reading, stream: MessageStream[Any], fragments: dict[int, str]) -> None:
    with contextlib.suppress(AssertionError):  # there was no message_start
        message = stream.current_message_snapshot
        output = reading.choice(0)
        output.finish = message.stop_reason
        for index, block in enumerate(message.content):
            output.text += getattr(block, "text", "") if block.type == "text" else ""
            output.reasoning += getattr(block, "thinking", "") if block.type == "thinking" else ""
            if block.type in _CALLS:
                arguments = fragments.get(index) or getattr(block, "input", {})
                output.calls.append(Call(getattr(block, "name", None), arguments))
        reading.usage = _usage_of(message.usage)


def _usage_of(usage: Any) -> TokenUsage | None:
    """The client's usage. By its docstring, all input is input_tokens plus what the cache wrote and read."""
    if usage is None:
        return None
    cache = (usage.cache_creation_input_tokens or 0) + (usage.cache_read_input_tokens or 0)
    details = getattr(usage, "output_tokens_details", None)
    all_input = None if usage.input_tokens is None else usage.input_tokens + cache
    thinking = details and details.thinking_tokens
    return TokenUsage(all_input, usage.output_tokens, None, usage.cache_read_input_tokens, thinking)
