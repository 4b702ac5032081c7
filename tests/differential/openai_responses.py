"""The OpenAI client on Responses: its accumulator (`responses.stream`), and its single events."""

from typing import Any

from tests.differential.openai_chat import OpenAIOracle, make_client
from tests.differential.reading import Call, Output, Reading, TokenUsage

REQUEST: dict[str, Any] = {"model": "m", "input": "q"}
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


def usage_of(usage: Any) -> TokenUsage | None:
    """Usage from the fields of the client."""
    if usage is None:
        return None
    cached = usage.input_tokens_details and getattr(usage.input_tokens_details, "cached_tokens", None)
    reasoning = usage.output_tokens_details and getattr(usage.output_tokens_details, "reasoning_tokens", None)
    return TokenUsage(usage.input_tokens, usage.output_tokens, usage.total_tokens, cached, reasoning)


def _finish(response: Any) -> str | None:
    """The finish reason: the status of the response, or why it is incomplete."""
    details = response.incomplete_details
    reason: str | None = details.reason if response.status == "incomplete" and details else response.status
    return reason


class Accumulated(OpenAIOracle):
    """The text that the client accumulates (`snapshot` of each event), and its final response."""

    name = "openai responses.stream"
    dialect = "openai-responses"
    unsupported = frozenset({"reasoning", "refusal"})

    def read(self, url: str, reading: Reading) -> None:
        output, texts, calls = reading.choice(0), dict[Any, str](), dict[int, Call]()
        try:
            with make_client(url) as client, client.responses.stream(**REQUEST) as stream:
                for event in stream:
                    _read_snapshot(event, texts, calls)
                    _add_end(event, reading)
        finally:
            output.text, output.calls = "".join(texts.values()), list(calls.values())


def _read_snapshot(event: Any, texts: dict[Any, str], calls: dict[int, Call]) -> None:
    match event.type:
        case "response.output_text.delta":
            texts[event.output_index, event.content_index] = event.snapshot
        case "response.function_call_arguments.delta":
            calls[event.output_index].arguments = event.snapshot
        case _:
            _add_call(event, calls)


def _add_call(event: Any, calls: dict[int, Call]) -> None:
    """Begins a call with its item, or continues it with a fragment."""
    item = getattr(event, "item", None)
    if event.type == "response.output_item.added" and item is not None:
        if getattr(item, "name", None) or item.type in _NAMELESS:
            arguments = getattr(item, "arguments", None) or getattr(item, "input", None)
            calls[event.output_index] = Call(getattr(item, "name", None), arguments or "")
    elif event.type in _ARGUMENTS:
        call = calls.setdefault(event.output_index, Call())
        call.arguments = f"{call.arguments}{event.delta}"


def _add_end(event: Any, reading: Reading) -> None:
    if event.type in _TERMINALS:
        reading.choice(0).finish = _finish(event.response)
        reading.usage = usage_of(event.response.usage)
    if event.type in _FAILURES:
        reading.ended = "error"


class Events(OpenAIOracle):
    """The events as the client returns them, joined according to its types: calls by output index."""

    name = "openai responses.create"
    dialect = "openai-responses"
    unsupported = frozenset[str]()

    def read(self, url: str, reading: Reading) -> None:
        output, calls = reading.choice(0), dict[int, Call]()
        try:
            with make_client(url) as client, client.responses.create(stream=True, **REQUEST) as stream:
                for event in stream:
                    _add(event, output, calls)
                    _add_end(event, reading)
        finally:
            output.calls = list(calls.values())


def _add(event: Any, output: Output, calls: dict[int, Call]) -> None:
    match event.type:
        case "response.output_text.delta":
            output.text += event.delta
        case "response.refusal.delta":
            output.refusal += event.delta
        case kind if kind in _REASONING:
            output.reasoning += event.delta
        case _:
            _add_call(event, calls)
