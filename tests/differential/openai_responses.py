"""The OpenAI client on Responses: its accumulator (`responses.stream`), and its events as they come."""

from typing import Any

import openai

from tests.differential.answer import UNREADABLE, Answer, Call, Said, Used
from tests.differential.openai_chat import client, ended
from tests.vectors.load import Vector

ASKED: dict[str, Any] = {"model": "m", "input": "q"}
_REASONING = ("response.reasoning_text.delta", "response.reasoning_summary_text.delta")
_FAILURES = ("error", "response.failed", "response.cancelled")
_TERMINALS = ("response.completed", "response.incomplete", "response.failed", "response.cancelled")
# Fragments of what the model writes for a tool.
_ARGUMENTS = (
    "response.function_call_arguments.delta",
    "response.mcp_call_arguments.delta",
    "response.custom_tool_call_input.delta",
    "response.code_interpreter_call_code.delta",
    "response.shell_call_command.delta",
    "response.apply_patch_call_operation_diff.delta",
)
# Calls without a name.
_NAMELESS = ("code_interpreter_call", "shell_call", "apply_patch_call")


def used(usage: Any) -> Used | None:
    """The client's usage, by its own fields."""
    if usage is None:
        return None
    cached = usage.input_tokens_details and getattr(usage.input_tokens_details, "cached_tokens", None)
    reasoning = usage.output_tokens_details and getattr(usage.output_tokens_details, "reasoning_tokens", None)
    return Used(usage.input_tokens, usage.output_tokens, usage.total_tokens, cached, reasoning)


def _finish(response: Any) -> str | None:
    """Why it ended: the response's status, or what made it incomplete."""
    details = response.incomplete_details
    reason: str | None = details.reason if response.status == "incomplete" and details else response.status
    return reason


class Accumulated:
    """What the client has accumulated with each event (`snapshot`), and its final response."""

    name = "openai responses.stream"
    dialects = ("openai-responses",)
    blind = frozenset({"reasoning", "refusal"})

    def read(self, url: str, vector: Vector) -> Answer:
        answer, texts, calls = Answer(), dict[Any, str](), dict[int, Call]()
        try:
            with client(url) as asking, asking.responses.stream(**ASKED) as stream:
                for event in stream:
                    _snapshot(event, texts, calls)
                    _end(event, answer)
        except (openai.APIError, *UNREADABLE) as error:
            answer.end(ended(error), error)
        said = answer.choice(0)
        said.text, said.calls = "".join(texts.values()), list(calls.values())
        return answer


def _snapshot(event: Any, texts: dict[Any, str], calls: dict[int, Call]) -> None:
    match event.type:
        case "response.output_text.delta":
            texts[event.output_index, event.content_index] = event.snapshot
        case "response.function_call_arguments.delta":
            calls[event.output_index].arguments = event.snapshot
        case _:
            _add_call(event, calls)


def _add_call(event: Any, calls: dict[int, Call]) -> None:
    """A call begins with its item, or goes on with a fragment."""
    item = getattr(event, "item", None)
    if event.type == "response.output_item.added" and item is not None:
        if getattr(item, "name", None) or item.type in _NAMELESS:
            given = getattr(item, "arguments", None) or getattr(item, "input", None)
            calls[event.output_index] = Call(getattr(item, "name", None), given or "")
    elif event.type in _ARGUMENTS:
        call = calls.setdefault(event.output_index, Call())
        call.arguments = f"{call.arguments}{event.delta}"


def _end(event: Any, answer: Answer) -> None:
    if event.type in _TERMINALS:
        answer.choice(0).finish = _finish(event.response)
        answer.usage = used(event.response.usage)
    if event.type in _FAILURES:
        answer.ended = "error"


class Events:
    """The events as the client hands them out, put together by what its types say: calls by output index."""

    name = "openai responses.create"
    dialects = ("openai-responses",)
    blind = frozenset[str]()

    def read(self, url: str, vector: Vector) -> Answer:
        answer, calls = Answer(), dict[int, Call]()
        try:
            with client(url) as asking, asking.responses.create(stream=True, **ASKED) as stream:
                for event in stream:
                    _add(event, answer.choice(0), calls)
                    _end(event, answer)
        except (openai.APIError, *UNREADABLE) as error:
            answer.end(ended(error), error)
        answer.choice(0).calls = list(calls.values())
        return answer


def _add(event: Any, said: Said, calls: dict[int, Call]) -> None:
    match event.type:
        case "response.output_text.delta":
            said.text += event.delta
        case "response.refusal.delta":
            said.refusal += event.delta
        case kind if kind in _REASONING:
            said.reasoning += event.delta
        case _:
            _add_call(event, calls)
