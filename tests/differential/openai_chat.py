"""The OpenAI client on chat completions: its accumulator (`chat.completions.stream`), and its single chunks."""

import contextlib
from typing import Any

import openai
from openai import OpenAI
from openai.types import CompletionUsage

from tests.differential.reading import Call, ErrorTypes, Output, Reading, TokenUsage

REQUEST: dict[str, Any] = {"model": "m", "messages": [{"role": "user", "content": "q"}]}


def make_client(url: str) -> OpenAI:
    """A client that sends to `url` only: without proxy, retries and certificate authorities."""
    http_client = openai.DefaultHttpxClient(trust_env=False, verify=False)
    return OpenAI(api_key="test", base_url=f"{url}/v1", max_retries=0, http_client=http_client)


class OpenAIOracle:
    """The errors of the OpenAI client."""

    broken: ErrorTypes = (openai.APIConnectionError,)
    reported: ErrorTypes = (openai.APIError,)
    unreadable: ErrorTypes = ()


def usage_of(usage: CompletionUsage | None) -> TokenUsage | None:
    """Usage from the fields of the client."""
    if usage is None:
        return None
    prompt, completion = usage.prompt_tokens_details, usage.completion_tokens_details
    return TokenUsage(
        input=usage.prompt_tokens,
        output=usage.completion_tokens,
        total=usage.total_tokens,
        cached=prompt.cached_tokens if prompt else None,
        reasoning_tokens=completion.reasoning_tokens if completion else None,
    )


def index_of(choice: Any, position: int) -> Any:
    """The index of a choice, or else its position."""
    index = getattr(choice, "index", None)
    return position if index is None else index


class Accumulated(OpenAIOracle):
    """The completion that the client accumulates. Reasoning is among the fields that it keeps without knowing them."""

    name = "openai chat.completions.stream"
    dialect = "openai-chat"
    unsupported = frozenset[str]()

    def read(self, url: str, reading: Reading) -> None:
        with make_client(url) as client, client.chat.completions.stream(**REQUEST) as stream:
            try:
                stream.until_done()
            finally:
                with contextlib.suppress(AssertionError):  # there was no chunk
                    _read_completion(reading, stream.current_completion_snapshot)


def _read_completion(reading: Reading, completion: Any) -> None:
    for position, choice in enumerate(completion.choices):
        reading.choices[index_of(choice, position)] = _output_of(choice.message, choice.finish_reason)
    reading.usage = usage_of(completion.usage)


def _output_of(message: Any, finish: str | None) -> Output:
    more = message.model_extra or {}
    functions = [call.function for call in message.tool_calls or ()]
    if message.function_call:
        functions.append(message.function_call)
    return Output(
        text=message.content or "",
        reasoning=more.get("reasoning") or more.get("reasoning_content") or "",
        refusal=message.refusal or "",
        calls=[Call(function.name, function.arguments or "") for function in functions],
        finish=finish or None,
    )


class Chunks(OpenAIOracle):
    """The chunks as the client returns them, joined according to its types: text by choice, calls by index."""

    name = "openai chat.completions.create"
    dialect = "openai-chat"
    unsupported = frozenset[str]()

    def read(self, url: str, reading: Reading) -> None:
        calls: dict[Any, Call] = {}
        with make_client(url) as client, client.chat.completions.create(stream=True, **REQUEST) as stream:
            for chunk in stream:
                reading.usage = usage_of(chunk.usage) or reading.usage
                for position, choice in enumerate(chunk.choices or ()):
                    index = index_of(choice, position)
                    _add(reading.choice(index), choice, index, calls)


def _add(output: Output, choice: Any, index: int, calls: dict[Any, Call]) -> None:
    output.finish = choice.finish_reason or output.finish
    delta = choice.delta
    if delta is None:
        return
    more = delta.model_extra or {}
    output.text += delta.content or ""
    output.refusal += delta.refusal or ""
    output.reasoning += more.get("reasoning") or more.get("reasoning_content") or ""
    for call in delta.tool_calls or ():
        _add_call(output, calls, (index, call.index), call.function)
    if delta.function_call:
        _add_call(output, calls, (index, None), delta.function_call)


def _add_call(output: Output, calls: dict[Any, Call], key: object, function: Any) -> None:
    known = calls.get(key)
    if known is None:
        known = calls[key] = Call()
        output.calls.append(known)
    known.name = known.name or function.name
    known.arguments = f"{known.arguments}{function.arguments or ''}"
