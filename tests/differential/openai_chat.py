"""The OpenAI client on chat completions: its accumulator (`chat.completions.stream`), and its chunks as they come."""

import contextlib
from typing import Any

import openai
from openai import OpenAI
from openai.types import CompletionUsage

from tests.differential.answer import UNREADABLE, Answer, Call, Ended, Said, Used
from tests.vectors.load import Vector

ASKED: dict[str, Any] = {"model": "m", "messages": [{"role": "user", "content": "q"}]}


def client(url: str) -> OpenAI:
    """A client whose world ends at `url`: no proxy, no second try, and no certificates to load."""
    world = openai.DefaultHttpxClient(trust_env=False, verify=False)
    return OpenAI(api_key="test", base_url=f"{url}/v1", max_retries=0, http_client=world)


def ended(error: Exception) -> Ended:
    """How the client says that a stream ended."""
    if isinstance(error, openai.APIConnectionError):
        return "broken"
    return "error" if isinstance(error, openai.APIError) else "unreadable"


def used(usage: CompletionUsage | None) -> Used | None:
    """The client's usage, by its own fields."""
    if usage is None:
        return None
    prompt, completion = usage.prompt_tokens_details, usage.completion_tokens_details
    return Used(
        input=usage.prompt_tokens,
        output=usage.completion_tokens,
        total=usage.total_tokens,
        cached=prompt.cached_tokens if prompt else None,
        reasoning_tokens=completion.reasoning_tokens if completion else None,
    )


class Accumulated:
    """The completion that the client accumulates. Reasoning is no field of its own: it keeps what it does not know."""

    name = "openai chat.completions.stream"
    dialects = ("openai-chat",)
    blind = frozenset[str]()

    def read(self, url: str, vector: Vector) -> Answer:
        answer = Answer()
        try:
            with client(url) as asking, asking.chat.completions.stream(**ASKED) as stream:
                try:
                    stream.until_done()
                finally:
                    with contextlib.suppress(AssertionError):  # there was no chunk
                        _take(answer, stream.current_completion_snapshot)
        except (openai.APIError, *UNREADABLE) as error:
            answer.end(ended(error), error)
        return answer


def _take(answer: Answer, completion: Any) -> None:
    for position, choice in enumerate(completion.choices):
        index = getattr(choice, "index", None)
        answer.choices[position if index is None else index] = _said(choice.message, choice.finish_reason)
    answer.usage = used(completion.usage)


def _said(message: Any, finish: str | None) -> Said:
    more = message.model_extra or {}
    made = [call.function for call in message.tool_calls or ()] + [message.function_call] * bool(message.function_call)
    return Said(
        text=message.content or "",
        reasoning=more.get("reasoning") or more.get("reasoning_content") or "",
        refusal=message.refusal or "",
        calls=[Call(function.name, function.arguments or "") for function in made],
        finish=finish or None,
    )


class Chunks:
    """The chunks as the client hands them out, put together by what its types say: text by choice, calls by index."""

    name = "openai chat.completions.create"
    dialects = ("openai-chat",)
    blind = frozenset[str]()

    def read(self, url: str, vector: Vector) -> Answer:
        answer, calls = Answer(), dict[Any, Call]()
        try:
            with client(url) as asking, asking.chat.completions.create(stream=True, **ASKED) as stream:
                for chunk in stream:
                    answer.usage = used(chunk.usage) or answer.usage
                    for position, choice in enumerate(chunk.choices or ()):
                        index = getattr(choice, "index", None)
                        index = position if index is None else index
                        _add(answer.choice(index), choice, index, calls)
        except (openai.APIError, *UNREADABLE) as error:
            answer.end(ended(error), error)
        return answer


def _add(said: Said, choice: Any, index: int, calls: dict[Any, Call]) -> None:
    said.finish = choice.finish_reason or said.finish
    delta = choice.delta
    if delta is None:
        return
    more = delta.model_extra or {}
    said.text += delta.content or ""
    said.refusal += delta.refusal or ""
    said.reasoning += more.get("reasoning") or more.get("reasoning_content") or ""
    for call in delta.tool_calls or ():
        _add_call(said, calls, (index, call.index), call.function)
    if delta.function_call:
        _add_call(said, calls, (index, None), delta.function_call)


def _add_call(said: Said, calls: dict[Any, Call], key: object, function: Any) -> None:
    known = calls.get(key)
    if known is None:
        known = calls[key] = Call()
        said.calls.append(known)
    known.name = known.name or function.name
    known.arguments = f"{known.arguments}{function.arguments or ''}"
