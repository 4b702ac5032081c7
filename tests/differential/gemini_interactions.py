"""The Google client: the events of `interactions.create(stream=True)`, joined according to its types."""

from typing import Any

import msgspec
from google.genai._gaos.lib.compat_errors import (
    APIConnectionError,
    APIResponseValidationError,
    APIStatusError,
)

from tests.differential.gemini import BROKEN, make_client
from tests.differential.reading import Call, ErrorTypes, Output, Reading, TokenUsage

_RUNNING = ("queued", "in_progress")
_FAILURES = ("failed", "cancelled")


class Events:
    """The events as the client returns them, with steps by index. Its counts exclude thoughts and tool use."""

    name = "google-genai interactions.create"
    dialect = "gemini-interactions"
    unsupported = frozenset({"refusal"})
    broken: ErrorTypes = (APIConnectionError, *BROKEN)
    reported: ErrorTypes = (APIStatusError,)
    unreadable: ErrorTypes = (APIResponseValidationError,)

    def read(self, url: str, reading: Reading) -> None:
        calls: dict[int, Call] = {}
        try:
            with make_client(url) as client:
                for event in client.interactions.create(model="m", input="q", stream=True):
                    _add(event, reading, calls)
        finally:
            if reading.choices or calls:
                reading.choice(0).calls = list(calls.values())


def _add(event: Any, reading: Reading, calls: dict[int, Call]) -> None:
    match event.event_type:
        case "step.start" if getattr(event.step, "name", None):
            calls[event.index] = Call(event.step.name, _text(event.step.arguments))
        case "step.delta":
            _add_delta(event, reading.choice(0), calls)
        case "interaction.status_update":
            _add_status(reading, event.status, event.usage)
        case "interaction.completed":
            _add_status(reading, event.interaction.status, event.interaction.usage)
        case "error":
            reading.ended = "error"


def _add_status(reading: Reading, status: str, usage: Any) -> None:
    reading.usage = _usage_of(usage) or reading.usage
    if status in _RUNNING:
        return
    reading.choice(0).finish = status
    if status in _FAILURES:
        reading.ended = "error"


def _text(arguments: dict[str, Any]) -> str:
    """Arguments of a step's start, as text. Empty arguments mean that deltas follow."""
    return msgspec.json.encode(arguments).decode() if arguments else ""


def _add_delta(event: Any, output: Output, calls: dict[int, Call]) -> None:
    delta = event.delta
    match delta.type:
        case "text":
            output.text += delta.text
        case "thought_summary" if delta.content is not None:
            output.reasoning += getattr(delta.content, "text", None) or ""
        case "arguments_delta":
            call = calls.setdefault(event.index, Call())
            call.arguments = f"{call.arguments}{delta.arguments or ''}"


def _usage_of(usage: Any) -> TokenUsage | None:
    if usage is None:
        return None
    prompt, tools = usage.total_input_tokens, usage.total_tool_use_tokens
    answer, thoughts = usage.total_output_tokens, usage.total_thought_tokens
    return TokenUsage(
        input=None if prompt is None else prompt + (tools or 0),
        output=None if answer is None and thoughts is None else (answer or 0) + (thoughts or 0),
        total=usage.total_tokens,
        cached=usage.total_cached_tokens,
        reasoning_tokens=thoughts,
    )
