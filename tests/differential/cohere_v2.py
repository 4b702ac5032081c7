"""The Cohere client: the events of `ClientV2.chat_stream`, put together by what its types say."""

from concurrent.futures import ThreadPoolExecutor
from typing import Any

import cohere
import httpx
from cohere.core.api_error import ApiError

from tests.differential.answer import UNREADABLE, Answer, Call, Ended, Said, Used
from tests.vectors.load import Vector

ASKED: dict[str, Any] = {"model": "m", "messages": [{"role": "user", "content": "q"}]}
# The reasons that tell of a failure (ChatFinishReason).
_FAILURES = ("ERROR", "TIMEOUT")


def _ended(error: Exception) -> Ended:
    if isinstance(error, httpx.TransportError):
        return "broken"
    return "error" if isinstance(error, ApiError) else "unreadable"


class Events:
    """The events as the client hands them out. One choice; no total; reasoning is not counted apart."""

    name = "cohere chat_stream"
    dialects = ("cohere-v2",)
    blind = frozenset({"refusal", "total", "reasoning_tokens"})

    def read(self, url: str, vector: Vector) -> Answer:
        answer, calls = Answer(), dict[int, Call]()
        with httpx.Client(trust_env=False, verify=False) as world, ThreadPoolExecutor(1) as pool:
            asking = cohere.ClientV2(
                "test",
                base_url=url,
                httpx_client=world,
                max_retries=0,
                thread_pool_executor=pool,
                log_warning_experimental_features=False,
            )
            try:
                for event in asking.chat_stream(**ASKED):
                    _add(event, answer, answer.choice(0), calls)
            except (ApiError, httpx.TransportError, *UNREADABLE) as error:
                answer.end(_ended(error), error)
        answer.choice(0).calls = list(calls.values())
        return answer


def _add(event: Any, answer: Answer, said: Said, calls: dict[int, Call]) -> None:
    message = getattr(getattr(event, "delta", None), "message", None)
    match event.type:
        case "content-start" | "content-delta" if message and message.content:
            said.text += message.content.text or ""
            said.reasoning += message.content.thinking or ""
        case "tool-plan-delta" if message:
            said.reasoning += message.tool_plan or ""
        case "tool-call-start" if message:
            function = message.tool_calls.function
            calls[event.index] = Call(function.name, function.arguments or "")
        case "tool-call-delta" if message:
            call = calls.setdefault(event.index, Call())
            call.arguments = f"{call.arguments}{message.tool_calls.function.arguments or ''}"
        case "message-end":
            said.finish = event.delta.finish_reason
            answer.usage = _used(event.delta.usage)
            if event.delta.error or said.finish in _FAILURES:
                answer.ended = "error"


def _used(usage: Any) -> Used | None:
    """Of its two counts that of the tokens; that of the billed units where it stands alone."""
    if usage is None:
        return None
    counted = usage.tokens or usage.billed_units
    return Used(
        input=_whole(counted and counted.input_tokens),
        output=_whole(counted and counted.output_tokens),
        cached=_whole(usage.cached_tokens),
    )


def _whole(number: float | None) -> int | None:
    """The client reads every count as a float."""
    return None if number is None else int(number)
