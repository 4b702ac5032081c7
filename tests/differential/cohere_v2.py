"""The Cohere client: the events of `ClientV2.chat_stream`, joined according to its types."""

from concurrent.futures import ThreadPoolExecutor
from typing import Any

import cohere
import httpx
from cohere.core.api_error import ApiError

from tests.differential.reading import Call, ErrorTypes, Output, Reading, TokenUsage

REQUEST: dict[str, Any] = {"model": "m", "messages": [{"role": "user", "content": "q"}]}
# The finish reasons of a failure (ChatFinishReason).
_FAILURES = ("ERROR", "TIMEOUT")


class Events:
    """The events as the client returns them. There is one choice, no total and no count of reasoning tokens."""

    name = "cohere chat_stream"
    dialect = "cohere-v2"
    unsupported = frozenset({"refusal", "total", "reasoning_tokens"})
    broken: ErrorTypes = (httpx.TransportError,)
    reported: ErrorTypes = (ApiError,)
    unreadable: ErrorTypes = ()

    def read(self, url: str, reading: Reading) -> None:
        output, calls = reading.choice(0), dict[int, Call]()
        with httpx.Client(trust_env=False, verify=False) as http_client, ThreadPoolExecutor(1) as pool:
            client = cohere.ClientV2(
                "test",
                base_url=url,
                httpx_client=http_client,
                max_retries=0,
                thread_pool_executor=pool,
                log_warning_experimental_features=False,
            )
            try:
                for event in client.chat_stream(**REQUEST):
                    _add(event, reading, output, calls)
            finally:
                output.calls = list(calls.values())


def _add(event: Any, reading: Reading, output: Output, calls: dict[int, Call]) -> None:
    message = getattr(getattr(event, "delta", None), "message", None)
    match event.type:
        case "content-start" | "content-delta" if message and message.content:
            output.text += message.content.text or ""
            output.reasoning += message.content.thinking or ""
        case "tool-plan-delta" if message:
            output.reasoning += message.tool_plan or ""
        case "tool-call-start" if message:
            function = message.tool_calls.function
            calls[event.index] = Call(function.name, function.arguments or "")
        case "tool-call-delta" if message:
            call = calls.setdefault(event.index, Call())
            call.arguments = f"{call.arguments}{message.tool_calls.function.arguments or ''}"
        case "message-end":
            output.finish = event.delta.finish_reason
            reading.usage = _usage_of(event.delta.usage)
            if event.delta.error or output.finish in _FAILURES:
                reading.ended = "error"


def _usage_of(usage: Any) -> TokenUsage | None:
    """Usage from `tokens`, or from `billed_units` if there is no other count."""
    if usage is None:
        return None
    counts = usage.tokens or usage.billed_units
    return TokenUsage(
        input=_integer(counts and counts.input_tokens),
        output=_integer(counts and counts.output_tokens),
        cached=_integer(usage.cached_tokens),
    )


def _integer(number: float | None) -> int | None:
    """The client returns every count as a float."""
    return None if number is None else int(number)
